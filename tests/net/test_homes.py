"""One home for several hosts, keys that can't be used, settings that confuse launchers: all works, or is told."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Cluster

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(300)\n"


def told(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if not line.startswith("  hint: ")]


def test_hosts_may_share_their_home(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """F30: one cache and one folder of runs for all, cold and warm, and a broken link leads back to the right agent."""
    shared = tmp_path / "shared"
    home = shared / "home"
    home.mkdir(parents=True, mode=0o700)
    cluster = make_cluster(3, share=shared)
    for host in cluster:
        passwd = host.path("/etc/passwd")
        passwd.write_text(passwd.read_text().replace("root:x:0:0:root:/root:", f"root:x:0:0:root:{home}:"))
    command = [
        "--hosts",
        cluster.hosts_option,
        "--nproc-per-node",
        "2",
        "--no-python",
        "sh",
        "-c",
        "echo $RANK in $HOME",
    ]
    for _ in ("cold", "warm"):
        done = cluster.mnspawn(*command).check()
        lines = [f"[h{rank // 2 + 1}:{rank}] {rank} in {home}" for rank in range(6)]
        assert (sorted(done.stdout.splitlines()), done.stderr) == (lines, ""), done
    for host in cluster:
        assert not any(host.path(f"{folder}/mnspawn-0").exists() for folder in ("/var/tmp", "/tmp", "/dev/shm"))
    assert len(list((home / ".cache/mnspawn").iterdir())) == 1
    script = tmp_path / "sleep.py"
    script.write_text(SLEEP)
    with cluster.start_mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "1", str(script)) as running:
        running.wait_for(lambda: running.stdout.count("up") == 3)
        for host in cluster:
            host.run("pkill", "-KILL", "-f", "^sshd: root")
        running.wait_for(lambda: running.stderr.count("link is back") == 3)
        running.interrupt()
        done = running.wait()
    assert done.status == 130, done
    assert "stopped because of it: ranks 0-2" in done.stderr, done
    assert "not confirmed" not in done.stderr, done
    cluster.check_clean()


@pytest.mark.essential
def test_all_bad_hosts_are_told_at_once(cluster: Cluster) -> None:
    """F23: whichever comes first in the list, each in a line of its own, within the connect timeout."""
    command = ["--hosts", "h1,h8,root@h2:2222,h9,nobody9@h3", "--nproc-per-node", "1", "--connect-timeout", "60"]
    done = cluster.mnspawn(*command, "--no-python", "true")
    assert (done.status, done.stdout) == (3, ""), done
    lines = told(done.stderr)
    assert len(lines) == 3, done
    assert "2 hosts: " in lines[0], done
    assert "h[8-9]" in lines[0], done
    assert lines[1].startswith("mnspawn: h2: "), done
    assert lines[2].startswith("mnspawn: h3: no key was accepted for nobody9@"), done
    cluster.check_clean()


def test_a_key_with_a_passphrase_is_named(cluster: Cluster, tmp_path: Path) -> None:
    """F28: which file it is, and why it can't be used; nobody is asked for the passphrase."""
    key = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", key], check=True)
    config = tmp_path / "config"
    config.write_text(cluster.ssh_config.read_text().replace(str(cluster.identity), str(key)))
    command = ["--ssh-config", str(config), "--hosts", "h1,h2", "--nproc-per-node", "1", "--no-python", "true"]
    done = cluster.mnspawn(*command)
    assert done.status == 3, done
    assert "locked" in done.stderr, done
    assert "passphrase" in done.stderr, done
    assert "secret" not in done.stderr


def test_a_key_file_that_is_no_key_or_not_there_is_named(cluster: Cluster, tmp_path: Path) -> None:
    """F28: a public key, an empty file, no file."""
    for name, content, status in (
        ("public", cluster.identity.with_suffix(".pub").read_text(), 3),  # ssh looks for its private key in the agent
        ("empty", "", 2),
        ("absent", None, 3),
    ):
        key = tmp_path / name
        if content is not None:
            key.write_text(content)
            key.chmod(0o600)
        config = tmp_path / "config"
        config.write_text(cluster.ssh_config.read_text().replace(str(cluster.identity), str(key)))
        command = ["--ssh-config", str(config), "--hosts", "h1", "--nproc-per-node", "1", "--no-python", "true"]
        done = cluster.mnspawn(*command)
        assert done.status == status, done
        assert name in done.stderr, done
        assert "Traceback" not in done.stderr, done


@pytest.mark.parametrize("level", ["CRITICAL", "DEBUG"])
def test_log_levels_and_python_settings_change_nothing(cluster: Cluster, level: str) -> None:
    """F22: nobody waits for a line of log; F21: nor does Python's own noise disturb."""
    settings = {
        "LOGLEVEL": level,
        "LOG_LEVEL": level,
        "PYTHONVERBOSE": "1",
        "PYTHONWARNINGS": "error",
        "PYTHONDEVMODE": "1",
    }
    lines = "".join(f"export {name}={value}\n" for name, value in {**settings, "PYTHONINSPECT": "1"}.items())
    cluster["h2"].write("/root/.bashrc", lines)
    try:
        command = ["--hosts", "h1,h2", "--nproc-per-node", "1", "--no-python", "echo", "in"]
        done = cluster.mnspawn(*command, env={"LOGLEVEL": level, "PYTHONWARNINGS": "default"}).check()
    finally:
        cluster["h2"].remove("/root/.bashrc")
    assert sorted(done.stdout.splitlines()) == ["[h1:0] in", "[h2:1] in"], done


def byte_code(cluster: Cluster) -> list[Path]:
    return sorted(cluster["h1"].path("/root/.cache/mnspawn").rglob("*.pyc"))


@pytest.mark.parametrize("kept", [16, 200, -200])
def test_byte_code_that_a_crash_has_damaged_is_made_anew(cluster: Cluster, kept: int) -> None:
    """A host that lost power just after its first run: files end early, or in zeros."""
    command = ["--hosts", "h1", "--nproc-per-node", "1", "--no-python", "true"]
    cluster.mnspawn(*command).check()
    damaged = {}
    for path in byte_code(cluster):
        content = path.read_bytes()
        damaged[path] = content[:kept] if kept >= 0 else content[:kept] + bytes(-kept)
        path.write_bytes(damaged[path])
    assert damaged
    for _ in range(2):
        assert cluster.mnspawn(*command).check().stderr == ""
    assert any(path.read_bytes() != damaged.get(path) for path in byte_code(cluster))
