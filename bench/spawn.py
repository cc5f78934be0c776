"""`mnspawn.spawn` of a function that does nothing against torch's, and a fork server against fresh interpreters.

All are whole programs, the start of the caller's interpreter included. torch knows one machine, so eight hosts of two
(a sandbox, over SSH) are compared with its sixteen processes here. torchrunx starts agents over SSH as we do; it is
compared where it is installed beside torch (`make frameworks` installs torch).
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.harness import ROUNDS, Comparison, command, compare
from tests.support import frameworks
from tests.support.controller import PACKAGE_FOLDERS, REPOSITORY

OURS = """
import mnspawn
def noop():
    pass
mnspawn.spawn(noop, {arguments})
"""
TORCHS = """
import torch.multiprocessing as mp
def noop(i):
    pass
if __name__ == "__main__":
    mp.spawn(noop, nprocs={nprocs})
"""
IMPORTING = """
import mnspawn
def work():
    import torch
    return torch.ones(3).sum().item()
assert set(mnspawn.spawn(work, nprocs=4, python={python!r}, start_method={method!r}).results()) == {{3.0}}
"""
TORCHRUNX = """
import torchrunx
def noop():
    pass
if __name__ == "__main__":
    torchrunx.Launcher(hostnames=["localhost"], workers_per_host=4, backend=None).run(noop)
"""


def program(folder: Path, name: str, text: str, python: str = sys.executable) -> Callable[[], None]:
    path = folder / name
    path.write_text(text)
    paths = ":".join(str(REPOSITORY / part) for part in PACKAGE_FOLDERS)
    return command(python, str(path), env={**os.environ, "PYTHONPATH": paths, "HOME": str(folder)})


def has_torchrunx(python: str) -> bool:
    return subprocess.run([python, "-c", "import torchrunx"], capture_output=True, check=False).returncode == 0


def run() -> Iterator[Comparison | str]:
    if not frameworks.is_installed("torch"):
        yield "spawn: needs torch (make frameworks)"
        return
    torch = str(frameworks.python("torch"))
    rounds = min(ROUNDS, 3)  # sixteen imports of torch take their time
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        here = program(folder, "here.py", OURS.format(arguments="nprocs=4"))
        across = program(folder, "across.py", OURS.format(arguments="nprocs=2, sandbox=8, output='none'"))
        theirs = [program(folder, f"torch{n}.py", TORCHS.format(nprocs=n), torch) for n in (4, 16)]
        fork, fresh = (
            program(folder, f"{method}.py", IMPORTING.format(python=torch, method=method))
            for method in ("forkserver", "spawn")
        )
        yield compare("spawn(noop) x 4 here / torch's", here, theirs[0], rounds)
        yield compare("spawn(noop) on 8 hosts x 2 / torch's x 16 here", across, theirs[1], rounds)
        yield compare("import torch x 4: forkserver / spawn", fork, fresh, rounds)
        if has_torchrunx(torch):
            runx = program(folder, "runx.py", TORCHRUNX, torch)
            yield compare("spawn(noop) x 4 / torchrunx", here, runx, rounds)


if __name__ == "__main__":
    for found in run():
        print(found, flush=True)
