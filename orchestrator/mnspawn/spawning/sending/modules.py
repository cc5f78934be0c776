"""Decides which modules travel by value, and finds what a rank needs to import them. Pickles nothing.

What hosts can import themselves (the standard library, installed packages) travels by reference; everything else
(`__main__`, notebook cells, modules of the working folder) by value.
"""

import ast
import contextlib
import functools
import linecache
import os
import site
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator

_OURS = ("mnspawn", "mnspawn_agent", "mnspawn_inventory", "cloudpickle")  # never by value
Needed = dict[str, tuple[str | None, list[str] | None]]  # name: its file (None: it has none), folders (of packages)


@contextlib.contextmanager
def by_value() -> Iterator[None]:
    """Let cloudpickle send modules that hosts can't import by value, as long as the context lasts."""
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
    """Whether a module is the user's own code, which hosts can't be expected to have installed."""
    if not isinstance(module, types.ModuleType) or name == "__main__" or name != module.__name__:
        return False
    if name.partition(".")[0] in _OURS or name.partition(".")[0] in sys.stdlib_module_names:
        return False
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith((".py", ".pyc", ".ipynb")):
        return False
    path = absolute(file) or file
    if path.startswith(installed()):
        return False
    levels = name.count(".") + os.path.basename(path).startswith("__init__.")
    return not _holds_packages(functools.reduce(lambda folder, _: os.path.dirname(folder), range(levels + 1), path))


@functools.cache
def _holds_packages(folder: str) -> bool:
    """Whether packages were installed into this folder (`pip install --target`), which hosts may share."""
    try:
        return any(name.endswith((".dist-info", ".egg-info")) for name in os.listdir(folder))
    except OSError:
        return True  # an archive, or a removed folder: nothing that a user works on


@functools.cache
def installed() -> tuple[str, ...]:
    """Folders whose modules are installed, not written by the user."""
    folders = {path for name, path in sysconfig.get_paths().items() if name in _MODULE_FOLDERS}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(os.path.abspath(folder) + os.sep for folder in folders)


def absolute(path: str) -> str | None:
    """The absolute path; None for a relative one if the working folder was removed."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        return None


def main() -> tuple[str | None, str | None]:
    """The file of the main module, and the name by which it was run (`python -m`)."""
    module = sys.modules.get("__main__")
    file = getattr(module, "__file__", None)
    name = getattr(getattr(module, "__spec__", None), "name", None)
    return absolute(file) if isinstance(file, str) else None, name


# -- what a rank needs to import them ----------------------------------------------------------------------------------
def needed_by(sent: Iterable[str], codes: Iterable[types.CodeType]) -> Needed:
    """The user's modules that objects came from (`sent`) or their code imports, and all that those import in turn.

    Only modules that are imported here; a rank finds others, if its host has them.
    """
    import cloudpickle

    registered = cloudpickle.list_registry_pickle_by_value()
    known = {
        name: module
        for name, module in list(sys.modules.items())
        if is_ours_alone(name, module) or (name in registered and isinstance(module, types.ModuleType))
    }
    file, name = main()
    packages = {file: (name or "").rpartition(".")[0]}  # of files that are no module by their name
    files = dict.fromkeys(code.co_filename for code in codes)
    found: Needed = {}
    waiting = [*sent, *(name for file in files for name in _imports_of(file, packages.get(file, "")))]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        module = known.get(name, sys.modules.get(name))
        file = getattr(module, "__file__", None)
        folders = [path for path in getattr(module, "__path__", ()) if isinstance(path, str)]
        if name in known and isinstance(file, str):
            file = absolute(file) or file
            found[name] = file, folders or None
            waiting += _imports_of(file, name if folders else name.rpartition(".")[0])
        elif file is None and folders and any(other.startswith(name + ".") for other in known):
            found[name] = None, folders
        else:
            continue
        if "." in name:
            waiting.append(name.rpartition(".")[0])
    return dict(sorted(found.items()))


def files_of(found: Needed) -> list[str]:
    return [file for file, _ in found.values() if file is not None]


def _imports_of(file: str, package: str) -> tuple[str, ...]:
    return _imports_in("".join(linecache.getlines(file)), package)


@functools.lru_cache(maxsize=1024)
def _imports_in(text: str, package: str) -> tuple[str, ...]:
    """Names that a text imports anywhere. What it takes from a package may be a module, so these names count too."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # such as a notebook cell with magic commands
        return ()
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            found += [name, *(f"{name}.{alias.name}" for alias in node.names)]
    return tuple(dict.fromkeys(found))


_MODULE_FOLDERS = ("stdlib", "platstdlib", "purelib", "platlib")
