"""From settings to a run: what is asked of the engine, where output goes, what can't be used."""

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mnspawn.api import runs as api
from mnspawn.api.runs import Listener, RunRequest
from mnspawn.cli import app, main
from mnspawn.cli.commands.run import request_of
from mnspawn.cli.options import build
from mnspawn.errors import UsageError
from mnspawn.events import Notice, RunStarting, Stream, WorkerOutput
from mnspawn.plan.launch_plan import Program
from mnspawn.report import RunReport
from mnspawn.settings import table as settings
from mnspawn.settings.to_request import hosts_of, program_of


class Engine:
    """Stands in for api.run: keeps the request, tells the listeners some events."""

    def __init__(self) -> None:
        self.requests: list[RunRequest] = []
        self.status = 0

    async def run(self, request: RunRequest, listeners: Sequence[Listener] = ()) -> RunReport:
        self.requests.append(request)
        for event in (
            RunStarting(0.0, "r1", 1, {}),
            WorkerOutput(0.0, "a", 0, Stream.STDOUT, 0, b"out\n"),
            WorkerOutput(0.0, "a", 0, Stream.STDERR, 0, b"err\n"),
            Notice(0.0, "a", "by the way"),
        ):
            for listener in listeners:
                listener.on_event(event)
        return RunReport("r1", self.status, "a reason", 1.0, None, (), ())


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()
    monkeypatch.setattr(api, "run", engine.run)
    return engine


@pytest.fixture(autouse=True)
def nothing_said_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith(("MNSPAWN_", "SLURM_", "PBS_", "LSB_", "PADDLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MNSPAWN_SETTINGS", "")
    import logging

    level, handlers = logging.root.level, list(logging.root.handlers)
    yield
    logging.root.setLevel(level)
    logging.root.handlers[:] = handlers


def test_the_request_has_what_was_asked_for(engine: Engine) -> None:
    words = [
        "-H",
        "a,b:2",
        "--nproc-per-node=4",
        "-x",
        "A=1",
        "--env",
        "B=x=y",
        "--grace",
        "3",
        "-m",
        "pkg.mod",
        "--help",
        "--",
    ]
    assert main.main(words) == 0
    [request] = engine.requests
    assert [host.name for host in request.hosts] == ["a", "b"]
    assert request.program == Program("module", "pkg.mod", ("--help", "--"))
    assert (request.nproc, request.env, request.grace) == (4, (("A", "1"), ("B", "x=y")), 3.0)
    assert request.handle_signals


def test_every_setting_that_concerns_a_run_reaches_it() -> None:
    said = {"timeout": "5", "ssh_config": "f", "connect_timeout": "2", "host_key_check": "strict", "network": "ib0"}
    request = request_of(settings.resolve(said, {}), Program("script", "x.py"), ())
    assert (request.timeout, request.network) == (5.0, "ib0")
    assert (request.ssh.config, request.ssh.connect_timeout, request.ssh.host_key_check) == (Path("f"), 2.0, "strict")


def test_every_setting_is_an_option_and_the_other_way_round() -> None:
    options = {
        parameter.name: set(parameter.opts) for parameter in build().params if parameter.param_type_name == "option"
    }
    for option in settings.OPTIONS:
        assert options.pop(option.name) == set(option.flags)
    assert set(options) == {"version"}


def test_output_and_ours_go_where_they_belong(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--hosts", "a", "x.py"]) == 0
    assert capfd.readouterr() == ("[a:0] out\n", "[a:0] err\nmnspawn: a: by the way\n")


def test_the_runs_status_is_ours_and_the_reason_is_told(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    engine.status = 137
    assert main.main(["--hosts", "a", "--output", "none", "x.py"]) == 137
    assert capfd.readouterr().err == "mnspawn: a: by the way\nmnspawn: a reason\n"


def test_events_on_stdout_have_it_for_themselves(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--hosts", "a", "--events", "-", "x.py"]) == 0
    out, err = capfd.readouterr()
    assert [json.loads(line)["event"] for line in out.splitlines()] == [
        "run_starting",
        "trainer_output",
        "trainer_output",
        "notice",
    ]
    assert err == "[a:0] out\n[a:0] err\nmnspawn: a: by the way\n"


def test_events_in_a_file(engine: Engine, tmp_path: Path) -> None:
    assert main.main(["--hosts", "a", "--events", str(tmp_path / "e"), "--output=none", "x.py"]) == 0
    assert len((tmp_path / "e").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("options", "kind"), [({}, "script"), ({"module": True}, "module"), ({"no_python": True}, "command")]
)
def test_what_the_first_word_is(options: dict[str, Any], kind: str) -> None:
    assert program_of(settings.resolve(options, {}), ["x", "-y"]) == Program(kind, "x", ("-y",))  # type: ignore[arg-type]


def test_json_needs_a_dry_run(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--hosts", "a", "--json", "x.py"]) == 2
    assert capfd.readouterr().err.startswith("mnspawn: --json: expected --dry-run with it\n")


def test_a_command_without_its_words_shows_its_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.main(["inventory"]) == 2
    out, err = capfd.readouterr()
    assert "Usage: mnspawn inventory" in out
    assert err == ""


@pytest.mark.parametrize("words", [[], [""]])
def test_no_script_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(UsageError, match="expected a script"):
        program_of(settings.resolve({}, {}), words)


def test_no_hosts_is_an_error_and_never_a_local_run() -> None:
    with pytest.raises(UsageError, match="expected hosts to run on, found none") as caught:
        hosts_of(settings.resolve({}, {}), {})
    assert "--sandbox" in (caught.value.hint or "")


def test_a_bad_host_list_is_told_with_the_place_it_came_from() -> None:
    with pytest.raises(UsageError, match=r"^--hosts"):
        hosts_of(settings.resolve({"hosts": "a:0"}, {}), {})
    environ = {"MNSPAWN_HOSTS": "a:0"}
    with pytest.raises(UsageError, match=r"^MNSPAWN_HOSTS"):
        hosts_of(settings.resolve({}, environ), environ)


def test_options_before_a_commands_name_move_behind_its_last_name() -> None:
    import typer

    tree, below = typer.Typer(), typer.Typer()

    @below.command()
    def check(ssh_config: str = "", verbose: bool = False) -> None: ...

    @below.command()
    def other(colour: str = "") -> None: ...

    @tree.callback()
    def top() -> None: ...

    tree.add_typer(below, name="sub")
    command = typer.main.get_command(tree)
    assert app.arrange(command, ["--ssh-config=f"], ["sub", "check", "-x"]) == ["sub", "check", "--ssh-config=f", "-x"]
    assert app.arrange(command, [], ["sub", "--ssh-config", "f", "check"]) == ["sub", "check", "--ssh-config=f"]
    assert app.arrange(command, ["-v"], ["sub", "--colour", "red", "other"]) == ["sub", "other", "-v", "--colour=red"]
    assert app.arrange(command, ["--help"], ["sub"]) == ["sub", "--help"]


def test_closing_waits_for_all_output(engine: Engine) -> None:
    closed = []

    class Slow:
        backlog = 0

        def bind(self, wake: object) -> None: ...

        def on_event(self, event: object) -> None: ...

        async def aclose(self) -> None:
            await asyncio.sleep(0)
            closed.append(self)

    from mnspawn.cli.console import closing

    async def fail() -> None:
        raise UsageError("no")

    with pytest.raises(UsageError):
        asyncio.run(closing(fail(), [Slow(), Slow()]))
    assert len(closed) == 2
