"""What a packed function does in an interpreter that has nothing of this checkout."""

import subprocess
import sys
from pathlib import Path

from mnspawn.spawning.sending import function, pickling

SCALE = 3


def scaled(value: int) -> int:
    return value * SCALE


def in_a_fresh_interpreter(files: function.Files, folder: Path, body: str) -> str:
    """What a worker could do with the files, on a machine without this checkout."""
    for name, content in files:
        (folder / name).write_bytes(content)
    program = f"import sys, pickle; sys.path[:0] = ['cloudpickle.zip']; {body}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pack(target: object, *args: object) -> function.Files:
    return function.pack(target, args, pickling.Parcel(is_here=False), passes_rank=False, wants_result=True)  # type: ignore[arg-type]


CALL = "f, args = pickle.load(open('function.pickle', 'rb')); print(f(*args))"


def test_functions_of_modules_that_hosts_lack_go_by_value(tmp_path: Path) -> None:
    assert in_a_fresh_interpreter(pack(scaled, 5), tmp_path, CALL) == "15\n"


def test_sources_of_what_goes_along_go_along(tmp_path: Path) -> None:
    files = pack(scaled, "x", "y")
    body = f"import json; print('return value * SCALE' in json.load(open('job.json'))['sources'][{__file__!r}])"
    assert in_a_fresh_interpreter(files, tmp_path, body) == "True\n"


def test_the_librarys_byte_code_is_what_runs(tmp_path: Path) -> None:
    body = "import cloudpickle.cloudpickle as c; print(c.__cached__ or c.__file__)"
    assert in_a_fresh_interpreter(pack(scaled, 1), tmp_path, body).strip().endswith("cloudpickle.pyc")
