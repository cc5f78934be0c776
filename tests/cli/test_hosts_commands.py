"""`mnspawn hosts` and `mnspawn exec` on this machine: sandbox hosts, usage errors, what holds for a host."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.support import Controller, LocalSshd


def test_a_sandbox_has_nothing_wrong(controller: Controller) -> None:
    done = controller.mnspawn("hosts", "check", "--sandbox", "3")
    assert done.status == 0, done
    head, *hosts, _, last = done.stdout.splitlines()
    assert " ".join(head.split()) == "HOST PYTHON AGENT CLOCK CPUS MEMORY DISK DEVICES ADDRESS FINDINGS"
    assert [line.split()[0] for line in hosts] == ["sandbox-1", "sandbox-2", "sandbox-3"]
    assert all(line.endswith("ok") for line in hosts)
    assert last == "3 hosts: nothing is wrong"
    assert done.stderr == ""


def test_check_as_json_has_everything(controller: Controller) -> None:
    done = controller.mnspawn("--sandbox", "2", "hosts", "check", "--json")
    document = json.loads(done.stdout)
    assert (done.status, document["ok"], document["findings"]) == (0, True, [])
    assert [one["host"] for one in document["hosts"]] == ["sandbox-1", "sandbox-2"]
    for one in document["hosts"]:
        assert abs(one["clock"]["offset"]) <= one["clock"]["uncertainty"] + 0.01
        assert one["facts"]["cpus"] == os.cpu_count()
        assert one["facts"]["runs"]["free"] > 0
        assert set(one["facts"]["limits"]) == {"nofile", "memlock"}


def test_findings_are_folded_with_what_to_do(controller: Controller) -> None:
    config = "".join(f"Host n{n}\n  HostName 127.0.0.{n}\n  Port 1\n" for n in range(1, 4))
    path = controller.home / "config"
    path.write_text(config)
    done = controller.mnspawn("hosts", "check", "n[1-3]", "--ssh-config", str(path))
    assert done.status == 1, done
    assert "n[1-3]: reach: connection refused at 127.0.0.1|127.0.0.2|127.0.0.3 port 1" in done.stdout.splitlines()
    assert "  hint: is sshd running there, and is this its port?" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == "3 hosts: 3 with something wrong"


# -- exec


def test_equal_output_is_shown_once(controller: Controller) -> None:
    done = controller.mnspawn("exec", "--sandbox", "3", "--", "sh", "-c", "echo same; exit 3")
    assert (done.status, done.stdout) == (3, f"{'-' * 15}\nsandbox-[1-3] (3)\n{'-' * 15}\nsame\n"), done
    assert done.stderr == "mnspawn: sandbox-[1-3] (3 hosts): exit status 3\n"


def test_output_that_differs_is_shown_by_host_and_byte_for_byte(controller: Controller) -> None:
    script = r"printf '%s\377\033[m' $MNSPAWN_SANDBOX_HOST; [ $MNSPAWN_SANDBOX_HOST = sandbox-1 ] || exit 2; exit 1"
    done = controller.mnspawn("exec", "--sandbox", "2", "--", "sh", "-c", script)
    rule = b"-" * 15
    assert done.raw_stdout == b"".join(
        b"%s\n%s\n%s\n%s\xff\x1b[m\n" % (rule, name, rule, name) for name in (b"sandbox-1", b"sandbox-2")
    )
    assert done.status == 2, done


def test_streamed_lines_stand_behind_their_hosts_names(controller: Controller) -> None:
    done = controller.mnspawn("exec", "--stream", "--sandbox", "2", "--", "sh", "-c", "echo a; echo b >&2; printf c")
    assert sorted(done.stdout.splitlines()) == ["sandbox-1: a", "sandbox-1: c", "sandbox-2: a", "sandbox-2: c"], done
    assert sorted(done.stderr.splitlines()) == ["sandbox-1: b", "sandbox-2: b"]


@pytest.mark.full
def test_one_after_the_other(controller: Controller, tmp_path: Path) -> None:
    alone = f"mkdir {tmp_path}/busy || exit 1; sleep 0.2; rmdir {tmp_path}/busy"
    assert controller.mnspawn("exec", "--sandbox", "3", "--sequential", "--", "sh", "-c", alone).status == 0
    together = f"cd {tmp_path}; touch $MNSPAWN_SANDBOX_HOST; until [ -e sandbox-1 -a -e sandbox-2 -a -e sandbox-3 ]"
    together += "; do sleep 0.05; done"
    assert controller.mnspawn("exec", "--sandbox", "3", "--", "sh", "-c", together).status == 0


def test_what_takes_too_long_is_ended(controller: Controller, tmp_path: Path) -> None:
    script = f"trap 'echo >>{tmp_path}/ended; exit 0' TERM; sleep 600 & wait"
    done = controller.mnspawn("exec", "--sandbox", "2", "--timeout", "3", "--", "sh", "-c", script)
    assert done.status == 124, done
    assert done.stderr == "mnspawn: sandbox-[1-2] (2 hosts): took more than 3 s\n"
    assert (tmp_path / "ended").read_text() == "\n\n"


def test_ctrl_c_ends_it_on_every_host(controller: Controller, tmp_path: Path) -> None:
    script = f"trap 'echo >>{tmp_path}/ended; exit 0' TERM; echo >>{tmp_path}/began; sleep 600 & wait"
    with controller.start_mnspawn("exec", "--sandbox", "2", "--", "sh", "-c", script) as running:
        running.wait_for(lambda: (tmp_path / "began").exists() and (tmp_path / "began").stat().st_size == 2)
        running.interrupt()
        done = running.wait()
    assert done.status == 130, done
    assert (tmp_path / "ended").read_text() == "\n\n"
    assert done.stderr == "mnspawn: sandbox-[1-2] (2 hosts): stopped\n"


@pytest.mark.full
def test_a_flood_is_cut_and_said_to_be(controller: Controller) -> None:
    done = controller.mnspawn("exec", "--sandbox", "1", "--", "sh", "-c", "head -c 10000000 /dev/zero")
    assert len(done.raw_stdout) < 9_000_000
    assert "bytes of output left out" in done.stderr
    streamed = controller.mnspawn("exec", "--stream", "--sandbox", "1", "--", "sh", "-c", "head -c 10000000 /dev/zero")
    assert streamed.raw_stdout.count(b"\0") == 10_000_000


def test_a_reader_that_leaves_does_not_hold_it_up(controller: Controller) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = controller.mnspawn("exec", "--sandbox", "1", "--stream", "--", "seq", "100000", stdout=write_end)
    os.close(write_end)
    assert done.status == 0, done


# -- usage


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["exec", "h1", "uptime"], "expected -- and a command after the hosts"),
        (["exec", "h1", "--"], "expected a command after --, found nothing"),
        (["exec", "--", "uptime"], "expected hosts to run on, found none"),
        (["exec", "-H", "a", "b", "--", "true"], "HOSTS: expected hosts once, found --hosts as well"),
        (["exec", "a;b", "--", "true"], "HOSTS: not a host name"),
        (["exec", "a", "--timeout", "0", "--", "true"], "--timeout: expected seconds, more than 0"),
        (["exec", "a", "--nope", "--", "true"], "no such option"),
        (["hosts", "check"], "expected hosts to run on, found none"),
        (["hosts", "check", "a", "--ignore", "reach,nope"], "--ignore: expected some of reach"),
        (["hosts", "check", "a", "--transport", "telnet"], "--transport: expected"),
        (["hosts", "show"], "expected hosts to run on, found none"),
        (["hosts", "trust", "--sandbox", "1"], "--sandbox: expected real hosts"),
        (["hosts", "chek"], "no such command 'chek'"),
    ],
)
def test_bad_usage_is_a_line(controller: Controller, words: list[str], said: str) -> None:
    done = controller.mnspawn(*words)
    assert (done.status, done.stdout) == (2, ""), done
    assert said in done.stderr.lower() if said.islower() else said in done.stderr


# -- show


@pytest.fixture
def configured(controller: Controller) -> Controller:
    (controller.home / "inv.toml").write_text(
        '[hosts.g1]\naddress = "10.1.0.1"\nuser = "alice"\nslots = 4\nenv = { API_TOKEN = { env = "T" } }\n[hosts.g2]\n'
    )
    (controller.home / "config").write_text(
        "Host g2\n  IdentityFile ~/a\n  IdentityFile ~/b\nHost *\n  User carol\n  Port 2200\n  ConnectTimeout 7\n"
    )
    return controller


def shown(controller: Controller, name: str, *options: str) -> list[tuple[str, str]]:
    done = controller.mnspawn("-i", "inv.toml", "hosts", "show", name, "--ssh-config", "config", *options)
    assert done.status == 0, done
    lines = [re.fullmatch(r"(.*?)  +(\S+)", line) for line in done.stdout.splitlines()]
    return [(match[1], match[2]) for match in lines if match]


def test_the_inventory_wins_over_host_star(configured: Controller) -> None:
    values = shown(configured, "g1")
    assert ("address = 10.1.0.1", "inv.toml:2:12") in values
    assert ("user = alice", "inv.toml:3:9") in values
    assert ("port = 2200", "config:6") in values
    assert ("slots = 4", "inv.toml:4:9") in values
    assert ("transport = asyncssh", "default") in values
    assert ("connect_timeout = 7", "config:7") in values
    assert any(text.startswith("env.API_TOKEN = (") for text, _ in values)


def test_every_key_file_has_its_line_and_options_are_named(configured: Controller) -> None:
    values = shown(configured, "g2", "--connect-timeout", "3", "--transport", "paramiko")
    home = str(configured.home)
    assert (f"identity = {home}/a", "config:2") in values
    assert (f"identity = {home}/b", "config:3") in values
    assert ("user = carol", "config:5") in values
    assert ("connect_timeout = 3", "--connect-timeout") in values
    assert ("transport = paramiko", "--transport") in values


def test_a_broken_ssh_config_is_named_with_its_line(configured: Controller) -> None:
    (configured.home / "config").write_text("Host *\n  Port abc\n")
    done = configured.mnspawn("hosts", "show", "g1", "--ssh-config", "config")
    assert done.status == 2
    assert "config:2: expected a port from 1 to 65535, found 'abc'" in done.stderr


# -- trust


def test_trust_writes_after_yes_and_never_asks_without_a_terminal(
    controller: Controller, local_sshd: LocalSshd
) -> None:
    known, config = local_sshd.known_hosts, str(local_sshd.ssh_config)
    before = known.read_text()
    known.unlink()
    asked = controller.mnspawn("hosts", "trust", "local", "--ssh-config", config)
    assert asked.status == 2, asked
    assert asked.stdout.startswith("local: new ssh-ed25519 SHA256:")
    assert "mnspawn hosts trust --yes local" in asked.stderr
    assert not known.exists()
    done = controller.mnspawn("hosts", "trust", "local", "--ssh-config", config, "--yes")
    assert (done.status, done.stderr) == (0, ""), done
    assert known.read_text() == before
    again = controller.mnspawn("hosts", "trust", "local", "--ssh-config", config)
    assert (again.status, again.stdout) == (0, "local: known, 1 key\n"), again
    assert controller.mnspawn("exec", "local", "--ssh-config", config, "--", "true").status == 0


def test_a_changed_key_is_replaced_only_when_that_is_said(controller: Controller, local_sshd: LocalSshd) -> None:
    known, config = local_sshd.known_hosts, str(local_sshd.ssh_config)
    with LocalSshd() as other:
        key = other.known_hosts.read_text().split()[1:3]
    right = known.read_text()
    known.write_text(" ".join([right.split()[0], *key]) + "\n")
    changed = known.read_text()
    refused = controller.mnspawn("hosts", "trust", "local", "--ssh-config", config, "--yes")
    assert refused.status == 3, refused
    assert f"{known}:1 has SHA256:" in refused.stderr
    assert "mnspawn hosts trust --replace local" in refused.stderr
    assert known.read_text() == changed
    done = controller.mnspawn("hosts", "trust", "local", "--ssh-config", config, "--yes", "--replace")
    assert done.status == 0, done
    assert known.read_text() == right


def test_trust_tells_what_is_wrong_with_others_before_it_asks(controller: Controller, local_sshd: LocalSshd) -> None:
    local_sshd.known_hosts.write_text("a broken line\n")
    config = local_sshd.ssh_config
    config.write_text(f"Host dead\n  HostName 127.0.0.1\n  Port 1\n{config.read_text()}")
    asked = controller.mnspawn("hosts", "trust", "local,dead", "--ssh-config", str(config))
    assert asked.status == 2, asked
    assert "mnspawn: dead: connection refused at 127.0.0.1 port 1" in asked.stderr
    assert asked.stderr.index("dead: connection") < asked.stderr.index("expected a terminal")
    done = controller.mnspawn("hosts", "trust", "local", "--ssh-config", str(config), "--yes")
    assert done.status == 0, done


BAD = {"config": "Port many", "known_hosts": "a broken line", "key": "no key"}


@pytest.mark.parametrize("transport", ["asyncssh", "paramiko", "openssh"])
@pytest.mark.parametrize("command", ["run", "exec", "check"])
@pytest.mark.parametrize("file", BAD)
def test_a_broken_file_of_ssh_is_bad_input_to_every_command(
    controller: Controller, tmp_path: Path, transport: str, command: str, file: str
) -> None:
    for name in ("known_hosts", "key"):
        (tmp_path / name).write_text(BAD[name] + "\n" if name == file else "")
    (tmp_path / "key").chmod(0o600)
    names = f"UserKnownHostsFile {tmp_path}/known_hosts\nGlobalKnownHostsFile none\nIdentityAgent none\n"
    names += "GSSAPIAuthentication no\n" + (f"IdentityFile {tmp_path}/key\n" if file == "key" else "")
    (tmp_path / "config").write_text((BAD["config"] + "\n" if file == "config" else "") + names)
    words = {
        "run": ["--hosts", "127.0.0.1", "--no-python", "true"],
        "exec": ["exec", "127.0.0.1", "--", "true"],
        "check": ["hosts", "check", "127.0.0.1"],
    }[command]
    done = controller.mnspawn("--ssh-config", str(tmp_path / "config"), "--transport", transport, *words)
    assert done.status == 2, done
    assert done.stderr.startswith(f"mnspawn: {tmp_path}/{file}:1: "), done
    assert done.stdout == ""
