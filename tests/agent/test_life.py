import json
import os
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest

from mnspawn.core.agent_events import Complete, Done, Drained, Exited, NotStarted, Output, Remark, Started
from mnspawn.errors import PythonMissing, PythonTooOld
from mnspawn.plan.launch_plan import Program
from mnspawn_agent.protocol import messages
from tests.agent.live import Account, Live
from tests.support import pythons, wait_until

SHELLS = [shell for name in ("bash", "dash", "zsh", "fish", "tcsh") if (shell := shutil.which(name))]
RESUMED = 'echo before; until [ -e "$GO" ]; do sleep 0.02; done; echo after'


def test_a_whole_run_under_every_python(account: Account, agent_python: Path) -> None:
    account.python = agent_python
    account.env.clear()  # a host that has seen no agent yet
    script = 'echo "out $RANK"; echo "err $RANK" >&2; exit $RANK'
    with Live(account) as agent:
        facts = agent.hello()
        assert facts["python_version"][:2] == [int(n) for n in agent_python.name.removeprefix("python").split(".")]
        assert facts["root"] == str(account.home / ".local/state/mnspawn")
        answer = agent.prepare("/bin/sh", "-c", script, nproc=2, contracts=("torch",), stops_on_failure=False)
        assert answer.run_dir == str(account.pod)
        agent.start(answer)
        assert agent.until_drained(0, 1) == {0: 0, 1: 1}
        agent.until_a(Complete)
        assert [(agent.text(rank, 1), agent.text(rank, 2)) for rank in (0, 1)] == [
            (b"out 0\n", b"err 0\n"), (b"out 1\n", b"err 1\n"),
        ]  # fmt: skip
        assert agent.until_a(Done) == Done((), 0)
        assert agent.finish() == 0
    status = json.loads((account.pod / "status.json").read_text())
    assert (status["state"], [worker["code"] for worker in status["trainers"]]) == ("done", [0, 1])
    assert agent.handshake.answer == "need"


def test_a_run_that_loses_its_link_goes_on_where_it_was_under_every_python(
    account: Account, agent_python: Path, tmp_path: Path
) -> None:
    account.python = agent_python
    go = tmp_path / "go"
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", RESUMED, env=(("GO", str(go)),), orphan_grace=600.0)
        agent.until_said(b"before\n")
        agent.cut()
        go.touch()
        wait_until(lambda: b"after" in (account.pod / "rank-0.out").read_bytes())
        with agent.come_back() as again:
            assert again.until_drained(0) == {0: 0}
            assert again.text() == b"before\nafter\n"
            again.until_a(Complete)
            assert again.finish() == 0
        assert agent.wait() == 0


@pytest.mark.parametrize("count", [0, 1, 9, 60, 150, 300, 600, 1000, 2000, 3000])
def test_a_link_cut_after_any_number_of_bytes_costs_none_of_the_output(account: Account, count: int) -> None:
    script = 'n=0; while [ $n -lt 100 ]; do echo "line $n of $RANK"; n=$((n+1)); done; exit 3'
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", script, nproc=2, contracts=("torch",), stops_on_failure=False, orphan_grace=600.0)
        agent.serve_bytes(count)
        agent.cut()
        with agent.come_back() as again:
            assert again.until_drained(0, 1) == {0: 3, 1: 3}
            again.until_a(Complete)
            assert again.finish() == 0
        assert agent.wait() == 0
    for rank in (0, 1):
        assert again.text(rank) == b"".join(b"line %d of %d\n" % (n, rank) for n in range(100))
    assert [type(event) for event in again.events].count(Exited) == 2
    assert [type(event) for event in again.events].count(Started) == 2


