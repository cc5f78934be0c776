import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from mnspawn.core.agent_events import Hello, Prepared
from mnspawn.engine.request import RunRequest
from mnspawn.engine.run.prepare import Preparation, RunFile, check_request, load_files, start_message
from mnspawn.errors import PlanRefused, UsageError
from mnspawn.plan import launch_plan as plan
from mnspawn.plan.launch_plan import Program
from mnspawn_inventory import Host
from tests.unit.host_facts import facts

SCRIPT = Program("script", "train.py", ("--lr", "0.1"))


def request(*hosts: Host, **options: Any) -> RunRequest:
    return RunRequest(**{"program": SCRIPT, "hosts": hosts, "nproc": 2, "contracts": ("torch",), **options})


def hello(number: int, **changed: Any) -> Hello:
    own = {"interfaces": [["lo", "127.0.0.1"], ["eth0", f"10.0.0.{number}"]], "netid": f"net{number}"}
    return Hello(facts(**{**own, **changed}), is_cached=True)


def prepared(number: int, reach: dict[str, str] | None = None) -> Prepared:
    ports = (6070, 6071)
    return Prepared(
        ports, (29500, 29501), f"/runs/r1/{number - 1}", "/w", "/usr/bin/python3", ("/w/t.py",), reach or {}
    )


def preparation(count: int = 2, *hosts: Host, **options: Any) -> Preparation:
    chosen = hosts or tuple(Host(name=f"h{n}") for n in range(1, count + 1))
    hellos = [hello(n) for n in range(1, len(chosen) + 1)]
    return Preparation(request(*chosen, **options), "r1", chosen, hellos)


def test_only_ranks_that_nobody_else_can_reach_end_at_once_with_their_controller() -> None:
    asked = [preparation(1, ends_with_us=ends, orphan_grace=30.0).message(0, ()) for ends in (True, False)]
    assert [(one["orphan_grace"], one["silence_limit"]) for one in asked] == [(0.0, None), (30.0, 10.0)]


# -- what goes along


def test_the_script_goes_first_then_what_the_request_brings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_bytes(b"print(1)\n")
    script, extra = load_files(request(files=(("code.pkl", b"\x80"),)))
    assert script == RunFile(
        "train.py", str(tmp_path / "train.py"), b"print(1)\n", hashlib.sha256(b"print(1)\n").hexdigest()
    )
    assert (extra.name, extra.path, extra.content) == ("code.pkl", None, b"\x80")


def test_a_script_that_only_hosts_have_needs_an_absolute_path() -> None:
    assert load_files(request(program=Program("script", "/nowhere/train.py"))) == (
        RunFile("train.py", "/nowhere/train.py", b"", ""),
    )
    with pytest.raises(UsageError, match=r"expected a script, found no file 'train.py'"):
        load_files(request())


