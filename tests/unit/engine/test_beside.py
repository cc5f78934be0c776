"""A module that stands beside the script here is named when a rank misses it, and only then."""

from dataclasses import replace
from pathlib import Path

import pytest

from mnspawn.engine.run.missing_modules import find_module, with_hint
from mnspawn.plan.launch_plan import HostContext, LaunchPlan, LaunchSpec, Program, build
from mnspawn.plan.layout import Site, assign
from mnspawn.report import RankOutcome, RunReport

MISSING = ("Traceback (most recent call last):", "    import helper", "ModuleNotFoundError: No module named 'helper'")


def report(*tail: str) -> RunReport:
    first = RankOutcome(0, 0, "h1", 7, 1, 0.1, ended_at=0.1, tail=tail)
    return RunReport("r", 1, "rank 0 failed", 0.1, first, (first,), ())


def launch(program: Program, on_host: str | None) -> LaunchPlan:
    layout = assign([Site("h1", "1.2.3.4", "", (1,))], 2, 3)
    return build(LaunchSpec("r", program), layout, [HostContext("python3", "/r", "/", script=on_host)])


@pytest.fixture
def script(tmp_path: Path) -> Program:
    (tmp_path / "helper.py").touch()
    return Program("script", str(tmp_path / "train.py"))


@pytest.mark.parametrize("line", ["'helper'", "'helper.part'", "'helper.part'; 'helper' is not a package"])
def test_a_module_that_did_not_travel_is_named(script: Program, line: str) -> None:
    said = report(*MISSING[:2], f"ModuleNotFoundError: No module named {line}", "more")
    hint = with_hint(said, script, launch(script, "/r/code/train.py")).hint
    folder = Path(script.target).parent
    assert hint == (
        "helper.py stands beside train.py here, but only the script itself was sent to h1: have the folder"
        f" {folder} there, too, at the same path; or name its place there by -x PYTHONPATH=FOLDER"
    )


def test_nothing_is_guessed(script: Program, tmp_path: Path) -> None:
    sent = launch(script, "/r/code/train.py")
    assert with_hint(report(*MISSING[:2], "ModuleNotFoundError: No module named 'torch'"), script, sent).hint is None
    assert with_hint(report("ValueError: helper"), script, sent).hint is None
    assert with_hint(report(*MISSING), script, launch(script, script.target)).hint is None  # it runs where it lies
    assert with_hint(report(*MISSING), script, None).hint is None
    assert with_hint(replace(report(*MISSING), first_failure=None), script, sent).hint is None
    module = Program("module", "train")
    assert with_hint(report(*MISSING), module, launch(module, None)).hint is None
    (tmp_path / "helper.py").unlink()
    assert with_hint(report(*MISSING), script, sent).hint is None


def test_modules_are_files_packages_and_extensions(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "part.py").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "fast.cpython-311-x86_64-linux-gnu.so").touch()
    assert [find_module(tmp_path, name) for name in ("package", "empty", "fast", "*", "other")] == [
        "package/", None, "fast.cpython-311-x86_64-linux-gnu.so", None, None,
    ]  # fmt: skip
