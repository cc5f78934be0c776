from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mnspawn.errors import UsageError
from mnspawn.plan.contract import DEFAULT
from mnspawn.settings.table import EXCLUSIVE, OPTION, OPTIONS, Settings, resolve
from mnspawn.settings.values import MOST_WORKERS
from mnspawn_agent.protocol.checks import MAX_RANKS
from mnspawn_inventory.fields import MAX_SLOTS

HERE = {"HOME": "/home/u"}


@pytest.fixture(name="file")
def settings_path(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


def resolved(file: Path, content: str, environ: Mapping[str, str] | None = None, **arguments: object) -> Settings:
    file.write_text(content)
    return resolve(arguments, HERE | dict(environ or {}), file)


def complaint(file: Path, content: str, **arguments: object) -> str:
    with pytest.raises(UsageError) as caught:
        resolved(file, content, {}, **arguments)
    assert caught.value.exit_status == 2
    return str(caught.value).replace(str(file), "FILE")


# -- layers


def test_without_anything_said_the_defaults_hold() -> None:
    settings = resolve({}, {})
    assert settings == Settings()
    assert (settings.grace, settings.connect_timeout, settings.orphan_grace) == (10.0, 15.0, 20.0)
    assert (settings.hosts, settings.nproc_per_node, settings.contract) == (None, None, DEFAULT)
    assert str(settings.origin("grace")) == "default of --grace"
    assert {settings.origin(option.name).layer for option in OPTIONS} == {"default"}


def test_arguments_beat_the_environment_which_beats_the_file(file: Path) -> None:
    content = "grace = 1\ntimeout = 1\nconnect_timeout = 1\n"
    environ = {"MNSPAWN_GRACE": "2", "MNSPAWN_TIMEOUT": "2"}
    settings = resolved(file, content, environ, grace="3")
    assert (settings.grace, settings.timeout, settings.connect_timeout) == (3.0, 2.0, 1.0)
    origins = [settings.origin(name) for name in ("grace", "timeout", "connect_timeout", "orphan_grace")]
    assert [origin.layer for origin in origins] == ["argument", "environment", "file", "default"]
    assert [origin.place for origin in origins[:3]] == ["--grace", "MNSPAWN_TIMEOUT", f"{file}:3:19"]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_can_be_given_in_every_layer(option: object, file: Path) -> None:
    texts = {
        **dict.fromkeys(("hosts", "ips"), "a,b:2"),
        **dict.fromkeys(("sandbox", "nproc_per_node", "verbose"), "3"),
        **dict.fromkeys(("start_port", "master_port"), "6070"),
        **dict.fromkeys(("grace", "timeout", "connect_timeout", "orphan_grace"), "2.5"),
        **dict.fromkeys(("module", "no_python", "keep_proxy", "dry_run", "json"), "true"),
        **dict.fromkeys(("hostfile", "inventory", "python", "workdir", "events", "ssh_config"), "/some/where"),
        "prelude": "source ~/venv/bin/activate",
        "network": "eth0",
        "contract": "torch",
        "env": "A=1",
        "output": "plain",
        **dict.fromkeys(("include", "exclude", "limit"), "a,b"),
        **dict.fromkeys(("timestamps", "sanitize", "detach"), "true"),
        "color": "always",
        "log_dir": "/some/where",
        "log_cap": "10M",
        "name": "try-7",
        "ranks": "1",
        "transport": "paramiko",
        "host_key_check": "accept-new",
    }
    name = option.name  # type: ignore[attr-defined]
    by_argument = resolve({name: texts[name]}, HERE)
    by_environment = resolve({}, HERE | {OPTION[name].variable: texts[name]})
    by_file = resolved(file, f"{name.replace('_', '-')} = '{texts[name]}'\n")
    assert by_argument == by_environment == by_file != Settings()
    assert OPTION[name].flags[0] == "--" + name.replace("_", "-")
    assert OPTION[name].help.endswith(".")


def test_values_of_tomls_own_types(file: Path) -> None:
    content = """
hosts = ["a", "b:2"]
nproc-per-node = 2
grace = 3
timeout = 1.5
dry_run = true
contract = ["torch", "tf"]
ranks = [0, "3-5"]
env = {A = "1", B = 2}
"""
    settings = resolved(file, content)
    assert (settings.hosts, settings.nproc_per_node) == ("a,b:2", 2)
    assert (settings.grace, settings.timeout, settings.dry_run) == (3.0, 1.5, True)
    assert settings.contract == ("torch", "tf")
    assert settings.ranks == (range(1), range(3, 6))
    assert settings.env == (("A", "1"), ("B", "2"))


def test_variables_add_up_over_the_layers_and_the_highest_wins_by_name(file: Path) -> None:
    content = '[env]\nA = "file"\nB = "file"\n'
    settings = resolved(file, content, {"MNSPAWN_ENV": "B=variable 'C=x y'"}, env=["C=argument=", "D="])
    assert dict(settings.env) == {"A": "file", "B": "variable", "C": "argument=", "D": ""}


def test_a_name_alone_takes_our_own_value() -> None:
    assert resolve({"env": ["TOKEN"]}, {"TOKEN": "a\n'b\udcff"}).env == (("TOKEN", "a\n'b\udcff"),)
    with pytest.raises(UsageError, match=r"^--env: expected TOKEN to be set in our own environment, found it unset$"):
        resolve({"env": ["TOKEN"]}, {})


def test_a_bad_variable_is_named_and_its_value_is_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        resolve({"env": {"TOKEN": "secret\0"}}, {})
    assert str(caught.value) == "--env: expected text without NUL characters as the value of TOKEN"


# -- where hosts come from


def test_a_higher_layers_hosts_replace_a_lower_layers(file: Path) -> None:
    settings = resolved(file, "hostfile = 'x'", {"MNSPAWN_HOSTS": "a,b"}, sandbox=2)
    assert (settings.hostfile, settings.hosts, settings.sandbox) == (None, None, 2)
    assert settings.origin("hosts").layer == "default"


@pytest.mark.parametrize(("first", "second"), [("hosts", "ips"), ("ips", "sandbox"), ("hostfile", "sandbox")])
def test_one_layer_says_once_where_hosts_come_from(first: str, second: str, file: Path) -> None:
    assert any({first, second} <= set(group) for group in EXCLUSIVE)
    said = f"--{second}: expected one of these at most, found --{first} as well"
    assert complaint(file, "", **{first: "2", second: "2"}) == said
    assert complaint(file, f"{first} = '2'\n{second} = '2'\n").startswith(f"FILE:2:{len(second) + 4}: expected one of")


@pytest.mark.parametrize("word", ["hosts", "ips"])
def test_hosts_can_choose_among_those_of_a_hostfile_said_beside_it(file: Path, word: str) -> None:
    named: dict[str, Any] = {word: "a"}
    settings = resolved(file, "", **named, hostfile="hosts", inventory="all", include="a:0")
    assert (getattr(settings, word), settings.hostfile, settings.include) == ("a", Path("hosts"), "a:0")
    settings = resolved(file, "hostfile = 'x'\ninventory = 'y'", **named)
    assert (getattr(settings, word), settings.hostfile) == ("a", None)
    assert settings.inventory is not None


@pytest.mark.parametrize(
    ("said", "size"),
    [("65536", 65536), ("64K", 65536), ("64k", 65536), (" 10 MiB ", 10 << 20), ("2GB", 2 << 30), (7, 7)],
)
def test_sizes(said: object, size: int, file: Path) -> None:
    assert resolve({"log_cap": said}, {}).log_cap == size


@pytest.mark.parametrize("said", ["", "0", "-1", "10X", "1.5G", "K", True, 1.5])
def test_what_is_no_size(said: object) -> None:
    with pytest.raises(UsageError, match=r"^--log-cap: expected a size such as 64K, 10M or 2G, found "):
        resolve({"log_cap": said}, {})


@pytest.mark.parametrize("said", ["", "two words", "-x", "a:b", "a\x1bb", "x" * 65])
def test_what_is_no_name(said: str) -> None:
    expected = r"^--name: expected a name without blanks and colons, up to 64 characters, found "
    with pytest.raises(UsageError, match=expected):
        resolve({"name": said}, {})


def test_a_worker_is_not_taken_for_its_run() -> None:
    inside = {"MNSPAWN_RUN_ID": "r1", "MNSPAWN_HOSTS": "a,b", "MNSPAWN_GRACE": "3"}
    assert resolve({}, inside).hosts is None
    assert resolve({}, inside).grace == 3.0
    assert resolve({}, {"MNSPAWN_HOSTS": "a,b"}).hosts == "a,b"


# -- the settings file


def test_the_file_is_found_where_the_environment_says(tmp_path: Path) -> None:
    home, config, named = tmp_path / "home", tmp_path / "config", tmp_path / "named.toml"
    for number, file in enumerate([home / ".config/mnspawn/settings.toml", config / "mnspawn/settings.toml", named]):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"grace = {number + 1}")
    environ = {"HOME": str(home)}
    assert resolve({}, environ).grace == 1.0
    environ["XDG_CONFIG_HOME"] = str(config)
    assert resolve({}, environ).grace == 2.0
    environ["MNSPAWN_SETTINGS"] = str(named)
    assert resolve({}, environ).grace == 3.0
    environ["MNSPAWN_SETTINGS"] = ""
    assert resolve({}, environ).grace == 10.0


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(UsageError) as caught:
        resolve({}, {"MNSPAWN_SETTINGS": str(missing)})
    assert str(caught.value) == f"{missing}: expected a settings file, found none"
    with pytest.raises(UsageError, match="expected a readable settings file, found: "):
        resolve({}, {}, tmp_path)
    assert resolve({}, {"XDG_CONFIG_HOME": str(tmp_path)}) == Settings()


