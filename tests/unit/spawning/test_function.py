import io
import linecache
import os
import pickle
import sys
import threading
import types
import zipfile
from pathlib import Path

import cloudpickle
import pytest

from mnspawn.spawning.errors import NotPicklable
from mnspawn.spawning.sending import function, modules, pickling

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


def pack(target: object, *args: object) -> function.Files:
    return function.pack(target, args, pickling.Parcel(is_here=False), passes_rank=False, wants_result=True)  # type: ignore[arg-type]


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


def test_threads_read_sources_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """linecache is not made for threads: an entry that one has found may be gone before it reads it."""
    reading, alone, read = threading.Lock(), [], linecache.getlines

    def getlines(name: str) -> list[str]:
        alone.append(is_alone := reading.acquire(blocking=False))
        try:
            for _ in range(50):
                os.sched_yield()  # let others come here, if they can
            return read(name)
        finally:
            if is_alone:
                reading.release()

    monkeypatch.setattr(linecache, "getlines", getlines)
    threads = [threading.Thread(target=lambda: [pack(lambda: scaled(1)) for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(alone) >= 40
    assert all(alone)
