"""Commands of Match exec: run once, without a terminal, ended in time with all that they started."""

import asyncio
import subprocess
from functools import partial
from pathlib import Path

import pytest

from mnspawn import errors, transport
from mnspawn.engine.link.dial import dial
from mnspawn.system.threads import in_daemon_thread
from mnspawn.transport import SshOptions, Target
from mnspawn.transport.config.ssh_config import SshConfig
from tests.support.waiting import PATIENCE, wait_until

SHORT = 1.0  # seconds that a command which hangs is given


def hanging(tmp_path: Path, command: str = "sleep 987 & echo $! >{pid}; wait") -> tuple[Path, Path]:
    """A config whose second line hangs, and the file that its command writes the number of its child to."""
    config, pid = tmp_path / "config", tmp_path / "pid"
    config.write_text(f'# first\nMatch exec "{command.format(pid=pid)}"\n  Port 1\n')
    return config, pid


def is_gone(pid: Path) -> bool:
    return not Path(f"/proc/{pid.read_text().strip()}").exists()


async def test_a_command_that_hangs_is_ended_and_told_in_one_clear_line(ssh_name: str, tmp_path: Path) -> None:
    config, pid = hanging(tmp_path)
    shared = transport.create(ssh_name, SshOptions(config=config, connect_timeout=SHORT))
    try:
        targets = [Target(f"h{number}") for number in range(20)]
        async with asyncio.timeout(PATIENCE):
            answers = [answer async for _, answer in dial([shared] * 20, targets, connect_timeout=SHORT)]
    finally:
        await shared.close()
    assert {type(answer) for answer in answers} == {errors.ConnectTimeout}
    assert all(isinstance(one, errors.HostError) and f"{config}:2" in one.message for one in answers)
    wait_until(lambda: is_gone(pid), what="the child of the command is gone")


async def test_giving_up_ends_the_command(tmp_path: Path) -> None:
    config, pid = hanging(tmp_path)
    shared = transport.create("asyncssh", SshOptions(config=config, connect_timeout=PATIENCE))
    asked = asyncio.create_task(in_daemon_thread(lambda: shared.endpoint(Target("h"))))
    runs = partial(wait_until, lambda: pid.exists() and pid.read_text().strip() != "", what="the command runs")
    await asyncio.to_thread(runs)
    await shared.close()
    with pytest.raises(errors.ConnectTimeout):
        await asked
    wait_until(lambda: is_gone(pid), what="the child of the command is gone")


def test_all_commands_of_a_host_share_its_patience(tmp_path: Path) -> None:
    """None of them takes too long alone."""
    config, ran = tmp_path / "config", tmp_path / "ran"
    command = f"echo >>{ran}; sleep 0.3; exit"
    config.write_text("".join(f'Match exec "{command} {number}"\n  Port 1\n' for number in range(1, 9)))
    with pytest.raises(errors.ConnectTimeout, match=f"{config}:"):
        SshConfig(config, patience=SHORT).lookup("h")
    assert ran.read_text().count("\n") <= 4  # the rest has not begun


def test_a_command_is_run_once_for_all_hosts_unless_it_is_about_one(tmp_path: Path) -> None:
    config = tmp_path / "config"
    of_all, of_each = f"echo x >>{tmp_path}/all", f"echo %h >>{tmp_path}/each; test %n = b"
    config.write_text(f'Match exec "{of_all}"\n  Port 7\nMatch exec "{of_each}"\n  User u\n')
    read = SshConfig(config)
    found = [read.lookup(name) for name in ("a", "b", "a")]
    assert [(one.port, one.text("user")) for one in found] == [(7, None), (7, "u"), (7, None)]
    assert (tmp_path / "all").read_text() == "x\n"
    assert (tmp_path / "each").read_text() == "a\nb\n"


def test_a_shell_that_is_not_there_is_told_as_ssh_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/nowhere/sh")
    config = tmp_path / "config"
    config.write_text("Match exec true\n  Port 7\n")
    with pytest.raises(errors.UsageError, match="can't be run: No such file") as caught:
        SshConfig(config).lookup("h")
    assert caught.value.place == f"{config}:1"
    assert subprocess.run(["ssh", "-G", "-F", config, "h"], capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize(
    ("lines", "target"),
    [
        ('HostName x;touch$IFS{mark}\nMatch exec "echo %h"\n', Target("h")),
        ('User x;touch$IFS{mark}\nMatch exec "echo %r"\n', Target("h")),
        ('Match exec "echo %r"\n', Target("h", user="x;touch$IFS{mark}")),
    ],
)
async def test_names_that_are_code_reach_no_shell(ssh_name: str, tmp_path: Path, lines: str, target: Target) -> None:
    mark = tmp_path / "mark"
    config = tmp_path / "config"
    config.write_text(lines.replace("{mark}", str(mark)))
    if target.user:
        target = Target(target.name, user=target.user.replace("{mark}", str(mark)))
    shared = transport.create(ssh_name, SshOptions(config=config, connect_timeout=PATIENCE))
    try:
        with pytest.raises((errors.UsageError, errors.SettingsUnusable), match="a shell would take as code"):
            shared.endpoint(target)
    finally:
        await shared.close()
    assert not mark.exists()
