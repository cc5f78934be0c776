"""Hosts that can't run a function, or are lost while they do."""

from collections.abc import Callable
from pathlib import Path

import pytest

import mnspawn
from tests.spawn.conftest import Place
from tests.support import Cluster, pythons


def test_another_python_is_told_with_those_that_are_there_before_anything_starts(own_home: Path) -> None:
    others = [path for version, path in pythons.agent_pythons().items() if version not in ("3.11",)]
    if not others:
        pytest.skip("no other Python here")
    with pytest.raises(mnspawn.PlanRefused) as caught:
        mnspawn.spawn(print, ("started",), nprocs=1, python=str(others[0]))
    said = str(caught.value)
    assert "expected Python 3.11, as here, to run the function, found 3." in said
    assert f"at {others[0]}" in said
    assert "on this host there are: " in said


def test_all_hosts_that_can_not_be_used_are_told_together(across: Place) -> None:
    program = """
try:
    mnspawn.spawn(print, ("started",), nprocs=1, hosts="h1,nowhere.invalid,10.9.9.9", connect_timeout=60)
except mnspawn.HostsUnusable as error:
    print(sorted(one.host for one in error.errors))
"""
    assert across.check(program) == "['10.9.9.9', 'nowhere.invalid']\n"


def test_an_agent_that_is_killed_loses_its_host_and_stops_the_others(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster(2)
    place = Place(cluster, tmp_path, "h1,h2")
    program = """
def wait():
    print("ready", flush=True)
    time.sleep(1000)
try:
    mnspawn.spawn(wait, nprocs=1, hosts=HOSTS)
except mnspawn.HostLost as error:
    print("lost", error.host or error)
"""
    with place.start(program) as running:
        running.wait_for(lambda: running.stdout.count("ready") == 2)
        agents = [process for process in cluster["h2"].processes() if "serve" in process.argv]
        cluster["h2"].kill(max(agent.pid for agent in agents))
        done = running.wait()
    assert done.stdout.splitlines()[-1].startswith("lost")
    assert "h2" in done.stdout.splitlines()[-1]
    cluster.wait_idle()


def test_a_fork_server_that_dies_while_it_imports_is_told(place: Place) -> None:
    program = """
class Deadly:
    def __reduce__(self):
        return os._exit, (7,)
try:
    mnspawn.spawn(print, (Deadly(),), nprocs=NPROCS, hosts=HOSTS, start_method="forkserver")
except mnspawn.ProcessExitedException as error:
    print(error)
"""
    said = place.check(program)
    assert (
        "terminated with an error before it ran: the process that was to become it ended before, with status 7" in said
    )


def test_ctrl_c_ends_a_fork_server_that_still_imports(here: Place) -> None:
    program = """
class Slow:
    def __reduce__(self):
        return time.sleep, (1000,)
try:
    mnspawn.spawn(print, (Slow(),), nprocs=2, start_method="forkserver")
except KeyboardInterrupt:
    print("interrupted")
"""
    with here.start(program, env={"MARK": "x"}) as running:
        running.wait_for(lambda: any("fork" in words for words in _children_of(running.pid)))
        running.interrupt()
        assert running.wait().stdout == "interrupted\n"


def _children_of(pid: int) -> list[list[str]]:
    """Command lines below a process, the agent's own sessions included."""
    found: list[list[str]] = []
    queue = [pid]
    while queue:
        parent = queue.pop()
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                children = [int(child) for child in path.read_text().split()]
            except OSError:
                continue
            queue += children
            for child in children:
                try:
                    found.append(Path(f"/proc/{child}/cmdline").read_text().split("\0"))
                except OSError:
                    continue
    return found


def test_ranks_of_a_fork_server_have_sessions_and_parents_of_their_own(place: Place) -> None:
    program = """
def who():
    os.close(0)
    return os.getpid() == os.getsid(0) == os.getpgid(0), os.getppid(), sorted(os.listdir("/proc/self/fd"))[:1]
results = mnspawn.spawn(who, nprocs=3, hosts=HOSTS, start_method="forkserver").results()
print(all(own for own, _, _ in results), len({parent for _, parent, _ in results}))
"""
    agents = 2 if place.hosts else 1
    said = place.check(program).split()
    assert said[0] == "True"
    assert int(said[1]) <= agents
