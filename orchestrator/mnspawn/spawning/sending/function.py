"""Packs a function and its arguments into files, with everything that a host needs to call it. Sends nothing."""

import dis
import functools
import importlib.util
import io
import json
import linecache
import os
import sys
import threading
import types
import zipfile
import zipimport
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mnspawn_agent

from . import modules, pickling

Files = tuple[tuple[str, bytes], ...]

MAX_SOURCES = 4 << 20  # characters of source that go along for imports and tracebacks
_packing = threading.RLock()  # linecache and cloudpickle's list of modules are for one thread at a time


def _renew_lock() -> None:
    """In a forked child: a thread that it does not have may hold the lock for ever."""
    global _packing
    _packing = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def pack(
    function: Callable[..., Any],
    args: Sequence[Any],
    parcel: pickling.Parcel,
    *,
    passes_rank: bool,
    wants_result: bool,
) -> Files:
    """Everything that a host needs to call a function, as files of a run.

    Args:
        parcel: empty; gets what goes another way than in files, to ranks on this machine.

    Raises:
        NotPicklable: names the function or the argument's position.
    """
    with _packing:
        pickled = pickling.dump(function, tuple(args), parcel)
        found = modules.needed_by(parcel.modules, parcel.codes)
        sources = sources_of([*parcel.files, *modules.files_of(found)])
    job = {
        "passes_rank": passes_rank,
        "wants_result": wants_result,
        "paths": _paths(parcel.is_here),
        "argv": [str(word) for word in getattr(sys, "argv", [""])],
        "preload": sorted(imported_by(function)),
        "sources": sources,
        "modules": found,
        "main": modules.main(),
        "authkey": authentication_key(parcel.shared is not None) if parcel.is_here else None,
        "shared": parcel.shared.offer() if parcel.shared is not None else None,
    }
    return (
        ("worker_main.py", Path(mnspawn_agent.__file__).with_name("worker_main.py").read_bytes()),
        ("arrival.py", Path(__file__).with_name("arrival.py").read_bytes()),
        ("cloudpickle.zip", library()),
        ("job.json", json.dumps(job).encode("utf-8", "surrogateescape")),
        ("function.pickle", pickled),
    )


def authentication_key(is_needed: bool) -> str | None:
    """The key with which ranks on this machine reach servers of multiprocessing, if the caller may have any."""
    if not is_needed and "multiprocessing.managers" not in sys.modules:
        return None
    from multiprocessing import current_process

    return bytes(current_process().authkey).hex()


def sources_of(files: Iterable[str]) -> dict[str, str]:
    """The text of files and notebook cells by name, as many as fit, the first ones first."""
    found: dict[str, str] = {}
    room = MAX_SOURCES
    for name in dict.fromkeys(files):
        text = "".join(linecache.getlines(name))
        if len(text) <= room and (text or os.path.isfile(name)):
            found[name] = text
            room -= len(text)
    return found


def _paths(is_here: bool) -> list[str]:
    """Our sys.path as far as it makes sense elsewhere: a host uses the folders that it has too."""
    paths = [path for each in sys.path if isinstance(each, str) and (path := modules.absolute(each)) is not None]
    if is_here:
        return paths
    return [path for path in paths if not (path + os.sep).startswith(modules.installed()) and not path.endswith(".zip")]


# -- what a fork server imports beforehand -----------------------------------------------------------------------------
def imported_by(function: Callable[..., Any]) -> set[str]:
    """The modules that a function's own code imports when it is called."""
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
    """The installed cloudpickle as a zip to import from, with byte code: compiling takes longer than importing."""
    spec = importlib.util.find_spec("cloudpickle")
    assert spec is not None
    assert spec.origin is not None
    if isinstance(spec.loader, zipimport.zipimporter):  # this is a worker, whose own zip it is
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
    """An unchecked byte code file (PEP 552), which this version of Python uses and others ignore."""
    import marshal

    code = compile(source, f"cloudpickle/{name}", "exec", dont_inherit=True)
    hashed = importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + (0b01).to_bytes(4, "little") + hashed + marshal.dumps(code)
