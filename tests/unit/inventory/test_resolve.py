"""Where the hosts of a run come from, and that nothing falls back in silence."""

from pathlib import Path
from typing import Any

import pytest

from mnspawn_inventory import Host, Inventory, InventoryError, Origin, Selection, resolve
from mnspawn_inventory.allocation import unread
from mnspawn_inventory.select import among


def names(selection: Selection) -> list[str]:
    return [host.name for host in selection.hosts]


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_nothing_given_and_no_allocation_is_an_empty_selection(tmp_path: Path) -> None:
    selection = resolve(environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    assert (selection.hosts, selection.kind) == ((), "none")


def test_an_inventory_of_ones_own_is_a_catalogue_not_a_list_of_hosts(tmp_path: Path) -> None:
    write(tmp_path / "mnspawn.toml", "[hosts.a]\n")
    assert resolve(environ={"HOME": str(tmp_path)}, cwd=tmp_path).hosts == ()


def test_the_projects_inventory_wins_over_the_users(tmp_path: Path) -> None:
    user = write(tmp_path / "config" / "mnspawn" / "inventory.toml", '[hosts.a]\nuser = "u"\nport = 1\n[hosts.b]\n')
    project = write(tmp_path / "mnspawn.toml", "[hosts.a]\nport = 2\n[run]\nnproc = 2\n")
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": "/nowhere"}
    a, b, c = resolve(hosts="a,b,c", environ=environ, cwd=tmp_path).hosts
    assert (a.user, a.port) == ("u", 2)
    assert (str(a.origin("user")), str(a.origin("port"))) == (f"{user}:2:9", f"{project}:2:8")
    assert (b.user, c.user) == (None, None)


def test_a_given_inventory_stands_alone(tmp_path: Path) -> None:
    write(tmp_path / "mnspawn.toml", "[hosts.a]\nport = 2\n")
    other = write(tmp_path / "other.toml", "[hosts.a]\n[hosts.z]\n")
    selection = resolve(inventory=other, environ={}, cwd=tmp_path)
    assert (names(selection), selection.kind, selection.source) == (["a", "z"], "inventory", other)
    assert selection.hosts[0].port is None


def test_a_hostfile_lists_and_the_inventory_completes(tmp_path: Path) -> None:
    write(tmp_path / "mnspawn.toml", '[hosts.a]\naddress = "10.0.0.1"\nslots = 1\n[groups.g]\nhosts = ["a"]\n')
    hostfile = write(tmp_path / "hosts", "b slots=2\na slots=4\n")
    selection = resolve(hostfile=hostfile, environ={}, cwd=tmp_path)
    assert [(host.name, host.address, host.slots) for host in selection.hosts] == [("b", None, 2), ("a", "10.0.0.1", 4)]
    assert names(resolve(hostfile=hostfile, include="@g", environ={}, cwd=tmp_path)) == ["a"]


def test_relative_files_are_found_from_the_working_directory_and_named_as_given(tmp_path: Path) -> None:
    write(tmp_path / "hosts", "a slots=x\n")
    with pytest.raises(InventoryError, match=r"^hosts:1:9: not a number of slots: found 'x'"):
        resolve(hostfile="hosts", environ={}, cwd=tmp_path)


def test_ips_are_data_addresses_and_found_in_the_inventory(tmp_path: Path) -> None:
    write(tmp_path / "mnspawn.toml", '[hosts.a]\naddress = "192.168.0.1"\ndata_address = "10.0.0.1"\n')
    selection = resolve(ips=" 10.0.0.2, 10.0.0.1", environ={}, cwd=tmp_path)
    assert [(host.name, host.address, host.data_address) for host in selection.hosts] == [
        ("10.0.0.2", None, "10.0.0.2"),
        ("a", "192.168.0.1", "10.0.0.1"),
    ]


def test_ips_mean_the_same_as_hosts(tmp_path: Path) -> None:
    write(tmp_path / "mnspawn.toml", '[hosts."n[1-3]"]\naddress = "10.0.0.[1-3]"\n[groups]\ng = ["n[1-2]"]\n')
    for text in ("n1:2,n3", "@g", "n[2-3]:0,1", "bob@n1:2222", "other:4", "@all!n2"):
        assert resolve(ips=text, environ={}, cwd=tmp_path).hosts == resolve(hosts=text, environ={}, cwd=tmp_path).hosts
    (host,) = resolve(ips="bob@10.0.0.2:4", environ={}, cwd=tmp_path).hosts
    assert (host.name, host.address, host.data_address, host.user, host.slots) == (
        *("n2", "10.0.0.2", "10.0.0.2"),
        *("bob", 4),
    )
    for text in ("n1,10.0.0.1", "10.0.0.1,n1"):
        with pytest.raises(InventoryError, match=r"^--ips: a host is listed twice"):
            resolve(ips=text, environ={}, cwd=tmp_path)
    with pytest.raises(InventoryError, match=r"^--ips: no such host in "):
        resolve(ips="10.0.0.9", inventory=str(tmp_path / "mnspawn.toml"), environ={})


def test_ips_choose_among_the_hosts_of_a_hostfile_as_hosts_do(tmp_path: Path) -> None:
    hostfile = write(tmp_path / "hosts", "n1 slots=2\nn2\n10.0.0.3 slots=4\n")
    write(tmp_path / "mnspawn.toml", '[hosts.n2]\ndata_address = "10.0.0.2"\n')
    for text in ("n2,n1", "n1:3", "n*"):
        by_ips = resolve(ips=text, hostfile=hostfile, environ={}, cwd=tmp_path).hosts
        assert by_ips == resolve(hosts=text, hostfile=hostfile, environ={}, cwd=tmp_path).hosts
    found = resolve(ips="10.0.0.3,10.0.0.2", hostfile=hostfile, environ={}, cwd=tmp_path).hosts
    assert [(host.name, host.data_address, host.slots) for host in found] == [
        ("10.0.0.3", "10.0.0.3", 4),
        ("n2", "10.0.0.2", None),
    ]
    with pytest.raises(InventoryError, match=r"^--ips: no such host in "):
        resolve(ips="n9", hostfile=hostfile, environ={}, cwd=tmp_path)


SLURM = {"SLURM_JOB_NODELIST": "n[1-2],m", "SLURM_TASKS_PER_NODE": "2(x2),4"}


def test_an_allocation_is_used_when_nothing_else_is_given() -> None:
    selection = resolve(environ=SLURM, cwd="/nowhere")
    assert [(host.name, host.slots) for host in selection.hosts] == [("n1", 2), ("n2", 2), ("m", 4)]
    assert (selection.kind, selection.source) == ("slurm", "SLURM_JOB_NODELIST")
    assert names(resolve(environ=SLURM, exclude="m", cwd="/nowhere")) == ["n1", "n2"]
    assert names(resolve(environ=SLURM, hosts="other", cwd="/nowhere")) == ["other"]


def test_the_schedulers_node_file_means_slots_by_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "1234.server", "b\na\nb\n")
    for environ in ({"PBS_NODEFILE": path}, {"LSB_DJOB_HOSTFILE": path}):
        for selection in (resolve(environ=environ), resolve(hostfile=path, environ=environ)):
            assert [(host.name, host.slots) for host in selection.hosts] == [("b", 2), ("a", 1)]


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"SLURM_JOB_NODELIST": "n[1-"}, "SLURM_JOB_NODELIST"),
        ({"SLURM_JOB_NODELIST": "n1,n1"}, "SLURM_JOB_NODELIST"),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "2(x3)"}, "SLURM_JOB_NODELIST"),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "2(x2),4,1"}, "SLURM_TASKS_PER_NODE"),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "2(y3)"}, "SLURM_TASKS_PER_NODE"),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "0(x3)"}, "SLURM_TASKS_PER_NODE"),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "4"}, "SLURM_STEP_NUM_TASKS"),
        ({"PBS_NODEFILE": "/nowhere/nodes"}, "/nowhere/nodes"),
        ({"LSB_DJOB_HOSTFILE": "/nowhere/nodes"}, "/nowhere/nodes"),
        ({"LSB_MCPU_HOSTS": "a 2 b"}, "LSB_MCPU_HOSTS"),
        ({"LSB_MCPU_HOSTS": "a x"}, "LSB_MCPU_HOSTS"),
    ],
)
def test_an_allocation_that_cannot_be_used_is_never_a_local_run(environ: dict[str, str], place: str) -> None:
    if environ.get("SLURM_TASKS_PER_NODE") == "2(x3)":
        assert len(resolve(environ=environ).hosts) == 3
        return
    with pytest.raises(InventoryError) as raised:
        resolve(environ=environ)
    assert str(raised.value.place).startswith(place)
    if place == "/nowhere/nodes":
        assert raised.value.hint == f"{next(iter(environ))} names it"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"SLURM_JOB_NODELIST": ""}, "SLURM_JOB_NODELIST: the variable is set, but empty: expected nodes such as "),
        ({"SLURM_NODELIST": " "}, "SLURM_NODELIST: the variable is set, but empty"),
        (
            {"PBS_NODEFILE": ""},
            "PBS_NODEFILE: the variable is set, but empty: expected a file with a line",
        ),
        ({"LSB_DJOB_HOSTFILE": ""}, "LSB_DJOB_HOSTFILE: the variable is set, but empty"),
        ({"LSB_MCPU_HOSTS": " "}, "LSB_MCPU_HOSTS: the variable is set, but empty: expected host N host N ..."),
        (
            {"PBS_NODEFILE": "/dev/null"},
            "PBS_NODEFILE (/dev/null): the node file is empty: expected a file",
        ),
        (
            {**SLURM, "SLURM_TASKS_PER_NODE": "2(x2),4,1"},
            "SLURM_TASKS_PER_NODE: it counts 4 nodes, and SLURM_JOB_NODELIST has 3: found '2(x2),4,1', "
            "expected a count for each of n[1-2],m",
        ),
        ({"LSB_MCPU_HOSTS": "a 2 b"}, "found 'b', expected host N host N ..., not 3 words"),
    ],
)
def test_what_is_wrong_with_an_allocation_is_told_with_its_variables_and_counts(
    environ: dict[str, str], message: str
) -> None:
    with pytest.raises(InventoryError) as raised:
        resolve(environ=environ)
    assert message in str(raised.value)


