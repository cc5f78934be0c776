"""Ways to reach hosts, by name. Imports a transport's library only when that transport is asked for."""

from importlib import import_module

from mnspawn.errors import UsageError

from .base import Connection, RemoteProcess, SshOptions, Target, Transport

_PLACES = {
    "asyncssh": ("mnspawn.transport.asyncssh.transport", "AsyncsshTransport"),
    "paramiko": ("mnspawn.transport.paramiko.transport", "ParamikoTransport"),
    "openssh": ("mnspawn.transport.openssh.transport", "OpensshTransport"),
    "local": ("mnspawn.transport.local", "LocalTransport"),
    "memory": ("mnspawn.transport.memory", "MemoryTransport"),
}
NAMES = tuple(_PLACES)
DEFAULT = "asyncssh"


def create(name: str, options: SshOptions) -> Transport:
    """A transport of its own for one run.

    Raises:
        UsageError: there is no transport of this name.
    """
    if name not in _PLACES:
        raise UsageError(f"no transport {name!r}; there are {', '.join(NAMES)}", place="--transport")
    module, cls = _PLACES[name]
    transport: Transport = getattr(import_module(module), cls)(options)
    return transport


__all__ = ["DEFAULT", "NAMES", "Connection", "RemoteProcess", "SshOptions", "Target", "Transport", "create"]