def test_a_folder_is_no_script(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found the folder"):
        load_files(request(program=Program("script", str(tmp_path))))


def test_a_file_without_an_end_is_no_script() -> None:
    with pytest.raises(UsageError, match=r"expected a script of at most 64 MiB, found more in /dev/zero"):
        load_files(request(program=Program("script", "/dev/zero")))


def test_a_script_that_can_not_be_read_is_told_with_the_reason(tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.symlink_to(loop)
    with pytest.raises(UsageError, match=r"can't read .*loop\.py"):
        load_files(request(program=Program("script", str(loop))))


@pytest.mark.parametrize("kind", ["module", "command"])
def test_modules_and_commands_bring_no_script(kind: Any) -> None:
    assert load_files(request(program=Program(kind, "train"))) == ()


def test_what_is_wrong_with_a_request_is_found_before_any_host_is_asked() -> None:
    check_request(request(), "r1")
    with pytest.raises(UsageError):
        check_request(request(contracts=("nothing",)), "r1")


# -- PREPARE


def test_every_host_is_asked_for_its_own_ranks() -> None:
    messages = [preparation(3).message(index, ()) for index in range(3)]
    assert [(m["node_rank"], m["ranks"]) for m in messages] == [(0, [0, 1]), (1, [2, 3]), (2, [4, 5])]
    assert [m["extra_ports"] for m in messages] == [2, 0, 0]


def test_the_master_port_is_the_first_hosts_alone() -> None:
    chosen = preparation(2, master_port=29500, start_port=7000)
    assert [chosen.message(i, ())["master_port"] for i in (0, 1)] == [29500, None]
    assert [chosen.message(i, ())["start_port"] for i in (0, 1)] == [7000, 7000]


def test_hosts_that_share_a_network_stack_get_the_ports_one_behind_the_other() -> None:
    hosts = [Host(name) for name in ("alice@a", "bob@a", "b", "carol@a")]
    hellos = [hello(1, netid="one"), hello(1, netid="one"), hello(2), hello(1, netid="one")]
    chosen = Preparation(request(*hosts, start_port=7000), "r1", hosts, hellos)
    assert [chosen.message(index, ())["start_port"] for index in range(4)] == [7000, 7002, 7000, 7004]


def test_files_are_named_by_content_and_numbered() -> None:
    run_files = (RunFile.of("t.py", "/src/t.py", b"abc"), RunFile.of("data", None, b""))
    files = preparation(1).message(0, run_files)["files"]
    assert [(f["name"], f["path"], f["size"], f["blob"]) for f in files] == [
        ("t.py", "/src/t.py", 3, 0),
        ("data", None, 0, 1),
    ]
    assert files[0]["digest"] == hashlib.sha256(b"abc").hexdigest()


def test_a_host_of_the_inventory_has_its_own_folder_and_python() -> None:
    special = Host(name="h2", workdir="/scratch", python="/opt/py/bin/python3")
    chosen = preparation(0, Host(name="h1"), special, python="python3.11")
    first, second = chosen.message(0, ()), chosen.message(1, ())
    assert (first["workdir"], first["is_workdir_required"], first["python"]) == (os.getcwd(), False, "python3.11")
    assert (second["workdir"], second["is_workdir_required"], second["python"]) == (
        "/scratch", True, "/opt/py/bin/python3",
    )  # fmt: skip


def test_a_host_of_the_inventory_has_its_own_prelude_and_all_get_a_draft_of_their_environment() -> None:
    special = Host(name="h2", prelude="module load cuda", env=(("A", "own"),))
    chosen = preparation(0, Host(name="h1"), special, prelude="source v", env=(("GIVEN", "x"),))
    first, second = chosen.message(0, ()), chosen.message(1, ())
    assert (first["prelude"], second["prelude"]) == ("source v", "module load cuda")
    assert [message["env"].get("A") for message in (first, second)] == [None, "own"]
    assert [message["env"]["RANK"] for message in (first, second)] == ["0", "2"]
    assert first["env"]["MASTER_PORT"].isdigit()
    assert "MNSPAWN_*" in first["unset"]
    program = chosen.complete([prepared(1), prepared(2)]).pods[0].argv
    assert first["argument_bytes"] <= sum(len(word) + 9 for word in program) + 100


def test_hosts_try_each_others_addresses_but_not_configured_ones_and_not_their_own() -> None:
    chosen = preparation(0, Host(name="h1"), Host(name="h2", data_address="ib-2"), Host(name="h3"))
    assert [chosen.message(i, ())["probes"] for i in range(3)] == [
        [["10.0.0.3", 6070]],
        [["10.0.0.1", 6070], ["10.0.0.3", 6070]],
        [["10.0.0.1", 6070]],
    ]


def test_hosts_on_one_network_stack_have_nothing_to_try() -> None:
    hosts = (Host(name="a"), Host(name="b"))
    same = Preparation(request(*hosts), "r1", hosts, [hello(1, netid="one"), hello(1, netid="one")])
    assert [same.message(i, ())["probes"] for i in (0, 1)] == [[], []]


def test_a_large_run_does_not_ask_hosts_to_try_everybody() -> None:
    chosen = preparation(100)
    counts = [len(chosen.message(index, ())["probes"]) for index in range(100)]
    assert counts[0] == 99
    assert max(counts[1:]) <= 3


def test_the_first_of_many_hosts_with_many_addresses_may_try_all_of_them() -> None:
    own = [[[f"eth{n}", f"10.{n}.0.{host}"] for n in range(4)] for host in range(1, 101)]
    hosts = tuple(Host(name=f"h{n}") for n in range(1, 101))
    hellos = [hello(n, interfaces=own[n - 1]) for n in range(1, 101)]
    chosen = Preparation(request(*hosts), "r1", hosts, hellos)
    assert len(chosen.message(0, ())["probes"]) == 99 * 4


def test_hosts_that_are_unfit_are_all_told_at_once() -> None:
    hosts = (Host(name="h1"), Host(name="h2"), Host(name="h3"))
    gpu = hello(2, device_kind="gpu", devices=[{}])
    with pytest.raises(PlanRefused) as caught:
        Preparation(request(*hosts, nproc="gpu"), "r1", hosts, [hello(1), gpu, hello(3)])
    assert [host for host, _ in caught.value.refusals] == ["h1", "h3"]


def test_a_network_that_fits_no_address_names_its_host() -> None:
    hosts = (Host(name="h1"),)
    with pytest.raises(PlanRefused) as caught:
        Preparation(request(*hosts, network="ib0"), "r1", hosts, [hello(1)])
    ((host, reason),) = caught.value.refusals
    assert (host, reason) == ("h1", "expected an address in network ib0, found lo 127.0.0.1, eth0 10.0.0.1")


# -- the plan


def test_the_plan_has_the_addresses_that_answered_and_the_ports_that_are_held() -> None:
    launch = preparation(2).complete([prepared(1), prepared(2)])
    assert launch.layout.endpoints == ("10.0.0.1:6070", "10.0.0.1:6071", "10.0.0.2:6070", "10.0.0.2:6071")
    assert launch.layout.rendezvous == ("10.0.0.1", 29500)
    assert [pod.host for pod in launch.pods] == ["h1", "h2"]


def test_hosts_that_the_others_can_not_reach_refuse_the_plan() -> None:
    with pytest.raises(PlanRefused) as caught:
        preparation(2).complete([prepared(1, {"10.0.0.2": "No route to host"}), prepared(2)])
    ((host, reason),) = caught.value.refusals
    assert host == "h2"
    assert "10.0.0.2 (h1: No route to host)" in reason


def test_start_carries_the_whole_environment_of_a_pod() -> None:
    launch = preparation(1).complete([prepared(1)])
    message = start_message(launch.pods[0])
    assert [worker["rank"] for worker in message["workers"]] == [0, 1]
    assert message["argv"] == ["/usr/bin/python3", "-u", "/w/t.py", "--lr", "0.1"]
    assert {**message["env"], **message["workers"][1]["env"]}["RANK"] == "1"
    assert isinstance(launch, plan.LaunchPlan)
