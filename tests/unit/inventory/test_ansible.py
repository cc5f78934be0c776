"""What Ansible's variables say of a host: old and new names, ways through other hosts, templates, groups."""

from pathlib import Path
from typing import Any

import pytest

from mnspawn_inventory import InventoryError, read_inventory, resolve
from mnspawn_inventory.export import export


def notes_of(tmp_path: Path, text: str, name: str = "i.ini") -> list[str]:
    path = tmp_path / name
    path.write_text(text)
    return [note.replace(f"{path}:", "") for note in read_inventory(path).notes]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a ansible_host=n ansible_ssh_host=o\n", ("o", None, None)),
        ("a ansible_ssh_host=o ansible_host=n\n", ("o", None, None)),
        ("a ansible_user=n\n[all:vars]\nansible_ssh_user=o\n", (None, "o", None)),
        ("[g]\na ansible_port=1\n[g:vars]\nansible_ssh_port=2\n", (None, None, 2)),
        ("a ansible_host=n\n", ("n", None, None)),
    ],
)
def test_the_old_name_of_a_variable_counts_wherever_it_comes_from(
    text: str, expected: tuple[str | None, str | None, int | None], tmp_path: Path
) -> None:
    (tmp_path / "i.ini").write_text(text)
    (host,) = read_inventory(tmp_path / "i.ini").hosts
    assert (host.address, host.user, host.port) == expected


def test_old_and_new_names_that_differ_are_told_once_for_all_hosts(tmp_path: Path) -> None:
    text = "n[1:3]\n[all:vars]\nansible_user=new\nansible_ssh_user=old\nansible_port=22\nansible_ssh_port=22\n"
    assert notes_of(tmp_path, text) == [
        "3:14: n[1-3]: ansible_user is 'new', but Ansible uses ansible_ssh_user, which is 'old' (4:18)"
    ]


def test_a_value_from_two_groups_is_told_with_both_places(tmp_path: Path) -> None:
    text = "[x]\na\n[y]\na\n[x:vars]\nansible_user=one\n[y:vars]\nansible_user=two\n"
    assert notes_of(tmp_path, text) == [
        "8:14: a: ansible_user is 'two' from group y; group x has 'one' (6:14), which is not used"
    ]
    (host,) = read_inventory(tmp_path / "i.ini").hosts
    assert host.user == "two"


@pytest.mark.parametrize(
    "text",
    [
        "[x]\na\n[y]\na\n[x:vars]\nansible_user=one\n[y:vars]\nansible_user=one\n",
        "[x]\na ansible_user=own\n[y]\na\n[x:vars]\nansible_user=one\n[y:vars]\nansible_user=two\n",
        "[x]\na\n[y:children]\nx\n[x:vars]\nansible_user=one\n[y:vars]\nansible_user=two\n",
        "[x]\na\n[y]\na\n[x:vars]\nhttp=1\n[y:vars]\nhttp=2\n",
        "[x]\na\n[all:vars]\nansible_user=one\n[x:vars]\nansible_user=two\n",
    ],
)
def test_groups_that_agree_or_that_the_host_or_a_group_inside_overrules_are_not_told(text: str, tmp_path: Path) -> None:
    assert notes_of(tmp_path, text) == []


def test_values_of_variables_for_ranks_are_not_in_notes(tmp_path: Path) -> None:
    text = (
        "x:\n  hosts: {a: }\n  vars: {mnspawn_env: {T: hush}}\ny:\n  hosts: {a: }\n  vars: {mnspawn_env: {T: quiet}}\n"
    )
    (note,) = notes_of(tmp_path, text, "i.yml")
    assert note.startswith("6:23: a: mnspawn_env is that from group y; group x has another value (3:23)")
    assert "hush" not in note
    assert "quiet" not in note


