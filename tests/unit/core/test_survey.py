from typing import Any

import pytest

from mnspawn.core.survey import (
    HostView,
    Share,
    Unfit,
    candidate_addresses,
    check_share,
    choose_address,
    count_workers,
    interface_of,
    may_have_accelerators,
    probers_of,
    remark_on,
    share_of,
    usable_addresses,
    view_devices,
)
from tests.unit.host_facts import facts

GPU = {"name": "H200", "uuid": "GPU-1", "memory": 1 << 37}


def view(**changed: Any) -> HostView:
    return HostView("h1", "h1", None, None, None, None, facts(**changed))


def gpus(count: int, visible: str | None = None, **options: Any) -> HostView:
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    own = facts(device_kind="gpu", devices=[GPU] * count, env=env, cpus=16)
    return HostView("h1", "h1", None, None, options.get("slots"), options.get("devices"), own)


# -- devices


def test_all_devices_are_used_where_nobody_says_otherwise() -> None:
    assert view_devices(gpus(4)).usable == (0, 1, 2, 3)
    assert view_devices(view(device_kind="cpu")).usable == ()
    assert view_devices(view()).usable == ()


@pytest.mark.parametrize(
    ("visible", "positions"),
    [
        ("2,3", (0, 1)),
        ("0", (0,)),
        ("", ()),
        ("-1", ()),
        ("0,-1,2", (0,)),
        (" 1 , 2 ", (0, 1)),
        ("0,1,", (0, 1)),
        ("MIG-8f3a,MIG-77", (0, 1)),
    ],
)
def test_workers_get_positions_inside_what_the_host_lets_be_seen(visible: str, positions: tuple[int, ...]) -> None:
    assert view_devices(gpus(8, visible)).usable == positions


def test_devices_of_the_inventory_are_positions_too() -> None:
    assert view_devices(gpus(4, devices=(3, 1))).usable == (3, 1)
    assert view_devices(gpus(8, "4,5,6", devices=(2,))).usable == (2,)


def test_a_device_that_is_not_there_makes_the_host_unfit() -> None:
    with pytest.raises(Unfit, match=r"expected devices of this host \(2 can be seen, counted from 0\), found 5"):
        view_devices(gpus(2, devices=(0, 5)))
    with pytest.raises(Unfit, match=r"\(1 can be seen, counted from 0\), found 1"):
        view_devices(gpus(8, "7", devices=(1,)))


def test_another_kinds_variable_means_nothing() -> None:
    xpus = view(device_kind="xpu", devices=[{}, {}], env={"CUDA_VISIBLE_DEVICES": "0"})
    assert view_devices(xpus).usable == (0, 1)


def test_a_program_may_find_accelerators_that_no_worker_is_given() -> None:
    assert may_have_accelerators(gpus(2, devices=()))
    assert may_have_accelerators(view(device_kind="cpu", accelerator_nodes=["/dev/kfd"]))
    assert not may_have_accelerators(gpus(2, visible=""))
    assert not may_have_accelerators(view(device_kind="cpu"))


# -- how many workers


@pytest.mark.parametrize(
    ("host", "nproc", "count"),
    [
        (gpus(4), None, 4),
        (gpus(4), "auto", 4),
        (gpus(4), "gpu", 4),
        (gpus(4), "cpu", 16),
        (gpus(4), 7, 7),
        (gpus(4, "0,1"), None, 2),
        (gpus(4, slots=3), None, 3),
        (gpus(4, slots=3), "auto", 4),
        (gpus(4, slots=3), 1, 1),
        (gpus(4, devices=(1,)), "gpu", 1),
        (gpus(0), None, 16),
        (gpus(4, ""), "auto", 16),
        (view(cpus=8), None, 8),
        (view(cpus=8), "cpu", 8),
        (view(cpus=1), None, 1),
    ],
)
def test_how_many_workers_a_host_runs(host: HostView, nproc: int | str | None, count: int) -> None:
    assert count_workers(host, nproc) == count


def test_asking_for_gpus_where_there_is_none_says_why() -> None:
    with pytest.raises(Unfit, match="no accelerator found"):
        count_workers(view(cpus=8), "gpu")
    with pytest.raises(Unfit, match="NVML: driver not loaded"):
        count_workers(view(device_problem="NVML: driver not loaded"), "gpu")


