import warnings
from pathlib import Path
from typing import Any

import pytest

import mnspawn
import mnspawn.multiprocessing as mp
from mnspawn.errors import UsageError
from mnspawn.settings import table
from mnspawn.spawning import options


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


def read(nprocs: Any = 1, hosts: Any = None, **given: Any) -> options.SpawnOptions:
    return options.read(nprocs, hosts, given)


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"nprocs": 0}, ValueError, "nprocs: expected at least 1"),
        ({"nprocs": -2}, ValueError, "found -2"),
        ({"nprocs": 4097, "hosts": "a"}, ValueError, "nprocs: expected at most 4096 on a host, found 4097"),
        ({"nprocs": 3.5}, TypeError, "expected a whole number, found 3.5"),
        ({"nprocs": True}, TypeError, "expected a whole number"),
        ({"nprocs": "2"}, TypeError, "expected a whole number"),
        ({"node_rank": 1}, ValueError, r"The config option \(node_rank\) of `mnspawn.spawn` is not supported"),
        ({"dry_run": True}, ValueError, r"\(dry_run\)"),
        ({"start_method": "fork", "hosts": "a"}, ValueError, "copies the caller's memory"),
        ({"start_method": "fork", "python": "python3"}, ValueError, "python: expected no interpreter"),
        ({"start_method": "thread"}, ValueError, "cannot find context for 'thread'"),
        ({"backend": "mpi"}, ValueError, "^paddle.distributed initialize error,.*'nccl'.*but got 'mpi'"),
        ({"backend": "heter"}, ValueError, "backend must be one of 'gloo, nccl, bkcl, xccl'"),
        ({"backend": 3}, TypeError, "backend"),
        ({"hosts": 5}, TypeError, "hosts: expected text such as"),
        ({"hosts": ["a", 5]}, TypeError, "found 5"),
        ({"hosts": []}, ValueError, "hosts: expected one host or more"),
        ({"hosts": " "}, ValueError, "hosts: expected one host or more"),
        ({"hosts": b"a"}, TypeError, "hosts"),
        ({"hosts": "a", "ips": "10.0.0.1"}, ValueError, "ips: expected hosts or ips"),
        ({"hosts": "a", "sandbox": 2}, ValueError, "sandbox"),
        ({"hosts": "a[1"}, ValueError, "a"),
        ({"hosts": "a,,b"}, ValueError, "an empty host name"),
        ({"ips": "10.0.0.1,10.0.0.1"}, ValueError, "listed twice"),
        ({"use_paddlecloud": True}, ValueError, "expected hosts to run on, found none"),
        ({"gpus": "0,1", "backend": "nccl"}, ValueError, r"selected devices\(2\).*spawn processes\(1\).*`gpus`"),
        ({"xpus": "0,1", "backend": "bkcl"}, ValueError, "`xpus`"),
        ({"gpus": 1, "backend": "nccl"}, TypeError, "gpus: expected ids"),
        ({"gpus": "0,,1", "backend": "nccl", "nprocs": 3}, ValueError, "gpus: expected ids"),
        ({"grace": -1}, ValueError, "seconds"),
        ({"env": {"A=": "b"}}, ValueError, "A="),
    ],
)
def test_what_can_not_be_used_is_told_in_the_contracts_exceptions(
    arguments: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text) as caught, warnings.catch_warnings(action="ignore"):
        read(**arguments)
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize("function", [mp.spawn, mp.start_processes])
def test_keywords_that_torch_does_not_know_are_its_type_error_and_ours(function: Any) -> None:
    said = f"{function.__name__}() got an unexpected keyword argument 'kwargs'"
    with pytest.raises(TypeError) as caught:
        function(print, kwargs={"end": ""})
    assert str(caught.value) == said
    assert isinstance(caught.value, UsageError)
    assert "functools.partial" in str(caught.value.hint)


def test_keywords_that_paddle_does_not_know_are_its_value_error() -> None:
    with pytest.raises(ValueError, match=r"The config option \(kwargs\) of `mnspawn.spawn` is not supported") as caught:
        mnspawn.spawn(print, kwargs={"end": ""})
    assert isinstance(caught.value, UsageError)
    assert "functools.partial" in str(caught.value.hint)


def test_nothing_given_means_this_machine() -> None:
    asked = read(-1)
    assert asked.place.is_here
    assert [host.transport for host in asked.place.hosts] == ["local"]
    assert (asked.nprocs, asked.start_method, asked.backend, asked.selected) == (-1, "spawn", "auto", ())
    assert asked.place.output == "plain"


def test_an_allocation_or_a_variable_does_not_send_a_call_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNSPAWN_HOSTS", "a,b")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    assert read().place.is_here


@pytest.mark.parametrize("hosts", ["a,b", ["a", "b"], ("a", "b"), "a, b"])
def test_hosts_are_a_text_or_several(hosts: Any) -> None:
    asked = read(hosts=hosts)
    assert [host.name for host in asked.place.hosts] == ["a", "b"]
    assert (asked.place.is_here, asked.place.output) == (False, "prefix")


def test_paddles_words_for_hosts_and_ports_mean_ours() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asked = read(ips="10.0.0.1, 10.0.0.2", cluster_node_ips="x", started_port=7000, selected_devices=None)
    assert [host.name for host in asked.place.hosts] == ["10.0.0.1", "10.0.0.2"]
    assert asked.place.settings.start_port == 7000
    told = [str(warning.message) for warning in caught if warning.category is DeprecationWarning]
    assert [name in text for name, text in zip(("started_port", "cluster_node_ips"), told, strict=True)] == [True] * 2


@pytest.mark.parametrize("ip", ["127.0.0.1", " localhost "])
def test_paddles_default_ip_is_this_machine(ip: str) -> None:
    assert read(ips=ip).place.is_here


def test_selected_devices_are_stripped_and_may_be_a_list() -> None:
    assert read(2, backend="nccl", gpus="6, 7").selected == ("6", "7")
    assert read(2, backend="bkcl", xpus=[0, 1]).selected == ("0", "1")
    assert read(-1, backend="nccl", gpus="3").selected == ("3",)
    assert read(2, backend="gloo", gpus="0").selected == ()


def test_settings_of_the_environment_hold_and_arguments_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNSPAWN_GRACE", "3")
    monkeypatch.setenv("MNSPAWN_OUTPUT", "none")
    assert (read().place.settings.grace, read().place.output) == (3.0, "none")
    assert (read(grace=4).place.settings.grace, read(output="prefix").place.output) == (4.0, "prefix")


def test_a_settings_file_does_not_send_a_call_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("sandbox = 2\n")
    monkeypatch.setenv("MNSPAWN_SETTINGS", str(file))
    asked = read()
    assert (asked.place.is_here, asked.place.settings.sandbox, len(asked.place.hosts)) == (True, None, 1)


def test_every_option_of_the_table_for_calls_is_known_but_those_that_a_spawn_has_words_of_its_own_for() -> None:
    for_calls = {option.name for option in table.OPTIONS if option.is_for_calls}
    assert for_calls - {*options.KNOWN} == {"hosts", "nproc_per_node", "module", "no_python"}
    assert {*options.KNOWN} - for_calls == {*options.PADDLE, *options.DEPRECATED} - {"ips"}
