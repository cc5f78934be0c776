"""What a prelude leaves to the ranks, how its end is told, and that nothing of its rehearsal stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mnspawn.core.agent_events import Refused
from mnspawn.plan.launch_plan import Program
from mnspawn_agent.protocol import messages
from tests.agent.live import Account, Live, is_alive
from tests.support import PATIENCE, wait_until
from tests.support.controller import REPOSITORY

SHOW = (
    "import os, sys; print(sys.argv[1:], os.environ.get('SEEN'), os.getcwd(), [n for n in os.environ if 'PREL' in n])"
)
BASH_OR_SH = pytest.mark.parametrize("has_bash", [True, False])


def refusal(account: Account, prelude: str, *argv: str, **options: object) -> tuple[str, ...]:
    with Live(account) as agent:
        with pytest.raises(AssertionError, match="Refused"):
            agent.prepare(*(argv or ("true",)), prelude=prelude, **options)
        return agent.until_a(Refused).reasons


def without_bash(account: Account, folder: Path) -> None:
    """A PATH with all that a prelude of these tests calls, and no bash."""
    folder.mkdir()
    for name in ("cat", "sleep", "env"):
        (folder / name).symlink_to(f"/bin/{name}")
    account.path = str(folder)


def run(account: Account, prelude: str, *args: str) -> str:
    """What a rank shows behind a prelude."""
    with Live(account) as agent:
        agent.begin(sys.executable, "-c", SHOW, *args, prelude=prelude)
        assert agent.until_drained(0) == {0: 0}
        return agent.text().decode()


@BASH_OR_SH
def test_a_program_gets_what_the_prelude_leaves_and_its_own_arguments(
    account: Account, tmp_path: Path, has_bash: bool
) -> None:
    if not has_bash:
        without_bash(account, tmp_path / "bin")
    prelude = "set -u\nexport SEEN='a\nb'\ncd /usr\nset -- x y; [ -e /nope ] && . /nope"
    assert run(account, prelude, "$x", "", "c d") == "['$x', '', 'c d'] a\nb /usr []\n"


def test_a_prelude_sees_no_arguments_no_input_and_the_rank_that_it_runs_for(account: Account) -> None:
    with Live(account) as agent:
        agent.begin("true", prelude='cat; echo $# "$RANK" "${MASTER_PORT:+port}"', nproc=2, contracts=("torch",))
        assert agent.until_drained(0, 1) == {0: 0, 1: 0}
        assert [agent.text(rank) for rank in (0, 1)] == [b"0 0 port\n", b"0 1 port\n"]


@pytest.mark.parametrize("login_shell", ["/bin/sh", "/bin/bash"])
def test_bash_runs_the_prelude_whatever_started_the_agent(account: Account, login_shell: str) -> None:
    account.shell = login_shell
    assert "yes" in run(account, "source /dev/null; f() { export SEEN=yes; }; [[ -n $BASH_VERSION ]] && f")


@BASH_OR_SH
@pytest.mark.parametrize(
    ("prelude", "told"),
    [
        ("false", "ended with status 1 and printed nothing\na command in it failed: write `|| true` after"),
        ("echo said; exit 3", "ended with status 3\nsaid"),
        ("exit 0", "left with status 0 before its end"),
        ("true\nif true; then", "ended with status 2\n"),
        (". /nope/activate\nexport A=1", "/nope/activate"),
        ("export A=1\nno-such-command\ntrue", "ended with status 127\n"),
        ("kill -9 $$", "was ended by signal 9"),
    ],
)
def test_a_prelude_that_fails_is_told_as_such_with_what_it_printed(
    account: Account, tmp_path: Path, prelude: str, told: str, has_bash: bool
) -> None:
    if not has_bash:
        without_bash(account, tmp_path / "bin")
    (reason,) = refusal(account, prelude, "no-such-command-either")
    assert reason.startswith("the prelude ")
    assert told in reason


def test_lines_of_a_prelude_are_numbered_as_they_were_written(account: Account) -> None:
    (reason,) = refusal(account, "true\nsource /nope/activate")
    assert reason.splitlines() == [
        "the prelude ended with status 1", "prelude: line 2: /nope/activate: No such file or directory",
    ]  # fmt: skip


def test_commands_inside_of_what_a_prelude_sources_may_fail(account: Account, tmp_path: Path) -> None:
    (tmp_path / "activate").write_text("false\nexport SEEN=yes\n")
    assert " yes " in run(account, f"source {tmp_path}/activate; f() {{ false; true; }}; f")


def test_a_shim_is_asked_where_it_leads_behind_the_prelude(account: Account, tmp_path: Path) -> None:
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec ${{OTHER:-{account.python}}} "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    account.path = f"{tmp_path}:/usr/bin:/bin"
    for prelude, python in ((f"export OTHER={sys.executable}", tmp_path / "python3"), ("true", account.python)):
        with Live(account) as agent:
            assert agent.prepare(program=Program("module", "x"), prelude=prelude).python == str(python)


def test_the_interpreter_is_the_one_that_was_activated(account: Account, tmp_path: Path) -> None:
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(os.path.realpath(sys.executable))
    activate = f"export VIRTUAL_ENV={tmp_path}/venv PATH={folder}:$PATH"
    with Live(account) as agent:
        assert agent.prepare(program=Program("module", "x"), prelude=activate).python == str(folder / "python3")
    with Live(account) as agent:
        assert agent.prepare(program=Program("module", "x"), prelude="export A=1").python == str(account.python)
    with Live(account) as agent:
        answer = agent.prepare(program=Program("module", "x"), python="python3", prelude=activate)
        assert answer.python == str(folder / "python3")


def test_a_version_that_is_asked_for_is_that_of_the_activated_interpreter(account: Account, tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\necho 3.4\n")
    (tmp_path / "python3").chmod(0o755)
    reasons = refusal(account, f"PATH={tmp_path}:$PATH", program=Program("module", "x"), python_version=(3, 11))
    assert reasons[0].startswith(f"expected Python 3.11, as here, to run the function, found 3.4 at {tmp_path}/python3")


def test_an_activated_environment_without_its_python_is_refused(account: Account, tmp_path: Path) -> None:
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to("/nope/python3.9")
    assert refusal(account, f"export VIRTUAL_ENV={tmp_path}/venv PATH={folder}:$PATH") == (
        f"the prelude activates {tmp_path}/venv, which has no Python that can be executed in its bin",
    )
    assert refusal(account, "export VIRTUAL_ENV=/moved/away PATH=/moved/away/bin:$PATH") == (
        "the prelude activates /moved/away, which has no Python that can be executed in its bin",
    )


def test_commands_are_looked_up_where_the_prelude_leads(account: Account, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho here\n")
    (tmp_path / "tool").chmod(0o755)
    for prelude, command in ((f"PATH={tmp_path}:$PATH", "tool"), (f"cd {tmp_path}", "./tool"), ("PATH=", "/bin/true")):
        with Live(account) as agent:
            agent.begin(command, prelude=prelude)
            assert agent.until_drained(0) == {0: 0}
    assert refusal(account, f"PATH={tmp_path}", "toool") == ("no command toool after the prelude",)


def test_a_path_that_is_given_counts_without_a_prelude(account: Account, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho here\n")
    (tmp_path / "tool").chmod(0o755)
    with Live(account) as agent:
        agent.begin("tool", env=(("PATH", f"{tmp_path}:/usr/bin:/bin"),))
        assert agent.until_drained(0) == {0: 0}


def test_nothing_of_a_rehearsal_is_left(account: Account, tmp_path: Path) -> None:
    prelude = (
        f"sleep 1000 & echo $! >>{tmp_path}/pids; (setsid sh -c 'echo $$ >>{tmp_path}/pids; exec sleep 1000' &) ; true"
    )
    with Live(account) as agent:
        agent.prepare("true", prelude=prelude)
        wait_until(lambda: not any(is_alive(int(pid)) for pid in (tmp_path / "pids").read_text().split()))


def test_a_link_that_ends_ends_a_prelude_that_hangs(account: Account, tmp_path: Path) -> None:
    def cut() -> None:
        wait_until((tmp_path / "pid").exists)
        agent.cut()

    with Live(account) as agent:
        agent.before_answer = cut
        with pytest.raises((AssertionError, ValueError)):
            agent.prepare("true", prelude=f"echo $$ >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 1000")
        wait_until(lambda: not is_alive(int((tmp_path / "pid").read_text())))
        assert agent.wait() == 0


ALONE = """
import sys
from mnspawn_agent.posix.run import prelude
try:
    print(prelude.rehearse(sys.argv[1], {"PATH": "/usr/bin:/bin"}, "/", lambda: None, lambda: None, 0.5))
