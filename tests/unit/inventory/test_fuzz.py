"""Whatever the bytes: an inventory of real hosts or an InventoryError in one line; nothing else, for every reader."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnspawn_inventory import InventoryError, Origin, resolve
from mnspawn_inventory.allocation import find_allocation
from mnspawn_inventory.draft import Draft
from mnspawn_inventory.expression import parse
from mnspawn_inventory.formats import FORMATS, read_into, read_inventory
from mnspawn_inventory.nodeset import expand, fold

SAMPLES = Path(__file__).parents[3] / "inventory" / "samples"
READ = [name for name in FORMATS if name != "ansible-script"]

EXAMPLES = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?", re.ASCII)

# pieces that the formats are made of, put together at random: closer to real files than random text
PIECES = [
    *("a", "gpu01", "gpu[01-03]", "web[1:3]", "[::1]", "u@h", "h:4", "ssh://u@h:22", "#", ";", "-x", "é", "\u0663"),
    *("slots=4", "slots=0", "max_slots=2", "slots", "=", " = ", "'", '"', '"""', "ansible_host=10.0.0.1", "x='a b'"),
    *("[gpu]", "[gpu:vars]", "[gpu:children]", "[all:vars]", "[hosts.a]", "[hosts]", '[hosts."a[1-3]"]', "[groups.g]"),
    *("hosts = ", '["a", "b"]', "children", 'address = "10.0.0.[1-3]"', "port = 22", "env = {A = 1}", "[[hosts]]"),
    *(
        "all:",
        "hosts:",
        "children:",
        "vars:",
        "- ",
        "&x",
        "*x",
        "!vault",
        "<<: *x",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "---",
    ),
    *("Host ", "Host *", "HostName ", "Port 22", "User ", "Match all", "Include ~/x", "%h", "{{ x }}", "{{", "null"),
    *(
        '{"hosts": [',
        '{"name": "a"}',
        "]}",
        '"_meta"',
        '{"hostvars": {}}',
        "true",
        "1e999",
        "2(x3)",
        "\\",
        "\x00",
        "\x7f",
    ),
    *("\n", "\n", "\n", "\r\n", "\t", "  ", "    ", " ", "\ufeff", "\u2028"),
]
MADE = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
SAMPLED = st.sampled_from(sorted(path for path in SAMPLES.iterdir() if path.suffix != ".sh")).map(Path.read_bytes)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sample with a piece cut out, put in or doubled."""
    content = draw(SAMPLED)
    start = draw(st.integers(0, len(content)))
    end = draw(st.integers(start, min(len(content), start + 40)))
    piece = draw(st.one_of(st.just(b""), st.sampled_from(PIECES).map(str.encode), st.binary(max_size=4)))
    return content[:start] + piece + draw(st.sampled_from([b"", content[start:end] * 2])) + content[end:]


ANY = st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode), MADE.map(str.encode), damaged())


def check_told(error: InventoryError, *places: str) -> None:
    assert str(error).startswith(places or "")
    assert error.place is not None
    assert "\n" not in str(error)
    assert str(error).isprintable() or not error.place.source.isprintable()


@pytest.mark.parametrize("format_name", READ)
@EXAMPLES
@given(content=ANY)
def test_every_reader_gives_hosts_or_one_clear_error(format_name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "inventory"
    path.write_bytes(content)
    try:
        inventory = read_inventory(path, format_name)
    except InventoryError as error:
        check_told(error)
        return
    names = [host.name for host in inventory.hosts]
    assert all(HOST.fullmatch(host.ssh_name) for host in inventory.hosts)
    assert len(set(names)) == len(names)
    for group in inventory.groups:
        assert set(group.hosts) <= set(names)


@EXAMPLES
@given(content=ANY, name=st.sampled_from(["hosts", "x.toml", "x.yml", "x.json", "x.ini", "ssh_config", "machinefile"]))
def test_finding_out_the_format_never_fails(content: bytes, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    try:
        read_into(Draft(str(path), ""), path, str(path))
    except InventoryError as error:
        check_told(error)


EXPRESSION_PIECES = st.sampled_from(
    [
        *"ab,!&^@:[]-/*?=;$ ",
        "gpu",
        "01",
        "[1-3]",
        "[03-01]",
        "@g",
        ":4",
        ":0,2",
        "u@",
        "ssh://",
        "[::1]",
        ":2222",
        "1-3",
        "é",
    ]
)
EXPRESSIONS = st.one_of(st.text(max_size=30), st.lists(EXPRESSION_PIECES, max_size=12).map("".join))


@EXAMPLES
@given(expression=EXPRESSIONS)
def test_an_expression_gives_hosts_or_one_clear_error(expression: str) -> None:
    try:
        selection = resolve(hosts=expression, environ={})
    except InventoryError as error:
        check_told(error, "--hosts: ")
        return
    assert selection.hosts
    assert all(HOST.fullmatch(host.name) for host in selection.hosts)


@EXAMPLES
@given(expression=EXPRESSIONS)
def test_narrowing_gives_some_of_the_hosts_or_one_clear_error(expression: str) -> None:
    for option in ("include", "exclude", "limit"):
        narrowing: dict[str, Any] = {option: expression}
        try:
            selection = resolve(hosts="a:4,b:2,gpu[01-03]", environ={}, **narrowing)
        except InventoryError as error:
            check_told(error)
            continue
        assert {host.name for host in selection.hosts} <= {"a", "b", "gpu01", "gpu02", "gpu03"}
        assert selection.hosts


@EXAMPLES
@given(
    values=st.lists(
        st.one_of(st.text(max_size=20), st.sampled_from(["n[1-3]", "2(x3)", "1", "a 1 b 2", "a,b"])), min_size=4
    )
)
def test_variables_of_schedulers_give_hosts_or_one_clear_error(values: list[str]) -> None:
    names = ("SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE", "LSB_MCPU_HOSTS", "PADDLE_TRAINERS")
    for names_taken in (names[:2], names[2:3], names[3:]):
        environ = {"POD_IP": "1", "PADDLE_TRAINER_ID": "0", "TRAINER_PORTS_NUM": "1"}
        environ.update(zip(names_taken, values, strict=False))
        try:
            inventory = find_allocation(environ)
        except InventoryError as error:
            check_told(error, *names)
            continue
        assert inventory is None or inventory.hosts


@EXAMPLES
@given(numbers=st.sets(st.integers(0, 10**6), min_size=1, max_size=50), width=st.integers(0, 7))
def test_folding_and_expanding_is_the_same_set(numbers: set[int], width: int) -> None:
    names = {f"n{str(number).zfill(width)}" for number in numbers}
    assert {
        name for operand in parse(fold(names), None, bool) for name in expand(operand.pattern, Origin("x"))
    } == names
