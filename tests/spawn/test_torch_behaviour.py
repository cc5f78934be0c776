"""What torch's own tests check of its spawn, here and across hosts, with both start methods."""

import re
from pathlib import Path

import pytest

import mnspawn.multiprocessing as mp
from tests.spawn.conftest import Place

pytestmark = pytest.mark.full

RAISES = """
def raise_in(i, which):
    if i == which:
        raise ValueError(f"legitimate exception from process {i}")
    time.sleep(1000)
"""


def test_two_processes_that_do_nothing_return_none(place: Place, start_method: str) -> None:
    program = f"""
def nothing(i):
    pass
print(mp.start_processes(nothing, nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r}))
"""
    assert place.check(program) == "None\n"


def test_joining_again_and_again_is_fine(place: Place, start_method: str) -> None:
    program = f"""
def nothing(i):
    pass
context = mp.start_processes(nothing, nprocs=NPROCS, hosts=HOSTS, join=False, start_method={start_method!r})
print([type(pid) for pid in context.pids()])
context.join(timeout=None)
context.join(timeout=None)
print(context.join(timeout=None), context.join(timeout=0), [p.exitcode for p in context.processes])
"""
    assert place.check(program) == "[<class 'int'>, <class 'int'>]\nTrue True [0, 0]\n"


def test_the_first_argument_is_the_rank_and_args_follow(place: Place, start_method: str) -> None:
    program = f"""
def say(i, a, b):
    print("<", i, a, b, os.environ["RANK"], os.environ["WORLD_SIZE"], ">")
mp.start_processes(say, ("x", [1]), nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r})
"""
    assert sorted(re.findall("<.*>", place.check(program))) == ["< 0 x [1] 0 2 >", "< 1 x [1] 1 2 >"]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.essential
def test_an_exception_in_one_process_ends_in_its_traceback(place: Place, start_method: str, which: int) -> None:
    program = f"""{RAISES}
try:
    mp.start_processes(raise_in, ({which},), nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r})
except mp.ProcessRaisedException as error:
    print(str(error))
    print("<", error.error_index, error.rank, error.local_rank, type(error.error_pid), ">")
"""
    began_local = which if place.hosts is None else 0
    said = place.check(program)
    assert said.startswith(f"\n\n-- Process {which} terminated with the following error:\nTraceback (most recent call")
    assert f"\nValueError: legitimate exception from process {which}\n" in said
    assert f"< {which} {which} {began_local} <class 'int'> >" in said


def test_exceptions_in_all_processes_end_in_one_of_them(place: Place, start_method: str) -> None:
    program = f"""
def raise_all(i):
    raise ValueError(f"legitimate exception from process {{i}}")
try:
    mp.start_processes(raise_all, nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r})
except Exception as error:
    print(str(error))
"""
    assert re.search(r"\nValueError: legitimate exception from process (0|1)\n$", place.check(program).rstrip() + "\n")


def test_a_signal_is_told_by_its_name(place: Place, start_method: str) -> None:
    program = f"""
def abort(i):
    if i == 0:
        os.kill(os.getpid(), signal.SIGABRT)
    time.sleep(1000)
try:
    mp.start_processes(abort, nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r})
except mp.ProcessExitedException as error:
    print(error, error.exit_code, error.signal_name)
"""
    assert place.check(program) == "process 0 terminated with signal SIGABRT -6 SIGABRT\n"


EXITS = """
import logging
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
def leave(i, seconds):
    if i == 0:
        sys.exit(123)
    time.sleep(seconds)
def join(seconds, **options):
    context = mp.start_processes(leave, (seconds,), nprocs=NPROCS, hosts=HOSTS, join=False, start_method={method!r})
    try:
        while not context.join(**options):
            pass
    except mp.ProcessExitedException as error:
        print(error, error.exit_code, [p.is_alive() for p in context.processes])
"""


def test_an_exit_code_stops_the_others_at_once(place: Place, start_method: str) -> None:
    said = place.check(EXITS.format(method=start_method) + "join(1000)\n")
    assert "process 0 terminated with exit code 123 123 [False, False]\n" in said
    assert re.search(r"WARNING Terminating process \d+ via signal", said)


def test_with_a_grace_period_the_others_may_end_by_themselves(place: Place, start_method: str) -> None:
    said = place.check(EXITS.format(method=start_method) + "join(1.0, grace_period=600)\n")
    assert said == "process 0 terminated with exit code 123 123 [False, False]\n"


def test_a_grace_period_ends(here: Place) -> None:
    said = here.check(EXITS.format(method="spawn") + "join(1000, grace_period=0.5)\n")
    assert "process 0 terminated with exit code 123 123 [False, False]\n" in said
    assert "WARNING Terminating process" in said