# -- devices that can't be used


LOST = [[0, "GPU is lost"], [2, "GPU requires reset"]]


def ailing(**options: Any) -> HostView:
    """Four GPUs, of which the first and the third are lost."""
    env = {CVD: options["visible"]} if "visible" in options else {}
    uuids = [{**GPU, "uuid": uuid} for uuid in ("GPU-b", "GPU-d")]
    own = facts(device_kind="gpu", devices=uuids, lost_devices=LOST, device_problem="NVML: ...", env=env, cpus=16)
    return HostView("h1", "h1", None, None, options.get("slots"), options.get("devices"), own, options.get("env", {}))


def mismatch(**options: Any) -> HostView:
    """The driver does not work."""
    options = {"device_problem": "NVML: mismatch", **options}
    return view(cpus=16, **options)


CVD = "CUDA_VISIBLE_DEVICES"
STOPS = ": CUDA stops there"
HIDES = " hides all accelerators: ranks are given none"
FOR_GPU = "expected a GPU for --nproc-per-node gpu"
NINE = "there is no device 9, only 0 to 3"
NONE = "no accelerator can be used"
BROKEN = "GPU 0 can't be used (GPU is lost); GPU 2 can't be used (GPU requires reset)"


@pytest.mark.parametrize(
    ("host", "nproc", "share", "remark"),
    [
        (ailing(), None, Share(2, (1, 3), "gpu"), f"{BROKEN}; 2 can be used"),
        (ailing(), "gpu", Share(2, (1, 3), "gpu"), f"{BROKEN}; 2 can be used"),
        (ailing(), 1, Share(1, (1, 3), "gpu"), f"{BROKEN}; 2 can be used"),
        (ailing(), "cpu", Share(16), None),
        (ailing(devices=(3,)), None, Share(1, (3,), "gpu"), None),
        (ailing(visible="1,3"), None, Share(2, (0, 1), "gpu"), None),
        (ailing(visible="3,2"), None, Share(1, (0,), "gpu"), "GPU 2 can't be used (GPU requires reset); 1 can be used"),
        (ailing(visible=""), None, Share(16), f"{CVD}=''{HIDES}"),
        (mismatch(), "cpu", Share(16), None),
        (mismatch(env={CVD: "-1"}), 3, Share(3), f"{CVD}='-1'{HIDES}"),
        (mismatch(is_device_doubtful=True), None, Share(16), "NVML: mismatch: ranks are given none"),
        (mismatch(is_device_doubtful=True), 2, Share(2), "NVML: mismatch: ranks are given none"),
        (gpus(4, "0,9"), None, Share(1, (0,), "gpu"), f"{CVD}='0,9': {NINE}{STOPS}; 1 can be used"),
        (gpus(4, "NoDevFiles"), None, Share(16), f"{CVD}='NoDevFiles'{HIDES}"),
        (gpus(2), 4, Share(4, (0, 1), "gpu"), "4 ranks for 2 accelerators: ranks are given none"),
        (gpus(4), 2, Share(2, (0, 1, 2, 3), "gpu"), None),
        (view(cpus=16), None, Share(16), None),
        (view(cpus=16, env={CVD: "0,0"}), 2, Share(2), None),
    ],
)  # fmt: skip
def test_what_can_be_used_is_used_and_the_rest_is_told(
    host: HostView, nproc: int | str | None, share: Share, remark: str | None
) -> None:
    assert share_of(host, nproc) == share
    check_share(host, share_of(host, nproc))
    assert remark_on(host, share_of(host, nproc)) == remark


