"""One virtual host: power, network faults, and a look inside past SSH."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import network
from tests.support.commands import Finished, Running
from tests.support.waiting import PATIENCE, wait_until

BOOT = Path(__file__).with_name("boot_host.sh")
WIRE = Path(__file__).with_name("wire.py")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FOLDERS = "dev etc home mnt opt proc root run srv sys tmp usr var/empty var/log var/tmp"
SSH_PORT_LISTENS = ":0016 00000000:0000 0A"  # as /proc/net/tcp says it

SSHD_CONFIG = """\
Port 22
HostKey /etc/ssh/vhost_key
PidFile none
AuthorizedKeysFile /etc/ssh/authorized_keys
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
MaxStartups 500:30:1000
MaxSessions 500
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True)
class HostProcess:
    """A process as its host numbers it."""

    pid: int
    argv: tuple[str, ...]
    environ: Mapping[str, str]


class VirtualHost:
    """A host with its own network, processes, file system, name and sshd. Made by a Cluster."""

    def __init__(
        self,
        port: network.Port,
        ports: Sequence[network.Port],
        folder: Path,
        *,
        at_controller: Sequence[str],
        public_key: str,
        sshd_config: str,
        binds: Sequence[str],
    ) -> None:
        self.name = port.host
        self.address = port.address
        self.address6 = network.address6_of(port.number)
        self.disk = folder / "disk"
        self._port, self._ports, self._binds = port, ports, binds
        self._at_controller = at_controller
        self._log = folder / "sshd.log"
        self._machine: subprocess.Popen[bytes] | None = None
        self._wire: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._install(public_key, sshd_config)

    def _install(self, public_key: str, sshd_config: str) -> None:
        for name in FOLDERS.split():
            (self.disk / name).mkdir(parents=True, exist_ok=True)
        self.disk.chmod(0o755)
        (self.disk / "root").chmod(0o700)
        (self.disk / "var/tmp").chmod(0o1777)
        (self.disk / "var/run").symlink_to("/run")
        for name in ("bin", "lib", "lib32", "lib64", "libx32", "sbin"):
            if (here := Path("/", name)).is_symlink():
                (self.disk / name).symlink_to(here.readlink())
        etc = self.disk / "etc"
        subprocess.run(["cp", "--archive", "/etc/.", etc], check=True)
        for name in ("resolv.conf", "nsswitch.conf", "hosts", "hostname"):
            (etc / name).unlink(missing_ok=True)
        (etc / "hosts").write_text(network.hosts_file(self.name, self._ports))
        (etc / "hostname").write_text(self.name + "\n")
        (etc / "nsswitch.conf").write_text(network.NSSWITCH)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", etc / "ssh/vhost_key"], check=True)
        (etc / "ssh/authorized_keys").write_text(public_key)
        (etc / "ssh/sshd_config").write_text(f"{sshd_config}\n{SSHD_CONFIG}")  # the first value of a name counts

    @property
    def host_key(self) -> str:
        """Type and key, as known_hosts has them."""
        return " ".join((self.disk / "etc/ssh/vhost_key.pub").read_text().split()[:2])

    @property
    def log(self) -> str:
        """What booting and sshd said."""
        return self._log.read_text(errors="replace")

    # -- power

    @property
    def is_on(self) -> bool:
        return self._machine is not None and self._machine.poll() is None

    def boot(self) -> None:
        """Switch on and wait for sshd: the disk is as it was; /tmp, /run, /usr and the network are as new."""
        self.start()
        self.wait_for_sshd()

    def start(self) -> None:
        """Switch on without waiting for sshd."""
        assert not self.is_on, f"{self.name} is on already"
        namespaces = ["--net", "--pid", "--mount", "--uts", "--ipc", "--fork", "--kill-child"]
        with self._log.open("ab") as log:
            machine = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, "/bin/sh", str(BOOT)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env={"PATH": PATH, "DISK": str(self.disk), "NAME": self.name},
            )
        self._machine = machine
        assert machine.stdin is not None
        with machine.stdin:
            machine.stdin.write("".join(f"{bind}\n" for bind in self._binds).encode())
        children = Path(f"/proc/{machine.pid}/task/{machine.pid}/children")

        def first_process() -> list[str]:
            assert self.is_on, f"{self.name} did not boot:\n{self.log}"
            return children.read_text().split()

        self._init = int(wait_until(first_process, what=f"{self.name} boots")[0])
        self._ip(network.plug_lines(self._port, str(self._init)))
        self._configure_network()

    def wait_for_sshd(self) -> None:
        """Wait until the host takes connections."""

        def is_listening() -> bool:
            assert self.is_on, f"{self.name} did not boot:\n{self.log}"
            return SSH_PORT_LISTENS in Path(f"/proc/{self._init}/net/tcp").read_text()

        wait_until(is_listening, what=f"sshd of {self.name} listens")

    def off(self) -> None:
        """Power cut: everything dies at once, and no socket says goodbye."""
        if self._machine is None:
            return
        if self.is_on:
            self._unplug()
            os.kill(self._init, signal.SIGKILL)
        self._machine.wait()
        self._machine = None

    # -- network

    def _ip(self, lines: Sequence[str]) -> None:
        """Work on the controller's end of the cable."""
        run_ip(self._at_controller, lines)

    def _configure_network(self) -> None:
        run_ip(["nsenter", f"--net=/proc/{self._init}/ns/net"], network.host_lines(self._port, self._ports))

    def cut(self) -> None:
        """Lose every frame, both ways, without a sign."""
        self._ip(network.cut_lines(self._port))

    def heal(self) -> None:
        """End `cut`."""
        self._ip(network.join_lines(self._port))

    def set_delay(self, seconds: float) -> None:
        """Let every frame travel `seconds` each way (0: as fast as it goes); connections live on."""
        self._unplug()
        if seconds:
            self._start_wire(seconds)
            self._ip(network.join_lines(self._port))
        else:
            self._ip(network.plug_lines(self._port, str(self._init)))
        self._configure_network()

    def _start_wire(self, seconds: float) -> None:
        wire = [sys.executable, "-I", str(WIRE), self._port.device, f"/proc/{self._init}/ns/net", str(seconds)]
        self._wire = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *self._at_controller, *wire],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._wire.stdout is not None
        with self._wire.stdout:
            assert self._wire.stdout.readline(), "the slow cable did not come up"

    def _unplug(self) -> None:
        if self._wire is None:
            self._ip(network.unplug_lines(self._port))
        else:  # its two ends go with it
            self._wire.kill()
            self._wire.wait()
            self._wire = None

    def freeze(self) -> None:
        """Stop sshd: connections are taken by the kernel and nobody ever says a word."""
        os.kill(self._init, signal.SIGSTOP)

    # -- inside

    def path(self, inside: str) -> Path:
        """A file of the host, as this process reaches it (the disk only, while it is off)."""
        root = Path(f"/proc/{self._init}/root") if self.is_on else self.disk
        return root / inside.lstrip("/")

    def write(self, inside: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the host, folders included."""
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def start_command(self, *argv: str, env: Mapping[str, str] | None = None, **popen: Any) -> Running:
        """Start a command inside as root, past SSH. Use it in a `with` statement."""
        enter = ["nsenter", "--target", str(self._init), "--mount", "--uts", "--ipc", "--net", "--pid", "--wdns=/"]
        base = {"PATH": PATH, "HOME": "/root", "USER": "root", "LANG": "C.UTF-8"}
        return Running([*enter, *argv], env={**base, **(env or {})}, cwd=Path("/"), **popen)

    def run(
        self,
        *argv: str,
        timeout: float = PATIENCE,
        env: Mapping[str, str] | None = None,
        **popen: Any,
    ) -> Finished:
        """Run a command inside as root, past SSH, to its end."""
        with self.start_command(*argv, env=env, **popen) as running:
            return running.wait(timeout)

    def processes(self, run_id: str | None = None) -> list[HostProcess]:
        """What runs inside, or what carries `run_id` in its environment or arguments; zombies and sshd left out."""
        found = []
        for folder in self.path("/proc").iterdir():
            if folder.name.isdecimal() and folder.name != "1" and (process := _process(folder)):
                carries = run_id is None or any(run_id in text for text in (*process.argv, *process.environ.values()))
                if carries and not process.argv[0].startswith(("sshd:", "/usr/sbin/sshd")):
                    found.append(process)
        return sorted(found, key=lambda process: process.pid)

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process, by the host's own numbering."""
        self.run("kill", f"-{int(number)}", str(pid)).check()

    # -- what a host can be like

    def set_shell(self, shell: str, user: str = "root") -> None:
        """Change a user's login shell."""
        passwd = self.path("/etc/passwd")
        lines = [line.split(":") for line in passwd.read_text().splitlines()]
        changed = [[*line[:6], shell] if line[0] == user else line for line in lines]
        passwd.write_text("".join(":".join(line) + "\n" for line in changed))

    def add_user(self, name: str, shell: str = "/bin/bash", uid: int = 2000) -> None:
        """Add a user with a home, whom the cluster's key lets in."""
        for file, line in (
            ("passwd", f"{name}:x:{uid}:{uid}::/home/{name}:{shell}"),
            ("group", f"{name}:x:{uid}:"),
            ("shadow", f"{name}:*:19000:0:99999:7:::"),
        ):
            with self.path(f"/etc/{file}").open("a") as lines:
                lines.write(line + "\n")
        home = self.path(f"/home/{name}")
        home.mkdir()
        os.chown(home, uid, uid)

    def configure_sshd(self, extra: str) -> None:
        """Put lines in front of sshd_config and let sshd read it; sessions that run are not touched."""
        config = self.path("/etc/ssh/sshd_config")
        config.write_text(f"{extra}\n{SSHD_CONFIG}")
        if self.is_on:
            started = self.log.count("Server listening on 0.0.0.0")
            os.kill(self._init, signal.SIGHUP)
            wait_until(lambda: self.log.count("Server listening on 0.0.0.0") > started, what="sshd starts anew")

    def mount(self, inside: str, kind: str = "tmpfs", options: str = "mode=1777") -> None:
        """Mount over a folder: `mount("/tmp", options="mode=1777,noexec")`, `mount("/root", options="size=64k")`."""
        self.run("mount", "-t", kind, "-o", options, kind, inside).check()

    def make_read_only(self, inside: str) -> None:
        """Let nothing more be written below a folder, whoever tries."""
        self.run("mount", "--bind", inside, inside).check()
        self.run("mount", "-o", "remount,bind,ro", inside).check()

    def remove(self, *patterns: str) -> None:
        """Remove files, also programs of /usr: `remove("/usr/bin/python3*")`. A boot brings /usr back."""
        self.run("/bin/sh", "-c", f"rm -rf {' '.join(patterns)}").check()


def run_ip(enter: Sequence[str], lines: Sequence[str]) -> None:
    """Run `ip` commands at a place, all or (at the first that fails) an AssertionError with what ip said."""
    batch = "\n".join(lines)
    done = subprocess.run([*enter, "ip", "-batch", "-"], input=batch, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip: {done.stderr}\n{batch}"


def _process(folder: Path) -> HostProcess | None:
    try:
        argv = (folder / "cmdline").read_bytes().split(b"\0")[:-1]
        environ = (folder / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
        return None
    if not argv:  # a zombie
        return None
    pairs = [pair.decode(errors="replace").partition("=") for pair in environ if b"=" in pair]
    words = tuple(word.decode(errors="replace") for word in argv)
    return HostProcess(int(folder.name), words, {name: value for name, _, value in pairs})
