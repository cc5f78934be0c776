"""Pickles a function and its arguments for ranks by cloudpickle; reports what can't be pickled, and where.

In addition, code keeps its file name, what travels by value keeps its place in the caller (see arrival.py), and what
multiprocessing shares between processes is shared with ranks on this machine and refused for others.
"""

import contextlib
import functools
import io
import pickle
import sys
import types
from collections import ChainMap
from collections.abc import Callable
from typing import Any

from mnspawn.spawning.errors import NotPicklable

from . import arrival, asserts, sharing
from .modules import by_value


class Parcel:
    """What travels with a pickle.

    Args:
        is_here: ranks are on this machine.
        shares_tensors: share torch's tensors with them, whatever memory these are in, as torch's spawn does.

    Attributes:
        codes: what travels by value of functions.
        modules: names of the modules that objects by value came from.
        shared: what multiprocessing shares; None if nothing.
    """

    def __init__(self, *, is_here: bool, shares_tensors: bool = False) -> None:
        self.is_here = is_here
        self.shares_tensors = shares_tensors
        self.codes: list[types.CodeType] = []
        self.modules: set[str] = set()
        self.shared: sharing.Shared | None = None

    @property
    def files(self) -> list[str]:
        return sorted({code.co_filename for code in self.codes})

    def share(self) -> sharing.Shared:
        if self.shared is None:
            self.shared = sharing.Shared()
        return self.shared

    def empty(self) -> None:
        self.close()
        self.codes.clear()
        self.modules.clear()

    def close(self) -> None:
        if self.shared is not None:
            self.shared.close()
            self.shared = None


def dump(function: Callable[..., Any], args: tuple[Any, ...], parcel: Parcel) -> bytes:
    """Pickle a function and its arguments; no two threads at once, since cloudpickle's list is of the whole process.

    Raises:
        NotPicklable: names the part that could not be pickled.
    """
    try:
        with by_value():
            return _dumps((function, args), parcel)
    except sharing.StaysHere as error:
        with by_value():
            raise _blame(function, args, error, parcel.is_here) from error
    except Exception:  # noqa: BLE001 - pickling calls the objects' own code, which may raise anything
        parcel.empty()
    try:  # a module of the user's may hold what can't go by value, such as a lock: let ranks import it
        return _dumps((function, args), parcel)
    except Exception as error:  # as above
        parcel.empty()
        raise _blame(function, args, error, parcel.is_here) from error


def _blame(function: Callable[..., Any], args: tuple[Any, ...], error: Exception, is_here: bool) -> NotPicklable:
    """The error for the first part that can't be pickled by itself."""
    parts = [("the function", function), *((f"argument {position}", arg) for position, arg in enumerate(args))]
    for name, part in parts:
        trial = Parcel(is_here=is_here)
        place = "func" if part is function else "args"
        try:
            _dumps(part, trial)
        except sharing.StaysHere as reason:
            what = f", of type {reason.kind}," if reason.value is part else f" holds a {reason.kind}, which"
            text = f"{name}{what} can't be used on other hosts: {sharing.WHY}"
            return NotPicklable(text, place=place, hint=sharing.HINT)
        except Exception as reason:  # noqa: BLE001 - as above
            kind = "" if part is function else f", of type {type(part).__qualname__},"
            return NotPicklable(
                f"{name}{kind} can't be pickled: {type(reason).__name__}: {reason}",
                place=place,
                hint=sharing.hint_for(reason)
                or "locks, open files, sockets and generators stay where they are: make them inside the function",
            )
        finally:
            trial.close()
    return NotPicklable(f"function and arguments can't be pickled together: {error}", place="args")


def _dumps(value: Any, parcel: Parcel) -> bytes:
    content = io.BytesIO()
    if parcel.is_here and sharing.has_tracker():
        parcel.share()  # names of shared memory are texts
    with sharing.spawning(parcel.share) if parcel.is_here else contextlib.nullcontext():
        _pickler()(content, parcel).dump(value)
    return content.getvalue()


@functools.cache
def _pickler() -> Callable[[io.BytesIO, Parcel], Any]:
    import cloudpickle
    from cloudpickle import cloudpickle as maker

    reduce_code = cloudpickle.Pickler.dispatch_table[types.CodeType]

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc] # it is untyped
        def __init__(self, file: io.BytesIO, parcel: Parcel) -> None:
            self._parcel = parcel
            self._kinds = sharing.kinds()
            self._reducers = sharing.reducers() if parcel.is_here else {}
            self.dispatch_table = ChainMap({types.CodeType: self._reduce_code}, cloudpickle.Pickler.dispatch_table)
            super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)

        def _reduce_code(self, code: types.CodeType) -> Any:
            """Keep the file name, which cloudpickle drops: tracebacks from ranks need it."""
            self._parcel.codes.append(code)
            make, parts = reduce_code(code)
            return make, tuple(
                code.co_filename if isinstance(part, str) and part == "<dynamic-code>" else part for part in parts
            )

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, self._kinds):
                if not self._parcel.is_here:
                    raise sharing.StaysHere(obj)
                self._parcel.share()
            reducer = self._reducers.get(type(obj))
            if reducer is not None and type(obj) not in self.dispatch_table:
                return sharing.reduce(reducer, obj, self._parcel.shares_tensors)
            if isinstance(obj, types.ModuleType):
                return self._reduce_module(obj)
            if isinstance(obj, types.FunctionType) and obj.__module__ == asserts.__name__:
                return self._dynamic_function_reduce(obj)
            reduced = super().reducer_override(obj)
            if reduced is not NotImplemented:
                return self._with_place(obj, reduced)
            if isinstance(obj, type | types.FunctionType):
                self._parcel.modules.add(str(obj.__module__))
            return reduced

        def _reduce_module(self, module: types.ModuleType) -> Any:
            if module.__name__ == asserts.MODULE:
                return maker.dynamic_subimport, (asserts.MODULE, asserts.FUNCTIONS)
            self._parcel.modules.add(module.__name__)
            return NotImplemented

        def _with_place(self, obj: Any, reduced: Any) -> Any:
            """Put an object's place in the caller into a spare argument of cloudpickle's maker."""
            make, parts, *rest = reduced
            if make is maker._make_function:
                self._parcel.modules.add(str(obj.__globals__.get("__name__")))
                return make, (*parts[:2], _place_of(obj), *parts[3:]), *rest
            if make in (maker._make_skeleton_class, maker._make_skeleton_enum):
                self._parcel.modules.add(str(obj.__module__))
                return make, (*parts[:-1], {arrival.PLACE: _place_of(obj)}), *rest
            return reduced

    return Pickler


def _place_of(obj: Any) -> str | None:
    """The module and name of an object, if the module has it by that name."""
    name, path = getattr(obj, "__module__", None), getattr(obj, "__qualname__", "")
    found: Any = sys.modules.get(name) if isinstance(name, str) else None
    for part in path.split("."):
        found = getattr(found, part, None)
    return f"{name}:{path}" if found is obj else None