def test_an_empty_variable_hides_no_other_allocation_and_no_option(tmp_path: Path) -> None:
    environ = {"SLURM_JOB_NODELIST": "", "PBS_NODEFILE": write(tmp_path / "nodes", "a\na\n")}
    assert [(host.name, host.slots) for host in resolve(environ=environ).hosts] == [("a", 2)]
    assert names(resolve(hosts="b", environ={"SLURM_JOB_NODELIST": ""}, cwd="/nowhere")) == ["b"]


def test_a_batch_system_that_is_not_read_is_told_with_a_way_round() -> None:
    assert "PE_HOSTFILE is set, but not read: awk " in str(unread({"PE_HOSTFILE": "/x"}))
    assert unread({"PE_HOSTFILE": ""}) is None


PADDLE = {
    "PADDLE_TRAINERS": "10.0.0.1,10.0.0.2",
    "POD_IP": "10.0.0.1",
    "PADDLE_TRAINER_ID": "0",
    "TRAINER_PORTS_NUM": "8",
}


def test_paddles_cloud_starts_from_its_first_pod_only() -> None:
    assert names(resolve(environ=PADDLE)) == ["10.0.0.1", "10.0.0.2"]
    assert resolve(environ={**PADDLE, "PADDLE_TRAINERS_NUM": "1"}).hosts == ()
    assert resolve(environ={"PADDLE_TRAINERS": "10.0.0.1,10.0.0.2"}).hosts == ()
    with pytest.raises(InventoryError, match=r"^PADDLE_TRAINER_ID: "):
        resolve(environ={**PADDLE, "PADDLE_TRAINER_ID": "1"})


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"hosts": ""}, "--hosts"),
        ({"ips": ""}, "--ips"),
        ({"ips": "a,a"}, "--ips"),
        ({"ips": "10.0.0.1:x"}, "--ips"),
        ({"ips": "10.0.0.1;id"}, "--ips"),
        ({"hosts": "a", "ips": "b"}, "--ips"),
        ({"hostfile": ""}, "--hostfile"),
        ({"inventory": ""}, "--inventory"),
        ({"hostfile": "nope"}, "nope"),
        ({"inventory": "nope"}, "nope"),
        ({"include": "a"}, "--include"),
        ({"exclude": "a"}, "--exclude"),
        ({"limit": "a"}, "--limit"),
    ],
)
def test_what_cannot_be_is_told_with_its_option_or_file(options: dict[str, Any], place: str, tmp_path: Path) -> None:
    with pytest.raises(InventoryError) as raised:
        resolve(**options, environ={}, cwd=tmp_path)
    assert str(raised.value.place) == place