def test_order_per_rank_is_started_then_output_then_exited(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", "echo a; echo b >&2; echo c", nproc=2)
        agent.until_drained(0, 1)
        for rank in (0, 1):
            own = [
                type(event) for event in agent.events
                if (isinstance(event, Started | Output) and event.rank == rank)
                or (isinstance(event, Drained) and event.exited.rank == rank)
            ]  # fmt: skip
            assert (own[0], own[-1], set(own[1:-1])) == (Started, Drained, {Output})
        agent.finish()


def test_the_tail_of_stderr_comes_with_the_exit(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", 'printf "one\\n 10%%\\r100%%\\nTraceback\\n\\n" >&2; exit 3')
        assert agent.until_a(Exited).end.tail == ("one", "100%", "Traceback")
        agent.finish()


def check_a_home_named(account: Account, name: str) -> None:
    account.home = account.home / name
    account.home.mkdir()
    account.env["XDG_STATE_HOME"] = str(account.home / name)
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", "pwd; echo caf\udce9", workdir=str(account.home), orphan_grace=600.0)
        agent.until_said(b"\n")
        agent.cut()
        with agent.come_back() as again:
            assert again.until_drained(0) == {0: 0}
            again.until_a(Complete)
            assert again.finish() == 0
    assert again.text().splitlines() == [str(account.home).encode(), b"caf\xe9"]


@pytest.mark.parametrize("name", ["a b'c\"$x", "d" * 150], ids=["quotes", "long"])
def test_a_home_may_have_any_name(account: Account, name: str) -> None:
    check_a_home_named(account, name)


def test_a_home_may_have_a_name_that_is_not_ascii(account: Account, agent_python: Path) -> None:
    account.python = agent_python
    check_a_home_named(account, "größe")


def test_a_run_folder_is_for_its_owner_alone(account: Account) -> None:
    os.umask(0)  # as careless as an account can be
    try:
        with Live(account) as agent:
            agent.begin("/bin/sh", "-c", "echo x")
            agent.until_a(Complete)
            agent.finish()
    finally:
        os.umask(0o022)
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in account.pod.iterdir()}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    for folder in (account.pod, account.pod.parent, account.pod.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not (account.pod / "control").exists()


def test_a_run_that_is_not_to_be_kept_leaves_nothing(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", "echo x")
        agent.until_a(Complete)
        assert agent.finish(keep=False) == 0
    assert not account.pod.parent.exists()


def test_an_agent_that_is_let_go_before_the_start_leaves_nothing(account: Account) -> None:
    with Live(account) as agent:
        agent.prepare("/bin/sh", "-c", "echo x")
        assert agent.finish(keep=False) == 0
    assert not account.pod.exists()


@pytest.mark.parametrize("prepared", [False, True])
def test_an_agent_whose_link_breaks_before_the_start_goes_at_once(account: Account, prepared: bool) -> None:
    with Live(account) as agent:
        agent.hello()
        if prepared:
            agent.prepare("/bin/sh", "-c", "echo x")
        agent.cut()
        assert agent.wait() == 0
    assert not account.pod.exists()


def test_a_program_that_is_not_there_is_told_for_its_rank(account: Account) -> None:
    with Live(account) as agent:
        answer = agent.prepare("/bin/sh", "-c", "true")
        launch = agent._preparation.complete([answer]).pods[0]
        agent.send(
            messages.START, unset=[], env=launch.env, files=[], is_forked=False,
            argv=["/nowhere/prog"], workers=[{"rank": 0, "local_rank": 0, "env": {}}],
        )  # fmt: skip
        event = agent.until_a(NotStarted)
        assert (event.rank, event.error) == (0, "/nowhere/prog: No such file or directory")
        agent.until_a(Complete)
        assert agent.finish() == 0


def test_arguments_and_values_arrive_byte_for_byte_and_stand_in_no_command_line(
    account: Account, agent_python: Path
) -> None:
    account.python = agent_python  # without a locale: Python 3.6 then takes every path and value for ASCII
    hard = "a b\n\t'\"$HOME`id`\\ größer \udce9 " + "x" * 100_000
    script = 'printf %s "$1$HARD"; until [ -e "$GO" ]; do sleep 0.02; done'
    go = account.home / "go"
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", script, "sh", "arg\n!", env=(("HARD", hard), ("GO", str(go))))
        expected = ("arg\n!" + hard).encode("utf-8", "surrogateescape")
        agent.until(lambda _: len(agent.text()) >= len(expected))
        assert agent.text() == expected
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _is_readable(path)]
        assert [line for line in lines if b"x" * 1000 in line] == []
        go.touch()
        agent.until_drained(0)
        agent.finish()


def _is_readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_workers_see_no_input_no_stray_descriptors_and_default_signals(account: Account) -> None:
    script = (
        "import os, signal, sys; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1], sys.stdin.read() == '', "
        "[n for n in (1, 2, 13, 15, 17) if signal.getsignal(n) not in (signal.SIG_DFL, signal.default_int_handler)])"
    )
    with Live(account) as agent:
        agent.begin(str(account.python), "-c", script)
        assert agent.until_drained(0) == {0: 0}, agent.text(0, 2)
        assert agent.text() == b"[0, 1, 2] True [13]\n"  # 13: python itself ignores SIGPIPE
        agent.finish()


def test_the_script_travels_when_the_host_has_another_one(account: Account, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('x' * 10)\n" + "#" * 300_000)
    with Live(account) as agent:
        answer = agent.prepare(program=Program("script", str(script)), contracts=())
        assert answer.files == (str(script),)  # this host shares the controller's files
        agent.start(answer)
        agent.until_drained(0)
        assert agent.text() == b"xxxxxxxxxx\n"
        agent.finish()


def test_signals_are_passed_on_to_the_groups_of_the_ranks_that_are_named(account: Account) -> None:
    script = 'trap "echo got; exit 0" USR1; echo ready; while :; do sleep 0.02; done'
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", script, nproc=2)
        agent.until_said(b"ready", rank=0)
        agent.until_said(b"ready", rank=1)
        agent.send(messages.SIGNAL, signal="SIGUSR1", ranks=[1])
        assert agent.until_drained(1) == {1: 0}
        assert (agent.text(1), agent.text(0)) == (b"ready\ngot\n", b"ready\n")
        agent.send(messages.SIGNAL, signal="SIGUSR1", ranks=None)
        agent.until_drained(0)
        agent.finish()


# -- login shells


@pytest.mark.parametrize("shell", SHELLS, ids=[Path(shell).name for shell in SHELLS])
def test_every_login_shell_starts_the_agent_whatever_it_prints_first(account: Account, shell: str) -> None:
    account.shell = shell
    account.env.update(SSH_CLIENT="10.0.0.1 1 22", SSH_CONNECTION="10.0.0.1 1 10.0.0.2 22")
    fish = account.home / ".config" / "fish"
    fish.mkdir(parents=True)
    for rc in (".bashrc", ".zshenv", ".tcshrc", ".cshrc", ".config/fish/config.fish"):
        (account.home / rc).write_text('echo "Welcome"\necho ""\nprintf "no newline"\n/bin/sh -c "echo warning >&2"\n')
    with Live(account) as agent:
        assert agent.hello()["ssh_address"] == "10.0.0.2"
        agent.begin("/bin/sh", "-c", "echo fine")
        assert agent.until_drained(0) == {0: 0}
        assert agent.text() == b"fine\n"
        assert agent.finish() == 0
    if "dash" not in shell:
        assert agent.handshake.noise.startswith(b"Welcome\n\nno newline")


# -- interpreters


def test_python_2_is_too_old_and_can_say_so(account: Account) -> None:
    found = sorted(pythons.pyenv_versions().glob("2.7*/bin/python2.7"))
    if not found:
        pytest.skip("this machine has no Python 2.7")
    account.python = found[0]
    with pytest.raises(PythonTooOld, match=r"expected Python 3\.6 or newer, found 2\.7\."):
        Live(account)


def test_no_python_at_all_is_said(account: Account, tmp_path: Path) -> None:
    account.python, account.path = None, str(tmp_path)
    with pytest.raises(PythonMissing):
        Live(account)
    account.python = Path("/nowhere/python3")
    with pytest.raises(PythonMissing, match="no Python at /nowhere/python3"):
        Live(account)


@pytest.mark.parametrize("name", ["python3", "python"])
def test_the_usual_names_are_looked_for_in_the_path(account: Account, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / name).symlink_to(account.python or "")
    account.python, account.path = None, str(folder)
    with Live(account) as agent:
        assert agent.hello()["python"] == str(folder / name)
        agent.finish(keep=False)


def test_an_interpreter_in_the_home_can_be_named_with_a_tilde(account: Account) -> None:
    (account.home / "py").symlink_to(account.python or "")
    account.python = Path("~/py")
    with Live(account) as agent:
        assert agent.hello()["python"] == str(account.home / "py")
        agent.finish(keep=False)


# -- what it costs


def test_a_quiet_agent_and_its_guardian_are_small(account: Account, agent_python: Path) -> None:
    account.python = agent_python
    with Live(account) as warm:
        warm.hello()
        warm.finish(keep=False)
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", "echo up; exec sleep 100")
        agent.until_said(b"up")
        sizes = [_resident(agent.pid), _resident(agent.process.pid)]
        agent.send(messages.STOP, grace=0)
        agent.until_a(Complete)
        agent.finish()
    assert max(sizes) < 20 << 20


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"{pid} has ended")


SLOW_PYTHON = """#!/bin/sh
while [ ! -e {gate} ]; do sleep 0.05; done
exec {python} "$@"
"""


def test_an_agent_beats_while_a_slow_python_starts_and_says_which_it_was(account: Account, tmp_path: Path) -> None:
    gate, slow = tmp_path / "gate", tmp_path / "slow-python"
    slow.write_text(SLOW_PYTHON.format(gate=gate, python=sys.executable))
    slow.chmod(0o755)
    with Live(account) as agent:
        agent.hello()

        def open_after_beats(count: int = 4) -> None:
            """Beats are all that can come now: the agent waits for the interpreter, which waits for us."""
            for _ in range(count):
                agent.hear()
            assert not [event for event in agent.session.events() if not isinstance(event, Remark)]
            gate.touch()

        agent.before_answer = open_after_beats
        agent.prepare("true", python=str(slow), python_version=sys.version_info[:2])
        said = [event.text for event in agent.events if isinstance(event, Remark)]
        assert [text for text in said if re.fullmatch(rf"{slow} took \d+\.\d s to start", text)], said
