"""Large arguments and results: how often they travel, and what they cost the caller."""

import pytest

from tests.spawn.conftest import Place

MEMORY = """
import resource
def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
"""


@pytest.mark.full
def test_half_a_gigabyte_from_one_rank_and_many_small_results_from_others(place: Place) -> None:
    program = f"""{MEMORY}
def work(rank):
    return bytes(500_000_000) if rank == 0 else [str(number) for number in range(1000)]
before = used()
context = mnspawn.spawn(work, nprocs=NPROCS * 2, hosts=HOSTS, pass_rank=True, join=False)
small = [context.return_queues[rank].get() for rank in (1, 2, 3)]
print([len(result) for result in small], small[0][-1])
while not context.join():
    pass
print(used() - before < 150)
print(len(context.results()[0]), used() - before < 800)
"""
    assert place.check(program) == "[1000, 1000, 1000] 999\nTrue\n500000000 True\n"


def test_a_large_argument_goes_once_to_every_host(across: Place) -> None:
    program = """
import hashlib
content = os.urandom(100_000_000)
digest = hashlib.sha256(content).hexdigest()
def check(received):
    return hashlib.sha256(received).hexdigest() == digest
print(mnspawn.spawn(check, (content,), nprocs=4, hosts=HOSTS).results())
"""
    hosts = [across.controller["h1"], across.controller["h2"]]  # type: ignore[index]

    def counts() -> list[int]:
        return [int(host.run("cat", "/sys/class/net/eth0/statistics/rx_bytes").check().stdout) for host in hosts]

    before = counts()
    assert across.check(program) == f"{[True] * 8}\n"
    for count, earlier in zip(counts(), before, strict=True):
        assert 100_000_000 < count - earlier < 130_000_000


def test_nothing_of_a_spawn_stays_on_the_hosts(across: Place) -> None:
    hosts = [across.controller[name] for name in ("h1", "h2")]  # type: ignore[index]

    def kept() -> list[str]:
        return [host.run("ls", "/root/.local/state/mnspawn/runs").stdout for host in hosts]

    before = kept()
    assert across.check("print(mnspawn.spawn(len, ('secret',), nprocs=2, hosts=HOSTS).results())") == "[6, 6, 6, 6]\n"
    assert kept() == before
    for host in hosts:
        assert host.run("find", "/root", "/tmp", "/var/tmp", "-name", "*.pickle").stdout == ""
