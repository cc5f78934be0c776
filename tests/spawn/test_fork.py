"""Ranks that are forks of the caller: they have its memory and what it has open, and nothing of ours."""

import os
import signal
from pathlib import Path

import pytest

from tests.spawn.conftest import Place
from tests.support import wait_until


def test_forks_have_the_callers_memory_and_nothing_is_pickled_on_the_way(here: Place) -> None:
    program = """
import threading
class Kept:
    pass
kept, state = Kept(), {"value": 1}
def look(lock, generator, found):
    with lock:
        return state["value"], next(generator), found is kept, kept
state["value"] = 2
context = mnspawn.spawn(look, (threading.Lock(), iter("ab"), kept), nprocs=2, start_method="fork")
print([(*result[:3], type(result[3]) is Kept) for result in context.results()])
"""
    assert here.check(program) == "[(2, 'a', True, True), (2, 'a', True, True)]\n"


def test_queues_of_multiprocessing_work_and_are_emptied_at_the_end(here: Place) -> None:
    program = """
import multiprocessing
queue, simple = multiprocessing.Queue(), multiprocessing.SimpleQueue()
def put(i, queue):
    simple.put(i)
    for _ in range(10):
        queue.put(bytes(100_000))
context = mp.start_processes(put, (queue,), nprocs=2, start_method="fork", join=False)
print(sum(len(queue.get()) for _ in range(20)), sorted([simple.get(), simple.get()]))
while not context.join():
    pass
"""
    assert here.check(program) == "2000000 [0, 1]\n"


def test_what_the_caller_has_not_written_yet_is_written_once(here: Place) -> None:
    program = """
sys.stdout.write("held back, ")
print("by a full buffer" if sys.stdout.line_buffering else "by a pipe")
import atexit, tempfile
folder = tempfile.TemporaryDirectory()
atexit.register(lambda: print("the caller ends", os.path.isdir(folder.name)))
def work(rank):
    atexit.register(print, "rank", rank, "ends")
mnspawn.spawn(work, nprocs=1, pass_rank=True, start_method="fork")
"""
    assert here.check(program) == "held back, by a pipe\nrank 0 ends\nthe caller ends True\n"


def test_ranks_have_what_the_caller_has_open_and_nothing_of_ours(here: Place) -> None:
    program = """
def opened():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((int(name), os.readlink("/proc/self/fd/" + name)))
        except OSError:
            pass  # what listed them
    return {(number, link) for number, link in found if number > 2 and "/null" not in link and ".result" not in link}
own = os.open("/etc/hosts", os.O_RDONLY)
before = opened()
other = mnspawn.spawn(time.sleep, (1,), nprocs=1, join=False)  # its pipes are ours, too
pipes = {item for item in opened() - before if "pipe:" in item[1]}
for found in mnspawn.spawn(opened, nprocs=2, start_method="fork").results():
    print((own, "/etc/hosts") in found, before <= found, len(pipes) > 2, pipes & found)
for found in mnspawn.spawn(opened, nprocs=2, start_method="fork").results():
    print(found - before - opened())
while not other.join():
    pass
"""
    assert here.check(program) == "True True True set()\n" * 2 + "set()\n" * 2


def test_a_pipe_ends_when_all_ranks_have_closed_it(here: Place) -> None:
    """The agent and its guardian had it, too."""
    program = """
reader, writer = os.pipe()
def close():
    os.write(writer, b"x")
    os.close(writer)
    time.sleep(1000)
context = mnspawn.spawn(close, nprocs=2, start_method="fork", join=False)
os.close(writer)
while os.read(reader, 1):
    pass
context.kill()
print("ended")
"""
    assert here.check(program) == "ended\n"


def test_a_caller_that_was_killed_is_missed_though_forks_of_others_live(here: Place) -> None:
    """A fork that was made later must not hold the link of an earlier run open."""
    program = """
import multiprocessing
earlier = mnspawn.spawn(time.sleep, (1000,), nprocs=1, join=False, orphan_grace=0.1)
later = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
later.start()
print(earlier.pids()[0], later.pid, flush=True)
time.sleep(1000)
"""
    with here.start(program) as running:
        running.wait_for(lambda: running.stdout.endswith("\n"))
        rank, other = map(int, running.stdout.split())
        links = pipes_of(parent_of(rank))
        try:
            wait_until(lambda: not links & pipes_of(other), what="the fork has closed the agent's link")
            running.kill()
            wait_until(lambda: not is_alive(rank))
        finally:
            os.kill(other, signal.SIGKILL)


