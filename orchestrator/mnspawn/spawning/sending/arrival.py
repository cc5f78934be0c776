"""Loads in a rank what its caller sent, so that each module exists once there. Travels as a file by itself.

What travels by value carries its place in the caller ("module:name"), and the sources of its modules travel along. A
rank imports them; the objects of the pickle become those of the imported module, with the code and the values that the
caller had, and a later import finds the same. A module that can't be imported here, because something that it imports
is missing, is made of what came by value, under its own name.
"""

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import pickle
import sys
import tokenize
import types
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

NAME = "_mnspawn_arrival"  # of this module in a rank
PLACE = "mnspawn place"  # key in the spare argument of cloudpickle's class makers
PLAIN = (bool, int, float, complex, str, bytes, type(None), tuple, list, dict, set, frozenset)
BATCH = 200  # descriptors in a message, as sharing.py has it
CONTAINERS = (list, dict, set)

is_loading = False
_kept: list[types.ModuleType] = []  # the main module that this process was started as
_caller: list[Any] = []  # the socket to the caller
_partial: dict[str, str] = {}  # modules that could not be imported, and why


class _Text(importlib.machinery.SourceFileLoader):
    """Loads a module from its text, whatever lies at its path."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> types.CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)

    def get_source(self, fullname: str) -> str:
        return self._text


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the caller's modules in the sources that were sent, so that ranks have the caller's version."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._modules: dict[str, tuple[str | None, list[str] | None]] = job["modules"]
        self._sources: dict[str, str] = job["sources"]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._modules:
            return None
        file, folders = self._modules[name]
        if file is None:  # a package without a file
            spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = list(folders or ())
            return spec
        text, here = self._sources.get(file), _text_of(file)
        if text is None and here is None:
            return None  # too large to be sent, or without source: another finder may have it
        if text is None or text == here:
            loader = importlib.machinery.SourceFileLoader(name, file)  # its byte code is kept
        else:
            loader = _Text(name, file, text)
        return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=folders)


def _text_of(file: str) -> str | None:
    """The text of a file as linecache has it, from which sources are sent."""
    try:
        with tokenize.open(file) as lines:
            text = lines.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    return text if not text or text.endswith("\n") else text + "\n"


def install(job: dict[str, Any]) -> None:
    """Make the caller's modules importable, and a main module for what came from the caller's."""
    sys.modules[NAME] = sys.modules.pop(__name__)  # the user may have a module of that name
    _kept.append(sys.modules["__main__"])
    _partial["__main__"] = "a function's own names come along, others don't"
    sys.meta_path.insert(0, _Finder(job))
    main = types.ModuleType("__main__")
    file, name = job["main"]
    if file is not None:
        main.__file__ = file
    if name is not None:
        main.__package__ = name.rpartition(".")[0]
    is_there = file in job["sources"] and _text_of(file) == job["sources"][file]
    # processes that a rank starts import its main module again, where they can
    main.__spec__ = importlib.machinery.ModuleSpec(name if is_there and name else "__main__", None, origin=file)
    if is_there and not name:
        main.__spec__ = None
    sys.modules["__main__"] = main


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Refuse spawns meanwhile: a module that spawns when it is imported would do so in every rank in turn."""
    global is_loading
    is_loading = True
    try:
        yield
    finally:
        is_loading = False


def take_shared(job: dict[str, Any]) -> None:
    """Get the descriptors of what multiprocessing shares with the caller (sharing.py), as a child process has them."""
    if job["shared"] is None:
        return
    import socket
    from multiprocessing import forkserver, reduction, resource_tracker

    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect("\0" + job["shared"]["name"])
    count = job["shared"]["count"]
    taken: list[int] = []
    while len(taken) < count:
        taken += reduction.recvfds(sock, min(BATCH, count - len(taken)))
    forkserver._forkserver._inherited_fds = taken  # type: ignore[attr-defined]
    resource_tracker._resource_tracker._fd = taken[0]  # type: ignore[attr-defined]
    _caller.append(sock)


def have_taken(ranks: int) -> None:
    """Report to the caller that so many ranks have loaded their arguments."""
    while _caller:
        with _caller.pop() as sock, contextlib.suppress(OSError):  # the caller has closed it
            sock.sendall(b"%d" % ranks)


def load(file: IO[bytes], job: dict[str, Any]) -> Any:
    """Read the function and its arguments; raises whatever their own code does."""
    reader = _Reader(file, job)
    with loading():
        call = reader.load()
    reader.settle()
    return call


def explain(error: BaseException) -> None:
    """Add to a failed import that the module is here only in part."""
    if isinstance(error, ImportError) and error.name in _partial:
        error.add_note(f"of module {error.name!r} only what was sent by value is here: {_partial[error.name]}")


