"""Stage 2, the archive's first file: puts the agent where its byte code is kept, then runs it. Run by the stub.

The stub calls `settle` with the archive's records, the archive itself (verified), the places where archives may be
kept, best first, and the place it was read from ("" when it came over the link).
"""

import os
import sys
import time
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from typing import Any, Dict, Iterator, List, Optional, Tuple

OURS = "mnspawn_agent/ours.py"
KEEP_ARCHIVES = 4  # of other versions
STORING_LIMIT = 3600.0  # seconds after which an archive that is still being stored was given up


def read_records(content: bytes) -> Iterator[Tuple[str, bytes]]:
    """(name, bytes) of every file in an archive: `name\\nlength\\n` and the bytes, one after the other."""
    position = 0
    while position < len(content):
        name_end = content.index(b"\n", position)
        size_end = content.index(b"\n", name_end + 1)
        size = int(content[name_end + 1 : size_end])
        yield content[position:name_end].decode("ascii"), content[size_end + 1 : size_end + 1 + size]
        position = size_end + 1 + size


def is_whole(folder: str, files: Dict[str, bytes]) -> bool:
    """Every file is there with the archive's bytes."""
    try:
        for name, content in files.items():
            with open(os.path.join(folder, name), "rb") as file:
                if file.read() != content:
                    return False
        return True
    except OSError:
        return False


def load_ours(files: Dict[str, bytes]) -> Any:
    """Load the module `ours` before anything can be imported: it decides from where that is safe."""
    module = type(sys)("mnspawn_agent.ours")
    exec(compile(files[OURS], OURS, "exec"), module.__dict__)
    return module


def store(folder: str, files: Dict[str, bytes]) -> None:
    """Write files under a temporary name, then rename. Raises OSError.

    Args:
        folder: in a folder that is ours alone.
    """
    parent = os.path.dirname(folder)
    import shutil  # what a warm start can do without is imported late

    temporary = os.path.join(parent, ".new-%d-%s" % (os.getpid(), os.urandom(4).hex()))
    os.mkdir(temporary, 0o700)
    try:
        for name, content in files.items():
            path = os.path.join(temporary, name)
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            # for byte code; Python would make it as the umask has it
            os.makedirs(os.path.join(os.path.dirname(path), "__pycache__"), 0o700, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(content)
        try:
            os.rename(temporary, folder)
        except OSError:
            if is_whole(folder, files):
                return  # another agent was first
            os.rename(folder, temporary + "-damaged")
            shutil.rmtree(temporary + "-damaged", ignore_errors=True)
            os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def prune(parent: str, keep: str) -> None:
    """Remove archives of other versions, the oldest first; an agent that runs has loaded what it needs.

    What other agents are storing at this moment stays.
    """
    others, gone = [], []
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        if name != keep and os.path.isdir(path):
            stored = os.stat(path).st_mtime
            if not name.startswith("."):
                others.append((stored, path))
            elif time.time() - stored > STORING_LIMIT:
                gone.append(path)
    gone += [path for _, path in sorted(others)[: -KEEP_ARCHIVES or None]]
    if gone:
        import shutil

        for path in gone:
            shutil.rmtree(path, ignore_errors=True)


class MemoryImporter:
    """Finder and loader of the agent from the archive in memory: slower, but needs no writable folder."""

    def __init__(self, files: Dict[str, bytes]) -> None:
        self.files = files

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        stem = name.replace(".", "/")
        for candidate, is_package in ((stem + "/__init__.py", True), (stem + ".py", False)):
            if candidate in self.files:
                origin = "<%s>" % candidate
                # a loader by duck typing: importing importlib.abc would cost every start
                spec = ModuleSpec(name, self, origin=origin, is_package=is_package)  # type: ignore[arg-type]
                spec.loader_state = candidate
                return spec
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        candidate = module.__spec__.loader_state
        exec(compile(self.files[candidate], "<%s>" % candidate, "exec"), module.__dict__)


class CarefulLoader(SourceFileLoader):
    """Imports from a kept archive; byte code that a crash of the host has damaged is made anew."""

    def get_code(self, fullname: str) -> Any:
        try:
            return SourceFileLoader.get_code(self, fullname)
        except (EOFError, ValueError, TypeError, ImportError):  # from marshal.loads
            from importlib.util import cache_from_source  # late: it is rarely needed, and not cheap

            try:
                os.unlink(cache_from_source(self.path))
            except OSError:
                pass  # a cache that can't be written: then so every time
            return self.source_to_code(self.get_data(self.path), self.path)


def import_from(folder: str) -> None:
    """Make what is kept in a folder importable."""

    def hook(path: str) -> FileFinder:
        if path != folder and not path.startswith(folder + os.sep):
            raise ImportError("not ours", path=path)
        return FileFinder(path, (CarefulLoader, [".py"]))

    sys.path_hooks.insert(0, hook)
    sys.path.insert(0, folder)


def settle(content: bytes, archive: bytes, places: List[str], found: str) -> None:
    """Make the agent importable, from disk where possible.

    Only from a folder that is ours alone: byte code beside the right sources can still be anybody's.
    """
    files = dict(read_records(content))
    ours = load_ours(files)
    for place in [found] if found else places:
        folder, name = os.path.split(place)
        parent, digest = os.path.split(folder)
        kept = dict(files, **{name: archive})
        try:
            ours.make(parent)
            if not os.path.lexists(folder) or not is_whole(ours.secure(parent, digest), kept):
                store(folder, kept)
            ours.secure(parent, digest)
        except OSError:
            continue  # read-only, full, or not ours: the next place, in the end memory
        try:
            os.utime(folder)
            prune(os.path.dirname(folder), os.path.basename(folder))
        except OSError:
            pass  # a cache that has become read-only is still good to read
        import_from(folder)
        return
    sys.meta_path.insert(0, MemoryImporter(files))
