"""Start one distributed program, or one function, on many SSH hosts.

    import mnspawn

    report = mnspawn.launch(["train.py", "--lr", "0.1"], hosts="a:4,b:4")
    losses = mnspawn.spawn(train, (dataset,), nprocs=4, hosts="a,b").results()

Names are imported when they are first used: `import mnspawn` itself costs next to nothing.
"""

TYPE_CHECKING = False  # as typing's, which is a large module to import for one word
if TYPE_CHECKING:
    from . import multiprocessing
    from ._version import __version__
    from .api.launch import alaunch, launch
    from .errors import HostError, HostLost, HostsUnusable, MnspawnError, PlanRefused, UsageError
    from .report import HostOutcome, RankOutcome, RunReport
    from .spawning.context import SpawnContext
    from .spawning.errors import (
        DeviceError,
        NotPicklable,
        ProcessException,
        ProcessExitedException,
        ProcessRaisedException,
        ResultError,
        RunTimedOut,
    )
    from .spawning.start import aspawn, spawn

__all__ = [
    "DeviceError",
    "HostError",
    "HostLost",
    "HostOutcome",
    "HostsUnusable",
    "MnspawnError",
    "NotPicklable",
    "PlanRefused",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "RankOutcome",
    "ResultError",
    "RunReport",
    "RunTimedOut",
    "SpawnContext",
    "UsageError",
    "__version__",
    "alaunch",
    "aspawn",
    "launch",
    "multiprocessing",
    "spawn",
]

_PLACES = {
    "_version": ("__version__",),
    "api.launch": ("alaunch", "launch"),
    "errors": ("HostError", "HostLost", "HostsUnusable", "MnspawnError", "PlanRefused", "UsageError"),
    "report": ("HostOutcome", "RankOutcome", "RunReport"),
    "spawning.context": ("SpawnContext",),
    "spawning.errors": (
        *("DeviceError", "NotPicklable", "ProcessException", "ProcessExitedException", "ProcessRaisedException"),
        *("ResultError", "RunTimedOut"),
    ),
    "spawning.start": ("aspawn", "spawn"),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "multiprocessing":
        return import_module(".multiprocessing", __name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
