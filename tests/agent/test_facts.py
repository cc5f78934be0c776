import ipaddress
import os
import re
import socket
from pathlib import Path

import pytest

from mnspawn_agent.posix.host import devices, facts
from tests.agent.live import Account, Live
from tests.support import nvml as nvml_stub


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libnvidia-ml.so.1 that has as many devices as STUB_COUNT says."""
    return nvml_stub.build(tmp_path_factory.mktemp("nvml")).parent


def facts_of(account: Account, **env: str) -> dict[str, object]:
    account.env.update(env)
    with Live(account) as agent:
        told = dict(agent.hello())
        assert agent.finish(keep=False) == 0
    return told


# -- accelerators


def test_devices_are_counted_under_every_python(account: Account, agent_python: Path, nvml: Path) -> None:
    account.python = agent_python
    told = facts_of(account, LD_LIBRARY_PATH=str(nvml))
    assert (told["device_kind"], told["device_problem"]) == ("gpu", "")
    assert told["devices"] == [
        {"name": "Stub H100", "uuid": "GPU-1", "memory": 80 << 30},
        {"name": "Stub H200", "uuid": "GPU-2", "memory": 80 << 30},
    ]


def test_a_driver_without_devices_is_no_error(account: Account, nvml: Path) -> None:
    told = facts_of(account, LD_LIBRARY_PATH=str(nvml), STUB_COUNT="0")
    assert (told["device_kind"], told["devices"], told["device_problem"]) == ("cpu", [], "")


def test_a_driver_that_does_not_start_is_told_and_the_host_counts_by_its_cpus(account: Account, nvml: Path) -> None:
    told = facts_of(account, LD_LIBRARY_PATH=str(nvml), STUB_INIT="9")
    assert (told["device_kind"], told["devices"]) == ("cpu", [])
    assert (told["device_problem"], told["is_device_doubtful"]) == ("NVML: Driver Not Loaded", True)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("18", "NVML: Driver/library version mismatch: RM has detected an NVML/RM version mismatch."),
        ("4", "NVML: Insufficient Permissions"),
        ("999", "NVML: Stub error 999: Unknown Error"),
        ("77", "NVML: Stub error 77"),
    ],
)
def test_a_driver_that_has_devices_and_can_not_be_used_is_told_in_its_own_words(
    account: Account, nvml: Path, error: str, text: str
) -> None:
    told = facts_of(account, LD_LIBRARY_PATH=str(nvml), STUB_INIT=error)
    assert (told["device_kind"], told["devices"], told["device_problem"]) == ("cpu", [], text)
    assert "is_device_doubtful" not in told
    told = facts_of(account, LD_LIBRARY_PATH=str(nvml), STUB_INIT="0", STUB_COUNT_ERROR=error)
    assert told["device_problem"] == text


@pytest.mark.parametrize("fault", ["STUB_LOST", "STUB_DUMB"])
def test_a_lost_device_is_told_and_hides_no_other(account: Account, nvml: Path, fault: str) -> None:
    """Whether the driver knows it no more or it says nothing of itself, and wherever it stands in the list."""
    told = facts_of(account, LD_LIBRARY_PATH=str(nvml), STUB_COUNT="4", **{fault: "0:15,2:16"})
    assert [device["uuid"] for device in told["devices"]] == ["GPU-2", "GPU-4"]  # type: ignore[attr-defined]
    assert told["lost_devices"] == [[0, "GPU is lost"], [2, "GPU requires reset: GPU requires restart"]]
    assert told["device_kind"] == "gpu"
    assert told["device_problem"] == "NVML: GPU 0: GPU is lost; GPU 2: GPU requires reset: GPU requires restart"


def test_a_host_of_lost_devices_is_no_host_without(account: Account, nvml: Path) -> None:
    told = facts_of(account, LD_LIBRARY_PATH=str(nvml), STUB_LOST="0:15,1:15")
    assert (told["device_kind"], told["devices"]) == ("gpu", [])
    assert told["lost_devices"] == [[0, "GPU is lost"], [1, "GPU is lost"]]


def test_a_device_without_memory_of_its_own_works(account: Account, nvml: Path) -> None:
    """Where host and device share memory, NVML says "not supported"."""
    told = facts_of(account, LD_LIBRARY_PATH=str(nvml), STUB_COUNT="1", STUB_MEMORY="3")
    assert told["devices"] == [{"name": "Stub H100", "uuid": "GPU-1", "memory": 0}]
    assert told["device_problem"] == ""


def test_a_library_that_is_none_is_told(account: Account, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    told = facts_of(account, LD_LIBRARY_PATH=str(tmp_path))
    assert (told["device_kind"], told["devices"]) == ("cpu", [])
    assert (told["device_problem"], told["is_device_doubtful"]) == ("NVML: NVML Shared Library Not Found", True)


@pytest.mark.parametrize(
    ("found", "is_certain", "text"),
    [
        ("dev/nvidia0", True, "NVML: NVML Shared Library Not Found"),
        ("gpus/0000:3b:00.0", False, r"gpus/0000:3b:00\.0 is here, and neither its device node nor libnvidia-ml"),
        ("bus/0000:3b:00.0", False, "PCI device 0000:3b:00.0 is here, and neither"),
        ("", False, ""),
    ],
)
def test_devices_without_their_library_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: str, is_certain: bool, text: str
) -> None:
    for name, pattern in (("NODES", "dev/nvidia[0-9]*"), ("DRIVER_GPUS", "gpus/*"), ("PCI_DEVICES", "bus/*")):
        monkeypatch.setattr(devices, name, str(tmp_path / pattern))
    monkeypatch.setattr(devices, "LIBRARY", "libnvidia-ml-of-no-host.so")
    if found:
        (tmp_path / found).mkdir(parents=True)
        (tmp_path / found / "vendor").write_text("0x10de\n")
        (tmp_path / found / "class").write_text("0x030200\n")
    told = devices.find()
    assert (told["kind"], told["devices"]) == ("cpu", [])
    assert re.search(text, told["problem"])
    assert bool(told["problem"]) == bool(text)
    assert told["is_doubtful"] == (bool(text) and not is_certain)


@pytest.mark.parametrize("node", ["kfd", "davinci0", "accel/accel0", "hl3", "nvhost-gpu", "dxg"])
def test_accelerators_of_other_vendors_are_seen_and_not_counted(tmp_path: Path, node: str) -> None:
    (tmp_path / node).parent.mkdir(exist_ok=True)
    (tmp_path / node).touch()
    (tmp_path / "null").touch()
    assert facts.accelerator_nodes(str(tmp_path), str(tmp_path)) == [str(tmp_path / node)]


@pytest.mark.parametrize(
    ("bus", "vendor", "is_seen"),
    [("0000:00:02.0", "0x8086", False), ("0000:4d:00.0", "0x8086", True), ("0000:4d:00.0", "0x102b", False)],
    ids=["a processor's graphics", "a card", "another vendor's screen"],
)
def test_intels_cards_are_seen_and_its_processors_graphics_are_none(
    tmp_path: Path, bus: str, vendor: str, is_seen: bool
) -> None:
    device = tmp_path / bus
    device.mkdir()
    (device / "vendor").write_text(f"{vendor}\n")
    (tmp_path / "renderD128").mkdir()
    (tmp_path / "renderD128" / "device").symlink_to(device)
    expected = [str(tmp_path / "dri" / "renderD128")] if is_seen else []
    assert facts.accelerator_nodes(str(tmp_path), str(tmp_path)) == expected


# -- addresses and names


def test_every_address_that_is_up_is_told_with_its_interface() -> None:
    told = facts.interfaces()
    assert ["lo", "127.0.0.1"] in told
    addresses = [ipaddress.ip_address(address) for _, address in told]
    assert [address for address in addresses if address.version == 6 and address.is_link_local] == []
    assert [address.version for address in addresses] == sorted(address.version for address in addresses)
    assert {name for name, _ in told} <= {name for _, name in socket.if_nameindex()}


@pytest.mark.parametrize(
    ("connection", "address"),
    [
        ("10.0.0.1 50000 10.0.0.2 22", "10.0.0.2"),
        ("fd00::1 50000 fd00::2 22", "fd00::2"),
        ("", ""),
        ("odd", ""),
    ],
)
def test_the_address_that_ssh_reached(monkeypatch: pytest.MonkeyPatch, connection: str, address: str) -> None:
    monkeypatch.setenv("SSH_CONNECTION", connection)
    assert facts.ssh_address() == address


def test_processes_of_one_network_stack_say_the_same() -> None:
    assert facts.netid() == facts.netid()
    assert facts.netid() != socket.gethostname()


@pytest.mark.netns
def test_another_network_stack_says_another_thing(account: Account) -> None:
    here = facts_of(account)["netid"]
    account.inside = ("unshare", "--net")
    assert facts_of(account)["netid"] != here


def test_what_a_contract_minds_is_told_of_the_environment_and_nothing_else(account: Account) -> None:
    told = facts_of(account, OMP_NUM_THREADS="3", SECRET_TOKEN="hush", CUDA_VISIBLE_DEVICES="")
    assert told["env"] == {"OMP_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": ""}
    assert "hush" not in str(told)
    assert (told["user"], told["home"], told["cpus"]) == (os.getuid(), str(account.home), os.cpu_count())
