"""Limits of this machine's open files: raised for us, as before for children, told before the dialling."""

import sys
from pathlib import Path

import pytest

from tests.support import Cluster, Controller
from tests.support.commands import Finished
from tests.support.controller import ENTRY

TRANSPORTS = ("asyncssh", "openssh", "paramiko")
LIMITS = ["sh", "-c", "echo $(ulimit -Sn) $(ulimit -Hn)"]  # on one line: those of two ranks may alternate


def limited(controller: Controller, limit: str, *words: str) -> Finished:
    """The command line with so many open files (soft:hard)."""
    return controller.run("prlimit", f"--nofile={limit}", sys.executable, "-c", ENTRY, *words)


def many(cluster: Cluster, folder: Path, count: int, extra: str = "") -> list[str]:
    """One host under many names."""
    config = folder / "config"
    config.write_text(f"Host n*\n  HostName {cluster['h1'].address}\n{extra}{cluster.ssh_config.read_text()}")
    return ["--ssh-config", str(config), "--hosts", f"n[1-{count}]"]


@pytest.mark.full
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_soft_limit_is_raised_for_us_and_not_for_children(cluster: Cluster, transport: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    proxy = f"  ProxyCommand sh -c 'ulimit -Sn >> {seen}; exec ssh -F {cluster.ssh_config} -W %h:%p h2'\n"
    matched = f'Match originalhost n1 exec "ulimit -Sn >> {seen}"\n  Compression no\n'
    hosts = many(cluster, tmp_path, 6, proxy + matched)
    limit = "40:4096" if transport == "openssh" else "30:4096"
    done = limited(cluster, limit, "exec", "--transport", transport, *hosts, "--", "true")
    assert done.status == 0, done
    assert set(seen.read_text().split()) == {limit.partition(":")[0]}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("command", ["run", "exec", "check"])
def test_too_few_files_are_told_in_one_line_before_anything_is_dialled(
    controller: Controller, transport: str, command: str
) -> None:
    hosts = ["--transport", transport, "--hosts", "192.0.2.[1-200]"]
    words = {"run": [*hosts, "--no-python", "true"], "exec": ["exec", *hosts, "--", "true"]}
    done = limited(controller, "64:100", *words.get(command, ["hosts", "check", *hosts]))
    assert done.status == 2, done
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"mnspawn: 200 hosts over {transport} need about ")
    assert "and this process may have 100 at most: raise it: ulimit -n" in line
    assert "limits.conf" in line
    assert "LimitNOFILE" in line


def test_files_that_run_out_on_the_way_are_no_hosts_fault(controller: Controller) -> None:
    program = (
        "import os, sys\n"
        "from mnspawn.engine.link import sites\n"
        "sites.check_room = lambda transports: None\n"
        f"{ENTRY.replace('import sys; ', '')}\n"
    )
    hosts = ["--transport", "asyncssh", "--connect-timeout", "2", "--hosts", "127.0.0.[1-40]"]
    words = [sys.executable, "-c", program, *hosts, "--no-python", "true"]
    done = controller.run("prlimit", "--nofile=24:24", *words)
    assert done.status == 2, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("mnspawn: this process has 24 files open, and may not have more: raise it: ulimit -n")


@pytest.mark.full
def test_ranks_of_a_sandbox_have_the_limit_that_we_were_given(controller: Controller) -> None:
    options = ["--sandbox", "2", "--nproc-per-node", "1", "--output", "plain", "--no-python"]
    done = limited(controller, "200:900", *options, *LIMITS).check()
    assert done.stdout.split() == ["200", "900"] * 2


def test_a_sandbox_for_which_too_few_files_are_allowed_is_told_before_it_starts(controller: Controller) -> None:
    done = limited(controller, "32:64", "--sandbox", "20", "--no-python", "true")
    assert done.status == 2, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("mnspawn: 20 sandbox hosts need about ")
    assert "and this process may have 64 at most: raise it: ulimit -n" in line


def test_a_sandbox_that_fails_says_why(controller: Controller) -> None:
    program = f"from mnspawn.sandbox import sandbox\nsandbox._FILES = 0\n{ENTRY}\n"
    words = [sys.executable, "-c", program, "--sandbox", "60", "--no-python", "true"]
    done = controller.run("prlimit", "--nofile=64:64", *words)
    assert done.status == 3, done
    assert "the sandbox did not start: OSError: [Errno 24] Too many open files" in done.stderr
