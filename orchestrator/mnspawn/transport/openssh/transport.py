"""Hosts over the system's own ssh: for ControlMaster, GSSAPI, hardware keys, and all of ssh_config. Never prompts.

Uses a session that the user has open (ControlPath), else starts one master process per host; each command is one more
ssh that goes through the master. docs/ssh.md has its limits.
"""

import asyncio
import contextlib
import math
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence

from mnspawn.errors import (
    ChannelRefused,
    ConnectionClosed,
    HostError,
    HostKeyUnknown,
    KeyUnusable,
    PassphraseNeeded,
    SettingsUnusable,
    TransportUnavailable,
    UsageError,
)
from mnspawn.system import open_files, temporary
from mnspawn.transport.base import SshOptions, Target
from mnspawn.transport.child import ChildProcess, end, leash
from mnspawn.transport.config.names import UnsafeName, check_host, check_user
from mnspawn.transport.config.pasting import Pasted, pasted, whole
from mnspawn.transport.config.route import ACCEPT_NEW, Hop, Router
from mnspawn.transport.config.ssh_config import HostConfig
from mnspawn.transport.trust import keys
from mnspawn.transport.trust.host_keys import HostKeys
from mnspawn.transport.trust.key_files import Inputs

from . import log as openssh_log
from .process import Log, Process, Ssh, Words

PREFIX = "mnspawn-ssh-"  # of folders; short: the path of a socket in one has 107 bytes
_TRIES = 64  # addresses that ssh gets time for, those of jump hosts included: more than any name has
_GRACE = 1.0  # seconds beyond its own ConnectTimeout: its message is better than ours
# settings with which ssh would do more than carry a command
_HARMLESS = {"ForkAfterAuthentication": "no", "StdinNull": "no"}
_SAYS_SO = 2.0  # seconds for ssh to read its configuration
# settings with which ssh can check hosts, and log in, without known_hosts and key files
_KNOW_HOSTS = ("controlpath", "knownhostscommand", "verifyhostkeydns")
_PROVE_US = ("controlpath", "gssapiauthentication", "hostbasedauthentication", "pkcs11provider")


class _Connection:
    def __init__(
        self,
        target: Target,
        argv: list[str],
        master: ChildProcess | None,
        log: Log,
        open_ones: "set[_Connection]",
    ) -> None:
        self._target = target
        self._argv = argv
        self._master = master
        self._log = log
        self._open_ones = open_ones
        open_ones.add(self)
        self._count = 0
        self._processes: list[Process] = []
        self._is_closed = False

    async def run(self, command: str) -> Process:
        if self._is_closed or (self._master is not None and self._master.has_ended):
            raise ConnectionClosed("the connection is gone", host=self._target.name)
        self._count += 1
        log = Log(self._log.path.with_name(f"{self._log.path.name}.{self._count}"))
        argv = [*self._argv, "-v", "-E", str(log.path), "--", self._target.ssh_name, command]
        process = Process(argv, log, self._log)
        self._processes = [one for one in self._processes if not one.is_over] + [process]
        opened = openssh_log.SESSION_OPENED if self._master is not None else "session id"
        if not await log.wait_for(opened):
            await process.close()
            reason = (openssh_log.own_words(log.text) or ["no reason given"])[0]
            raise ChannelRefused(
                f"the server starts no command ({reason})",
                host=self._target.name,
                hint="MaxSessions of sshd may be 0 or used up, or the account may run no commands",
            )
        return process

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._open_ones.discard(self)
        for process in self._processes:
            await process.close()
        if self._master is not None:
            self._master.kill(signal.SIGTERM)
        for child in [*self._processes, self._master]:
            if child is not None:
                await end(child)
        self._log.close()


