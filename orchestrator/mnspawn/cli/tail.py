"""`mnspawn tail RUN`: the last lines of a run, and what comes."""

import time

from mnspawn.cli.logs import BOTH, LinesOption, OnlyHostsOption, SinceOption, show_logs
from mnspawn.cli.runs import REACH, SHOW, RunArgument, application, takes_settings
from mnspawn.cli.when import parse_when
from mnspawn.settings import Settings

SUMMARY = "Follow a run: the last 20 lines of each rank, and what comes (logs -f -n 20)."
LINES = 20


@takes_settings("ranks", *SHOW, *REACH)
def tail(
    settings: Settings,
    run: RunArgument,
    lines: LinesOption = LINES,
    since: SinceOption = None,
    only_hosts: OnlyHostsOption = None,
) -> int:
    """Follow a run."""
    start = None if since is None else parse_when(since, "--since", time.time())
    return show_logs(settings, run, True, lines, start, only_hosts, BOTH)


app = application("tail", SUMMARY, tail)
