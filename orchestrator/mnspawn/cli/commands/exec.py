"""`mnspawn exec`: runs one command once per host, and shows equal output once or all output as it comes."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from mnspawn.api import fleet
from mnspawn.api.fleet import OnOutput, Outcome
from mnspawn.cli.reaching import SHARED, HostsArgument, chosen_hosts, place_of, takes_settings
from mnspawn.cli.render import print_error, print_ours
from mnspawn.cli.wording.run import counted, fold_hosts, message_lines
from mnspawn.errors import ExitStatus, HostError, HostsUnusable, UsageError
from mnspawn.output.lines import LineAssembler
from mnspawn.output.surface import Surface, is_same_file
from mnspawn.output.writer import ThreadedWriter, wait_written
from mnspawn.settings.table import Settings

BACKLOG = 4 << 20  # bytes that nobody has read yet; beyond, hosts have to wait
RULE = "-" * 15  # as clush and dshbak have it
NO_COMMAND = "expected -- and a command after the hosts"

HELP = """Run the same command once on every host.

The command's words are passed unchanged; for pipes, start a shell: mnspawn exec h1,h2 -- sh -c 'ls | wc -l'

Equal output of many hosts is shown once. Ctrl-C stops the command on all hosts; a second one leaves it running.

The exit status is the worst one: the largest, where a host that could not be reached counts as 3, one whose \
connection was lost as 5, one that took longer than --timeout as 124.
"""


class ExecCommand(TyperCommand):
    """Takes the words after the first `--` as the command, whatever they look like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, words = args, None
        if "--" in args:
            place = args.index("--")
            own, words = args[:place], args[place + 1 :]
        ctx.meta["mnspawn.command"] = words
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- CMD..."]


def execute(
    settings: Settings,
    context: typer.Context,
    hosts_argument: HostsArgument = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Show every line as it comes, after its host's name.")
    ] = False,
    sequential: Annotated[bool, typer.Option("--sequential", help="Run on one host after the other.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Stop the command on a host after this time.")
    ] = None,
) -> int:
    """Run the same command once on every host."""
    words = context.meta["mnspawn.command"]
    if words is None:
        raise UsageError(NO_COMMAND, hint="mnspawn exec h1,h2 -- uptime")
    command = fleet.command_line(words)
    if timeout is not None and not 0 < timeout < float("inf"):
        raise UsageError(f"expected seconds, more than 0, found {timeout:g}", place="--timeout")
    hosts = chosen_hosts(settings)
    return asyncio.run(_perform(place_of(settings, hosts), command, stream, sequential, timeout))


async def _perform(place: fleet.Place, command: str, stream: bool, sequential: bool, timeout: float | None) -> int:
    output = _Output()
    shows_each = sequential and not stream

    async def show(outcome: Outcome) -> None:
        output.end_lines(outcome.index)
        if shows_each:
            output.show_folded([outcome])

    try:
        outcomes, number = await fleet.execute(
            place,
            command,
            timeout=timeout,
            is_sequential=sequential,
            on_output=output.takes if stream else None,
            on_end=show,
        )
        if not stream and not shows_each:
            output.show_folded(outcomes)
    finally:
        await output.aclose()
    _show_problems(outcomes, timeout)
    statuses = [_status(outcome) for outcome in outcomes if not outcome.is_stopped]
    return max(statuses, default=0) if number is None else 128 + number


# -- output


class _Output:
    """Writes the output of hosts, byte for byte, from its own thread: a stopped reader holds up nothing else."""

    def __init__(self) -> None:
        self._writer = ThreadedWriter("exec output")
        both = Surface(self._writer, is_terminal=False)
        self._surfaces = {1: both, 2: both if is_same_file(1, 2) else Surface(self._writer, is_terminal=False)}
        self._lines: dict[tuple[int, int], LineAssembler] = {}
        self._names: list[str] = []
        self._fallen = asyncio.Event()

    def takes(self, names: list[str]) -> OnOutput:
        """Return what shows output as it comes, each line after its host's name."""
        self._names = names
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._fallen.set)

        self._writer.bind(wake)
        return self._take

    async def _take(self, index: int, number: int, chunk: bytes) -> None:
        lines = self._lines.setdefault((index, number), LineAssembler())
        self._show(index, number, lines.feed(chunk))
        while self._writer.backlog > BACKLOG:
            self._fallen.clear()
            await self._fallen.wait()

    def _show(self, index: int, number: int, block: bytes) -> None:
        prefix = f"{self._names[index]}: ".encode("utf-8", "replace")
        self._surfaces[number].show(number, (index, number), block, prefix)

    def show_folded(self, outcomes: Sequence[Outcome]) -> None:
        """Write stdout below the names of its hosts, and stderr likewise on ours."""
        for number in (1, 2):
            groups: dict[bytes, list[str]] = {}
            for outcome in outcomes:
                if outcome.output[number]:
                    groups.setdefault(bytes(outcome.output[number]), []).append(outcome.host)
            for said, names in groups.items():
                count = f" ({len(names)})" if len(names) > 1 else ""
                head = f"{RULE}\n{fold_hosts(names)}{count}\n{RULE}\n".encode("utf-8", "replace")
                self._writer.put(number, head + said + (b"" if said.endswith(b"\n") else b"\n"))

    def end_lines(self, index: int) -> None:
        """Show the lines of a host that it did not end."""
        for number in (1, 2):
            if (lines := self._lines.pop((index, number), None)) is not None and (tail := lines.flush()):
                self._show(index, number, tail + b"\n")

    async def aclose(self) -> None:
        """Return when everything is written."""
        await wait_written(self._writer)


# -- the end


def _status(outcome: Outcome) -> int:
    if outcome.is_timed_out:
        return ExitStatus.TIMED_OUT
    if outcome.error is not None:
        return outcome.error.exit_status
    return outcome.status if outcome.status is not None else ExitStatus.HOST_LOST


def _show_problems(outcomes: Sequence[Outcome], timeout: float | None) -> None:
    errors = [outcome.error for outcome in outcomes if isinstance(outcome.error, HostError)]
    if errors:
        print_error(HostsUnusable(errors))
    groups: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.left_out:
            said = f"{outcome.left_out} bytes of output left out (--stream shows all)"
            groups.setdefault(said, []).append(outcome.host)
        if (problem := _problem(outcome, timeout)) is not None:
            groups.setdefault(problem, []).append(outcome.host)
    for problem, names in groups.items():
        count = f" ({counted(len(names), 'host')})" if len(names) > 1 else ""
        print_ours(message_lines(f"{fold_hosts(names)}{count}: {problem}"))


def _problem(outcome: Outcome, timeout: float | None) -> str | None:
    undead = "" if outcome.status is not None else ", and may still run: it did not end when told to"
    if outcome.is_timed_out:
        return f"took more than {timeout:g} s{undead}"
    if outcome.is_stopped:
        return f"stopped{undead}"
    if outcome.error is not None:
        return None if isinstance(outcome.error, HostError) else outcome.error.message
    return f"exit status {outcome.status}" if outcome.status else None


app = typer.Typer(name="exec", add_completion=False)
app.command("exec", cls=ExecCommand, help=HELP)(takes_settings(*SHARED)(execute))
