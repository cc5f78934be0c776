"""Everybody who may call: scripts, threads, loops, notebooks, workers; interrupted, ended, fifty times in a row."""

import asyncio
import json
import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

import mnspawn
from tests.spawn.conftest import Place
from tests.support import wait_until, wait_until_async
from tests.support.leaks import Snapshot

WAITS = """
def wait():
    print("ready", flush=True)
    time.sleep(1000)
"""


@pytest.mark.essential
def test_ctrl_c_stops_all_ranks_and_is_raised_again(place: Place, start_method: str) -> None:
    program = f"""{WAITS}
try:
    mnspawn.spawn(wait, nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r})
except KeyboardInterrupt:
    print("interrupted")
"""
    with place.start(program) as running:
        running.wait_for(lambda: running.stdout.count("ready") == 2)
        running.interrupt()
        done = running.wait()
    assert (done.status, done.stdout.split()[-1]) == (0, "interrupted"), done


@pytest.mark.parametrize(
    "call",
    [
        "mnspawn.spawn(wait, nprocs=NPROCS, hosts=HOSTS)",
        "mp.start_processes(lambda i: wait(), nprocs=NPROCS, hosts=HOSTS)",
        "mnspawn.launch(['sh', '-c', 'echo ready; sleep 1000'], no_python=True, nproc_per_node=NPROCS, hosts=HOSTS)",
    ],
)
def test_whatever_ends_a_call_that_waits_ends_its_ranks(place: Place, call: str) -> None:
    program = f"""{WAITS}
def leave(*_):
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
{call}
"""
    with place.start(program) as running:
        running.wait_for(lambda: running.stdout.count("ready") == 2)
        running.send_signal(signal.SIGTERM)
        assert running.wait().status == 7


def test_ctrl_c_while_connecting_starts_nothing(across: Place) -> None:
    program = """
import threading
threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    mnspawn.spawn(print, ("started",), nprocs=1, hosts=HOSTS)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = across.run(program)
    assert done.stdout.endswith("interrupted\n"), done


def test_a_second_ctrl_c_kills(here: Place) -> None:
    program = """
def stubborn():
    signal.signal(signal.SIGTERM, lambda *_: print("term", flush=True))
    print("ready", flush=True)
    while True:
        time.sleep(1)
try:
    mnspawn.spawn(stubborn, nprocs=2, grace=600)
except KeyboardInterrupt:
    print("interrupted")
"""
    with here.start(program) as running:
        running.wait_for(lambda: running.stdout.count("ready") == 2)
        running.interrupt()
        running.wait_for(lambda: running.stdout.count("term") == 2)
        running.interrupt()
        done = running.wait()
    assert done.stdout.endswith("interrupted\n"), done


@pytest.mark.parametrize(
    ("daemon", "lines"), [(False, ["begun", "caller ends", "done"]), (True, ["begun", "caller ends"])]
)
@pytest.mark.full
def test_at_the_end_of_the_caller_ranks_are_waited_for_or_killed(here: Place, daemon: bool, lines: list[str]) -> None:
    program = f"""
def work():
    sys.stdout.write("begun\\n")
    time.sleep(2)
    sys.stdout.write("done\\n")
context = mnspawn.spawn(work, nprocs=1, join=False, daemon={daemon})
while not os.path.exists("go"):
    time.sleep(0.01)
print("caller ends", flush=True)
"""
    with here.start(program) as running:
        running.wait_for(lambda: "begun" in running.stdout)
        (here.folder / "go").touch()
        done = running.wait()
    assert (done.status, done.stdout.splitlines()) == (0, lines)


def test_a_killed_caller_leaves_nothing(here: Place, start_method: str) -> None:
    program = f"{WAITS}\nmnspawn.spawn(wait, nprocs=2, orphan_grace=6000, start_method={start_method!r})\n"
    _is_killed_with_its_ranks(here, program)


@pytest.mark.full
def test_a_killed_caller_leaves_nothing_of_a_launch_nor_of_what_it_forked(here: Place) -> None:
    program = """
