"""The virtual hosts are what tests take them for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Cluster, Controller, LocalSshd


def ssh(cluster: Cluster, host: str, command: str, *options: str) -> list[str]:
    return ["ssh", "-F", str(cluster.ssh_config), "-o", "BatchMode=yes", *options, host, command]


@pytest.mark.essential
def test_hosts_have_their_own_names_addresses_and_files(cluster: Cluster) -> None:
    for host in cluster:
        command = "hostname; getent hosts $(hostname); ls -A /root /tmp /home; python3 -c 'print(1)'"
        done = cluster.run(*ssh(cluster, host.name, command)).check()
        words = done.stdout.split()
        assert words[:3] == [host.name, "127.0.1.1", host.name], done
        assert words[-1] == "1", done
    assert not cluster["h1"].path(str(cluster.folder)).exists()


def test_hosts_reach_each_other_by_address(cluster: Cluster) -> None:
    done = cluster["h1"].run("bash", "-c", f"exec 3<>/dev/tcp/{cluster['h3'].address}/22; head -c 7 <&3").check()
    assert done.stdout == "SSH-2.0"


@pytest.mark.essential
def test_processes_of_a_run_are_found_by_environment_and_arguments(cluster: Cluster) -> None:
    with cluster.start(*ssh(cluster, "h2", "RUN=run-17 sleep 98 & sleep 99")) as running:
        running.wait_for(lambda: len([p for p in cluster["h2"].processes() if p.argv[0] == "sleep"]) == 2)
        shell, sleep = cluster["h2"].processes("run-17")
        assert shell.argv == ("bash", "-c", "RUN=run-17 sleep 98 & sleep 99")
        assert sleep.argv == ("sleep", "98")
        assert sleep.environ["RUN"] == "run-17"
        for process in cluster["h2"].processes():
            cluster["h2"].kill(process.pid)


def test_a_cut_host_is_silent_and_comes_back(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(1)
    cluster["h1"].cut()
    lost = cluster.run(*ssh(cluster, "h1", "true", "-o", "ConnectTimeout=1"))
    assert "timed out" in lost.stderr
    cluster["h1"].heal()
    cluster.run(*ssh(cluster, "h1", "true")).check()


def test_a_power_cut_kills_everything_and_keeps_the_disk(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(2)
    host = cluster["h2"]
    host.write("/root/kept", "x")
    host.write("/tmp/gone", "x")
    with cluster.start(*ssh(cluster, "h2", "sleep 99")) as running:
        running.wait_for(host.processes)
        host.off()
        assert running.popen.poll() is None
    host.boot()
    assert host.processes() == []
    assert cluster.run(*ssh(cluster, "h2", "ls /root /tmp")).check().stdout.split() == ["/root:", "kept", "/tmp:"]


def test_a_delayed_host_answers_later_on_the_same_connections(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(1, delay=0.03)
    program = f"exec 3<>/dev/tcp/{cluster['h1'].address}/22; head -c 7 <&3"
    slow = cluster.run("bash", "-c", program).check()
    assert slow.seconds >= 0.12  # two round trips of 60 ms
    cluster["h1"].set_delay(0)
    assert cluster.run("bash", "-c", program).check().seconds < slow.seconds


def test_hosts_can_be_made_difficult(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(1, sshd_config="SetEnv MOOD=bad")
    host = cluster["h1"]
    host.set_shell("/bin/dash")
    host.add_user("ann")
    host.remove("/usr/bin/python3*")
    host.mount("/tmp", options="mode=1777,noexec")
    host.make_read_only("/root")
    script = "echo $MOOD $0; command -v python3; touch /root/x; cp /bin/true /tmp/t; /tmp/t"
    done = cluster.run(*ssh(cluster, "h1", script))
    assert done.stdout.split() == ["bad", "dash"], done
    assert "Read-only file system" in done.stderr
    assert "Permission denied" in done.stderr
    host.configure_sshd("PermitRootLogin no")
    assert cluster.run(*ssh(cluster, "h1", "true")).status == 255
    assert cluster.run(*ssh(cluster, "ann@h1", "id -un")).check().stdout == "ann\n"


def test_hosts_share_a_folder_when_asked_and_see_others_read_only(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    shared, seen = tmp_path / "shared", tmp_path / "seen"
    shared.mkdir()
    seen.mkdir()
    cluster = make_cluster(2, share=shared, see=[seen])
    cluster["h1"].run("touch", str(shared / "x")).check()
    assert cluster["h2"].run("ls", str(shared)).check().stdout == "x\n"
    assert "Read-only file system" in cluster["h1"].run("touch", str(seen / "x")).stderr


def test_commands_inside_a_host_start_in_its_root(cluster: Cluster) -> None:
    assert cluster["h1"].run("/bin/pwd").check().stdout == "/\n"


def test_clusters_side_by_side_do_not_see_each_other(make_cluster: Callable[..., Cluster]) -> None:
    first, second = make_cluster(1, names=["left"]), make_cluster(1, names=["right"])
    assert first["left"].address == second["right"].address
    assert first.run(*ssh(first, "left", "hostname")).check().stdout == "left\n"
    assert second.run(*ssh(second, "right", "hostname")).check().stdout == "right\n"


def test_a_local_sshd_lets_its_user_in(local_sshd: LocalSshd, controller: Controller) -> None:
    done = controller.run("ssh", "-F", str(local_sshd.ssh_config), "local", "echo in")
    assert done.check().stdout == "in\n"
