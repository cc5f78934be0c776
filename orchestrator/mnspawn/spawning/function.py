"""A function and its arguments as files that travel: what is pickled by value, what by reference, what is needed there.

The one user of cloudpickle. What the hosts can import like us (the standard library, installed packages) goes by
reference; everything else (`__main__`, notebook cells, lambdas, closures, modules of the working folder) by value.
"""

import contextlib
import dis
import functools
import importlib.util
import io
import json
import linecache
import os
import pickle
import site
import sys
import sysconfig
import threading
import types
import zipfile
import zipimport
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mnspawn_agent

from .errors import NotPicklable

Files = tuple[tuple[str, bytes], ...]

_OURS = ("mnspawn", "mnspawn_agent", "mnspawn_inventory", "cloudpickle")  # never by value
MAX_SOURCES = 4 << 20  # characters of source that go along for tracebacks
_registering = threading.RLock()  # cloudpickle keeps one list for the whole process


def _renew_lock() -> None:
    """In a forked child: a thread that it does not have may hold the lock for ever."""
    global _registering
    _registering = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def pack(
    function: Callable[..., Any], args: Sequence[Any], *, passes_rank: bool, wants_result: bool, is_here: bool
) -> Files:
    """Everything that a host needs to call a function, as files of a run.

    Args:
        is_here: it runs on this machine with this interpreter, so that modules are found where we find them.

    Raises:
        NotPicklable: names the function or the argument's position.
    """
    files: set[str] = set()
    pickled = dump(function, tuple(args), files)
    job = {
        "passes_rank": passes_rank,
        "wants_result": wants_result,
        "paths": _paths(is_here),
        "argv": [str(word) for word in getattr(sys, "argv", [""])],
        "preload": sorted(imported_by(function)),
        "sources": sources_of(files),
        "authkey": authentication_key() if is_here else None,
    }
    return (
        ("trainer_main.py", _runner()),
        ("cloudpickle.zip", library()),
        ("job.json", json.dumps(job).encode("utf-8", "surrogateescape")),
        ("function.pickle", pickled),
    )


def authentication_key() -> str | None:
    """What ranks on this machine need to talk to managers of multiprocessing's, if the caller may have any."""
    if "multiprocessing.managers" not in sys.modules:
        return None
    from multiprocessing import current_process

    return bytes(current_process().authkey).hex()


def _runner() -> bytes:
    return Path(mnspawn_agent.__file__).with_name("trainer_main.py").read_bytes()


# -- pickling ----------------------------------------------------------------------------------------------------------
def dump(function: Callable[..., Any], args: tuple[Any, ...], files: set[str] | None = None) -> bytes:
    """A function and its arguments, pickled; `files` gets the names of the files whose code went along.

    Raises:
        NotPicklable: names the part that could not be pickled.
    """
    with _registering, _by_value():
        try:
            return _dumps((function, args), files)
        except Exception as error:  # pickling calls the objects' own code, which may raise anything
            raise _blame(function, args, error) from error


def _blame(function: Callable[..., Any], args: tuple[Any, ...], error: Exception) -> NotPicklable:
    """The error for the first part that can't be pickled by itself."""
    parts = [("the function", function), *((f"argument {position}", arg) for position, arg in enumerate(args))]
    for place, part in parts:
        try:
            _dumps(part)
        except Exception as reason:  # noqa: BLE001 - as above
            kind = "" if part is function else f", of type {type(part).__qualname__},"
            return NotPicklable(
                f"{place}{kind} can't be pickled: {type(reason).__name__}: {reason}",
                place="func" if part is function else "args",
                hint="locks, open files, sockets and generators stay where they are: make them inside the function",
            )
    return NotPicklable(f"function and arguments can't be pickled together: {error}", place="args")


