"""What multiprocessing shares is shared with ranks on this machine, and refused for others."""

import pytest

from tests.spawn.conftest import Place

WAYS = [("spawn", "spawn"), ("forkserver", "spawn"), ("fork", "fork")]  # our start method, multiprocessing's


@pytest.mark.parametrize(("method", "context"), WAYS)
def test_queues_locks_values_pipes_and_memory_are_shared_wherever_they_are(
    here: Place, method: str, context: str
) -> None:
    program = f"""
import functools, multiprocessing, socket
from multiprocessing import shared_memory

class Message:
    def __init__(self, rank):
        self.rank = rank

def work(rank, box, event, lock, condition, barrier, gate, values, pipe, memory, name, sock, put):
    barrier.wait()
    number, array, raw = values
    with lock, gate:
        number.value += 1
    array[rank], raw[rank], memory.buf[rank] = rank + 10, rank + 20, rank + 1
    same = shared_memory.SharedMemory(name)
    same.close()
    with condition:
        condition.notify_all()
    box["deep"][0].put(("simple", rank))
    box["deep"][1].put(Message(rank))
    box["deep"][2].put(rank)
    put(rank)
    event.wait()
    if rank == 0:
        pipe.send("ping " + pipe.recv())
        sock.sendall(b"bytes")

if __name__ == "__main__":
    context = multiprocessing.get_context({context!r})
    simple, joinable = context.SimpleQueue(), context.JoinableQueue()
    queue, in_partial = context.Queue(), context.Queue()
    values = context.Value("i", 0), context.Array("i", 2), context.RawArray("i", 2)
    ours, theirs = context.Pipe()
    near, far = socket.socketpair()
    memory = shared_memory.SharedMemory(create=True, size=2)
    event = context.Event()
    ranks = mp.start_processes(
        work,
        ({{"deep": [simple, queue, joinable]}}, event, context.RLock(), context.Condition(), context.Barrier(2),
         context.BoundedSemaphore(1), values, theirs, memory, memory.name, far, lambda rank: in_partial.put(rank)),
        nprocs=2, join=False, start_method={method!r},
    )
    print(sorted(queue.get().rank for _ in range(2)), sorted(simple.get() for _ in range(2)))
    print(sorted(joinable.get() for _ in range(2)), sorted(in_partial.get() for _ in range(2)))
    event.set()
    ours.send("pong")
    print(ours.recv(), near.recv(10))
    while not ranks.join():
        pass
    theirs.close()
    try:
        ours.recv()
    except EOFError:
        print("nobody else holds the pipe")
    print(values[0].value, list(values[1]), list(values[2]), bytes(memory.buf[:2]))
    memory.close()
    memory.unlink()
"""
    done = here.run(program)
    assert done.check().stdout.splitlines() == [
        "[0, 1] [('simple', 0), ('simple', 1)]",
        "[0, 1] [0, 1]",
        "ping pong b'bytes'",
        "nobody else holds the pipe",
        r"2 [10, 11] [20, 21] b'\x01\x02'",
    ]
    assert "resource_tracker" not in done.stderr


def test_more_descriptors_than_a_message_holds_arrive(here: Place, start_method: str) -> None:
    program = f"""
import multiprocessing
def work(rank, pipes):
    for number, (_, theirs) in enumerate(pipes):
        if number % 2 == rank:
            theirs.send(number)
pipes = [multiprocessing.Pipe() for _ in range(150)]
mp.start_processes(work, (pipes,), nprocs=2, start_method={start_method!r})
print([ours.recv() for ours, _ in pipes] == list(range(150)))
"""
    assert here.check(program) == "True\n"


def test_a_pipe_ends_with_its_rank_while_others_run(here: Place, start_method: str) -> None:
    program = f"""
import multiprocessing
def work(rank, ends):
    for number, end in enumerate(ends):
        if number != rank:
            end.close()
    if rank == 1:
        time.sleep(1000)
ours, theirs = zip(*(multiprocessing.Pipe(duplex=False) for _ in range(2)))
context = mp.start_processes(work, (theirs,), nprocs=2, join=False, start_method={start_method!r})
for end in theirs:
    end.close()
try:
    ours[0].recv()
except EOFError:
    print("the first has ended,", context.processes[1].is_alive())
context.kill()
try:
    context.join()
except mp.ProcessExitedException:
    pass
"""
    assert here.check(program) == "the first has ended, True\n"


