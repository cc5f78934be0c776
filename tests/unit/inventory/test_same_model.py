"""One cluster described in every format is one and the same model, however its lines end."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mnspawn_inventory import Host, Inventory, read_inventory
from mnspawn_inventory.allocation import find_allocation
from mnspawn_inventory.export import export

SAMPLES = Path(__file__).parents[3] / "inventory" / "samples"

NAMES = ["gpu01", "gpu02", "gpu03", "login"]
SLOTS: Mapping[str, int | None] = {"gpu01": 8, "gpu02": 8, "gpu03": 4, "login": 1}
ADDRESSES = {"gpu01": "10.0.0.11", "gpu02": "10.0.0.12", "gpu03": "10.0.0.13", "login": "10.0.0.2"}
USERS = {"gpu01": "train", "gpu02": "train", "gpu03": "train", "login": "admin"}
GROUPS = {
    "gpu": {"gpu01", "gpu02", "gpu03"},
    "front": {"login"},
    "cluster": {"gpu01", "gpu02", "gpu03", "login"},
}

FULL = {
    "mnspawn.toml": "toml",
    "ansible.ini": "ansible-ini",
    "ansible.yml": "ansible-yaml",
    "ansible.json": "ansible-json",
}
WITH_SLOTS = {
    "hostfile": "hostfile",
    "hostfile.openmpi": "openmpi",
    "hostfile.deepspeed": "deepspeed",
    "hostfile.horovod": "hostfile",
    "machinefile.mpich": "mpich",
    "pbs.nodefile": "pbs",
    "lsf.hostfile": "lsf",
}
TEXT_FILES = [*FULL, *WITH_SLOTS, "hosts.txt", "ssh_config"]


def described(inventory: Inventory) -> list[tuple[str, object, object, object, object]]:
    return [(host.name, host.address, host.user, host.port, host.slots) for host in inventory.hosts]


@pytest.mark.parametrize("name", FULL)
def test_formats_that_know_everything_agree_in_every_field(name: str) -> None:
    inventory = read_inventory(SAMPLES / name)
    assert inventory.format == FULL[name]
    assert described(inventory) == [
        (host, ADDRESSES[host], USERS[host], 2222 if host == "gpu03" else None, SLOTS[host]) for host in NAMES
    ]
    assert {group.name: set(group.hosts) for group in inventory.groups} == GROUPS
    assert inventory.hosts == read_inventory(SAMPLES / "mnspawn.toml").hosts


@pytest.mark.parametrize("name", WITH_SLOTS)
def test_formats_of_names_and_slots_agree_in_order_and_slots(name: str) -> None:
    inventory = read_inventory(SAMPLES / name)
    assert inventory.format == WITH_SLOTS[name]
    most = {"gpu03": 8} if name == "hostfile.openmpi" else {}
    assert inventory.hosts == tuple(Host(host, slots=SLOTS[host], max_slots=most.get(host)) for host in NAMES)


def test_a_plain_list_has_names_only() -> None:
    assert read_inventory(SAMPLES / "hosts.txt").hosts == tuple(map(Host, NAMES))


def test_ssh_config_has_what_ssh_knows() -> None:
    inventory = read_inventory(SAMPLES / "ssh_config")
    assert inventory.format == "ssh-config"
    assert described(inventory) == [
        (host, ADDRESSES[host], USERS[host], 2222 if host == "gpu03" else None, None) for host in NAMES
    ]


def environ_of(name: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in (SAMPLES / name).read_text().splitlines())
    return {key: value for key, _, value in pairs}


@pytest.mark.parametrize("name", ["slurm.env", "lsf.env"])
def test_allocations_agree_in_order_and_slots(name: str) -> None:
    inventory = find_allocation(environ_of(name))
    assert inventory is not None
    assert inventory.hosts == tuple(Host(host, slots=SLOTS[host]) for host in NAMES)


def test_paddle_cloud_gives_the_data_addresses_in_order() -> None:
    inventory = find_allocation(environ_of("paddle.env"))
    assert inventory is not None
    assert [(host.name, host.data_address) for host in inventory.hosts] == [(one, one) for one in ADDRESSES.values()]


@pytest.mark.parametrize("variable", ["PBS_NODEFILE", "LSB_DJOB_HOSTFILE"])
def test_node_files_are_found_by_their_variables(variable: str) -> None:
    inventory = find_allocation({variable: str(SAMPLES / "pbs.nodefile")})
    assert inventory is not None
    assert inventory.hosts == tuple(Host(host, slots=SLOTS[host]) for host in NAMES)


WAYS: dict[str, Callable[[str], str]] = {
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "byte order mark": lambda text: "\ufeff" + text,
    "no final newline": lambda text: text.rstrip("\n"),
    "blank lines at the end": lambda text: text + "\n\n\n",
    "comment at the end": lambda text: text + "# the end\n",
    "comment at the end without a newline": lambda text: text + "# the end",
    "blanks at line ends": lambda text: text.replace("\n", "  \n"),
    "all of it": lambda text: "\ufeff" + (text + "\n\n# the end").replace("\n", "\r\n"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TEXT_FILES)
def test_line_ends_marks_and_comments_change_nothing(name: str, way: str, tmp_path: Path) -> None:
    if name.endswith(".json") and "comment" in way + ("comment" if way == "all of it" else ""):
        return  # JSON has no comments
    text = (SAMPLES / name).read_text()
    changed = tmp_path / name
    changed.write_bytes(WAYS[way](text).encode())
    plain = read_inventory(SAMPLES / name)
    assert read_inventory(changed).hosts == plain.hosts
    assert read_inventory(changed).format == plain.format


HOSTFILE_WAYS: dict[str, Callable[[str], str]] = {
    "tabs": lambda text: text.replace(" slots", "\tslots"),
    "indented by tabs": lambda text: "".join(f"\t{line}\n" for line in text.splitlines()),
    "trailing comments": lambda text: "".join(f"{line} # one\n" for line in text.splitlines()),
    "comments without a blank": lambda text: "".join(f"{line}#one\n" for line in text.splitlines()),
    "blank lines between": lambda text: text.replace("\n", "\n\n \t\n"),
}


@pytest.mark.parametrize("way", HOSTFILE_WAYS)
@pytest.mark.parametrize("name", [*WITH_SLOTS, "hosts.txt"])
def test_white_space_and_comments_in_hostfiles_change_nothing(name: str, way: str, tmp_path: Path) -> None:
    changed = tmp_path / name
    changed.write_text(HOSTFILE_WAYS[way]((SAMPLES / name).read_text()))
    assert read_inventory(changed).hosts == read_inventory(SAMPLES / name).hosts


@pytest.mark.parametrize("name", FULL)
def test_every_value_knows_its_file_line_and_column(name: str) -> None:
    path = SAMPLES / name
    lines = path.read_text().splitlines()
    for host in read_inventory(path).hosts:
        assert {field for field, _ in host.origins} >= {"name", "address", "user", "slots"}
        for field, place in host.origins:
            assert place.source == str(path)
            written = lines[place.line - 1][place.column - 1 :].lstrip('"')
            if field in ("slots", "user", "port"):
                assert written.startswith(str(getattr(host, field)))


def test_every_value_of_our_json_knows_its_file_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "exported.json"
    path.write_text(export(read_inventory(SAMPLES / "mnspawn.toml"), "json")[0])
    lines = path.read_text().splitlines()
    for host in read_inventory(path).hosts:
        for field, place in host.origins:
            written = lines[place.line - 1][place.column - 1 :].strip('",')
            assert written == str(getattr(host, field))


@pytest.mark.parametrize("name", TEXT_FILES)
def test_a_forced_format_reads_a_file_of_any_name(name: str, tmp_path: Path) -> None:
    found = read_inventory(SAMPLES / name)
    copy = tmp_path / "some file"
    shutil.copy(SAMPLES / name, copy)
    os.chmod(copy, 0o644)
    again = read_inventory(copy, found.format)
    assert again.hosts == found.hosts
