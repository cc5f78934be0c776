"""Four thousand hosts are four times the work of a thousand, in every format."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mnspawn_inventory import fold, resolve
from tests.support.work import calls

LINES: dict[str, tuple[str, Callable[[int], str]]] = {
    "hostfile": ("", lambda number: f"n{number:04d} slots=8\n"),
    "hosts.ini": ("[g]\n", lambda number: f"n{number:04d} ansible_host=10.{number >> 8}.{number & 255}.1\n"),
    "hosts.yml": ("all:\n  hosts:\n", lambda number: f"    n{number:04d}: {{ansible_user: u}}\n"),
    "hosts.toml": ("", lambda number: f"[hosts.n{number:04d}]\nslots = 8\n"),
    "hosts.json": (
        '{"hosts": [{"name": "first"}',
        lambda number: f', {{"name": "n{number:04d}", "slots": 8, "user": null}}\n',
    ),
    "ssh_config": ("", lambda number: f"Host n{number:04d}\n  HostName 10.{number >> 8}.{number & 255}.1\n"),
}


def work(path: Path, count: int) -> int:
    """Calls for reading, choosing and folding."""
    head, line = LINES[path.name]
    path.write_text(head + "".join(map(line, range(count))) + ("]}" if head.startswith("{") else ""))

    def choose() -> None:
        hosts = resolve(inventory=str(path), hosts="n*", exclude="n0007", environ={}).hosts
        assert len(hosts) == count - 1
        assert fold([host.name for host in hosts]) == f"n[0000-0006,0008-{count - 1:04d}]"

    return calls(choose)


@pytest.mark.parametrize("name", LINES)
@pytest.mark.full
def test_many_hosts_are_read_chosen_and_folded(name: str, tmp_path: Path) -> None:
    work(tmp_path / name, 100)  # what is imported on the way is not counted
    assert work(tmp_path / name, 4_000) < 4.5 * work(tmp_path / name, 1_000)