class _Reader(pickle.Unpickler):
    """Lets cloudpickle's makers and fillers work in the modules that objects came from."""

    def __init__(self, file: IO[bytes], job: dict[str, Any]) -> None:
        super().__init__(file)
        self._known: dict[str, tuple[str | None, list[str] | None]] = job["modules"]
        self._imported: dict[str, types.ModuleType | None] = {}
        self._own: dict[int, Any] = {}  # what was found in an imported module instead of made
        self._values: list[tuple[Any, dict[str, Any]]] = []

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if module.partition(".")[0] == "cloudpickle" and (hook := _HOOKS.get(name)) is not None:
            return functools.partial(hook, self, found)
        return found

    # -- modules
    def _module(self, name: str | None) -> tuple[types.ModuleType | None, bool]:
        """The module for what came by value (None where it has none), and whether that was imported."""
        if name == "__main__":
            return sys.modules["__main__"], False
        if name is None or name not in self._known:
            return None, False
        if name not in self._imported:
            try:
                self._imported[name] = importlib.import_module(name)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a module's own code, which may do anything
                self._imported[name] = None
                self._make_partial(name, f"its import fails with {type(error).__name__}: {error}")
        found = self._imported[name]
        return (sys.modules[name], False) if found is None else (found, True)

    def _make_partial(self, name: str, reason: str) -> None:
        parent, _, last = name.rpartition(".")
        if parent:
            self._module(parent)
        made = types.ModuleType(name)
        file, folders = self._known[name]
        made.__file__ = file
        made.__package__ = name if folders is not None else parent
        if folders is not None:
            made.__path__ = folders

        def refuse(attribute: str) -> Any:
            raise AttributeError(f"module {name!r} has no {attribute!r} here: {reason}")

        made.__getattr__ = refuse  # type: ignore[method-assign]
        _partial[name] = reason
        sys.modules[name] = made
        if parent in sys.modules:
            setattr(sys.modules[parent], last, made)

    def _find(self, place: str | None, kind: type) -> Any:
        """What an imported module has at a place; None if it is of another kind or the module was not imported."""
        if place is None:
            return None
        name, _, path = place.partition(":")
        found, is_imported = self._module(name)
        if not is_imported:
            return None
        for part in path.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, kind):
            return None
        self._own[id(found)] = found
        return found

    def _put(self, place: str | None, made: Any) -> Any:
        """Give an object to the module that is made here."""
        if place is not None:
            name, _, path = place.partition(":")
            module, is_imported = self._module(name)
            if module is not None and not is_imported and "." not in path:
                setattr(module, path, made)
        return made

    # -- what cloudpickle's functions are called with
    def make_function(
        self,
        make: Any,
        code: Any,
        base: dict[str, Any],
        place: str | None = None,
        defaults: Any = None,
        cells: Any = None,
    ) -> Any:
        found = self._find(place, types.FunctionType)
        if found is not None and len(found.__code__.co_freevars) == len(code.co_freevars):
            if found.__code__ != code:  # rewritten, or edited since
                found.__code__ = code
            return found
        module, _ = self._module(base.get("__name__"))
        if module is None:
            return make(code, base, None, defaults, cells)
        return self._put(place, types.FunctionType(code, module.__dict__, None, defaults, cells))

    def fill_function(self, fill: Any, made: Any, state: Any) -> Any:
        attributes, slots = state
        if id(made) in self._own:
            self._values += [(made.__globals__, slots["__globals__"]), (made, attributes)]
            return made
        _, is_imported = self._module(made.__globals__.get("__name__"))
        if is_imported:
            self._values.append((made.__globals__, slots["__globals__"]))
            slots = {**slots, "__globals__": {}}
        return fill(made, (attributes, slots))

    def make_class(self, make: Any, *parts: Any) -> Any:
        *given, extra = parts
        place = (extra or {}).get(PLACE)
        found = self._find(place, type)
        return found if found is not None else self._put(place, make(*given, None))

    def fill_class(self, fill: Any, made: Any, state: Any) -> Any:
        if id(made) not in self._own:
            return fill(made, state)
        self._values.append((made, state[0]))
        return made

    def make_module(self, make: Any, name: str, values: dict[str, Any]) -> Any:
        module, is_imported = self._module(name)
        if module is None:
            return make(name, values)
        if is_imported:
            self._values.append((module.__dict__, values))
        else:
            module.__dict__.update(values)
        return module

    # -- values
    def settle(self) -> None:
        """Give the variables of imported modules, and plain attributes of their classes, the caller's values."""
        for target, values in self._values:
            for name, value in values.items():
                if isinstance(target, dict):
                    _set_variable(target, name, value)
                elif type(value) in PLAIN and not name.startswith("_"):
                    _set_attribute(target, name, value)
        self._values.clear()


def _set_variable(target: dict[str, Any], name: str, value: Any) -> None:
    current = target.get(name)
    if name.startswith("__") or current is value:
        return
    if type(current) is type(value) is object:
        return  # a sentinel, which other code here compares with
    if not _fill(current, value):
        target[name] = value


def _set_attribute(target: Any, name: str, value: Any) -> None:
    current = vars(target).get(name)
    if current is not value and not _fill(current, value) and (current is None or type(current) in PLAIN):
        setattr(target, name, value)


def _fill(current: Any, value: Any) -> bool:
    """Replace a container's content in place, since others may refer to it; False if it is no container."""
    if type(current) is not type(value) or type(value) not in CONTAINERS:
        return False
    if current is not value:
        content = value.copy()
        current.clear()
        (current.extend if type(value) is list else current.update)(content)
    return True


_HOOKS: dict[str, Callable[..., Any]] = {
    "_make_function": _Reader.make_function,
    "_function_setstate": _Reader.fill_function,
    "_make_skeleton_class": _Reader.make_class,
    "_make_skeleton_enum": _Reader.make_class,
    "_class_setstate": _Reader.fill_class,
    "dynamic_subimport": _Reader.make_module,
}
