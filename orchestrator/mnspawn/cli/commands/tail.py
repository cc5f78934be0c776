"""`mnspawn tail`: follows a run, or any files on hosts, from their last lines."""

import time
from typing import Annotated

import typer

from mnspawn.cli.runs import REACH, SHOW, application, takes_settings
from mnspawn.cli.wording.time import parse_when
from mnspawn.errors import UsageError
from mnspawn.settings.table import Settings

from .logs import ErrOption, LinesOption, OnlyHostsOption, OutOption, SinceOption, show_logs, streams_of

SUMMARY = "Follow a run, or any files on hosts: show the last 20 lines, and new ones."
EPILOG = (
    "`mnspawn tail RUN` is `mnspawn logs RUN -f -n 20`. `mnspawn tail 'gpu[01-16]:/var/log/*.log'` follows files"
    " through rotation and truncation; new files that match are followed, too. A relative PATTERN starts in the user's"
    " home, and ** matches folders at any depth. Ctrl-C ends only the command."
)
LINES = 20
WhatArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN|HOSTS:PATTERN",
        help="A run's id, the beginning of its id, or its name; or files on hosts.",
        show_default=False,
    ),
]


@takes_settings("ranks", *SHOW, *REACH)
def tail(
    settings: Settings,
    what: WhatArgument,
    lines: LinesOption = LINES,
    since: SinceOption = None,
    only_hosts: OnlyHostsOption = None,
    stdout: OutOption = False,
    stderr: ErrOption = False,
) -> int:
    """Follow a run, or any files on hosts."""
    if any(":" in word for word in what):
        from mnspawn.cli.tail_files import follow_files

        runs_only = {
            "--since": since,
            "--only-hosts": only_hosts,
            "--ranks": settings.ranks,
            "--stdout": stdout or None,
            "--stderr": stderr or None,
        }
        for option, value in runs_only.items():
            if value is not None and (option != "--ranks" or settings.origin("ranks").layer == "argument"):
                raise UsageError("expected a run with it, found files", place=option)
        return follow_files(settings, what, lines)
    if len(what) > 1:
        raise UsageError(f"expected one run, found {len(what)} words", place="RUN", hint="files are HOSTS:PATTERN")
    start = None if since is None else parse_when(since, "--since", time.time())
    return show_logs(settings, what[0], True, lines, start, only_hosts, streams_of(stdout, stderr))


app = application("tail", SUMMARY, tail, EPILOG)