def test_paths_in_the_file_start_at_its_folder_and_elsewhere_where_we_stand(file: Path) -> None:
    settings = resolved(file, "hostfile = 'cluster/hosts'\nssh-config = '~/ssh'\nevents = '-'\n", inventory="here")
    assert settings.hostfile == file.parent / "cluster/hosts"
    assert settings.ssh_config == Path("/home/u/ssh")
    assert settings.events == Path("-")
    assert settings.inventory == Path("here")


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        ("# c\n  grase = 1\n", "2:3", "expected the name of an option, found 'grase'"),
        ("[run]\ngrace = 1\n", "1:2", "expected the name of an option, found 'run'"),
        ('"no such" = 1\n', "1:1", "expected the name of an option, found 'no such'"),
        ("timeout = 0\n", "1:11", "expected seconds, more than 0, found 0"),
        ("grace = 1\r\n\r\ntimeout = 'x'\r\n", "3:11", "expected seconds, more than 0, found 'x'"),
        ('hosts = """\nsandbox = 1\n"""\nsandbox=0\n', "4:9", "expected one of these at most, found FILE:1:9 as well"),
        ("output = [\n'ranks = 1']\n", "1:10", "expected prefix, plain, fold, json or none, found ['ranks = 1']"),
        ("dry-run = true\ndry_run = true\n", "2:1", "expected dry_run once, found it twice"),
        ('[env]\n"A B" = "x"\n', "1:2", "expected the name of a variable, found 'A B'"),
        ("grace = \n", "1:9", "expected TOML, found: "),
        ("grace = 1\ngrace = 2\n", "2:10", "expected TOML, found: "),
        ("hosts = 'a", "1:11", "expected TOML, found: "),
    ],
)
def test_errors_in_the_file_name_line_and_column(content: str, place: str, message: str, file: Path) -> None:
    assert complaint(file, content).startswith(f"FILE:{place}: {message}")