def test_an_inventory_without_hosts_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "empty.toml", "# nothing yet\n")
    with pytest.raises(InventoryError, match="no hosts"):
        resolve(inventory=path, environ={})


def test_secrets_are_looked_up_by_the_controller_and_shown_by_nobody(tmp_path: Path) -> None:
    write(tmp_path / "token", "s3cret\n")
    path = write(
        tmp_path / "i.toml",
        '[hosts.a]\nenv = { A = "1", T = { env = "TOKEN" }, F = { file = "token" }, G = { env = "NO" } }\n',
    )
    (host,) = resolve(inventory=path, include="a", environ={}).hosts
    assert "s3cret" not in repr(host)
    with pytest.raises(InventoryError, match=r"i\.toml:2:\d+: the environment variable (TOKEN|NO) is not set"):
        host.environment({})
    assert host.environment({"TOKEN": "t", "NO": ""}) == {"A": "1", "T": "t", "F": "s3cret", "G": ""}


def test_an_error_names_the_place_where_an_option_was_given(tmp_path: Path) -> None:
    places = {"hosts": Origin("MNSPAWN_HOSTS"), "exclude": Origin("settings.toml", 3, 11)}
    for options, place in (({"hosts": "a:0"}, "MNSPAWN_HOSTS"), ({"hosts": "a", "exclude": "b"}, "settings.toml:3:11")):
        more: dict[str, Any] = options
        with pytest.raises(InventoryError) as raised:
            resolve(**more, places=places, environ={}, cwd=tmp_path)
        assert str(raised.value.place) == place
        assert place not in raised.value.text


def test_all_hosts_of_the_own_inventory_take_part_only_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "mnspawn.toml").write_text("[hosts.a]\n[hosts.b]\n")
    environ = {"HOME": str(tmp_path)}
    assert names(resolve(else_all=True, exclude="a", environ=environ, cwd=tmp_path)) == ["b"]
    assert names(resolve(else_all=True, environ=SLURM, cwd=tmp_path)) == ["n1", "n2", "m"]
    assert resolve(environ=environ, cwd=tmp_path).hosts == ()
    (tmp_path / "mnspawn.toml").write_text("")
    assert resolve(else_all=True, environ=environ, cwd=tmp_path).hosts == ()


def test_hosts_are_chosen_among_those_at_hand() -> None:
    known = Inventory((Host("a"), Host("b"), Host("c")))
    assert [host.name for host in among(known)] == ["a", "b", "c"]
    assert [host.name for host in among(known, hosts="c,b,a", exclude="b")] == ["c", "a"]
    with pytest.raises(InventoryError, match=r"^WORDS: no such host among the hosts: found 'd'"):
        among(known, hosts="d", places={"hosts": Origin("WORDS")})
