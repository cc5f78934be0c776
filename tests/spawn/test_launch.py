"""Scripts, modules and commands run from Python."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import mnspawn
from tests.spawn.conftest import Place
from tests.support import wait_until_async


@pytest.mark.essential
def test_a_script_runs_on_every_host(place: Place) -> None:
    (place.folder / "train.py").write_text("import os, sys\nprint(sys.argv[1:], os.environ['RANK'], os.environ['X'])\n")
    program = """
report = mnspawn.launch(["train.py", "--lr", "0.1"], hosts=HOSTS, nproc_per_node=NPROCS, env={"X": "y"}, output="plain")
print(report.exit_status, len(report.ranks), [rank.code for rank in report.ranks])
"""
    said = place.check(program).splitlines()
    assert sorted(said[:2]) == ["['--lr', '0.1'] 0 y", "['--lr', '0.1'] 1 y"]
    assert said[2] == "0 2 [0, 0]"


def test_a_failure_is_in_the_report(place: Place) -> None:
    program = """
command = "test $RANK = 1 && exit 7; sleep 1000"
report = mnspawn.launch(["sh", "-c", command], hosts=HOSTS, nproc_per_node=NPROCS, no_python=True)
print(report.exit_status, report.first_failure.rank, report.first_failure.code, report.ranks[0].stopped)
"""
    assert place.check(program) == "7 1 7 True\n"


def test_what_can_not_be_used_is_told_before_anything_runs(own_home: Path) -> None:
    with pytest.raises(mnspawn.UsageError, match="nproc"):
        mnspawn.launch("x.py", nproc_per_node=0)
    for narrowed in ({"include": "a"}, {"sandbox": 2, "exclude": "a"}):
        with pytest.raises(ValueError, match="expected hosts to choose from, found none"):
            mnspawn.launch("x.py", **narrowed)
    with pytest.raises(mnspawn.UsageError, match="'dry_run'"):
        mnspawn.launch("x.py", dry_run=True)
    with pytest.raises(mnspawn.UsageError, match="expected a script"):
        mnspawn.launch([])
    with pytest.raises(mnspawn.UsageError, match=r"no file 'none\.py'"):
        mnspawn.launch("none.py", nproc_per_node=1)
    argv: Any
    for argv in (5, b"x.py", None, ["x.py", 5], ["x.py", b"--lr"]):
        with pytest.raises(TypeError, match=r"argv: expected a script, or a list of texts and paths, found") as caught:
            mnspawn.launch(argv)
        assert isinstance(caught.value, mnspawn.UsageError)


async def test_a_loop_runs_on_meanwhile(own_home: Path) -> None:
    reports = await asyncio.gather(
        *(mnspawn.alaunch(["sh", "-c", f"exit {n}"], no_python=True, nproc_per_node=1) for n in (0, 4))
    )
    assert [report.exit_status for report in reports] == [0, 4]


async def test_a_cancellation_stops_the_run(own_home: Path) -> None:
    started = own_home / "started"
    command = ["sh", "-c", f"touch {started}; sleep 1000"]
    launching = asyncio.create_task(mnspawn.alaunch(command, no_python=True, nproc_per_node=2))
    await wait_until_async(started.exists)
    launching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launching


def test_ctrl_c_stops_the_run_and_is_raised_again(place: Place) -> None:
    program = """
try:
    mnspawn.launch(["sh", "-c", "echo ready; sleep 1000"], no_python=True, nproc_per_node=NPROCS, hosts=HOSTS)
except KeyboardInterrupt:
    print("interrupted")
"""
    with place.start(program) as running:
        running.wait_for(lambda: running.stdout.count("ready") == 2)
        running.interrupt()
        assert running.wait().stdout.endswith("interrupted\n")


def test_a_variable_that_a_contract_replaces_is_warned_of_where_the_call_stands(place: Place) -> None:
    program = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    mnspawn.launch(["true"], hosts=HOSTS, nproc_per_node=1, no_python=True, env={"RANK": "7", "MINE": "x"})
    mnspawn.spawn(int, hosts=HOSTS, nprocs=1, env={"MASTER_PORT": "1"})
for one in caught:
    print(one.category.__name__, one.filename == __file__, str(one.message).partition(":")[0])
"""
    assert place.check(program).splitlines() == [
        "UserWarning True RANK from -x is overruled", "UserWarning True MASTER_PORT from -x is overruled",
    ]  # fmt: skip


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_functions_run_behind_a_prelude_that_reads_its_input_and_prints(place: Place, method: str) -> None:
    program = f"""
def seen():
    import os
    return os.environ["SEEN"], os.environ["RANK"]
prelude = "cat; echo from the prelude; export SEEN=yes"
given = dict(nprocs=NPROCS, hosts=HOSTS, start_method={method!r}, prelude=prelude, output="none")
print(mnspawn.spawn(seen, **given).results())
"""
    assert place.check(program).splitlines() == ["[('yes', '0'), ('yes', '1')]"]


def test_a_fork_of_the_caller_takes_no_prelude(place: Place) -> None:
    program = """
try:
    mnspawn.spawn(int, nprocs=1, start_method="fork", prelude="true")
except ValueError as error:
    print(error)
"""
    assert place.check(program).startswith("prelude: expected no prelude for start method fork")