context = mnspawn.spawn(time.sleep, (1000,), nprocs=1, join=False, orphan_grace=6000)
child = os.fork()  # it lives on, and must not hold the ends of links
if child == 0:
    context.processes[0].join()
    os._exit(0)
mnspawn.launch(['sh', '-c', 'echo ready; echo ready; sleep 1000'], no_python=True, nproc_per_node=1, orphan_grace=6000)
"""
    with here.start(program, env={"MARK": str(here.folder)}) as running:
        running.wait_for(lambda: running.stdout.count("ready") == 2)
        child = next(int(pid) for pid in Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split())
        running.kill()
        wait_until(lambda: _marked(here.folder) in ([str(child)], []))
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: not _marked(here.folder))


def _is_killed_with_its_ranks(here: Place, program: str) -> None:
    with here.start(program, env={"MARK": str(here.folder)}) as running:
        running.wait_for(lambda: running.stdout.count("ready") == 2)
        assert len(_marked(here.folder)) >= 4
        running.kill()
        wait_until(lambda: not _marked(here.folder))


def _marked(folder: Path) -> list[str]:
    """Processes that have a test's own mark in their environment."""
    return [
        path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if _has(path, f"MARK={folder}\0".encode())
    ]


def _has(path: Path, text: bytes) -> bool:
    try:
        return text in path.read_bytes()
    except OSError:  # it ended meanwhile
        return False


def test_workers_spawn_in_turn(here: Place) -> None:
    program = """
def outer():
    return mnspawn.spawn(lambda rank: (rank, os.environ["WORLD_SIZE"]), nprocs=2, pass_rank=True).results()
print(mnspawn.spawn(outer, nprocs=2).results())
"""
    assert here.check(program) == "[[(0, '2'), (1, '2')], [(0, '2'), (1, '2')]]\n"


def test_a_rank_that_dies_takes_those_that_it_started_along(here: Place, start_method: str) -> None:
    program = f"""
def inner(i):
    (open(f"inner-{{i}}", "w")).close()
    time.sleep(1000)
def outer(i):
    if i == 0:
        mp.start_processes(inner, nprocs=2, join=False, start_method={start_method!r}, orphan_grace=6000)
        while not (os.path.exists("inner-0") and os.path.exists("inner-1")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1000)
try:
    mp.start_processes(outer, nprocs=2, start_method={start_method!r}, grace=6000)
except mp.ProcessExitedException as error:
    print(error)
"""
    assert here.check(program) == "process 0 terminated with signal SIGKILL\n"


def test_a_working_folder_that_was_removed_is_no_obstacle(place: Place, start_method: str) -> None:
    program = f"""
gone = os.path.abspath("gone")
os.mkdir(gone)
os.chdir(gone)
os.rmdir(gone)
sys.path[:0] = ["", "relative"]
def where(name):
    try:
        return os.getcwd()
    except FileNotFoundError:  # a fork is where its caller is
        return name
context = mnspawn.spawn(where, ("nowhere",), nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r})
here = "nowhere" if {start_method!r} == "fork" else os.environ["HOME"]
print(set(context.results()) == {{here}} or context.results())
report = mnspawn.launch(["true"], no_python=True, nproc_per_node=1, hosts=HOSTS)
print(report.exit_status)
"""
    said = place.check(program).splitlines()
    assert said[0] == ("['/root', '/root']" if place.hosts else "True")
    assert said[1] == "0"


def test_ranks_fill_what_a_manager_of_the_caller_holds(here: Place, start_method: str) -> None:
    program = f"""
import multiprocessing
def put(i, squares, queue):
    squares[i] = i * i
    queue.put(i)
manager = multiprocessing.Manager()
squares, queue = manager.dict(), manager.Queue()
mp.start_processes(put, (squares, queue), nprocs=3, start_method="{start_method}")
print(dict(sorted(squares.items())), sorted(queue.get() for _ in range(3)))
"""
    assert here.check(program) == "{0: 0, 1: 1, 2: 4} [0, 1, 2]\n"