def test_a_lock_of_another_start_method_is_refused_as_the_standard_library_does(here: Place) -> None:
    program = """
import multiprocessing
try:
    mp.spawn(print, (1, multiprocessing.get_context("fork").Lock()))
except mnspawn.NotPicklable as error:
    print(error, error.hint)
"""
    said = here.check(program)
    assert "argument 1, of type Lock, can't be pickled: RuntimeError: A SemLock created in a fork context" in said
    assert "multiprocessing.get_context('spawn')" in said


SHARED = {
    "context.Queue()": "multiprocessing.queues.Queue",
    "context.SimpleQueue()": "multiprocessing.queues.SimpleQueue",
    "context.JoinableQueue()": "multiprocessing.queues.JoinableQueue",
    "context.Lock()": "multiprocessing.synchronize.Lock",
    "context.Event()": "multiprocessing.synchronize.Event",
    "context.Condition()": "multiprocessing.synchronize.Condition",
    "context.Semaphore()": "multiprocessing.synchronize.Semaphore",
    "context.Barrier(2)": "multiprocessing.synchronize.Barrier",
    "context.Value('i', 0)": "multiprocessing.sharedctypes.Synchronized",
    "context.Array('i', 2)": "multiprocessing.sharedctypes.SynchronizedArray",
    "context.RawArray('i', 2)": "multiprocessing.heap.BufferWrapper",
    "context.Pipe()[0]": "multiprocessing.connection.Connection",
    "memory": "multiprocessing.shared_memory.SharedMemory",
    "manager.dict()": "multiprocessing.managers.DictProxy",
}


def test_across_hosts_each_of_them_is_refused_before_any_is_touched(here: Place) -> None:
    program = f"""
import multiprocessing
from multiprocessing import managers, shared_memory
if __name__ == "__main__":
    context, manager = multiprocessing.get_context("spawn"), multiprocessing.Manager()
    memory = shared_memory.SharedMemory(create=True, size=2)
    for made in {list(SHARED)}:
        shared = eval(made)
        for function, args in ((print, (1, shared)), (print, ([shared],)), (lambda: shared, ())):
            try:
                mnspawn.spawn(function, args, hosts="nowhere.invalid")
            except mnspawn.NotPicklable as error:
                print(error)
                hint = error.hint
    print(hint)
    memory.unlink()
"""
    *lines, hint = here.check(program).splitlines()
    kinds = list(SHARED.values())
    why = "can't be used on other hosts: it connects processes of one machine"
    for kind, alone, held, closed in zip(kinds, lines[::3], lines[1::3], lines[2::3], strict=True):
        is_array = kind.endswith("BufferWrapper")  # such an array is of a class without a name, and holds its memory
        first = (
            f"args: argument 1 holds a {kind}, which {why}" if is_array else f"args: argument 1, of type {kind}, {why}"
        )
        assert alone == first
        assert held == f"args: argument 0 holds a {kind}, which {why}"
        assert closed == f"func: the function holds a {kind}, which {why}"
    assert "results()" in hint


def test_memory_of_the_caller_outlives_ranks_that_have_opened_it(here: Place, start_method: str) -> None:
    program = f"""
from multiprocessing import shared_memory
def work(rank, name):
    memory = shared_memory.SharedMemory(name)
    memory.buf[rank] = rank + 1
    memory.close()
memory = shared_memory.SharedMemory(create=True, size=2)
mp.start_processes(work, (memory.name,), nprocs=2, start_method={start_method!r})
same = shared_memory.SharedMemory(memory.name)
print(bytes(same.buf[:2]))
same.close()
memory.close()
memory.unlink()
"""
    done = here.run(program)
    assert done.check().stdout == "b'\\x01\\x02'\n"
    assert "leaked" not in done.stderr
