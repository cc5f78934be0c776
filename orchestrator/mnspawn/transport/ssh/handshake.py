"""How far one attempt to log in has come, and which error its end means; one place for both libraries. Does no I/O."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mnspawn import errors
from mnspawn.quoting import quoted, readable
from mnspawn.system import open_files
from mnspawn.transport.config.route import Hop

from . import refusals, sockets


class Handshake:
    """One attempt. Subclasses say what their library knows.

    Attributes:
        has_key: the server has shown its host key.
        is_asking: ssh-agent is being asked for its keys.
    """

    def __init__(self) -> None:
        self.attempt = refusals.Attempt()
        self.has_key = self.is_authenticating = self.is_asking = False

    @property
    def is_connected(self) -> bool:
        """Whether the library has a connection to speak SSH over."""
        raise NotImplementedError

    @property
    def has_heard(self) -> bool:
        """Whether the server has said which SSH it speaks."""
        raise NotImplementedError

    @property
    def stage(self) -> str:
        """What was waited for when it took too long."""
        if not self.is_connected:
            return "the host does not answer"
        if not self.has_heard:
            return sockets.NO_SSH
        if self.is_asking:
            return sockets.NO_AGENT
        return "the server stopped answering while it " + ("let us in" if self.is_authenticating else "said who it is")


_Explain = Callable[[Any, Hop, Handshake | None], errors.HostError]
Table = Sequence[tuple[type[Exception], _Explain]]


@contextlib.contextmanager
def translated(table: Table, hop: Hop, handshake: Handshake | None) -> Iterator[None]:
    """Turn a library's exceptions into ours by the first line of a table that fits; the cause is kept.

    Args:
        handshake: None once it is over: a command is being started.

    Raises:
        TimeoutError: during the handshake; the caller knows what it was waiting for.
        UsageError: this machine has no more files.
    """
    try:
        yield
    except tuple(foreign for foreign, _ in table) as exc:
        if isinstance(exc, TimeoutError) and handshake is not None:
            raise
        if isinstance(exc, OSError):
            open_files.check(exc)
        explain = next(explain for foreign, explain in table if isinstance(exc, foreign))
        raise explain(exc, hop, handshake) from exc


def reason_of(exc: Exception) -> str:
    """The library's own words for an exception, on one line."""
    words = (getattr(exc, name, None) for name in ("reason", "text", "strerror"))
    reason = next((word for word in words if word), None) or str(exc)
    return readable(str(reason)).removesuffix(".") or type(exc).__name__


def closed(exc: Exception, hop: Hop, handshake: Handshake | None) -> errors.HostError:
    """The connection ended."""
    reason = reason_of(exc)
    if handshake is None:
        error = errors.ConnectionClosed(f"the connection is gone ({reason})", host=hop.name)
    elif handshake.is_connected and not handshake.has_heard:
        return sockets.hung_up(hop)
    else:
        where = "while it let us in" if handshake.is_authenticating else "during the key exchange"
        error = errors.ConnectionClosed(f"{hop.place} hung up {where} ({reason})", host=hop.name)
        error.hint = "sshd's log on the host says why"
    error.is_transient = False
    return error


def cut_off(exc: Exception, hop: Hop, handshake: Handshake | None) -> errors.HostError:
    """The connection ended without a word: before the host key came, for lack of a common algorithm."""
    if handshake is not None and handshake.has_heard and not handshake.has_key:
        return no_common(exc, hop, handshake)
    return closed(exc, hop, handshake)


def no_common(exc: Exception, hop: Hop, handshake: Handshake | None) -> errors.HostError:
    hint = "see what the server has with `ssh -vv`, and allow it in ssh_config (KexAlgorithms, Ciphers, ...)"
    reason = "it hung up" if isinstance(exc, EOFError) else reason_of(exc)
    return errors.NoCommonAlgorithm(f"no common algorithm ({reason})", host=hop.name, hint=hint)


def no_ssh(exc: Exception, hop: Hop, handshake: Handshake | None) -> errors.HostError:
    reason = f"{hop.place} does not speak SSH as we do ({reason_of(exc)})"
    return errors.Unreachable(reason, host=hop.name, hint="is this the port of sshd?")


def no_channel(exc: Exception, hop: Hop, handshake: Handshake | None) -> errors.HostError:
    """The server opens no channel: for a command, or as a jump host."""
    reason = reason_of(exc)
    if handshake is not None and hop.jump is not None:
        hint = f"try it from there: ssh {hop.jump.name} nc -vz {hop.address} {hop.port}"
        kind = errors.ConnectionRefused if "refused" in reason.lower() else errors.Unreachable
        return kind(f"jump host {hop.jump.name} can't reach {hop.place}: {reason}", host=hop.name, hint=hint)
    hint = "MaxSessions of sshd may be 0 or used up, or the account may run no commands"
    return errors.ChannelRefused(f"the server starts no command ({reason})", host=hop.name, hint=hint)


def refused(exc: Exception, hop: Hop, handshake: Handshake | None) -> errors.HostError:
    return refusals.explain(hop, handshake.attempt if handshake else refusals.Attempt())


def bad_key(exc: Exception, hop: Hop, handshake: Handshake | None) -> errors.HostError:
    return errors.KeyUnusable(f"a key can't be used: {reason_of(exc)}", host=hop.name)


def garbled(exc: UnicodeDecodeError, hop: Hop, handshake: Handshake | None) -> errors.HostError:
    """The library could not read what the server said in some other encoding: most often its last words."""
    said = quoted(bytes(exc.object), before=": it said")
    error = errors.ConnectionClosed(f"{hop.place} says what can't be read{said}", host=hop.name)
    error.hint = "sshd's log on the host may say why; --transport openssh takes text of any encoding"
    error.is_transient = False
    return error