def test_threads_spawn_at_the_same_time(own_home: Path) -> None:
    results: dict[int, object] = {}

    def spawn(number: int) -> None:
        results[number] = mnspawn.spawn(lambda: number, nprocs=2, output="none").results()

    threads = [threading.Thread(target=spawn, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [number, number] for number in range(4)}


async def test_loops_spawn_and_run_on(own_home: Path) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    first, second = await asyncio.gather(
        mnspawn.aspawn(lambda: "a", nprocs=1, output="none"), mnspawn.aspawn(lambda: "b", nprocs=2, output="none")
    )
    ticking.cancel()
    assert (first.results(), second.results()) == (["a"], ["b", "b"])
    assert ticks > 5


async def test_a_cancelled_spawn_ends_its_ranks(own_home: Path) -> None:
    started = own_home / "started"

    def wait(path: str) -> None:
        import pathlib
        import time

        pathlib.Path(path).touch()
        time.sleep(1000)

    spawning = asyncio.create_task(mnspawn.aspawn(wait, (str(started),), nprocs=1, output="none"))
    await wait_until_async(started.exists)
    spawning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await spawning


async def test_errors_come_through_loops(own_home: Path) -> None:
    with pytest.raises(mnspawn.ProcessRaisedException, match="ZeroDivisionError"):
        await mnspawn.aspawn(lambda: 1 // 0, nprocs=1, output="none")
    with pytest.raises(mnspawn.HostsUnusable):
        await mnspawn.aspawn(int, nprocs=1, hosts="127.0.0.1", transport="asyncssh", output="none")


@pytest.mark.full
def test_fifty_spawns_leave_nothing(own_home: Path, start_method: str) -> None:
    mnspawn.spawn(int, nprocs=1, output="none", start_method=start_method)
    folders = (own_home, Path(tempfile.gettempdir()))
    before = Snapshot.take(folders)
    for number in range(50):
        spawned = mnspawn.spawn(lambda rank: rank, nprocs=1, start_method=start_method, pass_rank=True, output="none")
        assert spawned.results() == [0], number
    after = Snapshot.take(folders)
    assert (after.fds, after.threads, after.children, after.files) == (
        before.fds,
        before.threads,
        before.children,
        before.files,
    )
    assert [path.name for path in (own_home / ".local/state/mnspawn/runs").iterdir()] == []


def test_results_go_when_their_context_goes(here: Place) -> None:
    program = """
import gc, weakref
gc.disable()
context = mnspawn.spawn(lambda: bytes(20_000_000), nprocs=2)
found, process = weakref.ref(context), context.processes[0]
descriptors = len(os.listdir("/proc/self/fd"))
context.results()
print(len(os.listdir("/proc/self/fd")) - descriptors)
del context
print(found(), process.is_alive(), process.exitcode)
process.join(), process.terminate(), process.kill()
print(len(mnspawn.spawn(bytes, (1000,), nprocs=1).return_queues[0].get()))
"""
    assert here.check(program) == "-1\nNone False 0\n1000\n"


def test_output_goes_where_pythons_own_goes(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mnspawn.spawn(lambda rank: print("from", rank), nprocs=2, pass_rank=True)
    mnspawn.spawn(lambda: print("marked"), nprocs=1, output="prefix")
    said = capsys.readouterr().out.splitlines()
    assert sorted(said[:2]) == ["from 0", "from 1"]
    assert said[2].endswith(":0] marked")


NOTEBOOK = [
    "import mnspawn, os\nscale = 10",
    "def train(rank):\n    print('cell output', rank)\n    return rank * scale\n"
    "print(mnspawn.spawn(train, nprocs=2, pass_rank=True).results())",
    "def fail():\n    marker = 1 / 0\ntry:\n    mnspawn.spawn(fail, nprocs=1)\n"
    "except mnspawn.ProcessRaisedException as error:\n    print('marker = 1 / 0' in str(error))",
    "print((await mnspawn.aspawn(lambda: scale, nprocs=1)).results())",
    "def fork():\n    print('forked')\n    return scale\n"
    "print(mnspawn.spawn(fork, nprocs=2, start_method='fork').results())",
    "print(mnspawn.launch(['echo', 'launched'], no_python=True, nproc_per_node=1).exit_status)",
]


RUN_NOTEBOOK = """
import json
import nbclient, nbformat
cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
print(json.dumps(["".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells]))
"""


@pytest.mark.full
def test_a_notebook_spawns_what_its_cells_define(here: Place) -> None:
    for name in ("nbclient", "nbformat", "ipykernel"):
        pytest.importorskip(name)
    said = json.loads(here.check(f"CELLS = {NOTEBOOK!r}\n{RUN_NOTEBOOK}").splitlines()[-1])
    assert "[0, 10]" in said[1]
    assert "cell output 0" in said[1]
    assert said[2:4] == ["True\n", "[10]\n"]
    assert said[4] == "forked\nforked\n[10, 10]\n"
    assert said[5].splitlines() == ["launched", "0"]


def test_sentinels_tell_of_ends_to_whoever_waits(place: Place) -> None:
    program = """
import gc
from multiprocessing.connection import wait
def leave(i):
    time.sleep(0.2 if i else 0)
def sleep():
    time.sleep(1000)
context = mp.spawn(leave, nprocs=NPROCS, hosts=HOSTS, join=False)
first = context.sentinels
print(list(first.values()), [process.sentinel for process in context.processes] == list(first))
while len(wait(list(first), 600)) < 2:
    pass
print([process.exitcode for process in context.processes], len(first))
while not context.join():
    pass
print(first, context.sentinels is first)
process, descriptors = context.processes[0], len(os.listdir("/proc/self/fd"))
del context
gc.collect()
print(descriptors - len(os.listdir("/proc/self/fd")))
try:
    process.sentinel
except ValueError as error:
    print(error)
late = mnspawn.spawn(sleep, nprocs=NPROCS, hosts=HOSTS, join=False)
late.kill()
while len(late.sentinels) and not wait(list(late.sentinels), 600) == list(late.sentinels):
    pass
print("killed")
"""
    assert place.check(program) == ("[0, 1] True\n[0, 0] 2\n{} True\n4\nthe context of this rank is gone\nkilled\n")


def test_a_context_answers_for_single_ranks(place: Place) -> None:
    program = """
context = mp.spawn(lambda i: time.sleep(1000), nprocs=NPROCS, hosts=HOSTS, join=False)
context.send_signal(1, "SIGTERM")
print(context.wait_for_rank(1, None, is_end=True), context.processes[1].exitcode, context.wait_for_rank(0, 0))
print([(context.has_returned(rank), context.traceback_of(rank), context.is_over(rank)) for rank in range(2)])
print(context.sentinel_of(0) == context.processes[0].sentinel)
context.kill()
"""
    assert place.check(program).splitlines() == [
        "True -15 False",
        "[(False, None, False), (False, None, False)]",
        "True",
    ]


def test_callers_without_standard_streams_spawn(here: Place, start_method: str) -> None:
    program = f"""
for descriptor in (0, 1, 2):
    os.close(descriptor)
sys.stdin = sys.stdout = sys.stderr = None
said = str(mnspawn.spawn(os.write, (1, b"said"), nprocs=2, start_method={start_method!r}).results())
with open("said", "w") as file:
    file.write(said)
"""
    here.check(program)
    assert (here.folder / "said").read_text() == "[4, 4]"