@pytest.mark.parametrize(
    ("arguments", "way"),
    [
        ("-J me@gate:2222", ("me@gate:2222", None)),
        ("-Jgate", ("gate", None)),
        ("-o ProxyJump=a,b", ("a,b", None)),
        ("-oProxyJump=none", ("none", None)),
        ('-o ProxyCommand="ssh -q -W %h:%p me@gate"', ("me@gate", None)),
        ('-o ProxyCommand="ssh -W %h:%p -l me -p 2222 gate"', ("me@gate:2222", None)),
        ('-o ProxyCommand="ssh -qW %h:%p gate"', ("gate", None)),
        ('-o ProxyCommand="ssh -W %h:%p -i ~/k me@gate"', (None, "ssh -W %h:%p -i ~/k me@gate")),
        ('-o ProxyCommand="ssh -i~/k -W %h:%p me@gate"', (None, "ssh -i~/k -W %h:%p me@gate")),
        ('-o ProxyCommand="ssh -W %h:%p -F c gate"', (None, "ssh -W %h:%p -F c gate")),
        ('-o ProxyCommand="ssh -W %h:%p -o A=b gate"', (None, "ssh -W %h:%p -o A=b gate")),
        ('-o ProxyCommand="ssh -W %h:%p -J x gate"', (None, "ssh -W %h:%p -J x gate")),
        ('-o ProxyCommand="ssh gate nc %h %p"', (None, "ssh gate nc %h %p")),
        ('-o "ProxyCommand nc -x proxy:1080 %h %p"', (None, "nc -x proxy:1080 %h %p")),
        ('-o ProxyCommand="/opt/my/ssh -W %h:%p gate"', (None, "/opt/my/ssh -W %h:%p gate")),
        ('-C -o ProxyCommand="nc %h %p" -J gate', (None, "nc %h %p")),
        ("-C -o ControlMaster=auto", (None, None)),
    ],
)
@pytest.mark.parametrize("variable", ["ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args"])
def test_a_proxy_is_used_as_it_is_written(
    arguments: str, way: tuple[str | None, str | None], variable: str, tmp_path: Path
) -> None:
    (tmp_path / "i.yml").write_text(f"all:\n  hosts:\n    a:\n      {variable}: '{arguments}'\n")
    (host,) = read_inventory(tmp_path / "i.yml").hosts
    assert (host.jump, host.proxy_command) == way
    assert str(host.origin("jump" if way[0] else "proxy_command" if way[1] else "name")).startswith(
        f"{tmp_path}/i.yml:4:" if any(way) else f"{tmp_path}/i.yml:3:"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-o ProxyCommand=", "a proxy that can't be used: found 'ProxyCommand='"),
        ("-o ProxyUseFdpass=yes -o ProxyCommand=x", "a proxy that can't be used: found 'ProxyUseFdpass=yes'"),
        ("-J a;b", "not a host name: found 'a;b'"),
        ("-J", "an option without its value: found '-J'"),
        ('-o ProxyCommand="nc %h', "quotes don't match"),
        ("-o 'ProxyCommand=nc %z'", "not a token of a ProxyCommand: found '%z'"),
    ],
)
def test_a_proxy_that_cant_be_used_is_refused_with_its_place(arguments: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "i.json").write_text(
        f'{{"g": {{"hosts": ["a"], "vars": {{\n"ansible_ssh_args": {_json(arguments)}}}}}}}'
    )
    with pytest.raises(InventoryError) as caught:
        read_inventory(tmp_path / "i.json")
    assert caught.value.place is not None
    assert caught.value.place.line == 2
    assert message in str(caught.value)


def _json(text: str) -> str:
    import json

    return json.dumps(text)


def test_key_user_and_port_in_the_arguments_are_used_and_the_rest_is_told(tmp_path: Path) -> None:
    text = "a ansible_ssh_common_args='-i ~/k -l me -p 2222 -F c -4 -o StrictHostKeyChecking=no -q'\n"
    assert notes_of(tmp_path, text) == [
        "1:27: a: unused in ansible_ssh_common_args: -F c (give it as --ssh-config), -4, -o StrictHostKeyChecking=no"
    ]
    (host,) = read_inventory(tmp_path / "i.ini").hosts
    assert (host.identity, host.user, host.port) == ("~/k", "me", 2222)


