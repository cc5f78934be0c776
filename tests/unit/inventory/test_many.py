"""Ten thousand hosts cost about ten times what a thousand do, in every format."""

import gc
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mnspawn_inventory import fold, resolve

LINES: dict[str, tuple[str, Callable[[int], str]]] = {
    "hostfile": ("", lambda number: f"n{number:05d} slots=8\n"),
    "hosts.ini": ("[g]\n", lambda number: f"n{number:05d} ansible_host=10.{number >> 8}.{number & 255}.1\n"),
    "hosts.yml": ("all:\n  hosts:\n", lambda number: f"    n{number:05d}: {{ansible_user: u}}\n"),
    "hosts.toml": ("", lambda number: f"[hosts.n{number:05d}]\nslots = 8\n"),
    "hosts.json": (
        '{"hosts": [{"name": "first"}',
        lambda number: f', {{"name": "n{number:05d}", "slots": 8, "user": null}}\n',
    ),
    "ssh_config": ("", lambda number: f"Host n{number:05d}\n  HostName 10.{number >> 8}.{number & 255}.1\n"),
}


def seconds(path: Path, name: str, count: int) -> float:
    """CPU time for reading, choosing and folding."""
    head, line = LINES[name]
    path.write_text(head + "".join(map(line, range(count))) + ("]}" if head.startswith("{") else ""))
    gc.collect()
    gc.disable()  # it goes through all that other tests have left in memory
    try:
        began = time.process_time()
        hosts = resolve(inventory=str(path), hosts="n*", exclude="n00007", environ={}).hosts
        folded = fold([host.name for host in hosts])
        took = time.process_time() - began
    finally:
        gc.enable()
    assert len(hosts) == count - 1
    assert folded == f"n[00000-00006,00008-{count - 1:05d}]"
    return took


@pytest.mark.parametrize("name", LINES)
def test_many_hosts_are_read_chosen_and_folded(name: str, tmp_path: Path) -> None:
    seconds(tmp_path / name, name, 100)  # what is imported on the way is not counted
    measured = []
    for _ in range(3):  # what else runs on the machine disturbs now and then; a cost of another order is always there
        many, few = seconds(tmp_path / name, name, 10_000), seconds(tmp_path / name, name, 1_000)
        if many < 30 * few + 0.1:
            return
        measured.append((many, few))
    pytest.fail(f"ten thousand hosts and a thousand take {measured} s")
