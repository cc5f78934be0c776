"""Guards what is called outside any task (signal handlers, other threads), where a bug would only be logged."""

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")


class Breakable(Protocol):
    """Something that ends when a bug is noted."""

    def note_bug(self, error: Exception) -> None: ...


B = TypeVar("B", bound=Breakable)


def guarded(method: Callable[Concatenate[B, P], None]) -> Callable[Concatenate[B, P], None]:
    """Make what a method raises end the run, as it would inside a task."""

    def call(breakable: B, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(breakable, *args, **kwargs)
        except Exception as exc:  # noqa: BLE001 - raised again where the run is waited for
            breakable.note_bug(exc)

    return call
