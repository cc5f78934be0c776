"""The files of `mnspawn tail HOSTS:PATTERN...`: which are meant, and how their lines look."""

import asyncio
import os
import re
from collections.abc import Sequence
from functools import partial

from mnspawn.api.files import Followed, Tail
from mnspawn.errors import ExitStatus, UsageError
from mnspawn.settings import to_request
from mnspawn.settings.table import Settings
from mnspawn_inventory import Host
from mnspawn_inventory.names import Endpoint
from mnspawn_inventory.select import with_unique_names

from .console import closing, console_of
from .runs import ViewWording, has_refused, until_nobody_reads
from .wording.run import visible

_NO_END = re.compile(r":[0-9]+[,:]|://")  # a colon before a port, or of ssh://
MODES = ("prefix", "plain", "json", "none")


def follow_files(settings: Settings, words: Sequence[str], lines: int | None) -> int:
    """Follow files until Ctrl-C or until nobody reads any more.

    Raises:
        UsageError: a word or an option can't be used.
        HostsUnusable: no host can be followed.
    """
    if settings.output not in MODES:
        raise UsageError(f"expected {', '.join(MODES)} for files, found {settings.output!r}", place="--output")
    followed = followed_of(settings, words)
    console = console_of(settings, ViewWording(len(followed), settings.verbose))
    has_one_each = all(
        len(one.patterns) == 1 and not any(sign in one.patterns[0] for sign in "*?[") for one in followed
    )

    def on_file(number: int, host: str, path: str) -> None:
        console.label(number, host if has_one_each else visible(f"{host}:{path}"), path)

    ssh = to_request.ssh_of(settings)

    async def follow() -> bool:
        await Tail(followed, lines, [console], on_file, transport=settings.transport, ssh=ssh).execute()
        return True

    is_refused = partial(has_refused, console, settings.output)
    has_left = asyncio.run(closing(until_nobody_reads(follow(), 1, is_refused), [console]))
    if is_refused():
        return ExitStatus.USAGE
    return ExitStatus.INTERRUPTED if has_left else ExitStatus.OK


def followed_of(settings: Settings, words: Sequence[str]) -> list[Followed]:
    """The files of each host.

    Raises:
        UsageError: a word names no files or no hosts.
    """
    patterns: dict[tuple[str, Endpoint], list[str]] = {}
    known: dict[tuple[str, Endpoint], Host] = {}
    for word in words:
        hosts, pattern = split(word)
        for host in to_request.hosts_of(settings.with_hosts(hosts), os.environ):
            key = host.name, host.endpoint
            known[key] = host
            patterns.setdefault(key, []).append(pattern)
    apart = with_unique_names(list(known.values()))
    return [Followed(host, tuple(dict.fromkeys(own))) for host, own in zip(apart, patterns.values(), strict=True)]


def split(word: str) -> tuple[str, str]:
    """HOSTS and PATTERN: what stands before and behind the first colon outside square brackets that has no port.

    Raises:
        UsageError: one of them is missing.
    """
    depth = 0
    for index, sign in enumerate(word):
        depth += (sign == "[") - (sign == "]")
        if sign == ":" and depth <= 0 and not _NO_END.match(word, index):
            hosts, pattern = word[:index], word[index + 1 :]
            if hosts and pattern:
                return hosts, pattern
            break
    raise UsageError(f"expected HOSTS:PATTERN, found {word!r}", place="PATTERN", hint="gpu[01-16]:/var/log/train.log")