@pytest.mark.parametrize("to", ["toml", "ansible-yaml", "ssh-config", "json"])
def test_a_proxy_command_comes_through_every_export(to: str, tmp_path: Path) -> None:
    command = "ssh -i '~/a key' -W %h:%p me@gate # x"
    (tmp_path / "i.toml").write_text(f'[hosts.a]\naddress = "10.0.0.1"\nproxy_command = "{command}"\n')
    name = {"toml": "o.toml", "ansible-yaml": "o.yml", "json": "o.json"}.get(to, "ssh_config")
    (tmp_path / name).write_text(export(read_inventory(tmp_path / "i.toml"), to)[0])
    (host,) = read_inventory(tmp_path / name).hosts
    assert (host.address, host.jump, host.proxy_command) == ("10.0.0.1", None, command)


def test_the_way_that_is_said_nearer_to_a_host_takes_the_place_of_the_other(tmp_path: Path) -> None:
    (tmp_path / "mnspawn.toml").write_text(
        '[hosts.a]\njump = "gate"\n[hosts.b]\nproxy_command = "nc %h %p"\n[groups.all]\nproxy_command = "x"\n'
    )
    (tmp_path / "hosts").write_text("a\nb jump=none\n")
    a, b = resolve(hostfile="hosts", environ={}, cwd=tmp_path).hosts
    assert [(host.jump, host.proxy_command) for host in (a, b)] == [("gate", None), ("none", None)]


@pytest.mark.parametrize(
    ("lines", "way"),
    [
        ("ProxyCommand nc -X 5 %h %p\n  ProxyJump gate", (None, "nc -X 5 %h %p")),
        ("ProxyJump gate\n  ProxyCommand nc %h %p", ("gate", None)),
        ("ProxyCommand none\n  ProxyJump gate", ("none", None)),
    ],
)
def test_a_proxy_of_an_ssh_config_is_used_the_first_one(
    lines: str, way: tuple[str | None, str | None], tmp_path: Path
) -> None:
    (tmp_path / "ssh_config").write_text(f"Host a\n  {lines}\n")
    (host,) = read_inventory(tmp_path / "ssh_config").hosts
    assert (host.jump, host.proxy_command) == way


UNREADABLE = "a\nb ansible_host=\"{{ hostvars['a'].x }}\"\nc ansible_user=me\n"


def test_a_template_that_only_ansible_evaluates_stops_hosts_that_need_it(tmp_path: Path) -> None:
    (tmp_path / "i.ini").write_text(UNREADABLE)
    assert [host.name for host in read_inventory(tmp_path / "i.ini").hosts] == ["a", "b", "c"]
    used: list[dict[str, Any]] = [{"hosts": "a,c"}, {"exclude": "b"}, {"limit": "c"}]
    for more in used:
        assert resolve(inventory="i.ini", environ={}, cwd=tmp_path, **more).hosts
    refused: list[dict[str, Any]] = [{}, {"hosts": "b"}, {"limit": "b,c"}]
    for more in refused:
        with pytest.raises(InventoryError, match=r"^i\.ini:2:16: a template that only Ansible can evaluate"):
            resolve(inventory="i.ini", environ={}, cwd=tmp_path, **more)


def test_how_to_do_without_a_host_that_cant_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "i.ini").write_text(UNREADABLE)
    with pytest.raises(InventoryError) as caught:
        resolve(inventory="i.ini", environ={}, cwd=tmp_path)
    assert "--exclude 'b'" in str(caught.value.hint)


def test_a_vault_stops_hosts_that_need_it(tmp_path: Path) -> None:
    (tmp_path / "i.yml").write_text("all:\n  hosts:\n    a: {ansible_user: !vault x}\n    b: {password: !vault y}\n")
    assert [host.name for host in resolve(inventory="i.yml", hosts="b", environ={}, cwd=tmp_path).hosts] == ["b"]
    with pytest.raises(InventoryError, match=r"^i\.yml:3:23: not a value for ansible_user: found '!vault'"):
        resolve(inventory="i.yml", hosts="a", environ={}, cwd=tmp_path)


def test_a_template_that_every_host_needs_stops_all(tmp_path: Path) -> None:
    (tmp_path / "i.ini").write_text("a\nb\n[all:vars]\nansible_user={{ x | lower }}\n")
    with pytest.raises(InventoryError, match=r"i\.ini:4:14: a template that only Ansible can evaluate"):
        read_inventory(tmp_path / "i.ini")
