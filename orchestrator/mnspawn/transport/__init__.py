"""How hosts are reached: transports, chosen by name. Imports a transport's library only when it is chosen.

`base` has the protocols that the engine relies on; tests/ssh/test_conformance.py holds every transport to them. To add
a transport, write a class that satisfies `Transport` and give it a line in `_PLACES`.
"""

from importlib import import_module

from mnspawn.errors import UsageError

from .base import Connection, RemoteProcess, SshOptions, Target, Transport

_PLACES = {
    "asyncssh": ("mnspawn.transport.asyncssh.transport", "AsyncsshTransport"),
    "paramiko": ("mnspawn.transport.paramiko.transport", "ParamikoTransport"),
    "openssh": ("mnspawn.transport.openssh.transport", "OpensshTransport"),
    "local": ("mnspawn.transport.local", "LocalTransport"),
}


def create(name: str, options: SshOptions) -> Transport:
    """Return a new transport for one run.

    Raises:
        UsageError: there is no transport of this name.
    """
    if name not in _PLACES:
        raise UsageError(f"no transport {name!r}; there are {', '.join(_PLACES)}", place="--transport")
    module, cls = _PLACES[name]
    transport: Transport = getattr(import_module(module), cls)(options)
    return transport


__all__ = ["Connection", "RemoteProcess", "SshOptions", "Target", "Transport", "create"]
