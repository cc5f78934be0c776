"""max_slots of a hostfile is a ceiling for whatever decides how many ranks a host has."""

from pathlib import Path

import pytest

from tests.support import Cluster

COMMAND = ("--no-python", "true")


@pytest.mark.parametrize("count", ["3", "8"])
def test_a_number_above_the_most_slots_is_refused_with_the_line_before_any_host_is_asked(
    count: str, cluster: Cluster, tmp_path: Path
) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("nowhere slots=1\nh1 slots=1 max-slots=2\n")
    done = cluster.mnspawn("--hostfile", str(hostfile), "--nproc-per-node", count, *COMMAND)
    assert done.status == 2, done
    assert f"{hostfile}:2:22: expected at most 2 ranks on h1 (max_slots), found {count}" in done.stderr


def test_as_many_as_the_most_slots_run(cluster: Cluster, tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("h1 slots=1 max-slots=2\n")
    command = ("--no-python", "sh", "-c", "echo here")
    done = cluster.mnspawn("--hostfile", str(hostfile), "--nproc-per-node", "2", *command).check()
    assert sorted(done.stdout.splitlines()) == ["[h1:0] here", "[h1:1] here"]


@pytest.mark.parametrize("transport", ["asyncssh", "openssh", "paramiko"])
def test_a_number_that_a_host_tells_is_refused_above_it(transport: str, cluster: Cluster, tmp_path: Path) -> None:
    inventory = tmp_path / "i.toml"
    inventory.write_text("[hosts.h1]\nmax_slots = 1\n")
    options = ("--transport", transport, "--ssh-config", str(cluster.ssh_config), "-i", str(inventory))
    done = cluster.mnspawn(*options, "--nproc-per-node", "cpu", *COMMAND)
    assert done.status == 4, done
    assert f"h1: more ranks than it may have: expected at most 1 (max_slots in {inventory}:2:13), found " in done.stderr