@pytest.mark.parametrize(
    ("host", "nproc", "text"),
    [
        (ailing(), 4, f"expected an accelerator for each of 4 ranks, found 2: {BROKEN}"),
        (ailing(slots=3), None, f"expected an accelerator for each of 3 ranks, found 2: {BROKEN}"),
        (ailing(devices=(0, 1)), None, "GPU 0 can't be used (GPU is lost)"),
        (ailing(visible="0,2"), None, f"{NONE}: {BROKEN}"),
        (ailing(visible="0"), "gpu", f"{FOR_GPU}: GPU 0 can't be used (GPU is lost)"),
        (mismatch(), None, f"{NONE}: NVML: mismatch"),
        (mismatch(), 1, f"{NONE}: NVML: mismatch"),
        (mismatch(env={CVD: "0"}), None, f"{NONE}: NVML: mismatch"),
        (gpus(4, "0,0"), None, f"{NONE}: {CVD}='0,0': device 0 is listed twice, which hides all devices"),
        (gpus(4, "all"), 2, f"{NONE}: {CVD}='all': 'all' is no device{STOPS}"),
        (gpus(4, "GPU-dead"), None, f"{NONE}: {CVD}='GPU-dead': GPU-dead is no device of this host{STOPS}"),
        (gpus(4, "NoDevFiles"), "gpu", f"{FOR_GPU}: {CVD}='NoDevFiles' hides all"),
    ],
)  # fmt: skip
def test_a_host_with_accelerators_that_can_not_be_used_is_never_a_cpu_host(
    host: HostView, nproc: int | str | None, text: str
) -> None:
    with pytest.raises(Unfit) as caught:
        check_share(host, share_of(host, nproc))
    assert str(caught.value) == text


def test_variables_of_the_run_and_of_the_inventory_win_over_the_hosts_own() -> None:
    env = {CVD: ("7,0", "--env")}
    with pytest.raises(Unfit, match=rf"{CVD}='7,0' \(--env\): there is no device 7"):
        check_share(host := ailing(visible="1,3", env=env), share_of(host, None))
    assert share_of(ailing(visible="0", env={CVD: ("", "--env")}), 8) == Share(8)


# -- addresses


def host(number: int, *interfaces: tuple[str, str], netid: str | None = None, **options: Any) -> HostView:
    """Host number N: eth0 has 10.0.0.N, beside lo and what is given."""
    own = [("lo", "127.0.0.1"), ("eth0", f"10.0.0.{number}"), *interfaces]
    said = facts(
        interfaces=[list(pair) for pair in own],
        netid=netid or f"net{number}",
        ssh_address=options.get("ssh_address", ""),
    )
    name = f"h{number}"
    return HostView(
        name, options.get("control", name), options.get("data_address"), options.get("network"), None, None, said
    )


def test_the_address_that_ssh_reached_comes_first() -> None:
    far = host(1, ("eth1", "192.168.0.1"), ssh_address="192.168.0.1")
    assert candidate_addresses([far, host(2)])[0] == ["192.168.0.1", "10.0.0.1"]


def test_the_address_that_the_user_dialled_comes_before_it() -> None:
    far = host(1, ("eth1", "192.168.0.1"), control="10.0.0.1", ssh_address="192.168.0.1")
    assert candidate_addresses([far, host(2)])[0] == ["10.0.0.1", "192.168.0.1"]


def test_an_address_that_the_host_does_not_have_is_none_of_its_candidates() -> None:
    behind_nat = host(1, control="203.0.113.7", ssh_address="172.31.0.9")
    assert candidate_addresses([behind_nat, host(2)])[0] == ["10.0.0.1"]


def test_an_address_that_several_hosts_have_says_nothing() -> None:
    docker = ("docker0", "172.17.0.1")
    assert candidate_addresses([host(1, docker), host(2, docker)]) == [["10.0.0.1"], ["10.0.0.2"]]


def test_two_pods_on_one_host_do_not_take_each_others_address_away() -> None:
    same = [host(1, netid="one"), host(1, netid="one"), host(2)]
    assert candidate_addresses(same) == [["10.0.0.1"], ["10.0.0.1"], ["10.0.0.2"]]


def test_loopback_counts_only_where_all_share_one_network_stack() -> None:
    assert candidate_addresses([host(1), host(2)]) == [["10.0.0.1"], ["10.0.0.2"]]
    shared = [host(1, netid="one", ssh_address="127.0.0.1"), host(1, netid="one", ssh_address="127.0.0.1")]
    assert candidate_addresses(shared) == [["127.0.0.1", "10.0.0.1"]] * 2
    assert candidate_addresses([host(1, ssh_address="127.0.0.1")]) == [["127.0.0.1", "10.0.0.1"]]


