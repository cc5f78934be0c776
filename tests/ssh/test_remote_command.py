"""A command's words reach it byte for byte under every login shell, and it ends when its input does."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mnspawn.core.remote_command import command_line
from tests.support import PATIENCE, wait_until

SHELLS = [shell for name in ("sh", "bash", "dash", "zsh", "tcsh", "fish") if (shell := shutil.which(name))]
NASTY = [
    "a b", "it's", '"q"', "$HOME", "`id`", "$(id)", "!!", "a!b", "two\nlines\n\n", "tab\there", "é€", "", "-n", "%s\\n",
    "\\", "\\0101", "\\c", "*", "~", "[a]", "{a,b}", "a;b&c|d<e>f", "#", "=x", "b\udc80\udcff", "\x01\x7f", "x" * 5000,
]  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fish writes files at its first start."""
    monkeypatch.setenv("HOME", str(tmp_path))


def run(shell: str, argv: list[str]) -> subprocess.CompletedProcess[bytes]:
    with start(shell, argv) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said, diagnostics = process.stdout.read(), process.stderr.read()
        return subprocess.CompletedProcess(argv, process.wait(timeout=PATIENCE), said, diagnostics)


def start(shell: str, argv: list[str]) -> subprocess.Popen[bytes]:
    """As sshd does: the command line to the login shell, in a session of its own, its input open."""
    pipe = subprocess.PIPE
    words = [shell, "-c", command_line(argv)]
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)


@pytest.mark.parametrize("shell", SHELLS)
def test_words_arrive_byte_for_byte(shell: str) -> None:
    done = run(shell, ["printf", "%s\\000", *NASTY])
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in NASTY]
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("argv", "status"), [(["sh", "-c", "exit 7"], 7), (["no-such-command"], 127), (["/"], 126)])
def test_the_status_is_the_commands(shell: str, argv: list[str], status: int) -> None:
    assert run(shell, argv).returncode == status


def test_a_death_by_signal_says_nothing_with_a_process_id_in_it() -> None:
    done = run("/bin/sh", ["sh", "-c", "kill -SEGV $$"])
    assert done.returncode == 128 + 11
    assert not any(sign.isdigit() for sign in done.stderr.decode())


def test_the_commands_input_is_empty() -> None:
    assert run("/bin/sh", ["cat"]).stdout == b""


@pytest.mark.parametrize("shell", SHELLS)
def test_it_ends_with_all_its_children_when_its_input_does(shell: str, tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! >{tmp_path}/child; echo ready; wait"
    with start(shell, ["sh", "-c", script]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.stdin.close()
        process.wait(timeout=PATIENCE)
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_alive(child))


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_it_may_end_well_before_it_is_killed() -> None:
    with start("/bin/sh", ["sh", "-c", "trap 'echo saved; exit 0' TERM; echo ready; sleep 600 & wait"]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.stdin.close()
        assert process.stdout.read() == b"saved\n"
        process.wait(timeout=PATIENCE)
