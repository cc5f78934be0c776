from typing import Any

import pytest

from mnspawn.core.survey import HostView, Share
from mnspawn.errors import PlanRefused
from mnspawn.spawning import devices
from tests.unit.host_facts import facts


def host(name: str = "h1", *, gpus: int = 0, kind: str = "gpu", visible: str | None = None, **more: Any) -> HostView:
    variable = "CUDA_VISIBLE_DEVICES" if kind == "gpu" else "XPU_VISIBLE_DEVICES"
    env = {} if visible is None else {variable: visible}
    lost = [[number, "GPU is lost"] for number in more.get("lost", ())]
    said = facts(
        cpus=8,
        device_kind=kind if gpus else "cpu",
        devices=[{}] * (gpus - len(lost)),
        lost_devices=lost,
        device_problem=more.get("problem", ""),
        env=env,
    )
    return HostView(name, name, None, None, more.get("slots"), more.get("devices"), said)


def shares(*hosts: HostView, nprocs: int = -1, backend: str = "auto", selected: tuple[str, ...] = ()) -> list[Share]:
    return devices.rule(nprocs, backend, selected)(hosts)


def test_each_host_is_good_for_its_own_devices_or_cpus() -> None:
    assert shares(host(gpus=2), host(gpus=4), host()) == [
        Share(2, (0, 1), "gpu"),
        Share(4, (0, 1, 2, 3), "gpu"),
        Share(8, (), "cpu"),
    ]


def test_the_first_devices_are_taken() -> None:
    assert shares(host(gpus=4), nprocs=2, backend="nccl") == [Share(2, (0, 1), "gpu")]
    assert shares(host(gpus=4, kind="xpu"), nprocs=2, backend="bkcl") == [Share(2, (0, 1), "xpu")]


def test_selected_ids_are_absolute_and_become_positions() -> None:
    """contracts.md 1.5: CUDA_VISIBLE_DEVICES=4,5,6,7 with gpus="6,7" gives positions 2 and 3."""
    view = host(gpus=8, visible="4, 5,6,7")
    assert shares(view, nprocs=2, backend="nccl", selected=("6", "7")) == [Share(2, (2, 3), "gpu")]
    assert shares(host(gpus=8), selected=("6", "7")) == [Share(2, (6, 7), "gpu")]
    xpu = host(gpus=4, kind="xpu", visible="2,3")
    assert shares(xpu, backend="bkcl", selected=("3",)) == [Share(1, (1,), "xpu")]


def test_a_card_that_a_host_does_not_show_is_an_error_that_names_the_host() -> None:
    with pytest.raises(ValueError, match=r"h2: The selected gpu card 0 cannot found in CUDA_VISIBLE_DEVICES \(4,5\)"):
        shares(host(gpus=8), host("h2", gpus=8, visible="4,5"), backend="nccl", selected=("0",))


@pytest.mark.parametrize(
    ("view", "backend", "text"),
    [
        (host(gpus=2), "nccl", r"h1: the number of visible devices\(2\).*processes\(3\).*`CUDA_VISIBLE_DEVICES`"),
        (host(gpus=2), "auto", r"visible devices\(2\)"),
        (host(), "nccl", r"visible devices\(0\)"),
        (host(gpus=4), "bkcl", r"visible devices\(0\).*`XPU_VISIBLE_DEVICES`"),
        (host(gpus=4, visible="0,1"), "nccl", r"visible devices\(2\)"),
        (host(gpus=4), "xccl", "expected a custom device for backend xccl, found gpu"),
        (host(gpus=2, kind="npu"), "xccl", "`FLAGS_selected_npus`"),
    ],
)
def test_too_few_devices_are_a_runtime_error(view: HostView, backend: str, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        shares(view, nprocs=3, backend=backend)


def test_nccl_without_a_number_needs_at_least_one() -> None:
    with pytest.raises(RuntimeError, match=r"visible devices\(0\)"):
        shares(host(), backend="nccl")


def test_custom_devices_are_told_by_their_own_name() -> None:
    assert shares(host(gpus=2, kind="npu"), backend="xccl") == [Share(2, (0, 1), "npu")]


def test_gloo_uses_no_devices() -> None:
    assert shares(host(gpus=4), backend="gloo") == [Share(8, (), "cpu")]
    assert shares(host(gpus=4), backend="gloo", nprocs=20) == [Share(20, (), "cpu")]
    assert shares(host(gpus=4, slots=3), backend="gloo") == [Share(3, (), "cpu")]


def test_an_inventory_says_how_many_and_which() -> None:
    assert shares(host(gpus=4, slots=2)) == [Share(2, (0, 1), "gpu")]
    assert shares(host(gpus=4, devices=(2, 3))) == [Share(2, (2, 3), "gpu")]
    with pytest.raises(PlanRefused, match=r"h1: expected devices of this host \(2 can be seen.*\), found 5"):
        shares(host(gpus=2, devices=(5,)))


def test_lost_devices_take_no_part_and_the_others_keep_their_numbers() -> None:
    assert shares(host(gpus=4, lost=(0, 2))) == [Share(2, (1, 3), "gpu")]
    assert shares(host(gpus=4, lost=(0,)), nprocs=2, selected=("1", "3")) == [Share(2, (1, 3), "gpu")]
    with pytest.raises(ValueError, match=r"card 0 cannot found in .* \(1,2,3\)\. GPU 0 can't be used \(GPU is lost\)"):
        shares(host(gpus=4, lost=(0,)), selected=("0",))
    with pytest.raises(RuntimeError, match=r"visible devices\(3\).*GPU 0 can't be used \(GPU is lost\)"):
        shares(host(gpus=4, lost=(0,)), nprocs=4)


def test_devices_that_can_not_be_used_are_no_reason_to_train_on_cpus() -> None:
    for backend in ("auto", "nccl"):
        with pytest.raises(RuntimeError, match=r"visible devices\(0\).* NVML: mismatch; backend='gloo' uses none\."):
            shares(host(problem="NVML: mismatch"), backend=backend)
        with pytest.raises(RuntimeError, match=r"visible devices\(0\).*GPU 0 can't be used"):
            shares(host(gpus=1, lost=(0,)), backend=backend)
    assert shares(host(problem="NVML: mismatch"), backend="gloo", nprocs=3) == [Share(3, (), "cpu")]


def test_functions_of_torchs_spawn_choose_devices_themselves() -> None:
    views = host(gpus=2, lost=(0,)), host(problem="NVML: mismatch"), host(gpus=4)
    assert devices.any_devices(3)(views) == [Share(3, (1,), "gpu"), Share(3, (), "cpu"), Share(3, (0, 1, 2, 3), "gpu")]
