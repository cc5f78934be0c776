"""A host's environment is activated before its ranks: the interpreter, commands, and how a failure is told."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Cluster, wait_until

TRANSPORTS = pytest.mark.parametrize("transport", ["asyncssh", "openssh", "paramiko"])
SHOW = "import os, sys; print(sys.executable, os.environ['VIRTUAL_ENV'], os.environ['RANK'])\n"
PAIR = ("--hosts", "h1,h2", "--nproc-per-node", "1")


@pytest.fixture
def pair(make_cluster: Callable[..., Cluster], tmp_path: Path) -> Cluster:
    """Two hosts with a virtual environment in the account's home, and a script here."""
    cluster = make_cluster(2)
    for host in cluster:
        made = host.run("python3", "-m", "venv", "--without-pip", "/root/venv")
        assert made.status == 0, made
        host.write("/root/venv/bin/tool", '#!/bin/sh\necho tool "$@"\n', 0o755)
    (tmp_path / "show.py").write_text(SHOW)
    return cluster


def over(cluster: Cluster, transport: str) -> tuple[str, ...]:
    return ("--transport", transport, "--ssh-config", str(cluster.ssh_config))


@TRANSPORTS
def test_scripts_and_commands_are_those_of_the_activated_environment(
    pair: Cluster, tmp_path: Path, transport: str
) -> None:
    (tmp_path / "mnspawn.toml").write_text('[hosts."h[1-2]"]\nprelude = "source ~/venv/bin/activate"\n')
    command = (*over(pair, transport), *PAIR)
    done = pair.mnspawn(*command, "show.py", cwd=tmp_path).check()
    assert sorted(done.stdout.splitlines()) == [
        f"[h{rank + 1}:{rank}] /root/venv/bin/python3 /root/venv {rank}" for rank in (0, 1)
    ]
    done = pair.mnspawn(*command, "--no-python", "tool", "a b", "", cwd=tmp_path).check()
    assert sorted(done.stdout.splitlines()) == ["[h1:0] tool a b ", "[h2:1] tool a b "]
    done = pair.mnspawn(*command, "--python", "python", "show.py", cwd=tmp_path).check()
    assert "[h1:0] /root/venv/bin/python /root/venv 0\n" in done.stdout


@TRANSPORTS
def test_a_prelude_that_fails_anywhere_starts_nothing(pair: Cluster, tmp_path: Path, transport: str) -> None:
    pair["h2"].remove("/root/venv")
    prelude = ("--prelude", "source ~/venv/bin/activate")
    done = pair.mnspawn(*over(pair, transport), *PAIR, *prelude, "show.py", cwd=tmp_path)
    assert (done.status, done.stdout) == (4, "")
    assert done.stderr.splitlines() == [
        "mnspawn: h2: the prelude ended with status 1",
        "    prelude: line 1: /root/venv/bin/activate: No such file or directory",
    ]
    pair.check_clean()


@pytest.mark.parametrize("shell", ["/bin/sh", "/usr/bin/zsh", "/usr/bin/fish", "/usr/bin/tcsh"])
def test_the_accounts_login_shell_does_not_matter(pair: Cluster, tmp_path: Path, shell: str) -> None:
    for host in pair:
        host.set_shell(shell)
    prelude = "source ~/venv/bin/activate; f() { [[ -n $BASH_VERSION ]]; }; f"
    done = pair.mnspawn(*PAIR, "--prelude", prelude, "show.py", cwd=tmp_path).check()
    assert "[h2:1] /root/venv/bin/python3 /root/venv 1\n" in done.stdout


def test_a_prelude_that_hangs_gives_way_to_ctrl_c(pair: Cluster, tmp_path: Path) -> None:
    command = (*PAIR, "--prelude", "touch /tmp/hangs; sleep 1000", "show.py")
    with pair.start_mnspawn(*command, cwd=tmp_path) as running:
        running.wait_for(lambda: all(host.path("/tmp/hangs").exists() for host in pair))
        running.interrupt()
        assert running.wait().status == 130
    wait_until(lambda: not any("sleep" in process.argv for host in pair for process in host.processes()))
    pair.wait_idle()


def test_what_a_prelude_leaves_in_the_background_is_ended_with_its_run(pair: Cluster, tmp_path: Path) -> None:
    command = (*PAIR, "--prelude", "(setsid sleep 1000 >/dev/null 2>&1 &); source ~/venv/bin/activate", "show.py")
    assert pair.mnspawn(*command, cwd=tmp_path).check().stdout.count("/root/venv/bin/python3") == 2
    pair.check_clean()


