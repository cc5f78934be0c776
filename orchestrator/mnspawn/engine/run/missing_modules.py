"""Finds out whether a rank lacked a module that is beside the script here and was not sent. Reads file names only."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mnspawn.plan.launch_plan import LaunchPlan, Program
from mnspawn.report import RunReport

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)")
SCRIPT = 2  # where argv of a Python program has it: python -u SCRIPT


def with_hint(report: RunReport, program: Program, launch: LaunchPlan | None) -> RunReport:
    """Return the report, with a hint where what was not sent explains the first failure."""
    first = report.first_failure
    if first is None or launch is None or program.kind != "script":
        return report
    script = Path(program.target).absolute()
    module = missing_module(first.tail)
    sent = [pod for pod in launch.pods if pod.host == first.host and pod.argv[SCRIPT] != str(script)]
    found = find_module(script.resolve().parent, module) if module and sent else None
    if found is None:
        return report
    hint = (
        f"{found} stands beside {script.name} here, but only the script itself was sent to {first.host}:"
        f" have the folder {script.parent} there, too, at the same path;"
        " or name its place there by -x PYTHONPATH=FOLDER"
    )
    return replace(report, hint=hint)


def missing_module(tail: Sequence[str]) -> str | None:
    """Return the top-level name of the last module that was reported missing."""
    for line in reversed(tail):
        if match := _MISSING.match(line):
            return match[1]
    return None


def find_module(folder: Path, name: str) -> str | None:
    """Return what a script in this folder would import by a name: a file or a package."""
    for found in (folder / f"{name}.py", *sorted(folder.glob(f"{_literal(name)}.*.so"))):
        if found.is_file():
            return found.name
    package = folder / name
    return f"{name}/" if package.is_dir() and any(package.glob("*.py")) else None


def _literal(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)
