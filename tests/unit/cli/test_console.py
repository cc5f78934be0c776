"""What the console is made of: colours, copies, readers that leave, and runs that are left."""

import asyncio
import os
from pathlib import Path

import pytest

from mnspawn.api import runs as api
from mnspawn.api.runs import Detached, RunRequest
from mnspawn.cli import main
from mnspawn.cli.commands.run import request_of, say_detached
from mnspawn.cli.console import keepers_of, look_of
from mnspawn.cli.runs import until_nobody_reads
from mnspawn.engine import keeper
from mnspawn.output.copies import LocalCopies
from mnspawn.plan.launch_plan import Program
from mnspawn.settings import table as settings


def resolved(**said: object) -> settings.Settings:
    return settings.resolve(said, {"MNSPAWN_SETTINGS": ""})


@pytest.mark.parametrize(
    ("color", "environ", "is_coloured", "keeps_colours"),
    [
        ("auto", {}, None, True),
        ("auto", {"NO_COLOR": "1"}, False, False),
        ("auto", {"NO_COLOR": ""}, None, True),
        ("auto", {"TERM": "dumb"}, False, True),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, True, True),
        ("never", {}, False, False),
    ],
)
def test_colours(color: str, environ: dict[str, str], is_coloured: bool | None, keeps_colours: bool) -> None:
    look = look_of(resolved(color=color), environ)
    assert (look.is_coloured, look.keeps_colours) == (is_coloured, keeps_colours)


def test_a_dry_run_makes_no_copies(tmp_path: Path) -> None:
    [copies] = keepers_of(resolved(log_dir=tmp_path / "x"))
    assert isinstance(copies, LocalCopies)
    assert keepers_of(resolved(log_dir=tmp_path / "y", dry_run=True)) == []
    assert not (tmp_path / "y").exists()


def test_what_is_asked_of_the_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    request = request_of(resolved(detach=True, name="deep", log_cap="1M"), Program("script", "x.py"), ())
    assert (request.is_detached, request.name, request.for_agents["log_cap"]) == (True, "deep", 1 << 20)
    assert request.registry == tmp_path / "mnspawn" / "known"


def test_a_detached_run_tells_its_id_and_leaves_somebody_with_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def run(request: RunRequest, listeners: object) -> Detached:
        return Detached("1a2b3c4d")

    kept: list[tuple[Path, str]] = []

    def start(root: Path, run: str) -> bool:
        kept.append((root, run))
        return True

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("MNSPAWN_SETTINGS", "")
    monkeypatch.setattr(api, "run", run)
    monkeypatch.setattr(keeper, "start", start)
    assert main.main(["--hosts", "a", "--detach", "x.py"]) == 0
    out, err = capfd.readouterr()
    assert out == "1a2b3c4d\n"
    assert err == (
        "mnspawn: run 1a2b3c4d continues without us; "
        "mnspawn attach 1a2b3c4d returns to it, mnspawn stop 1a2b3c4d ends it\n"
    )
    assert kept == [(tmp_path / "mnspawn" / "known", "1a2b3c4d")]


def test_a_run_that_nobody_looks_after_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(keeper, "start", lambda root, run: False)
    assert say_detached("1a2b3c4d", is_asked=False) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert "mnspawn: nobody looks after it: a failing rank stops its own host only" in err


def test_looking_ends_when_nobody_reads() -> None:
    reader, writer = os.pipe()

    async def look() -> int | None:
        asyncio.get_running_loop().call_later(0.01, os.close, reader)
        return await until_nobody_reads(asyncio.sleep(60, 1), writer)

    assert asyncio.run(look()) is None
    os.close(writer)


def test_looking_ends_when_what_it_shows_is_refused() -> None:
    reader, writer = os.pipe()
    answers = iter([False, True])
    assert asyncio.run(until_nobody_reads(asyncio.sleep(60, 1), writer, lambda: next(answers))) is None
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("place", ["pipe", "file"])
def test_looking_goes_on_while_somebody_reads(place: str, tmp_path: Path) -> None:
    reader, writer = (
        os.pipe() if place == "pipe" else (os.open("/", os.O_RDONLY), os.open(tmp_path / "f", os.O_WRONLY | os.O_CREAT))
    )
    assert asyncio.run(until_nobody_reads(asyncio.sleep(0.01, 7), writer)) == 7
    os.close(reader)
    os.close(writer)


def test_what_looking_raises_is_raised() -> None:
    reader, writer = os.pipe()

    async def fail() -> None:
        raise OSError("oops")

    with pytest.raises(OSError, match="oops"):
        asyncio.run(until_nobody_reads(fail(), writer))
    os.close(reader)
    os.close(writer)
