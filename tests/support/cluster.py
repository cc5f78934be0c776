"""A cluster of virtual hosts on one Linux machine, and the controller's place in their network. Needs root.

Every host is a network, pid, mount, hostname and ipc namespace with its own file system and OpenSSH server; the
controller stands in a network namespace of its own, and nothing leaves the machine. All of it hangs on processes that
end with this one, so nothing is left when the tests are killed.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import network
from tests.support.controller import Controller
from tests.support.host import VirtualHost, run_ip
from tests.support.waiting import PATIENCE, wait_until

# The holder keeps the controller's namespaces alive until its stdin ends. It sees this machine's files, apart from
# those that say who is where.
HOLD = """set -eu
mount --make-rprivate /
for name in hosts nsswitch.conf; do mount --bind "$1/$name" "/etc/$name"; done
[ ! -e /etc/resolv.conf ] || mount --bind /dev/null /etc/resolv.conf
echo ready
exec cat >/dev/null
"""


class Cluster(Controller):
    """`with Cluster(3) as cluster:` gives hosts h1, h2, h3 that are up. All hosts are `cluster.hosts`; `cluster["h1"]`.

    Args:
        count: how many hosts.
        names: their names, else h1, h2, ...
        delay: seconds that every frame of every host travels, each way.
        sshd_config: lines that go before ours in each sshd_config, such as "MaxStartups 10:30:100".
        share: a folder of this machine that every host sees, read-write, at the same path.
        see: files and folders of this machine that every host sees, read-only, at the same path.
    """

    def __init__(
        self,
        count: int = 3,
        *,
        names: Sequence[str] | None = None,
        delay: float = 0.0,
        sshd_config: str = "",
        share: Path | None = None,
        see: Sequence[Path] = (),
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hosts-"))
        super().__init__(self.folder)
        chosen = names if names is not None else [f"h{number}" for number in range(1, count + 1)]
        self._ports = [network.Port(number, name) for number, name in enumerate(chosen, 1)]
        self._delay, self._sshd_config = delay, sshd_config
        self._binds = [f"ro {path}" for path in see] + ([f"rw {share}"] if share else [])
        self._holder: subprocess.Popen[bytes] | None = None
        self.hosts: list[VirtualHost] = []

    # -- the life of a cluster

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._hold()
            self._make_key()
            self.hosts = [self._make_host(port) for port in self._ports]
            self._write_client_files()
            for host in self.hosts:
                host.start()
            for host in self.hosts:
                host.wait_for_sshd()
                if self._delay:
                    host.set_delay(self._delay)
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Switch everything off and remove it."""
        for host in self.hosts:
            host.off()
        if self._holder is not None:
            assert self._holder.stdin is not None
            self._holder.stdin.close()
            self._holder.wait()
            self._holder = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _hold(self) -> None:
        here = os.uname().nodename
        (self.folder / "hosts").write_text(network.hosts_file(here, self._ports))
        (self.folder / "nsswitch.conf").write_text(network.NSSWITCH)
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "/bin/sh", "-c", HOLD, "hold", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        with self._holder.stdout:
            assert self._holder.stdout.readline() == b"ready\n", "no namespaces for the controller: is this root?"
        run_ip(self._in_network(), network.controller_lines(self._ports))

    def _make_key(self) -> None:
        self.identity.parent.mkdir(mode=0o700)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tests", "-f", str(self.identity)]
        subprocess.run(command, check=True)

    def _make_host(self, port: network.Port) -> VirtualHost:
        return VirtualHost(
            port,
            self._ports,
            self.folder / port.host,
            at_controller=self._in_network(),
            public_key=self.identity.with_suffix(".pub").read_text(),
            sshd_config=self._sshd_config,
            binds=self._binds,
        )

    def _write_client_files(self) -> None:
        self.known_hosts.write_text("".join(f"{host.name},{host.address} {host.host_key}\n" for host in self.hosts))
        aliases = "".join(f"Host {host.name} {host.address}\n  HostName {host.address}\n" for host in self.hosts)
        self.ssh_config.write_text(
            f"{aliases}Host *\n  User root\n  IdentityFile {self.identity}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  StrictHostKeyChecking yes\n"
        )

    # -- the controller's place

    def _in_network(self) -> list[str]:
        assert self._holder is not None
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net"]

    def _entering(self, cwd: Path) -> list[str]:
        assert self._holder is not None
        return [*self._in_network(), f"--mount=/proc/{self._holder.pid}/ns/mnt", f"--wdns={cwd}"]

    @property
    def identity(self) -> Path:
        """The private key that every host lets in."""
        return self.home / ".ssh" / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        """Also found as ~/.ssh/config, but by OpenSSH's ssh (which asks passwd for the home) only with -F."""
        return self.home / ".ssh" / "config"

    # -- the hosts

    @property
    def hosts_option(self) -> str:
        """All names, as --hosts takes them."""
        return ",".join(host.name for host in self.hosts)

    def wait_idle(self, timeout: float = PATIENCE) -> None:
        """Wait until no host that is on runs anything but its sshd.

        Raises:
            AssertionError: something runs on; says what and where.
        """

        def busy() -> list[str]:
            return [f"{host.name}: {process}" for host in self.hosts if host.is_on for process in host.processes()]

        try:
            wait_until(lambda: not busy(), timeout)
        except AssertionError:
            raise AssertionError(f"after {timeout} s still running: {busy()}") from None

    def check_clean(self) -> None:
        """After a command that said of its runs that they are stopped: nothing of them is left, not even for a moment.

        Agents and the sessions of sshd, which end after their last word, are waited for.

        Raises:
            AssertionError: something is left; says what and where.
        """
        hosts = [host for host in self.hosts if host.is_on]
        left = [f"{host.name}: {one}" for host in hosts for one in host.processes() if "MNSPAWN_RUN_ID" in one.environ]
        assert not left, f"left of a run: {left}"
        self.wait_idle()

    def __getitem__(self, name: str) -> VirtualHost:
        return next(host for host in self.hosts if host.name == name)

    def __iter__(self) -> Iterator[VirtualHost]:
        return iter(self.hosts)