def _dumps(value: Any, files: set[str] | None = None) -> bytes:
    import cloudpickle

    reduce_code = cloudpickle.Pickler.dispatch_table[types.CodeType]

    def reduce_with_file(code: types.CodeType) -> tuple[Any, tuple[Any, ...]]:
        """As cloudpickle, which forgets the file: tracebacks from the ranks would name none."""
        if files is not None:
            files.add(code.co_filename)
        make, parts = reduce_code(code)
        return make, tuple(
            code.co_filename if isinstance(part, str) and part == "<dynamic-code>" else part for part in parts
        )

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc] # it is untyped
        dispatch_table = ChainMap({types.CodeType: reduce_with_file}, cloudpickle.Pickler.dispatch_table)

    content = io.BytesIO()
    Pickler(content, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return content.getvalue()


def sources_of(files: set[str]) -> dict[str, str]:
    """The text of files (and notebook cells) by name, for tracebacks on hosts that do not have them."""
    found: dict[str, str] = {}
    room = MAX_SOURCES
    for name in sorted(files):
        text = "".join(linecache.getlines(name))
        if 0 < len(text) <= room:
            found[name] = text
            room -= len(text)
    return found


@contextlib.contextmanager
def _by_value() -> Iterator[None]:
    """Let modules that hosts can't import go by value for as long as the context lasts."""
    import cloudpickle

    known = set(cloudpickle.list_registry_pickle_by_value())
    added = [module for name, module in list(sys.modules.items()) if name not in known and is_ours_alone(name, module)]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def is_ours_alone(name: str, module: object) -> bool:
    """Whether a module is code of the user's that no other host can be expected to have installed."""
    if not isinstance(module, types.ModuleType) or name == "__main__" or name != module.__name__:
        return False
    if name.partition(".")[0] in _OURS or name.partition(".")[0] in sys.stdlib_module_names:
        return False
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith((".py", ".pyc", ".ipynb")):
        return False
    path = _absolute(file) or file
    if path.startswith(_installed()):
        return False
    levels = name.count(".") + os.path.basename(path).startswith("__init__.")
    return not _holds_packages(functools.reduce(lambda folder, _: os.path.dirname(folder), range(levels + 1), path))


@functools.cache
def _holds_packages(folder: str) -> bool:
    """Whether packages were installed into a folder of its own (`pip install --target`), which hosts may share."""
    try:
        return any(name.endswith((".dist-info", ".egg-info")) for name in os.listdir(folder))
    except OSError:
        return True  # an archive, or gone: not what somebody is working on


@functools.cache
def _installed() -> tuple[str, ...]:
    """Folders whose modules are installed, not written by the user."""
    folders = {path for name, path in sysconfig.get_paths().items() if name in _MODULE_FOLDERS}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(os.path.abspath(folder) + os.sep for folder in folders)


def _absolute(path: str) -> str | None:
    """None for a relative path when the working folder was removed: it leads nowhere."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        return None


_MODULE_FOLDERS = ("stdlib", "platstdlib", "purelib", "platlib")


def _paths(is_here: bool) -> list[str]:
    """Our own sys.path as far as it makes sense elsewhere: a host takes those folders that it has too."""
    paths = [path for path in map(_absolute, filter(lambda path: isinstance(path, str), sys.path)) if path is not None]
    if is_here:
        return paths
    return [path for path in paths if not (path + os.sep).startswith(_installed()) and not path.endswith(".zip")]


# -- what a fork server imports beforehand -----------------------------------------------------------------------------
def imported_by(function: Callable[..., Any]) -> set[str]:
    """Modules that a function's own code imports when it is called."""
    code = getattr(function, "__code__", None) or getattr(getattr(function, "__func__", None), "__code__", None)
    return set() if code is None else set(_imports_of(code))


def _imports_of(code: types.CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME" and instruction.argval:
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _imports_of(constant)


# -- cloudpickle itself ------------------------------------------------------------------------------------------------
@functools.cache
def library() -> bytes:
    """The installed cloudpickle as a zip to import from, with byte code: compiling it takes longer than its import."""
    spec = importlib.util.find_spec("cloudpickle")
    assert spec is not None
    assert spec.origin is not None
    if isinstance(spec.loader, zipimport.zipimporter):  # we are a trainer that spawns: this came along with it
        return Path(spec.loader.archive).read_bytes()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(Path(spec.origin).parent.glob("*.py")):
            source = path.read_bytes()
            archive.writestr(_entry(f"cloudpickle/{path.name}"), source)
            archive.writestr(_entry(f"cloudpickle/{path.stem}.pyc"), _byte_code(source, path.name))
    return content.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    """An entry without the time of the day: the same bytes for the same files."""
    entry = zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _byte_code(source: bytes, name: str) -> bytes:
    """An "unchecked" byte code file (PEP 552): taken by the Python that we are, ignored by others."""
    import marshal

    code = compile(source, f"cloudpickle/{name}", "exec", dont_inherit=True)
    hashed = importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + (0b01).to_bytes(4, "little") + hashed + marshal.dumps(code)
