"""A real sshd of the current user on a loopback port, with keys of its own. Needs no privileges, isolates nothing."""

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.waiting import wait_until

SSHD = "/usr/sbin/sshd"

CONFIG = """\
ListenAddress 127.0.0.1
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
MaxStartups 500:30:1000
MaxSessions 500
Subsystem sftp internal-sftp
"""


def is_installed() -> bool:
    return os.access(SSHD, os.X_OK)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class LocalSshd:
    """`with LocalSshd() as server:` the alias `local` of `server.ssh_config` leads to it.

    Args:
        sshd_config: lines that go before ours.
    """

    def __init__(self, *, sshd_config: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sshd-"))
        self.port = free_port()
        self.user = getpass.getuser()
        self.identity = self.folder / "id_ed25519"
        self.host_key = self.folder / "host_key"
        self.known_hosts = self.folder / "known_hosts"
        self.ssh_config = self.folder / "config"
        self.home = self.folder / "home"
        self.home.mkdir()
        self._extra = sshd_config
        self._log = self.folder / "log"
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def __enter__(self) -> Self:
        for key in (self.identity, self.host_key):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        public = self.host_key.with_suffix(".pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public[0]} {public[1]}\n")
        self.ssh_config.write_text(
            f"Host local\n  HostName 127.0.0.1\n  Port {self.port}\nHost *\n  User {self.user}\n"
            f"  IdentityFile {self.identity}\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.known_hosts}\n"
            "  StrictHostKeyChecking yes\n"
        )
        config = self.folder / "sshd_config"
        config.write_text(
            f"{self._extra}\nPort {self.port}\nHostKey {self.host_key}\n"
            f"AuthorizedKeysFile {self.identity}.pub\n"
            f"SetEnv HOME={self.home}\n{CONFIG}"  # the real one's .bashrc may do anything, and takes its time
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where sshd as root locks itself in; its package makes it
        with self._log.open("wb") as log:
            self._server = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(lambda: "Server listening" in self.log or self._server_ended(), what="sshd listens")
        return self

    def _server_ended(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, f"sshd did not start:\n{self.log}"
        return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait()
        shutil.rmtree(self.folder)