except prelude.PreludeFailed as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("prelude", "told"),
    [
        ("echo asking; sleep 1000", "the prelude did not end within 0 s\nasking\n"),
        ("while :; do :; done", "the prelude did not end within 0 s and printed nothing\n"),
        ("exec 2>&1; yes no", "the prelude did not end within 0 s\n" + "no\n" * 20),
    ],
)
def test_a_prelude_that_never_ends_is_ended(agent_python: Path, prelude: str, told: str) -> None:
    done = subprocess.run(
        [agent_python, "-c", ALONE, prelude], env={"PYTHONPATH": str(REPOSITORY / "agent")}, check=True,
        stdout=subprocess.PIPE, timeout=PATIENCE, text=True,
    )  # fmt: skip
    assert done.stdout == told


def test_an_environment_that_is_too_big_is_refused_with_its_largest_variables(account: Account) -> None:
    big = tuple((name, "x" * 100_000) for name in ("ONE", "TWO"))
    with Live(account) as agent:
        small_stack(agent)
        with pytest.raises(AssertionError, match="Refused"):
            agent.prepare("true", "y" * 50_000, env=(*big, ("SMALL", "secret")))
    (reason,) = agent.until_a(Refused).reasons
    assert reason.startswith("environment and arguments take 25")
    assert "more than the 131072 that this host allows (a quarter of its stack limit, ulimit -s 64)" in reason
    assert "arguments take 50022, the largest variables: ONE 100005, TWO 100005" in reason
    assert "secret" not in reason


def small_stack(agent: Live) -> None:
    """As `ulimit -s 64` before the agent was started."""
    subprocess.run(["prlimit", f"--stack={64 << 10}:{64 << 10}", "--pid", str(agent.pid)], check=True)


def test_what_a_prelude_exports_counts_as_well(account: Account) -> None:
    (reason,) = refusal(account, "A=$(printf %131070s x); export A")
    assert "Argument list too long" in reason


def test_an_environment_that_grows_too_big_later_is_told_as_such(account: Account) -> None:
    with Live(account) as agent:
        answer = agent.prepare("true")
        small_stack(agent)
        message = {"unset": [], "env": {"BIG": "x" * 131_000, "B2": "y" * 90_000}, "files": [], "is_forked": False}
        agent.send(messages.START, argv=["true"], workers=[{"rank": 0, "local_rank": 0, "env": {}}], **message)
        said = agent.until(lambda event: type(event).__name__ == "NotStarted")
    assert answer.ports
    assert "true: environment and arguments take 22" in said.error  # type: ignore[union-attr]
    assert "BIG 131005, B2 90004" in said.error  # type: ignore[union-attr]
