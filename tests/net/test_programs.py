"""What a user runs, from where, with which words: scripts of any name, folders, modules, arguments, variables."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Cluster
from tests.support.controller import ENTRY

ARGV = "import os, sys\nos.write(1, b'|'.join(map(os.fsencode, sys.argv[1:])) + b'\\n')\n"
PAIR = ("--hosts", "h1,h2", "--nproc-per-node", "1")


def lines_of(stdout: bytes) -> dict[str, bytes]:
    """Host -> the only line that its only rank printed."""
    found: dict[str, bytes] = {}
    for line in stdout.splitlines():
        prefix, _, text = line.partition(b"] ")
        host = prefix.removeprefix(b"[").partition(b":")[0].decode()
        assert host not in found, stdout
        found[host] = text
    return found


def on_both(text: bytes) -> dict[str, bytes]:
    return {"h1": text, "h2": text}


# -- scripts


@pytest.mark.parametrize(
    "name", [b"a b.py", b"-x.py", b"it's $HOME;\"`.py", b"n\xff\xe9.py", "ü€.py".encode(), b"no_suffix", b"%s\n.py"]
)
def test_a_script_may_have_any_name(cluster: Cluster, tmp_path: Path, name: bytes) -> None:
    """F39: its arguments are its own, whatever they look like."""
    path = os.path.join(os.fsencode(tmp_path), name)
    with open(path, "wb") as file:
        file.write(ARGV.encode())
    done = cluster.mnspawn(*PAIR, "--", os.fsdecode(name), "--hosts", "-x", "--", "--help", "", cwd=tmp_path).check()
    assert lines_of(done.raw_stdout) == on_both(b"--hosts|-x|--|--help|")
    assert cluster.mnspawn(*PAIR, os.fsdecode(path), "a").check().stdout.count("] a\n") == 2


def test_a_script_may_be_empty_or_a_link(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "real.py").write_text(ARGV)
    (tmp_path / "link.py").symlink_to("real.py")
    assert cluster.mnspawn(*PAIR, "empty.py", cwd=tmp_path).check().stdout == ""
    assert lines_of(cluster.mnspawn(*PAIR, "link.py", "a", cwd=tmp_path).check().raw_stdout) == on_both(b"a")


def test_a_script_that_hosts_have_is_run_where_it_lies(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """The same path with the same content needs no copy, and its neighbours can be imported."""
    shared = tmp_path / "shared"
    shared.mkdir()
    cluster = make_cluster(2, share=shared)
    (shared / "neighbour.py").write_text("NAME = 'neighbour'\n")
    script = shared / "main.py"
    script.write_text("import neighbour, os\nprint(neighbour.NAME, __file__, os.getcwd())\n")
    done = cluster.mnspawn(*PAIR, "main.py", cwd=shared).check()
    assert lines_of(done.raw_stdout) == on_both(f"neighbour {script} {shared}".encode())
    # another content under that path: the controller's counts
    cluster["h2"].run("sh", "-c", f"mount -t tmpfs none {shared} && echo 'print(2)' >{script}").check()
    done = cluster.mnspawn(*PAIR, "main.py", cwd=shared)
    assert "No module named 'neighbour'" in done.stderr, done  # h2 ran the copy, not its own file
    assert "] 2\n" not in done.stdout, done


def test_a_script_that_only_the_hosts_have(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("h1", "h2"):
        cluster[name].write("/opt/only_here.py", f"print('on {name}')\n")
    done = cluster.mnspawn(*PAIR, "/opt/only_here.py").check()
    assert lines_of(done.raw_stdout) == {"h1": b"on h1", "h2": b"on h2"}
    cluster["h2"].remove("/opt/only_here.py")
    done = cluster.mnspawn(*PAIR, "/opt/only_here.py")
    assert (done.status, done.stdout) == (4, ""), done
    assert done.stderr == "mnspawn: h2: no script /opt/only_here.py\n"
    cluster["h1"].remove("/opt/only_here.py")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.py"], "SCRIPT: expected a script, found no file 'nowhere.py'"),
        (["/no/where.py"], "SCRIPT: expected a script, found no file '/no/where.py' here or on a host"),
        (["/usr"], "SCRIPT: expected a script, found the folder /usr"),
        ([], "expected a script after the options, found nothing"),
        ([""], "expected a script after the options, found an empty word"),
    ],
)
def test_a_script_that_is_nowhere_is_a_usage_error(cluster: Cluster, words: list[str], said: str) -> None:
    done = cluster.mnspawn(*PAIR, *words)
    assert (done.status, done.stdout) == (2, ""), done
    assert done.stderr.startswith(f"mnspawn: {said}"), done


def test_modules_and_commands(cluster: Cluster) -> None:
    done = cluster.mnspawn(*PAIR, "-m", "platform").check()
    assert len(lines_of(done.raw_stdout)) == 2
    done = cluster.mnspawn(*PAIR, "--no-python", "sh", "-c", 'echo "$0 $1"', "a", "b  c").check()
    assert lines_of(done.raw_stdout) == on_both(b"a b  c")
    done = cluster.mnspawn(*PAIR, "--no-python", "./no_such_command")
    assert (done.status, done.stderr) == (4, "mnspawn: 2 hosts: no command ./no_such_command in /root: h[1-2]\n")
    done = cluster.mnspawn(*PAIR, "--no-python", "no_such_command")
    assert (done.status, done.stderr) == (4, "mnspawn: 2 hosts: no command no_such_command: h[1-2]\n")
    done = cluster.mnspawn(*PAIR, "--no-python", "/etc/passwd")
    assert (done.status, done.stderr) == (4, "mnspawn: 2 hosts: /etc/passwd can't be executed: h[1-2]\n")


# -- folders


def test_the_folder_to_work_in(cluster: Cluster, tmp_path: Path) -> None:
    """This one where a host has it, else the home; the one that was asked for, or none."""

    def pwd(*options: str, cwd: Path | None = None) -> dict[str, bytes]:
        return lines_of(cluster.mnspawn(*PAIR, *options, "--no-python", "pwd", cwd=cwd).check().raw_stdout)

    assert pwd(cwd=Path("/usr/share")) == on_both(b"/usr/share")
    assert pwd(cwd=tmp_path) == on_both(b"/root")
    assert pwd("--workdir", "/etc", cwd=tmp_path) == on_both(b"/etc")
    assert pwd("--workdir", "~") == on_both(b"/root")
    done = cluster.mnspawn(*PAIR, "--workdir", "/no/such", "--no-python", "pwd")
    assert (done.status, done.stderr) == (4, "mnspawn: 2 hosts: no folder /no/such to work in: h[1-2]\n")


def test_a_folder_that_was_removed_under_us(cluster: Cluster, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = [sys.executable, "-c", ENTRY, *PAIR, "--no-python", "pwd"]
    done = cluster.run("sh", "-c", f'cd {gone} && rmdir {gone} && exec "$@"', "sh", *command)
    assert lines_of(done.check().raw_stdout) == on_both(b"/root")


# -- variables

SHOW = """
import base64, json, os
print(json.dumps({base64.b64encode(k).decode(): base64.b64encode(v).decode() for k, v in os.environb.items()}))
"""


def variables_of(cluster: Cluster, tmp_path: Path, *options: str, env: dict[str, str]) -> list[dict[bytes, bytes]]:
    from base64 import b64decode

    script = tmp_path / "variables.py"
    script.write_text(SHOW)
    done = cluster.mnspawn(*options, str(script), env=env).check()
    return [
        {b64decode(name): b64decode(value) for name, value in json.loads(text).items()}
        for _, text in sorted(lines_of(done.raw_stdout).items())
    ]


def test_values_that_are_no_text_arrive(cluster: Cluster, tmp_path: Path) -> None:
    """F38: bytes that are no UTF-8, 100 kB, the empty value."""
    given = {b"BYTES": b"\xff\xfe\x80 \xc3", b"EMPTY": b"", b"LONG": b"\xe2\x82\xac\n'" * 20_000, b"EQUALS": b"=a=b="}
    env = {os.fsdecode(name): os.fsdecode(value) for name, value in given.items()}
    options = [word for name in env for word in ("-x", name)]
    for own in variables_of(cluster, tmp_path, *PAIR, *options, "-x", "SET=\udcff x", env=env):
        assert {name: own[name] for name in given} == given
        assert own[b"SET"] == b"\xff x"


def test_our_own_environment_stays_here(cluster: Cluster, tmp_path: Path) -> None:
    """F40: odd names and what a login sets neither reach the hosts nor break the launch."""
    odd = {
        "BASH_FUNC_x%%": "() {  echo broken\n}",
        "NAME.WITH.DOT": "1",
        "SSH_CONNECTION": "1.2.3.4 1 5.6.7.8 2",
        "SHLVL": "77",
        "RANK": "12",
        "MNSPAWN_RANK": "9",
        "LC_ALL": "C",
    }
    for own in variables_of(cluster, tmp_path, *PAIR, env=odd):
        assert own[b"HOME"] == b"/root"
        assert own[b"SHLVL"] != b"77"
        assert own[b"SSH_CONNECTION"].split()[0] != b"1.2.3.4"
        assert own[b"RANK"] in (b"0", b"1")
        assert not {b"BASH_FUNC_x%%", b"NAME.WITH.DOT"} & set(own)
    odd_too = variables_of(cluster, tmp_path, *PAIR, "-x", "NAME.WITH.DOT", "-x", "BASH_FUNC_x%%", env=odd)
    assert all(own[b"NAME.WITH.DOT"] == b"1" and b"broken" in own[b"BASH_FUNC_x%%"] for own in odd_too)


def test_hosts_have_variables_of_their_own(cluster: Cluster, tmp_path: Path) -> None:
    """F41: those of the inventory win over what contracts set by themselves, given values over both, ranks over all."""
    inventory = tmp_path / "hosts.toml"
    inventory.write_text(
        '[hosts.h1]\nenv = { NCCL_SOCKET_IFNAME = "ib7", RANK = "40", SHARED = "mine" }\n'
        '[hosts.h2]\nenv = { NCCL_SOCKET_IFNAME = "ib9" }\n'
    )
    options = ["--inventory", str(inventory), "--nproc-per-node", "1", "-x", "SHARED=given"]
    first, second = variables_of(cluster, tmp_path, *options, env={})
    assert (first[b"NCCL_SOCKET_IFNAME"], second[b"NCCL_SOCKET_IFNAME"]) == (b"ib7", b"ib9")
    assert (first[b"RANK"], second[b"RANK"]) == (b"0", b"1")
    assert (first[b"SHARED"], second[b"SHARED"]) == (b"given", b"given")


def test_the_environment_that_a_dry_run_shows_is_the_one_that_workers_get(cluster: Cluster, tmp_path: Path) -> None:
    """What is planned is set, and what is to be taken out is not there."""
    script = tmp_path / "variables.py"
    script.write_text(SHOW)
    cluster["h2"].write(
        "/root/.bashrc", "export OMP_NUM_THREADS=3 WORLD_SIZE=99 http_proxy=http://proxy SLURM_JOBID=7\n"
    )
    command = [*PAIR, "--start-port", "7200", "--master-port", "7300", "-x", "A=ü\n$", str(script)]
    planned = json.loads(cluster.mnspawn("--dry-run", "--json", *command).check().stdout)
    found = variables_of(cluster, tmp_path, *command[:-1], env={})
    cluster["h2"].remove("/root/.bashrc")
    varying = {"MNSPAWN_RUN_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "JAX_COORDINATOR_ADDRESS"}
    for pod, own in zip(planned["pods"], found, strict=True):
        text = {os.fsdecode(name): os.fsdecode(value) for name, value in own.items()}
        shown = pod["trainers"][0]["env"]
        assert {name: text.get(name) for name in shown if name not in varying} == {
            name: value for name, value in shown.items() if name not in varying
        }
        assert "http_proxy" not in text
        assert "SLURM_JOBID" not in text
        assert text["WORLD_SIZE"] == "2"
    assert found[1][b"OMP_NUM_THREADS"] == b"3"


@pytest.mark.parametrize("transport", ["asyncssh", "openssh", "paramiko"])
def test_variables_from_a_file_reach_the_ranks_and_no_command_line(
    cluster: Cluster, tmp_path: Path, transport: str
) -> None:
    (tmp_path / "secrets.env").write_text("export A_TOKEN='s3cret $x' # mine\nHERE\n")
    (tmp_path / "show.py").write_text(
        "import os, pathlib\n"
        "lines = [p.read_bytes() for p in pathlib.Path('/proc').glob('[0-9]*/cmdline')]\n"
        "print(os.environ['A_TOKEN'], os.environ['HERE'], any(b's3cret' in line for line in lines))\n"
    )
    over = ("--transport", transport, "--ssh-config", str(cluster.ssh_config))
    command = (*over, *PAIR, "-x", "@secrets.env", "show.py")
    done = cluster.mnspawn(*command, cwd=tmp_path, env={"HERE": "ours"}).check()
    assert lines_of(done.raw_stdout) == on_both(b"s3cret $x ours False")
    assert "s3cret" not in cluster.mnspawn("--dry-run", *command, cwd=tmp_path, env={"HERE": "ours"}).check().stdout


@pytest.mark.parametrize("transport", ["asyncssh", "openssh", "paramiko"])
def test_a_module_beside_the_script_that_did_not_travel_is_named(
    cluster: Cluster, tmp_path: Path, transport: str
) -> None:
    (tmp_path / "helper.py").touch()
    (tmp_path / "train.py").write_text("import helper\n")
    over = ("--transport", transport, "--ssh-config", str(cluster.ssh_config))
    done = cluster.mnspawn(*over, "--hosts", "h1", "--nproc-per-node", "1", "train.py", cwd=tmp_path)
    assert done.status == 1
    assert (
        f"  hint: helper.py stands beside train.py here, but only the script itself was sent to h1: have the folder"
        f" {tmp_path} there, too, at the same path; or name its place there by -x PYTHONPATH=FOLDER\n" in done.stderr
    )
