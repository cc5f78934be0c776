import io
import pickle
import subprocess
import sys
import threading
import types
import zipfile
from pathlib import Path

import cloudpickle
import pytest

from mnspawn.spawning import function, modules
from mnspawn.spawning.errors import NotPicklable

SCALE = 3


def scaled(value: int) -> int:
    return value * SCALE


def lazy() -> object:
    import json
    from collections.abc import Mapping

    def inner() -> object:
        import csv

        return csv

    return json, Mapping, inner


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
    return function.pack(target, args, passes_rank=False, wants_result=True, is_here=False)  # type: ignore[arg-type]


CALL = "f, args = pickle.load(open('function.pickle', 'rb')); print(f(*args))"


def test_functions_of_modules_that_hosts_lack_go_by_value(tmp_path: Path) -> None:
    assert in_a_fresh_interpreter(pack(scaled, 5), tmp_path, CALL) == "15\n"


def test_installed_modules_go_by_reference(tmp_path: Path) -> None:
    import yaml

    files = dict(pack(yaml.safe_load, "a: 1"))
    assert b"safe_load" in files["function.pickle"]
    assert len(files["function.pickle"]) < 200
    assert not modules.is_ours_alone("yaml", yaml)
    assert not modules.is_ours_alone("json", sys.modules["json"])


def test_a_folder_of_installed_packages_is_no_working_folder(tmp_path: Path) -> None:
    (tmp_path / "thing-1.0.dist-info").mkdir()
    module = types.ModuleType("thing")
    module.__file__ = str(tmp_path / "thing" / "__init__.py")
    assert not modules.is_ours_alone("thing", module)
    (tmp_path / "work").mkdir()
    module.__file__ = str(tmp_path / "work" / "thing.py")
    assert modules.is_ours_alone("thing", module)


def test_what_cloudpickle_was_told_by_others_stays_as_it_was() -> None:
    module = sys.modules[__name__]
    pack(scaled, 1)
    assert cloudpickle.list_registry_pickle_by_value() == set()
    cloudpickle.register_pickle_by_value(module)
    try:
        pack(scaled, 1)
        assert cloudpickle.list_registry_pickle_by_value() == {__name__}
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_what_can_not_be_pickled_is_named_by_its_position() -> None:
    lock = threading.Lock()
    with pytest.raises(NotPicklable, match="argument 1, of type lock, can't be pickled: TypeError: cannot pickle"):
        pack(scaled, 1, lock, 2)
    with pytest.raises(NotPicklable, match="func: the function can't be pickled"):
        pack(lambda: lock)
    with pytest.raises(TypeError, match="argument 1"):
        pack(scaled, iter(lambda: 1, 2), threading.Lock())
    with pytest.raises(pickle.PicklingError):
        pack(scaled, lock)


def test_arguments_that_are_one_object_stay_one() -> None:
    shared: list[int] = []
    files = dict(pack(scaled, shared, shared))
    _, (first, second) = pickle.load(io.BytesIO(files["function.pickle"]))
    assert first is second


def test_sources_of_what_goes_along_go_along(tmp_path: Path) -> None:
    files = pack(scaled, "x", "y")
    body = f"import json; print('return value * SCALE' in json.load(open('job.json'))['sources'][{__file__!r}])"
    assert in_a_fresh_interpreter(files, tmp_path, body) == "True\n"


def test_modules_that_a_function_imports_itself_are_found() -> None:
    assert function.imported_by(lazy) == {"json", "collections.abc", "csv"}
    assert function.imported_by(len) == set()


def test_the_library_is_the_same_every_time_and_has_byte_code() -> None:
    function.library.cache_clear()
    first = function.library()
    function.library.cache_clear()
    assert function.library() == first
    names = zipfile.ZipFile(io.BytesIO(first)).namelist()
    assert {"cloudpickle/__init__.py", "cloudpickle/__init__.pyc", "cloudpickle/cloudpickle.pyc"} <= set(names)


def test_the_librarys_byte_code_is_what_runs(tmp_path: Path) -> None:
    body = "import cloudpickle.cloudpickle as c; print(c.__cached__ or c.__file__)"
    assert in_a_fresh_interpreter(pack(scaled, 1), tmp_path, body).strip().endswith("cloudpickle.pyc")
