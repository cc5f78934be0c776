"""`mnspawn hosts`: checks hosts before a run, shows their settings, and accepts their keys."""

import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mnspawn.api import fleet
from mnspawn.api.runs import Program
from mnspawn.cli.reaching import SHARED, HostsArgument, JsonOption, Progress, chosen_hosts, place_of, takes_settings
from mnspawn.cli.render import print_error, print_json, print_lines, print_out
from mnspawn.cli.wording import hosts as hosts_words
from mnspawn.cli.wording.run import counted, fold_hosts, visible
from mnspawn.errors import ExitStatus, HostError, HostsUnusable, UsageError
from mnspawn.settings import to_request
from mnspawn.settings.table import Settings

if TYPE_CHECKING:
    from mnspawn.api.fleet import Examined, Offer

app = typer.Typer(
    name="hosts",
    help="Check hosts, show their settings, accept their keys.",
    no_args_is_help=True,
    add_completion=False,
)
WRONG = 1


# -- check


def check(
    settings: Settings,
    hosts_argument: HostsArgument = None,
    ignore: Annotated[
        str | None,
        typer.Option("--ignore", metavar="LIST", help=f"Ignore these findings: {', '.join(fleet.CHECKS)}."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Check all hosts at once: whether they can be reached and used, and reach each other.

    Every finding says what to do. The exit status is 1 if something is wrong; notes, in brackets, do not count.
    """
    ignored = _ignored(ignore)
    hosts = chosen_hosts(settings, else_all=True)
    place = place_of(settings, hosts)
    count = settings.sandbox or len(hosts)
    with Progress() as progress:
        progress.show(f"mnspawn: looking at {counted(count, 'host')}")

        def on_progress(done: int) -> None:
            what = "they try each other" if done == count else f"{done} done"
            progress.show(f"mnspawn: looking at {counted(count, 'host')}: {what}")

        ranks = to_request.request_of(settings, Program("command", "true"), hosts)
        looked = fleet.check(
            place, network=settings.network, port=settings.start_port, on_progress=on_progress, ranks=ranks
        )
        examined = _without(asyncio.run(looked), ignored)
    if as_json:
        print_json(hosts_words.document(examined))
    else:
        print_lines([*hosts_words.table(examined), "", *hosts_words.finding_lines(examined)])
    return WRONG if any(hosts_words.is_wrong(one) for one in examined) else ExitStatus.OK


def _ignored(text: str | None) -> set[str]:
    names = {name.strip() for name in text.split(",")} if text is not None else set()
    if unknown := sorted(names - set(fleet.CHECKS)):
        raise UsageError(f"expected some of {', '.join(fleet.CHECKS)}, found {unknown[0]!r}", place="--ignore")
    return names


def _without(examined: "Sequence[Examined]", ignored: set[str]) -> "list[Examined]":
    return [
        dataclasses.replace(one, findings=tuple(f for f in one.findings if f.check not in ignored)) for one in examined
    ]


# -- show


def show(settings: Settings, hosts_argument: HostsArgument = None, as_json: JsonOption = False) -> int:
    """Show every setting of hosts, and where it comes from. No host is contacted."""
    hosts = chosen_hosts(settings, else_all=True)
    if not hosts:
        raise UsageError("expected real hosts: those of a sandbox have no settings", place="--sandbox")
    origins = {
        option: place.place if (place := settings.origin(option)).layer != "default" else "default"
        for option in ("transport", "connect_timeout", "host_key_check")
    }
    shown = [
        (host.name, fleet.effective(host, to_request.ssh_of(settings), settings.transport, origins)) for host in hosts
    ]
    if as_json:
        found = [
            {
                "host": name,
                "values": [{"name": one.name, "value": one.value, "origin": one.origin} for one in values],
            }
            for name, values in shown
        ]
        print_json(found[0] if len(found) == 1 else {"hosts": found})
    else:
        blocks = ["".join(f"{line}\n" for line in hosts_words.effective_lines(values)) for _, values in shown]
        print_out("\n".join(blocks))
    return ExitStatus.OK


# -- trust


def trust(
    settings: Settings,
    hosts_argument: HostsArgument = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Also replace keys that have changed.")] = False,
) -> int:
    """Fetch the hosts' keys, show their fingerprints, and write them to known_hosts after a yes."""
    hosts = chosen_hosts(settings, else_all=True)
    if not hosts:
        raise UsageError("expected real hosts: those of a sandbox are trusted", place="--sandbox")
    with Progress() as progress:
        progress.show(f"mnspawn: asking {counted(len(hosts), 'host')} for their keys")
        answers = asyncio.run(fleet.fetch_keys(hosts, to_request.ssh_of(settings)))
    shown = [answer for answer in answers if not isinstance(answer, HostError)]
    errors = [answer for answer in answers if isinstance(answer, HostError)]
    print_lines(visible(line) for one in shown for line in _key_lines(one))
    refused = [] if replace else [one for one in shown if one.changed]
    errors += [fleet.changed(one) for one in refused]
    if errors:
        print_error(HostsUnusable(errors))
    writable = [one for one in shown if (one.new or one.changed) and one not in refused]
    if writable and not yes:
        _ask(writable)
    for one in writable:
        fleet.accept(one, replace=replace)
    for path in dict.fromkeys(one.path for one in writable):
        count = sum(len(one.new) + len(one.changed) for one in writable if one.path == path)
        print_out(visible(f"{counted(count, 'key')} written to {path}") + "\n")
    return ExitStatus.HOST_UNUSABLE if errors else ExitStatus.OK


def _key_lines(shown: "Offer") -> list[str]:
    lines = [f"{shown.host}: new {key.kind} {key.fingerprint}" for key in shown.new]
    lines += [f"{shown.host}: CHANGED {key.kind} {key.fingerprint}, {key.before}" for key in shown.changed]
    return lines or [f"{shown.host}: known, {counted(shown.known, 'key')}"]


def _ask(shown: "Sequence[Offer]") -> None:
    """Return after a yes.

    Raises:
        UsageError: it was a no, or there is nobody to ask.
    """
    count = sum(len(one.new) + len(one.changed) for one in shown)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        words = ["mnspawn hosts trust --yes", fold_hosts(one.pasted.address for one in shown), shown[0].pasted.options]
        command = " ".join(word for word in words if word)
        hint = f"compare the fingerprints with what the hosts' owners say, then: {command}"
        raise UsageError("expected a terminal to ask at, found none: nothing was written", hint=hint)
    paths = ", ".join(dict.fromkeys(str(one.path) for one in shown))
    sys.stderr.write(f"Write {counted(count, 'key')} of {counted(len(shown), 'host')} to {visible(paths)}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("the answer was no: nothing was written")


app.command("check")(takes_settings(*SHARED, "network", "start_port", "python", "workdir", "prelude", "env")(check))
app.command("show")(takes_settings(*SHARED)(show))
app.command("trust")(takes_settings(*SHARED)(trust))