@pytest.mark.parametrize("grace", ["-1", "0"])
def test_without_a_grace_the_others_are_killed_at_once(here: Place, grace: str) -> None:
    program = f"""
def stubborn(i):
    if i == 0:
        sys.exit(4)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)
context = mp.start_processes(stubborn, nprocs=2, join=False)
try:
    while not context.join(float("inf"), grace_period={grace}):
        pass
except mp.ProcessExitedException as error:
    print(error, [p.exitcode for p in context.processes], context)
"""
    said = "process 0 terminated with exit code 4 [4, -9] <SpawnContext: 2 ranks, 0 running>\n"
    assert here.check(program) == said


def test_success_first_and_failure_later_is_a_failure(place: Place, start_method: str) -> None:
    program = f"""
def second(i):
    if i == 1:
        time.sleep(0.1)
        raise ValueError("later")
try:
    mp.start_processes(second, nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r})
except mp.ProcessRaisedException as error:
    print(error.error_index, error.text)
"""
    assert place.check(program) == "1 later\n"


def test_what_a_rank_started_vanishes_with_it(place: Place) -> None:
    program = """
def parent(i):
    for options in ({}, {"start_new_session": True}):
        subprocess.Popen(["sleep", "1000"], **options)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1000)
try:
    mp.spawn(parent, nprocs=NPROCS, hosts=HOSTS)
except mp.ProcessExitedException as error:
    print(error.signal_name)
"""
    assert place.check(program) == "SIGTERM\n"  # the fixtures find what is left running


def test_terminating_a_process_is_a_failure_of_its_rank(place: Place) -> None:
    program = """
def wait(i):
    time.sleep(1000)
context = mp.spawn(wait, nprocs=NPROCS, hosts=HOSTS, join=False)
if HOSTS is None:
    os.kill(context.pids()[1], signal.SIGTERM)
else:
    context.processes[1].terminate()
try:
    while not context.join():
        pass
except mp.ProcessExitedException as error:
    print(error, error.exit_code)
"""
    assert place.check(program) == "process 1 terminated with signal SIGTERM -15\n"


def test_without_a_join_the_others_run_on(here: Place) -> None:
    program = """
def leave(i):
    if i == 0:
        sys.exit(3)
    time.sleep(1)
context = mp.spawn(leave, nprocs=2, join=False)
context.processes[1].join()
print([p.exitcode for p in context.processes])
try:
    context.join()
except mp.ProcessExitedException as error:
    print(error)
"""
    assert here.check(program) == "[3, 0]\nprocess 0 terminated with exit code 3\n"


def test_results_of_any_kind_are_dropped(here: Place) -> None:
    assert here.check("mp.spawn(lambda i: (x for x in ()), nprocs=2)") == ""


def test_another_start_method_is_warned_about_and_not_used(here: Place) -> None:
    program = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    mp.spawn(print, nprocs=1, start_method="forkserver")
print(caught[0].category.__name__, "only supports start_method=spawn" in str(caught[0].message))
try:
    mp.start_processes(print, start_method="thread")
except ValueError as error:
    print(error)
try:
    mp.start_processes(print, start_method="fork", hosts="nowhere.invalid")
except ValueError as error:
    print("other machines do not have" in str(error))
"""
    said = here.check(program).splitlines()
    assert said[1] == "FutureWarning True"
    assert said[2].startswith("cannot find context for 'thread'")
    assert said[3] == "True"


def test_a_fork_server_imports_once_for_all_ranks_of_a_host(place: Place) -> None:
    """torch's own test measures seconds; what it wants to know is how often a module is imported."""
    (place.folder / "slow_import.py").write_text("import os\nprint('<imported>')\nMARK = os.urandom(8).hex()\n")
    program = """
def mark():
    import slow_import
    return slow_import.MARK
marks = mnspawn.spawn(mark, nprocs=3, hosts=HOSTS, start_method="forkserver", env={"PYTHONPATH": os.getcwd()}).results()
print(len(marks), len(set(marks)))
"""
    if place.hosts is None:
        assert place.check(program) == "<imported>\n3 1\n"
        return
    # hosts do not have the module: its import fails there, in every rank, as it would without a server
    done = place.run(program)
    assert "ModuleNotFoundError: No module named 'slow_import'" in done.stderr


def test_types_say_that_a_spawn_without_a_join_gives_its_context(own_home: Path) -> None:
    contexts = [mp.spawn(abs, nprocs=1, join=False), mp.start_processes(abs, nprocs=1, join=False, start_method="fork")]
    for context in contexts:
        while not context.join():  # a type check of this file fails where this may be None
            pass
        assert [process.exitcode for process in context.processes] == [0]
