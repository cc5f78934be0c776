"""What can go wrong, by kind, and the exit status that each kind ends in."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any


class ExitStatus(IntEnum):
    """Exit statuses of the command line; a failed worker's own status takes the place of these."""

    OK = 0
    USAGE = 2
    HOST_UNUSABLE = 3
    PLAN_REFUSED = 4
    HOST_LOST = 5
    INTERNAL = 70
    TIMED_OUT = 124  # as timeout(1)
    HANGUP = 129
    INTERRUPTED = 130
    TERMINATED = 143


class MnspawnError(Exception):
    """Base of every error that mnspawn raises on purpose.

    `message` is lower case without a full stop: what was expected, what was found. `hint` is the next step.
    """

    exit_status: int = ExitStatus.INTERNAL

    def __init__(self, message: str, *, host: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.host = host
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.host}: {self.message}" if self.host else self.message


class UsageError(MnspawnError):
    """Input that can't be used. `place` is an option, a variable, or file:line:column."""

    exit_status = ExitStatus.USAGE

    def __init__(self, message: str, *, place: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.place = place

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class OptionError(UsageError, ValueError):
    """A Python caller's option whose name or value can't be used."""


class ArgumentTypeError(UsageError, TypeError):
    """A Python caller's argument of a type that can't be used."""


class HostError(MnspawnError):
    """One host could not be used; nothing was started anywhere because of it."""

    exit_status = ExitStatus.HOST_UNUSABLE
    is_transient = False  # worth another try in a moment, with the same settings
    addresses = 1  # that were tried: each has the connect timeout to itself


class Unreachable(HostError):
    """No connection to the host's SSH server."""


class NameUnknown(Unreachable):
    """The name resolves to no address."""


class LookupFailed(Unreachable):
    """No name server answers."""

    is_transient = True


class NoRoute(Unreachable):
    """The network has no way to the host."""


class ConnectionRefused(Unreachable):
    """Nothing listens there."""


class ConnectTimeout(Unreachable):
    """Neither yes nor no within the connect timeout."""


class ConnectionClosed(Unreachable):
    """The server hung up before the connection stood: MaxStartups, a firewall, a full table."""

    is_transient = True


class SettingsUnusable(HostError):
    """What ssh_config, known_hosts or the inventory say of the host can't be used; the message names the place."""


class NoCommonAlgorithm(HostError):
    """The two sides share no key exchange, cipher, MAC or host key type."""


class HostKeyError(HostError):
    """The host's key does not prove that it is the host that was meant."""


class HostKeyUnknown(HostKeyError):
    """No known_hosts line speaks of this host."""


class HostKeyChanged(HostKeyError):
    """A known_hosts line says that the host has another key."""


class AuthError(HostError):
    """The host did not let us in."""


class AuthRefused(AuthError):
    """No key was accepted."""


class PassphraseNeeded(AuthError):
    """A key is encrypted and no agent holds it."""


class KeyUnusable(AuthError):
    """A key file could not be used at all."""


class ChannelRefused(HostError):
    """Connected and let in, but the server opens no session for a command."""


class TransportUnavailable(HostError):
    """The chosen transport can't do what this host's settings ask for."""


class BootstrapError(HostError):
    """The connection stands, but the agent did not come up."""


class ShellRefused(BootstrapError):
    """The account or its login shell runs no commands."""


class PythonMissing(BootstrapError):
    """The host has no Python where it was looked for."""


class PythonTooOld(BootstrapError):
    """The host's Python is older than the agent can run on."""


class NothingWritable(BootstrapError):
    """No folder on the host can hold a run."""


class HostsUnusable(MnspawnError):
    """Every host that could not be used, reported together."""

    exit_status = ExitStatus.HOST_UNUSABLE

    def __init__(self, errors: Sequence[HostError]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = tuple(errors)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errors,), self.__dict__.copy()


class PlanRefused(MnspawnError):
    """Hosts that could be used refused the plan; `refusals` has (host, reason) pairs."""

    exit_status = ExitStatus.PLAN_REFUSED

    def __init__(self, refusals: Sequence[tuple[str, str]], *, hint: str | None = None) -> None:
        super().__init__("; ".join(f"{host}: {reason}" for host, reason in refusals), hint=hint)
        self.refusals = tuple(refusals)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.refusals,), self.__dict__.copy()


class HostLost(MnspawnError):
    """A host was lost while the run was running."""

    exit_status = ExitStatus.HOST_LOST


class InternalError(MnspawnError):
    """Something that can't happen happened: our bug."""
