"""`mnspawn [run]`: from settings to a run, its console, and its exit status. Without typer, to start sooner."""

import asyncio
import difflib
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mnspawn.api import runs as api
from mnspawn.api.runs import Detached, Program, RunRequest
from mnspawn.cli import render
from mnspawn.cli.console import closing, listeners_of
from mnspawn.cli.table import COMMANDS
from mnspawn.cli.wording.run import fold_hosts, message_lines
from mnspawn.errors import ExitStatus, UsageError
from mnspawn.settings import to_request
from mnspawn.settings.table import Settings

if TYPE_CHECKING:
    from mnspawn_inventory import Host


def perform(settings: Settings, words: Sequence[str]) -> int:
    """Do what the settings say with the program that `words` are; give the exit status.

    Raises:
        UsageError: what was given can't be used.
        MnspawnError: no worker was started.
    """
    if settings.json and not settings.dry_run and settings.origin("json").layer == "argument":
        raise UsageError(
            "expected --dry-run with it", place="--json", hint="--events FILE writes a run's events as JSON"
        )
    render.choose_colours(settings.color)
    refuse_misspelt(settings, words)
    program = to_request.program_of(settings, words)
    hosts = to_request.hosts_of(settings, os.environ, on_note=render.print_note)
    request = request_of(settings, program, hosts)
    render.print_ours(line for note in outdone(settings, hosts) for line in message_lines(note))
    listeners = listeners_of(settings, settings.sandbox or len(hosts))
    if settings.dry_run:
        plan = asyncio.run(closing(api.plan(request, listeners), listeners))
        render.print_plan(plan.describe(reveal=settings.json), settings.json)
        return ExitStatus.OK
    outcome = asyncio.run(closing(api.run(request, listeners), listeners))
    if isinstance(outcome, Detached):
        return say_detached(outcome.run, settings.detach, outcome.unheard, settings.orphan_grace)
    render.print_summary(outcome)
    return outcome.exit_status


def refuse_misspelt(settings: Settings, words: Sequence[str]) -> None:
    """Tell who meant a command that no such command exists, before hosts are asked for.

    Raises:
        UsageError: the first word is no file here, and nearly the name of a command.
    """
    word = words[0] if words and not settings.module and not settings.no_python else ""
    near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.7) if word.isalpha() else []
    if near and not os.path.lexists(word):
        problem = f"expected a script or a command, found no file {word!r}"
        raise UsageError(problem, place="SCRIPT", hint=f"did you mean mnspawn {near[0]}?")


def outdone(settings: Settings, hosts: "Sequence[Host]") -> list[str]:
    """Return notes on options of the command line that the inventory overrides for some hosts."""
    notes = []
    for name in ("python", "workdir", "prelude"):
        given = getattr(settings, name)
        own = [host.name for host in hosts if getattr(host, name) not in (None, given)]
        if own and settings.origin(name).layer == "argument":
            notes.append(f"--{name} is not used on {fold_hosts(own)}: the inventory has a {name} of its own there")
    return notes


def say_detached(run: str, is_asked: bool, unheard: Sequence[str] = (), orphan_grace: float = 0.0) -> int:
    """Leave a keeper for a run that continues without us, and say how to return to it.

    Arguments:
        is_asked: by --detach; then the run's id is the command's result, on stdout.
        unheard: hosts whose agents have not acknowledged it.
        orphan_grace: seconds after which those stop their ranks, should they not have heard.
    """
    if is_asked:
        render.print_out(f"{run}\n")
    lines = [f"mnspawn: run {run} continues without us; mnspawn attach {run} returns to it, mnspawn stop {run} ends it"]
    if unheard:
        problem = (
            f"not confirmed: {fold_hosts(unheard)} may not know of it and then stops the run in {orphan_grace:g} s"
        )
        lines += message_lines(problem, f"mnspawn status {run} shows its state")
    if not api.look_after(run):
        lines += message_lines("nobody looks after it: a failing rank stops its own host only, until somebody attaches")
    render.print_ours(lines)
    return ExitStatus.OK


def request_of(settings: Settings, program: Program, hosts: "tuple[Host, ...]") -> RunRequest:
    """Return the request that the settings make, with what only commands have: signals, detaching, a record."""
    return replace(
        to_request.request_of(settings, program, hosts),
        handle_signals=True,
        is_detached=settings.detach,
        registry=api.registry().root,
    )