def test_a_near_miss_is_answered_with_the_name_that_was_meant(file: Path) -> None:
    with pytest.raises(UsageError) as caught:
        resolved(file, "nproc_per_nod = 2")
    assert caught.value.hint == "did you mean nproc_per_node?"


def test_bytes_that_are_not_utf_8_are_found(file: Path) -> None:
    file.write_bytes(b"# \xc3\xa4\ngrace = 1 # \xe4\n")
    with pytest.raises(UsageError, match=r":2:13: expected UTF-8, found other bytes$"):
        resolve({}, {}, file)


def test_a_byte_order_mark_is_no_error(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfgrace = 7\n")
    assert resolve({}, {}, file).grace == 7.0


# -- values


@pytest.mark.parametrize("option", ["timeout", "connect_timeout", "orphan_grace"])
@pytest.mark.parametrize("value", ["0", 0, "-1", "", "inf", "nan", "1e999", "1e11", "5s", "1.2.3", "1_0", "٣", True])
def test_durations_are_seconds_more_than_nothing(option: str, value: object) -> None:
    flag = OPTION[option].flags[0]
    with pytest.raises(UsageError) as caught:
        resolve({option: value}, {})
    assert str(caught.value) == f"{flag}: expected seconds, more than 0, found {value!r}"


@pytest.mark.parametrize("value", ["-1", -1, "", "inf", float("nan"), "1e999", "1e11", "5s", "1.2.3", "1_0", True])
def test_a_grace_may_be_nothing_but_not_less(value: object) -> None:
    assert (resolve({"grace": "0"}, {}).grace, resolve({"grace": 0}, {}).grace) == (0.0, 0.0)
    with pytest.raises(UsageError) as caught:
        resolve({"grace": value}, {})
    assert str(caught.value) == f"--grace: expected seconds, 0 or more, found {value!r}"


@pytest.mark.parametrize(("text", "seconds"), [("1", 1.0), (" 0.5", 0.5), (".5", 0.5), ("1e3", 1000.0), (7, 7.0)])
def test_durations(text: object, seconds: float) -> None:
    assert resolve({"grace": text}, {}).grace == seconds


@pytest.mark.parametrize("value", ["0", "65536", "-1", "80x", "", "1.0", "99999999999999999999", "8_0", True, 80.0])
def test_ports_are_from_1_to_65535(value: object) -> None:
    with pytest.raises(UsageError) as caught:
        resolve({"start_port": value}, {})
    assert str(caught.value) == f"--start-port: expected a port from 1 to 65535, found {value!r}"


def test_ports() -> None:
    assert resolve({"start_port": "1", "master_port": 65535}, {}).master_port == 65535


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0", (range(1),)),
        ("0,3-5", (range(1), range(3, 6))),
        (" 5 , 3 - 4, 3", (range(3, 6),)),
        ("0-999999", (range(1_000_000),)),
        (4, (range(4, 5),)),
    ],
)
def test_ranks(text: object, ranks: tuple[range, ...]) -> None:
    assert resolve({"ranks": text}, {}).ranks == ranks