def test_a_configured_address_stands_alone_and_unchecked() -> None:
    assert candidate_addresses([host(1, data_address="ib-1.example"), host(2)])[0] == ["ib-1.example"]


@pytest.mark.parametrize("network", ["192.168.0.0/24", "192.168.0.1/24", "eth1", "192.168.0.0/16"])
def test_a_network_or_an_interface_picks_the_address(network: str) -> None:
    hosts = [host(n, ("eth1", f"192.168.0.{n}"), network=network) for n in (1, 2)]
    assert candidate_addresses(hosts) == [["192.168.0.1"], ["192.168.0.2"]]


def test_an_interface_may_have_a_slash_less_name_that_begins_with_a_digit() -> None:
    hosts = [host(n, ("0eth", f"192.168.0.{n}"), network="0eth") for n in (1, 2)]
    assert candidate_addresses(hosts) == [["192.168.0.1"], ["192.168.0.2"]]


@pytest.mark.parametrize("network", ["172.16.0.0/12", "ib0", "fd00::/8"])
def test_a_network_that_a_host_is_not_in_is_told_with_what_it_has(network: str) -> None:
    with pytest.raises(Unfit) as caught:
        usable_addresses(host(2, network=network))
    assert str(caught.value) == f"expected an address in network {network}, found lo 127.0.0.1, eth0 10.0.0.2"


def test_at_most_four_addresses_are_tried() -> None:
    many = [(f"eth{n}", f"192.168.{n}.1") for n in range(9)]
    assert len(candidate_addresses([host(1, *many), host(2)])[0]) == 4


def test_ipv6_addresses_are_compared_in_their_usual_spelling() -> None:
    six = host(1, ("eth0", "fd00:0:0::7"), control="[fd00::0:7]")
    assert candidate_addresses([six, host(2)])[0] == ["fd00::7", "10.0.0.1"]
    assert interface_of(six, "fd00::7") == "eth0"
    inside = host(1, ("eth0", "fd00::7"), network="fd00::/64")
    assert candidate_addresses([inside, host(2)])[0] == ["fd00::7"]


def test_ipv6_loopback_is_loopback() -> None:
    assert candidate_addresses([host(1, ("lo", "::1")), host(2)])[0] == ["10.0.0.1"]


# -- who tries whom


def test_few_hosts_all_try_each_other() -> None:
    assert probers_of(1, 3) == [0, 2]
    assert probers_of(7, 8) == [0, 1, 2, 3, 4, 5, 6]
    assert probers_of(0, 1) == []


def test_of_many_hosts_the_first_and_both_neighbours_try() -> None:
    assert probers_of(5, 100) == [0, 4, 6]
    assert probers_of(0, 100) == [1, 99]
    assert probers_of(99, 100) == [0, 98]
    assert probers_of(1, 100) == [0, 2]


def test_the_first_address_that_all_reach_is_taken_with_its_interface() -> None:
    far = host(1, ("eth1", "192.168.0.1"))
    answers = [
        ("h2", {"192.168.0.1": "No route to host", "10.0.0.1": ""}),
        ("h3", {"192.168.0.1": "", "10.0.0.1": ""}),
    ]
    assert choose_address(far, ["192.168.0.1", "10.0.0.1"], answers) == ("10.0.0.1", "eth0")


def test_an_address_that_nobody_tried_is_good() -> None:
    assert choose_address(host(1), ["10.0.0.1"], []) == ("10.0.0.1", "eth0")
    assert choose_address(host(1), ["ib-1.example"], [("h2", {})]) == ("ib-1.example", "")


def test_a_host_that_the_others_can_not_reach_is_unfit_and_every_try_is_told() -> None:
    with pytest.raises(Unfit) as caught:
        choose_address(host(1), ["10.0.0.1", "10.1.0.1"], [("h2", {"10.0.0.1": "timed out", "10.1.0.1": "no route"})])
    assert str(caught.value) == (
        "no address that the other hosts reach: 10.0.0.1 (h2: timed out); 10.1.0.1 (h2: no route)"
    )
    with pytest.raises(Unfit, match="it has none beside loopback"):
        choose_address(host(1), [], [])