class OpensshTransport:
    """A Transport: one for a whole run."""

    def __init__(self, options: SshOptions) -> None:
        self._options = options
        self._ssh = shutil.which("ssh")
        self._count = 0
        self._connections: set[_Connection] = set()  # that are open
        self._host_keys = HostKeys()
        self._inputs = Inputs(self._host_keys)
        self._router: Router | None = None
        try:
            self._router = Router(options)
        except UsageError:
            if self._refuses_config():  # a setting that only ssh knows is no error
                raise
        self._folder = temporary.Folder(PREFIX)

    def endpoint(self, target: Target) -> str:
        hop = self._hop(target)
        return hop.server if hop is not None else f"{target.address or target.ssh_name}:{target.port or 22}"

    def _hop(self, target: Target) -> Hop | None:
        """Return how the target is reached; None if only ssh itself knows."""
        if self._router is None:
            return None
        try:
            hop, config = self._router.hop(target), self._router.config(target)
            if not _has_one(config, _KNOW_HOSTS):
                self._inputs.check_known_hosts(hop)
            if not _has_one(config, _PROVE_US):
                self._inputs.check_identities(hop)
            return hop
        except TransportUnavailable:
            return None
        except UnsafeName:
            config = self._router.config(target)
            way = (
                target.jump or config.text("proxyjump"),
                target.proxy_command or config.text("proxycommand"),
            )
            if any((word or "none").lower() != "none" for word in way):  # ssh has a shell run it
                raise
            return None

    def _refuses_config(self) -> bool:
        """Whether ssh itself can't use its configuration."""
        if self._ssh is None:
            return True
        argv = [*self.argv(Target("localhost")), "-G", "--", "localhost"]
        try:
            asked = subprocess.run(
                open_files.as_given(argv), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SAYS_SO, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return asked.returncode != 0

    async def connect(self, target: Target) -> _Connection:
        _check_names(target)
        if self._ssh is None:
            hint = "install openssh-client, or use --transport asyncssh"
            raise TransportUnavailable("there is no ssh program here", host=target.name, hint=hint)
        self._count += 1
        log = Log(self._folder.path / f"log{self._count}")
        try:
            return await self._connect(target, log)
        except BaseException:
            log.close()
            raise

    async def _connect(self, target: Target, log: Log) -> _Connection:
        if await self._has_session(self.argv(target), target):
            return _Connection(target, self.argv(target), None, log, self._connections)
        jumps = [jump.name for jump in reversed(self._jumps(target))]
        control = str(log.path.with_name(log.path.name.removeprefix("log")))  # a socket for this host alone
        own = ["-o", "ControlMaster=yes", "-o", f"ControlPath={control}", "-o", "ControlPersist=no"]
        argv = self.argv(target, dials=True)
        master = Ssh([*leash(), *argv, *own, "-N", "-v", "-E", str(log.path), "--", target.ssh_name], log)
        words = Words(master)
        try:
            if not await self._is_connected(log, words, self._seconds(target)):
                raise self._explain(log.text, target, await words.finish(), jumps)
        except TimeoutError:
            await end(master)
            raise openssh_log.timed_out(log.text, target.name, self._seconds(target), words.text, jumps) from None
        except BaseException:
            await end(master)
            raise
        finally:
            await words.close()
        # if the master refuses, ssh would connect anew: this makes it give up instead
        through = ["-o", "ControlMaster=no", "-o", f"ControlPath={control}", "-o", "ProxyCommand=/bin/false"]
        return _Connection(target, [*self.argv(Target(target.ssh_name)), *through], master, log, self._connections)

    async def _is_connected(self, log: Log, words: Words, seconds: float) -> bool:
        """Whether ssh gets in. Each address has the connect timeout to itself, those of jump hosts as well.

        Raises:
            TimeoutError: it was given no more time.
        """
        now = asyncio.get_running_loop().time
        tried, deadline = 0, now() + seconds + _GRACE
        while openssh_log.CONNECTED not in log.text and not log.has_ended:
            tries = openssh_log.tries(log.text) + openssh_log.tries(words.text)
            if tried < tries <= _TRIES:
                tried, deadline = tries, now() + seconds + _GRACE
            async with asyncio.timeout_at(deadline):
                await log.wait_for_more()
        return openssh_log.CONNECTED in log.text

    def _seconds(self, target: Target) -> float:
        """The connect timeout of one address: ours, or ssh_config's where that is shorter."""
        config = self._config(target)
        return min(self._options.connect_timeout, (config and config.seconds("connecttimeout")) or math.inf)

    def _explain(self, log: str, target: Target, said: str, jumps: Sequence[str]) -> HostError | UsageError:
        """Return why ssh ended. It skips broken lines of known_hosts silently: we look for them."""
        if (unusable := openssh_log.unusable_config(log)) is not None:
            return unusable
        error = openssh_log.explain(log, target.name, said, jumps)
        if error.hint is not None:
            error.hint = whole(error.hint, self._ways(target))
        if isinstance(error, PassphraseNeeded | KeyUnusable) and self._router is not None:
            with contextlib.suppress(HostError, UsageError):
                files = [keys.inspect(path) for path in self._router.hop(target).identities]
                public = next((file for file in files if not file.is_private), None)
                if public is not None and not any(file.is_encrypted for file in files):  # as the log can't tell
                    return KeyUnusable(
                        f"key {public.path} {keys.PUBLIC}", host=target.name, hint="ssh-add the private key"
                    )
        if isinstance(error, HostKeyUnknown) and self._router is not None:
            with contextlib.suppress(HostError, UsageError):  # of ssh_config: ssh itself has understood it
                if problem := self._host_keys.problem(self._router.hop(target)):
                    return SettingsUnusable(str(problem), host=target.name, hint=problem.hint)
        return error

    def argv(self, target: Target, *, dials: bool = False) -> list[str]:
        """ssh and its options for a target, up to the name.

        Args:
            dials: whether this ssh makes the connection; then the ssh to a jump host needs our options too.
        """
        assert self._ssh is not None
        jump = self._jump(target) if dials else None
        argv = [self._ssh, "-T", "-x", "-a"]
        if self._options.config is not None:
            argv += ["-F", str(self._options.config)]
        if jump is not None:
            argv += ["-o", f"ProxyCommand={self._through(jump)}"]
        # with jumps we watch the time ourselves: to ssh the whole way is the wait for one banner
        timeout = self._seconds(target) * (_TRIES if jump is not None else 1)
        fixed = {
            "BatchMode": "yes",
            "ConnectTimeout": str(math.ceil(timeout)),
            "ClearAllForwardings": "yes",
            "PermitLocalCommand": "no",
            "RemoteCommand": "none",
            "RequestTTY": "no",
        }
        config = self._config(target)
        for name, value in _HARMLESS.items():  # only if it is set: an older ssh may not know the keyword
            if config is not None and config.get(name.lower()) is not None:
                fixed[name] = value
        if config is not None and (config.text("stricthostkeychecking") or "").lower() in ("no", "off", "false"):
            fixed["StrictHostKeyChecking"] = "accept-new"  # a changed key is never taken
        if self._options.host_key_check is not None:
            fixed["StrictHostKeyChecking"] = "accept-new" if self._options.host_key_check == ACCEPT_NEW else "yes"
        if target.address is not None:
            fixed["HostName"] = target.address
        if target.proxy_command is not None:
            fixed["ProxyCommand"] = target.proxy_command
        for name, value in fixed.items():
            argv += ["-o", f"{name}={value}"]
        way = target.jump if jump is None else None
        for option, given in (("-l", target.user), ("-p", target.port), ("-i", target.identity), ("-J", way)):
            argv += [option, str(given)] if given is not None else []
        return argv

    def _ways(self, target: Target) -> dict[str, Pasted]:
        """Return how messages name the target and its jump hosts."""
        found = {name: jump.pasted for jump in self._jumps(target) for name in (jump.name, f"{jump.user}@{jump.name}")}
        return {**found, target.name: pasted(target, self._options)}

    def _jumps(self, target: Target) -> list[Hop]:
        """Return the jump hosts on the way to a target, the last one first."""
        found, jump = [], self._jump(target)
        while jump is not None:
            found.append(jump)
            jump = jump.jump
        return found

    def _jump(self, target: Target) -> Hop | None:
        """Return the last jump host on the way to a target; None if there is none, or only ssh itself knows."""
        if self._router is None:
            return None
        try:
            return self._router.hop(target).jump
        except (HostError, UsageError):
            return None

    def _through(self, jump: Hop) -> str:
        """The ProxyCommand that ssh makes of a ProxyJump, with a connect timeout, and never asking."""
        assert self._ssh is not None
        words = [self._ssh, "-v", "-o", "BatchMode=yes"]
        words += ["-o", f"ConnectTimeout={math.ceil(jump.connect_timeout * (_TRIES if jump.jump else 1))}"]
        if self._options.config is not None:
            words += ["-F", str(self._options.config)]
        if jump.jump is not None:
            words += ["-o", f"ProxyCommand={self._through(jump.jump)}"]
        words += ["-l", jump.user, "-p", str(jump.port)]
        return f"{shlex.join(words).replace('%', '%%')} -W '[%h]:%p' {shlex.quote(jump.name)}"

    def _config(self, target: Target) -> HostConfig | None:
        """Return what ssh_config says of a target; None if only ssh itself knows."""
        if self._router is None:
            return None
        try:
            return self._router.config(target)
        except (HostError, UsageError):
            return None

    async def _has_session(self, argv: list[str], target: Target) -> bool:
        """Whether the user has a session open (ControlPath in ssh_config)."""
        check = ChildProcess([*argv, "-O", "check", "--", target.ssh_name])
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                return await check.wait() == 0
        except TimeoutError:  # it hangs, and so would any command that used it
            return False
        finally:
            await end(check)

    async def close(self) -> None:
        if self._router is not None:
            self._router.close()
        for connection in list(self._connections):
            await connection.close()
        self._folder.remove()


def _check_names(target: Target) -> None:
    try:
        for name in (target.ssh_name, target.address):
            if name is not None:
                check_host(name)
        if target.user is not None:
            check_user(target.user)
    except UsageError as exc:
        raise SettingsUnusable(str(exc), host=target.name) from exc


def _has_one(config: HostConfig, keywords: Sequence[str]) -> bool:
    return any((config.text(keyword) or "no").lower() not in ("no", "none", "false") for keyword in keywords)