@pytest.mark.parametrize("text", ["", ",", "1,", "a", "-1", "1-", "1--2", "0x1", "1.5", "0-1000000", True])
def test_ranks_that_are_none(text: object) -> None:
    with pytest.raises(UsageError, match=r"^--ranks: expected ranks such as 0,3-5, found "):
        resolve({"ranks": text}, {})


def test_ranks_the_wrong_way_round() -> None:
    with pytest.raises(UsageError, match=r"with the smaller rank first, found '5-3'$"):
        resolve({"ranks": "5-3"}, {})


@pytest.mark.parametrize(("text", "value"), [("auto", "auto"), ("gpu", "gpu"), ("cpu", "cpu"), ("4", 4), (4, 4)])
def test_processes_per_host(text: object, value: object) -> None:
    assert resolve({"nproc_per_node": text}, {}).nproc_per_node == value


@pytest.mark.parametrize("value", ["0", "-1", "all", "", "2.0", 0])
def test_processes_per_host_that_can_not_be(value: object) -> None:
    with pytest.raises(
        UsageError, match=r"^--nproc-per-node: expected a whole number from 1 to 4096, auto, gpu or cpu, found"
    ):
        resolve({"nproc_per_node": value}, {})


def test_contracts() -> None:
    assert resolve({"contract": "torch, tf"}, {}).contract == ("torch", "tf")
    assert resolve({"contract": "default,tf,torch"}, {}).contract == (*DEFAULT, "tf")
    assert resolve({"contract": "none"}, {}).contract == ("none",)


@pytest.mark.parametrize("value", ["", "torch,", "Torch", "none,torch", []])
def test_contracts_that_can_not_be(value: object) -> None:
    with pytest.raises(UsageError, match=r"^MNSPAWN_CONTRACT: expected"):
        resolve({}, {"MNSPAWN_CONTRACT": str(value)})


@pytest.mark.parametrize(("text", "value"), [("10.1.2.3/8", "10.0.0.0/8"), ("fd00::/8", "fd00::/8"), ("ib0", "ib0")])
def test_networks(text: str, value: str) -> None:
    assert resolve({"network": text}, {}).network == value


@pytest.mark.parametrize("value", ["", "10.0.0.0/33", "a/b", "eth 0", "a-name-too-long-for-one", 7])
def test_networks_that_can_not_be(value: object) -> None:
    with pytest.raises(UsageError, match=r"^--network: expected a network such as 10\.0\.0\.0/8 or the name of an int"):
        resolve({"network": value}, {})


@pytest.mark.parametrize(("text", "value"), [("1", True), ("Yes", True), ("off", False), ("FALSE", False)])
def test_switches_in_the_environment(text: str, value: bool) -> None:
    assert resolve({}, {"MNSPAWN_DRY_RUN": text}).dry_run is value


@pytest.mark.parametrize("variable", [option.variable for option in OPTIONS if option.name != "env"])
def test_an_empty_variable_is_an_error_not_silence(variable: str) -> None:
    with pytest.raises(UsageError, match=f"^{variable}: expected "):
        resolve({}, {variable: ""})


@pytest.mark.parametrize("value", ["", " ", [], ["a", 1], 7])
def test_hosts_are_said(value: object, file: Path) -> None:
    content = f"hosts = {value!r}"
    assert complaint(file, content).startswith("FILE:1:9: expected one host or more, separated by commas, found")


@pytest.mark.parametrize("text", ["A='x", "'", "=x", "A B=1 =2"])
def test_variables_in_one_variable_are_quoted_as_in_a_shell(text: str) -> None:
    with pytest.raises(UsageError, match=r"^MNSPAWN_ENV: expected "):
        resolve({}, {"MNSPAWN_ENV": text})


def test_a_long_bad_value_is_shown_in_part() -> None:
    with pytest.raises(UsageError) as caught:
        resolve({"output": "x" * 100_000}, {})
    assert len(str(caught.value)) < 200


def test_an_unknown_argument_is_named() -> None:
    with pytest.raises(UsageError, match=r"^arguments: expected the name of an option, found 'host'$"):
        resolve({"host": "a"}, {})


def test_no_more_workers_can_be_asked_for_than_an_agent_takes() -> None:
    assert MOST_WORKERS == MAX_SLOTS == MAX_RANKS
