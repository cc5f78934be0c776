"""Private names of asyncssh and paramiko that we use, each with a fallback; the only place for them.

If a version of a library lacks one, that costs a round trip, the number of a signal or the like, never a host. The
house tests forbid private names of libraries elsewhere in `transport`.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

# of asyncssh's SSHClientConnection
AUTH_METHODS = "_auth_methods"
AUTH = "_auth"
CHOOSE_SIGNATURE = "_choose_signature_alg"
# of paramiko's Transport
CHANNEL_HANDLERS = "_channel_handler_table"
TABLES = {"host key": "_key_info", "key exchange": "_kex_info", "cipher": "_cipher_info", "MAC": "_mac_info"}
# of paramiko's Channel
HANDLE_REQUEST = "_handle_request"
# of paramiko's AgentSSH
AGENT_CONNECT, AGENT_CLOSE = "_connect", "_close"

Ask = Callable[..., Awaitable[None]]


def begin_with_keys(conn: Any) -> None:
    """Let asyncssh skip the question which methods there are, a round trip: the answer to the first key has it too."""
    if getattr(conn, AUTH_METHODS, None) == [b"none"]:
        setattr(conn, AUTH_METHODS, [b"publickey"])


def sign_at_once(conn: Any, pair: Any) -> None:
    """Let asyncssh prove that it has a key without asking first whether it would do: saves a round trip."""
    handler = getattr(conn, AUTH, None)
    ask: Ask | None = getattr(handler, "send_request", None)
    if ask is None or not {"key", "trivial"} <= set(inspect.signature(ask).parameters):
        return

    async def prove(*fields: bytes, **options: Any) -> None:
        if options or fields[:1] != (b"\0",):  # it asks for something else
            await ask(*fields, **options)
        else:
            await ask(b"\1", *fields[1:], key=pair, trivial=False)

    handler.send_request = prove  # type: ignore[union-attr]


def signature_chooser(conn: Any) -> Callable[[Any], bool] | None:
    """Finds out how a key signs for this server; None where asyncssh keeps that to itself."""
    found: Callable[[Any], bool] | None = getattr(conn, CHOOSE_SIGNATURE, None)
    return found


def possible(client: Any, what: str, offered: Iterable[str]) -> list[str]:
    """The algorithms that paramiko has, else those that it offers by itself."""
    return list(getattr(client, TABLES[what], None) or offered)


def with_requests(transport: type, channel: type, handler_of: Callable[[Callable[..., None]], Any], kind: int) -> None:
    """Have a subclass of paramiko's Transport hand channel requests to us first; without the table it does not."""
    handlers = getattr(transport, CHANNEL_HANDLERS, None)
    handle = getattr(channel, HANDLE_REQUEST, None)
    if isinstance(handlers, dict) and handle is not None:
        setattr(transport, CHANNEL_HANDLERS, {**handlers, kind: handler_of(handle)})


def agent_opener(agent: Any) -> tuple[Callable[[Any], None], Callable[[], None]] | None:
    """What connects an agent of paramiko's to a socket, and closes it; None where it can't be told which socket."""
    connect, close = getattr(agent, AGENT_CONNECT, None), getattr(agent, AGENT_CLOSE, None)
    return (connect, close) if connect is not None and close is not None else None
