"""Ansible's dynamic inventories: programs that are run and say which hosts there are."""

import shutil
from pathlib import Path

import pytest

from mnspawn_inventory import InventoryError, read_inventory
from tests.unit.inventory.test_same_model import ADDRESSES, GROUPS, NAMES, SAMPLES, SLOTS, USERS, described

SCRIPT = SAMPLES / "ansible-dynamic.sh"


def test_a_script_gives_the_same_hosts_as_the_other_formats() -> None:
    inventory = read_inventory(SCRIPT)
    assert inventory.format == "ansible-script"
    assert described(inventory) == [
        (host, ADDRESSES[host], USERS[host], 2222 if host == "gpu03" else None, SLOTS[host]) for host in NAMES
    ]
    assert {group.name: set(group.hosts) for group in inventory.groups} == GROUPS
    assert inventory.hosts == read_inventory(SAMPLES / "mnspawn.toml").hosts


def test_a_forced_format_runs_a_script_of_any_name(tmp_path: Path) -> None:
    copy = tmp_path / "some file"
    shutil.copy(SCRIPT, copy)
    copy.chmod(0o755)
    assert read_inventory(copy, "ansible-script").hosts == read_inventory(SCRIPT).hosts


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho no json\n", "#!/nowhere\n", "#!/bin/sh\n"])
def test_a_script_that_fails_is_told(script: str, tmp_path: Path) -> None:
    path = tmp_path / "dynamic"
    path.write_text(script)
    path.chmod(0o755)
    with pytest.raises(InventoryError, match="dynamic"):
        read_inventory(path)
