"""Another account of a host gains nothing: what it prepares in shared folders is neither run, read nor believed."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from mnspawn.bootstrap import bundle
from tests.support import Cluster, Running, VirtualHost

MALLORY = 2001
PREPARED = "/srv/archive"  # the archive, where mallory finds it
TRACE = "/tmp/mallory-was-here"  # made by any code of mallory's that another account runs
SHARED = ("/var/tmp", "/tmp", "/dev/shm")

# As the other account: the agent as it would be kept, with byte code of its own beside every source. argv: the archive,
# the folder to make, the digest, the mode of all folders, whether the archive itself is there, too.
FORGE = """
import os, pathlib, py_compile, sys, zlib
archive, folder, digest, mode, is_whole = sys.argv[1:]
os.umask(0)
content = open(archive, "rb").read()
records = zlib.decompress(content)
place = pathlib.Path(folder, digest)
place.mkdir(parents=True)
evil = place / "evil.py"
evil.write_text("import os; open(%r, 'w').write(str(os.getuid()))" % sys.argv[0])
while records:
    name, size, records = records.split(b"\\n", 2)
    source = place / name.decode()
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_bytes(records[:int(size)])
    records = records[int(size):]
    compiled = source.parent / "__pycache__" / (source.stem + "." + sys.implementation.cache_tag + ".pyc")
    py_compile.compile(str(evil), str(compiled), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
if is_whole == "yes":
    (place / "agent.z").write_bytes(content)
for path in [pathlib.Path(folder), *pathlib.Path(folder).rglob("*")]:
    if path.is_dir():
        path.chmod(int(mode, 8))
"""

# As the other account: an agent of a run, for whoever asks. argv: where it notes that it was asked, the pod's folder.
POSE = """
import os, pathlib, socket, sys
os.umask(0)
os.makedirs(sys.argv[2])
os.chdir(sys.argv[2])
pathlib.Path("plan.json").write_text('{"hostname": "%s", "began": 1.0}' % os.uname().nodename)
pathlib.Path("status.json").write_text('{"state": "done", "time": 1.0}')
pathlib.Path("journal.jsonl").write_text('{"type":"done","leftovers":[],"swept":0,"sizes":[],"at":0.0}\\n')
pathlib.Path("lock").touch()
listener = socket.socket(socket.AF_UNIX)
listener.bind("control")
listener.listen(4)
print("poses", flush=True)
while True:
    listener.accept()[0].sendall(b"lines of mine")
    open(sys.argv[1], "w").close()
"""


@pytest.fixture
def hosts(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Two hosts, on both of which mallory has an account and finds the archive."""
    cluster = make_cluster(2)
    for host in cluster:
        host.add_user("mallory", uid=MALLORY)
        host.path(PREPARED).write_bytes(bundle.build().content)
    return cluster


def as_mallory(*command: str) -> list[str]:
    return ["setpriv", f"--reuid={MALLORY}", f"--regid={MALLORY}", "--clear-groups", *command]


def forge(host: VirtualHost, folder: str, mode: str, is_whole: bool) -> None:
    script = FORGE.replace("sys.argv[0]", repr(TRACE))
    words = (PREPARED, folder, bundle.build().digest, mode, "yes" if is_whole else "no")
    host.run(*as_mallory("/usr/bin/python3", "-c", script, *words)).check()


def files_below(host: VirtualHost, folder: str) -> set[tuple[str, int]]:
    root = host.path(folder)
    return {(str(path.relative_to(root)), path.lstat().st_uid) for path in root.rglob("*")}


def whole(host: VirtualHost) -> None:
    """Everything is there: the archive, the right sources, and byte code that says something else."""
    forge(host, "/var/tmp/mnspawn-0", "0755", True)


def whole_and_open(host: VirtualHost) -> None:
    forge(host, "/var/tmp/mnspawn-0", "0777", True)


def sources_alone(host: VirtualHost) -> None:
    """Without the archive: the host needs it, then finds it stored."""
    forge(host, "/var/tmp/mnspawn-0", "0777", False)


def an_open_folder(host: VirtualHost) -> None:
    """Nothing in it yet: what is stored there could be changed a moment later."""
    host.run(*as_mallory("mkdir", "-m", "0777", "/var/tmp/mnspawn-0")).check()


def a_link_to_a_folder(host: VirtualHost) -> None:
    forge(host, "/home/mallory/kept", "0777", True)
    host.run(*as_mallory("ln", "-s", "/home/mallory/kept", "/var/tmp/mnspawn-0")).check()


def a_link_to_a_folder_of_the_accounts_own(host: VirtualHost) -> None:
    """A folder of root's that mallory can name but not write."""
    host.run("mkdir", "-m", "0700", "/srv/roots").check()
    host.run(*as_mallory("ln", "-s", "/srv/roots", "/var/tmp/mnspawn-0")).check()


def a_pipe_in_the_archives_place(host: VirtualHost) -> None:
    """Whoever opens it waits for ever."""
    place = f"/var/tmp/mnspawn-0/{bundle.build().digest}"
    host.run(*as_mallory("sh", "-c", f"mkdir -p {place} && mkfifo {place}/agent.z")).check()


WAYS = [
    whole, whole_and_open, sources_alone, an_open_folder, a_link_to_a_folder, a_link_to_a_folder_of_the_accounts_own,
    a_pipe_in_the_archives_place,
]  # fmt: skip


@pytest.mark.parametrize(
    ("prepare", "home"),
    [(way, "read-only") for way in WAYS] + [(whole, "full")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_code_that_another_account_has_put_in_place_is_not_run(
    hosts: Cluster, prepare: Callable[[VirtualHost], None], home: str
) -> None:
    host = hosts["h1"]
    prepare(host)
    if home == "read-only":
        host.make_read_only("/root")
    else:
        host.mount("/root", options="mode=0700,size=4k")
        host.run("sh", "-c", "head -c 8192 /dev/zero >/root/full || :").check()
    before = {folder: files_below(host, folder) for folder in ("/var/tmp", "/srv", "/home/mallory")}
    for _ in ("cold", "again"):
        done = hosts.mnspawn("--hosts", "h1", "--nproc-per-node", "1", "--no-python", "id", "-u")
        assert (done.status, done.stdout) == (0, "[h1:0] 0\n"), done
        assert done.stderr.startswith("mnspawn: h1: runs are kept in /tmp/mnspawn-0: /var/tmp/mnspawn-0 "), done
    assert hosts.mnspawn("hosts", "check", "--hosts", "h1").status == 0
    assert hosts.mnspawn("clean", "h1", "--older-than", "0").status == 0
    assert not host.path(TRACE).exists()
    assert {folder: files_below(host, folder) for folder in before} == before


def test_hosts_check_names_whose_folder_is_in_the_way(hosts: Cluster) -> None:
    an_open_folder(hosts["h1"])
    hosts["h1"].make_read_only("/root")
    done = hosts.mnspawn("hosts", "check", "--hosts", "h1")
    assert f"/var/tmp/mnspawn-0 belongs to uid {MALLORY}" in done.stdout, done


def test_a_host_whose_shared_folders_are_all_taken_says_by_whom(hosts: Cluster) -> None:
    hosts["h1"].make_read_only("/root")
    for folder in SHARED:
        hosts["h1"].run(*as_mallory("mkdir", f"{folder}/mnspawn-0")).check()
    done = hosts.mnspawn("--hosts", "h1,h2", "--nproc-per-node", "1", "--no-python", "true")
    assert done.status == 3, done
    assert done.stderr.startswith("mnspawn: h1: no folder can hold a run: "), done
    for folder in SHARED:
        assert f"{folder}/mnspawn-0 belongs to uid {MALLORY}" in done.stderr, done


def run_of(cluster: Cluster) -> str:
    return str(json.loads(cluster.mnspawn("ps", "--json").check().stdout)["runs"][0]["run"])


ASKED = "/home/mallory/asked"


def test_nobody_poses_as_the_agent_of_a_run_whose_agent_has_died(hosts: Cluster) -> None:
    host = hosts["h1"]
    command = ["--nproc-per-node", "1", "--orphan-grace", "1", "--no-python", "sh", "-c", "echo up; sleep 300"]
    with hosts.start_mnspawn("--hosts", "h1,h2", *command) as running:
        running.wait_for(lambda: running.stdout.count("up") == 2)
        with posing(host, run_of(hosts)):
            for process in host.processes():
                if "MNSPAWN_RUN_ID" not in process.environ and process.argv[0].startswith("python"):
                    host.kill(process.pid)  # the agent and its guardian
            done = running.wait(60)
    assert done.status == 5, done
    assert "host h1 was lost" in done.stderr, done
    assert "lines of mine" not in done.stdout, done
    assert not host.path(ASKED).exists()
    hosts.wait_idle()


def test_a_planted_run_is_neither_seen_nor_cleaned_nor_does_it_end_a_live_rank(hosts: Cluster) -> None:
    host = hosts["h1"]
    command = ["--hosts", "h1", "--nproc-per-node", "1", "--no-python", "sh", "-c", "echo up; sleep 300"]
    with hosts.start_mnspawn(*command) as running:
        running.wait_for(lambda: "up" in running.stdout)
        run = run_of(hosts)
        with posing(host, run, "planted"):
            listed = json.loads(hosts.mnspawn("ps", "--hosts", "h1", "--json").check().stdout)
            assert [one["run"] for one in listed["runs"]] == [run]
            cleaned = hosts.mnspawn("clean", "h1", "--older-than", "0", "--json").check()
            assert json.loads(cleaned.stdout)["actions"] == []
            assert hosts.mnspawn("stop", "planted", "--hosts", "h1").status == 2
            assert hosts.mnspawn("logs", "planted", "--hosts", "h1").status == 2
            assert any("sleep" in process.argv for process in host.processes(run))
            for place in SHARED:
                assert host.path(f"{place}/mnspawn-0/runs/planted/0/plan.json").exists()
        assert not host.path(ASKED).exists()
        running.interrupt()
        assert running.wait(30).status == 130
    hosts.wait_idle()


def has_said(command: Running, word: str) -> bool:
    return word in command.stdout


@contextmanager
def posing(host: VirtualHost, *runs: str) -> Iterator[None]:
    """mallory's agents for pod 0 of these runs, in every folder that all accounts share, while the context lasts."""
    with ExitStack() as stack:
        for run in runs:
            for place in SHARED:
                words = as_mallory("/usr/bin/python3", "-c", POSE, ASKED, f"{place}/mnspawn-0/runs/{run}/0")
                mallory = stack.enter_context(host.start_command(*words))
                mallory.wait_for(partial(has_said, mallory, "poses"))
        yield


def test_a_controllers_folder_of_somebody_else_is_named(hosts: Cluster) -> None:
    """Where runs are remembered: what stands there says how hosts are reached."""
    state = hosts.home / ".local" / "state" / "mnspawn"
    state.mkdir(parents=True)
    state.chmod(0o777)
    done = hosts.mnspawn("ps")
    assert done.status == 2, done
    reason = f"{state} can be written to by others (mode 0777)"
    assert done.stderr.startswith(f"mnspawn: {reason}: what it says of runs can't be trusted\n"), done
    done = hosts.mnspawn("--hosts", "h1", "--nproc-per-node", "1", "--no-python", "true")
    assert done.status == 0, done
    assert done.stderr == f"mnspawn: the run is not remembered on this machine: {reason}\n", done


def test_a_controller_opens_nothing_to_others_whatever_its_umask(hosts: Cluster) -> None:
    hosts["h1"].write("/root/.bashrc", "umask 0\n")
    for words in (
        ["--hosts", "h1", "--nproc-per-node", "1", "--log-dir", "logs/of/runs", "--no-python", "true"],
        ["inventory", "add", "h1"],
        ["hosts", "trust", "--yes", "h1"],
    ):
        hosts.mnspawn(*words, umask=0).check()
    made = [path for path in hosts.home.rglob("*") if ".ssh" not in path.parts]
    assert {"known", "run.json", "rank-0000.out", "events.jsonl", "runs", "mnspawn"} <= {path.name for path in made}
    assert [str(path) for path in made if path.stat().st_mode & 0o077] == []
    kept = [path for place in (".cache", ".local") for path in hosts["h1"].path(f"/root/{place}").rglob("*")]
    assert {"mnspawn", "runs", "known", "agent.z", "__pycache__"} - {path.name for path in kept} == {"known"}
    assert [str(path) for path in kept if path.stat().st_mode & 0o077] == []