def test_a_dry_run_shows_the_prelude_and_the_interpreter_behind_it(pair: Cluster, tmp_path: Path) -> None:
    prelude = "source ~/venv/bin/activate\nexport API_TOKEN=abc"
    done = pair.mnspawn(*PAIR, "--prelude", prelude, "--dry-run", "show.py", cwd=tmp_path).check()
    assert "  prelude, before each rank:\n    source ~/venv/bin/activate\n    export API_TOKEN=***\n" in done.stdout
    assert "    /root/venv/bin/python3 -u " in done.stdout


def test_the_prelude_stands_in_the_environment_too_and_never_on_a_command_line(pair: Cluster, tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text("import time; print('up', flush=True); time.sleep(1000)\n")
    prelude = "source ~/venv/bin/activate; MINE=not-for-others; sleep 1000 & true"
    with pair.start_mnspawn(*PAIR, "wait.py", env={"MNSPAWN_PRELUDE": prelude}, cwd=tmp_path) as running:
        running.wait_for(lambda: running.stdout.count("up") == 2)
        seen = [process for host in pair for process in host.processes()]
        assert any("sleep" in " ".join(process.argv) for process in seen)
        assert not any("not-for-others" in " ".join(process.argv) for process in seen)
        running.interrupt()
        running.wait()
    pair.check_clean()


@TRANSPORTS
def test_functions_need_the_version_of_the_activated_interpreter(pair: Cluster, tmp_path: Path, transport: str) -> None:
    for host in pair:
        host.write("/root/old/python3", "#!/bin/sh\necho 3.4\n", 0o755)
    (tmp_path / "call.py").write_text(
        "import mnspawn, sys\n"
        "print(mnspawn.spawn(lambda: __import__('sys').executable, nprocs=1, hosts='h1,h2', prelude=sys.argv[2],\n"
        "                    transport=sys.argv[1], ssh_config=sys.argv[3]).results())\n"
    )
    old = pair.run(sys.executable, "call.py", transport, "PATH=~/old:$PATH", str(pair.ssh_config), cwd=tmp_path)
    assert "found 3.4 at /root/old/python3" in old.stderr, old


@TRANSPORTS
def test_a_check_of_hosts_tries_the_prelude(pair: Cluster, tmp_path: Path, transport: str) -> None:
    pair["h2"].remove("/root/venv")
    pair["h1"].write("/root/venv/bin/python3.4", "#!/bin/sh\necho 3.4\n", 0o755)
    (tmp_path / "mnspawn.toml").write_text('[hosts."h[1-2]"]\nprelude = "source ~/venv/bin/activate"\n')
    command = (*over(pair, transport), "hosts", "check", "h1,h2", "--python", "python3.4", "--ignore", "disk,name")
    done = pair.mnspawn(*command, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert done.status == 1, done
    assert lines[1].split()[:2] == ["h1", "3.4"]
    assert lines[1].endswith(" ok")
    assert (
        "h2: prelude: the prelude ended with status 1"
        " (prelude: line 1: /root/venv/bin/activate: No such file or directory)" in lines
    )
    pair.check_clean()


def test_an_option_that_gives_way_to_the_inventory_is_told(pair: Cluster, tmp_path: Path) -> None:
    (tmp_path / "mnspawn.toml").write_text('[hosts.h1]\nprelude = "source ~/venv/bin/activate"\n[hosts.h2]\n')
    prelude = "source ~/venv/bin/activate; export VIRTUAL_ENV=given"
    done = pair.mnspawn(*PAIR, "--prelude", prelude, "show.py", cwd=tmp_path).check()
    assert sorted(line.split()[-2] for line in done.stdout.splitlines()) == ["/root/venv", "given"]
    assert done.stderr == "mnspawn: --prelude is not used on h1: the inventory has a prelude of its own there\n"


def test_a_run_is_found_again_though_only_its_prelude_leads_to_its_interpreter(pair: Cluster, tmp_path: Path) -> None:
    for host in pair:
        host.run("cp", "-P", "/root/venv/bin/python3", "/root/venv/bin/python3.99")
    (tmp_path / "wait.py").write_text("import time; print('up', flush=True); time.sleep(1000)\n")
    command = ("--prelude", "source ~/venv/bin/activate", "--python", "python3.99", "--detach", "wait.py")
    run = pair.mnspawn(*PAIR, *command, cwd=tmp_path).check().stdout.split()[-1]
    wait_until(lambda: pair.mnspawn("logs", run).check().stdout.count("up") == 2)
    pair.mnspawn("stop", run, "--kill").check()
    pair.wait_idle()
