import ipaddress
import os
import socket
import subprocess
from pathlib import Path

import pytest

from mnspawn_agent import facts
from tests.agent.live import Account, Live

NVML = r"""
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
static int number(const char *name, int otherwise) { const char *v = getenv(name); return v ? atoi(v) : otherwise; }
int nvmlInitWithFlags(unsigned f) { return number("STUB_INIT", 0); }
int nvmlInit_v2(void) { return number("STUB_INIT", 0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int e) { return "stub error"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = number("STUB_COUNT", 2); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) {
    if ((int)i == number("STUB_BROKEN", -1)) return 15; /* GPU is lost */
    *h = (void *)(long)(i + 1); return 0;
}
int nvmlDeviceGetName(void *h, char *s, unsigned n) { snprintf(s, n, "Stub H%ld00", (long)h); return 0; }
int nvmlDeviceGetUUID(void *h, char *s, unsigned n) { snprintf(s, n, "GPU-%ld", (long)h); return 0; }
struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(void *h, struct memory *m) { m->total = 80ULL << 30; m->free = 1; m->used = 2; return 0; }
"""


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libnvidia-ml.so.1 that has as many devices as STUB_COUNT says."""
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(NVML)
    command = ["gcc", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(folder / "nvml.c")]
    subprocess.run(command, check=True)
    return folder


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
    assert str(told["device_problem"]).startswith("NVML: ")


def test_a_device_that_is_broken_is_told_with_those_that_work(account: Account, nvml: Path) -> None:
    told = facts_of(account, LD_LIBRARY_PATH=str(nvml), STUB_BROKEN="1")
    assert told["devices"] == [{"name": "Stub H100", "uuid": "GPU-1", "memory": 80 << 30}]
    assert str(told["device_problem"]).startswith("NVML: ")


def test_a_library_that_is_none_is_told(account: Account, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    told = facts_of(account, LD_LIBRARY_PATH=str(tmp_path))
    assert (told["device_kind"], told["devices"]) == ("cpu", [])
    assert str(told["device_problem"]).startswith("NVML: ")


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