def test_ranks_have_the_callers_signal_handlers_and_the_agent_has_not(here: Place) -> None:
    program = """
def leave(number, frame):
    print("asked to leave", flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
def wait():
    print(signal.pthread_sigmask(signal.SIG_BLOCK, []) == {signal.SIGUSR1}, signal.set_wakeup_fd(-1), flush=True)
    time.sleep(1000)
context = mnspawn.spawn(wait, nprocs=1, join=False, start_method="fork")
context.processes[0].terminate()
try:
    context.join()
except mnspawn.ProcessExitedException as error:
    print(error.exit_code)
"""
    said = here.check(program).splitlines()  # the signal may come before the function is called
    assert said[-2:] == ["asked to leave", "5"]
    assert said[:-2] in ([], ["True -1"])


@pytest.mark.full
def test_a_signal_right_after_the_start_is_not_lost(here: Place) -> None:
    program = """
codes = []
for _ in range(20):
    context = mnspawn.spawn(time.sleep, (1000,), nprocs=1, join=False, start_method="fork")
    context.processes[0].terminate()
    try:
        context.join()
    except mnspawn.ProcessExitedException as error:
        codes.append(error.exit_code)
print(codes == [-15] * 20)
"""
    assert here.check(program) == "True\n"


def test_environment_and_folder_are_the_ranks_own(here: Place) -> None:
    program = """
os.mkdir("below")
def look():
    return os.environ["GIVEN"], os.environ["RANK"], "DROPPED" in os.environ, os.path.basename(os.getcwd())
os.environ["GIVEN"] = "the caller's"
options = {"env": {"GIVEN": "ours"}, "workdir": os.path.abspath("below")}
print(mnspawn.spawn(look, nprocs=2, start_method="fork", **options).results())
print(os.environ["GIVEN"], "RANK" in os.environ, os.path.exists("below"))
os.rmdir("below")
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
print(os.path.samestat(os.stat("."), mnspawn.spawn(os.stat, (".",), nprocs=1, start_method="fork").result(0)))
"""
    assert here.check(program) == (
        "[('ours', '0', False, 'below'), ('ours', '1', False, 'below')]\nthe caller's False True\nTrue\n"
    )


@pytest.mark.full
def test_forks_fork_and_spawn_in_turn(here: Place) -> None:
    program = """
def inner(outer):
    return outer, os.environ["RANK"]
def outer(rank, method):
    return mnspawn.spawn(inner, (rank,), nprocs=2, start_method=method).results()
for first, second in (("fork", "fork"), ("fork", "spawn"), ("spawn", "fork")):
    print(mnspawn.spawn(outer, (second,), nprocs=2, pass_rank=True, start_method=first).results())
"""
    assert here.check(program) == "[[(0, '0'), (0, '1')], [(1, '0'), (1, '1')]]\n" * 3


def test_threads_and_loops_fork(here: Place) -> None:
    program = """
import asyncio, threading
results = {}
def fork(number):
    results[number] = mnspawn.spawn(lambda: (number, threading.current_thread() is threading.main_thread()),
                                    nprocs=2, start_method="fork").results()
threads = [threading.Thread(target=fork, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(results == {number: [(number, True)] * 2 for number in range(4)})
def loop():
    return asyncio.run(asyncio.sleep(0.01, "slept"))
async def main():
    print((await mnspawn.aspawn(loop, nprocs=2, start_method="fork")).results())
    print(mnspawn.spawn(loop, nprocs=1, start_method="fork").results())
asyncio.run(main())
"""
    assert here.check(program) == "True\n['slept', 'slept']\n['slept']\n"


def test_output_of_forks_goes_where_pythons_own_goes(here: Place) -> None:
    program = """
import contextlib, io, logging
from sys import stdout as kept
log = logging.getLogger()
log.addHandler(logging.StreamHandler(sys.stdout))
def work():
    print("printed", end=" ")
    kept.write("kept ")
    log.warning("logged")
    sys.stderr.write("said\\n")
with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
    mnspawn.spawn(work, nprocs=1, start_method="fork")
print(sorted(out.getvalue().split()), err.getvalue())
"""
    assert here.check(program) == "['kept', 'logged', 'printed'] said\n\n"


def test_what_is_refused_leaves_no_process(here: Place) -> None:
    program = """
def count():
    with open(f"/proc/self/task/{os.getpid()}/children") as children:
        return len(children.read().split())
import socket
with socket.create_server(("", 0)) as taken:
    for options in ({"contract": "nothing"}, {"backend": "nccl"}, {"start_port": taken.getsockname()[1]}):
        try:
            mnspawn.spawn(print, nprocs=1, **options, start_method="fork")
        except mnspawn.MnspawnError as error:
            print(type(error).__name__, count())
"""
    assert here.check(program) == "OptionError 0\nDeviceError 0\nPlanRefused 0\n"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def pipes_of(pid: int) -> set[str]:
    """What a process has open that has another end."""
    links = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    return {link for link in links if link.startswith(("pipe:", "socket:"))}


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False
