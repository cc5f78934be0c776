"""The same program with torch's and Paddle's own spawn and with ours: what they take, share and say is the same."""

from pathlib import Path

import cloudpickle
import pytest

from tests.support import PATIENCE, Controller, frameworks
from tests.support.controller import PACKAGE_FOLDERS, REPOSITORY

pytestmark = pytest.mark.frameworks

HELPERS = """
import enum


class Mode(enum.Enum):
    TRAIN = 1
"""
TORCH = """
import sys
import torch
import torch.multiprocessing as theirs
import mnspawn.multiprocessing as ours
from helpers import Mode


def work(rank, mode, shared, plain, queue, simple, event, value, weight, pipe, nested):
    from helpers import Mode as late

    shared[rank] += 1
    plain[rank] += 2
    weight.data[rank] += 5
    nested["deep"][0][rank] = 9
    with value.get_lock():
        value.value += 1
    queue.put((rank, mode is late.TRAIN, torch.ones(2) * rank))
    simple.put(torch.zeros(1) + rank)
    if rank == 0:
        pipe.send(torch.arange(3))
    event.wait()


def run(spawn, method):
    context = theirs.get_context("spawn")
    shared, plain = torch.zeros(2).share_memory_(), torch.zeros(2)
    weight, nested = torch.nn.Parameter(torch.zeros(2)), {"deep": [torch.zeros(2)]}
    queue, simple, event, value = context.Queue(), context.SimpleQueue(), context.Event(), context.Value("i", 0)
    near, far = context.Pipe()
    args = Mode.TRAIN, shared, plain, queue, simple, event, value, weight, far, nested
    ranks = spawn(work, args, nprocs=2, join=False, start_method=method)
    got = sorted((rank, is_same, tensor.tolist()) for rank, is_same, tensor in (queue.get(), queue.get()))
    simples, piped = sorted(simple.get().item() for _ in range(2)), near.recv().tolist()
    event.set()
    while not ranks.join():
        pass
    print(got, simples, piped, shared.tolist(), plain.tolist(), value.value, weight.tolist(), nested)


if __name__ == "__main__":
    spawns = [library.start_processes for library in (theirs, ours)]
    for method in ("spawn", "forkserver"):
        for spawn in spawns:
            run(spawn, method)
    for library in (theirs, ours):
        for function in (library.spawn, library.start_processes):
            try:
                function(work, kwargs={})
            except TypeError as error:
                print(error)
"""
PADDLE = """
import multiprocessing
import os
import paddle.distributed as theirs
import mnspawn as ours
from helpers import Mode


def work(mode, queue, value, pipe):
    from helpers import Mode as late

    rank = int(os.environ["PADDLE_TRAINER_ID"])
    with value.get_lock():
        value.value += 1
    if rank == 0:
        pipe.send("x")
    queue.put((rank, mode is late.TRAIN))


def run(spawn):
    context = multiprocessing.get_context("spawn")
    queue, value = context.SimpleQueue(), context.Value("i", 0)
    near, far = context.Pipe()
    ranks = spawn(work, args=(Mode.TRAIN, queue, value, far), nprocs=2, join=False, backend="gloo")
    got = sorted(queue.get() for _ in range(2))
    while not ranks.join():
        pass
    print("got", got, near.recv(), value.value)


if __name__ == "__main__":
    for library in (theirs, ours):
        run(library.spawn)
"""


def run(controller: Controller, folder: Path, framework: str, program: str) -> list[str]:
    (folder / "helpers.py").write_text(HELPERS)
    (folder / "program.py").write_text(program)
    paths = [*(REPOSITORY / name for name in PACKAGE_FOLDERS), Path(cloudpickle.__file__).parents[1]]
    done = controller.run(
        str(frameworks.python(framework)),
        "-W",
        "ignore",
        str(folder / "program.py"),
        env={"PYTHONPATH": ":".join(map(str, paths))},
        cwd=folder,
        timeout=4 * PATIENCE,
    )
    return done.check().stdout.splitlines()


def test_torchs_spawn_and_ours_take_and_share_the_same(controller: Controller, tmp_path: Path) -> None:
    *lines, their_spawn, their_start, our_spawn, our_start = run(controller, tmp_path, "torch", TORCH)
    expected = (
        "[(0, True, [0.0, 0.0]), (1, True, [1.0, 1.0])] [0.0, 1.0] [0, 1, 2] [1.0, 1.0] [2.0, 2.0] 2 [5.0, 5.0] "
        "{'deep': [tensor([9., 9.])]}"
    )
    assert lines == [expected] * 4
    assert our_spawn == their_spawn == "spawn() got an unexpected keyword argument 'kwargs'"
    assert our_start == their_start == "start_processes() got an unexpected keyword argument 'kwargs'"


def test_paddles_spawn_and_ours_take_and_share_the_same(controller: Controller, tmp_path: Path) -> None:
    lines = [line for line in run(controller, tmp_path, "paddle", PADDLE) if line.startswith("got")]
    assert lines == ["got [(0, True), (1, True)] x 2"] * 2
