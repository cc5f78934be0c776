"""The most workers that a host may have: said in every format, kept by every way, told where slots are above it."""

from pathlib import Path

import pytest

from mnspawn_inventory import InventoryError, read_inventory, resolve
from mnspawn_inventory.export import export


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("hosts", "a slots=2 max_slots=4\n"),
        ("hosts", "a slots=2 max-slots=4\n"),
        ("hosts", "a max-slots=4 slots=2\n"),
        ("hostfile.openmpi", "a slots = 2 slots_max = 4\n"),
        ("i.toml", "[hosts.a]\nslots = 2\nmax_slots = 4\n"),
        ("i.toml", '[hosts.a]\nslots = 2\n[groups.g]\nhosts = ["a"]\nmax_slots = 4\n'),
        ("i.ini", "a mnspawn_slots=2 mnspawn_max_slots=4\n"),
        ("i.json", '{"hosts": [{"name": "a", "slots": 2, "max_slots": 4}]}'),
    ],
)
@pytest.mark.parametrize("to", ["toml", "hostfile", "ansible-yaml", "json"])
def test_it_is_read_and_written_by_every_format(name: str, content: str, to: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    text, lost = export(read_inventory(tmp_path / name), to)
    suffix = {"toml": ".toml", "ansible-yaml": ".yml", "json": ".json"}.get(to, "")
    (tmp_path / f"back{suffix}").write_text(text)
    (back,) = read_inventory(tmp_path / f"back{suffix}").hosts
    assert (back.slots, back.max_slots) == (2, 4)
    assert not [note for note in lost if "slots" in note]


def test_an_ssh_config_cannot_hold_it_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a max_slots=4\n")
    assert "ssh-config can't hold max_slots" in export(read_inventory(tmp_path / "hosts"), "ssh-config")[1]


def test_alone_it_is_the_number_of_slots_as_open_mpi_has_it(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a max-slots=4\n")
    (host,) = read_inventory(tmp_path / "hosts").hosts
    assert (host.slots, host.max_slots) == (4, 4)


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("hosts", "a\nb slots=8 max-slots=4\n", (2, 9)),
        ("hosts", "b:8 max_slots=4\n", (1, 1)),
        ("hostfile.openmpi", "b slots=8 max_slots=4\n", (1, 9)),
        ("i.toml", "[hosts.b]\nslots = 8\nmax_slots = 4\n", (2, 9)),
        ("i.ini", "b mnspawn_slots=8\n[all:vars]\nmnspawn_max_slots=4\n", (1, 17)),
    ],
)
def test_slots_above_it_are_refused_with_both_places(
    name: str, content: str, place: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InventoryError, match=r"more slots than b may have: found '8', expected at most 4 ") as caught:
        read_inventory(tmp_path / name)
    where = caught.value.place
    assert where is not None
    assert (where.line, where.column) == place
    assert f"max_slots in {tmp_path / name}:" in str(caught.value)


@pytest.mark.parametrize("expression", ["a:5", "a:0-4", "@all:5"])
def test_an_expression_cannot_ask_for_more(expression: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a slots=2 max_slots=4\n")
    with pytest.raises(
        InventoryError, match=r"^--hosts: .*found '5', expected at most 4 \(max_slots in .*hosts:1:21\)"
    ):
        resolve(hosts=expression, hostfile="hosts", environ={}, cwd=tmp_path)
    (host,) = resolve(hosts="a:4", hostfile="hosts", environ={}, cwd=tmp_path).hosts
    assert host.slots == 4


def test_a_hostfile_cannot_ask_for_more_than_the_inventory_allows(tmp_path: Path) -> None:
    (tmp_path / "mnspawn.toml").write_text("[hosts.a]\nmax_slots = 2\n")
    (tmp_path / "hosts").write_text("a slots=4\n")
    with pytest.raises(InventoryError, match=r"^hosts:1:9: .*at most 2 \(max_slots in .*mnspawn\.toml:2:13\)"):
        resolve(hostfile="hosts", environ={}, cwd=tmp_path)
