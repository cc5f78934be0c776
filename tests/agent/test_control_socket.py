"""Who is spoken to over a control socket: processes of the agent's own account, whatever its folder lets through."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from mnspawn_agent.posix.files import control
from tests.agent.live import RUN, Account, Live

NOBODY = 65534

pytestmark = pytest.mark.netns


def as_nobody(work: Callable[[], bytes]) -> bytes:
    """What `work` gives in a process of another account."""
    heard, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(said, work())
        except OSError as exc:
            os.write(said, repr(exc).encode())
        finally:
            os._exit(0)
    os.close(said)
    with open(heard, "rb") as file:
        answer = file.read()
    os.waitpid(pid, 0)
    return answer


def test_a_socket_that_another_account_listens_at_is_not_ours(tmp_path: Path) -> None:
    address = str(tmp_path / "s")
    listener = socket.socket(socket.AF_UNIX)
    with listener, socket.socket(socket.AF_UNIX) as sock:
        listener.bind(address)

        def listen() -> bytes:
            listener.listen(1)
            return b"listens"

        assert as_nobody(listen) == b"listens"
        sock.connect(address)
        assert not control.is_ours(sock)


def test_a_socket_of_our_own_is_ours(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as sock:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)
        sock.connect(str(tmp_path / "s"))
        assert control.is_ours(sock)


def test_an_agent_hears_no_order_of_another_account(account: Account) -> None:
    """Even where the folder and the socket would let it: the order is not read, the ranks run on."""
    with Live(account) as agent:
        agent.hello()
        agent.begin("/bin/sh", "-c", "trap 'echo heard' USR1; echo up; while :; do sleep 0.05; done")
        agent.until_said(b"up")
        folder = os.open(account.pod, os.O_RDONLY | os.O_DIRECTORY)
        os.chmod(account.pod / control.SOCKET_NAME, 0o666)
        account.pod.chmod(0o711)
        try:

            def order() -> bytes:
                with socket.socket(socket.AF_UNIX) as sock:
                    sock.connect(control.address_of(folder))
                    sock.settimeout(20)
                    try:
                        sock.sendall(b'{"command": "stop", "who": "mallory", "grace": 0}\n')
                        return b"answer: " + sock.recv(100)
                    except (BrokenPipeError, ConnectionResetError):
                        return b"answer: "

            assert as_nobody(order) == b"answer: "
        finally:
            os.close(folder)
            account.pod.chmod(0o700)
        with Live(account, ("order", RUN, "0", "signal", "SIGUSR1")) as ordering:
            assert ordering.read_line() == b'{"ok": true}'
        agent.until_said(b"heard")
