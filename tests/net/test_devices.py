"""Hosts whose accelerators can't be used, or not all of them: said in the driver's words, never left out quietly.

The driver's C library is a stub; everything above it is real.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Cluster, VirtualHost, nvml

SHOW = (
    "import os\nprint(os.environ['LOCAL_RANK'], os.environ.get('FLAGS_selected_gpus'),"
    " os.environ.get('PADDLE_DISTRI_BACKEND'))\n"
)
TRANSPORTS = ("asyncssh", "openssh", "paramiko")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml.build(tmp_path_factory.mktemp("nvml"))


class Fleet:
    """h1 has three GPUs that work, h2 what a test says."""

    def __init__(self, cluster: Cluster, library: Path, script: Path) -> None:
        self.cluster = cluster
        self._script = script
        for host in cluster.hosts:
            folder = host.path("/opt/nvml")
            folder.mkdir(parents=True)
            shutil.copy(library, folder)
        script.write_text(SHOW)
        self.set(cluster["h1"], STUB_COUNT="3")

    def set(self, host: VirtualHost, **variables: str) -> None:
        words = " ".join(f'"{name}={value}"' for name, value in variables.items())
        host.configure_sshd(f"SetEnv LD_LIBRARY_PATH=/opt/nvml {words}")

    def run(self, *options: str) -> tuple[int, list[str], str]:
        done = self.cluster.mnspawn(
            "--hosts", "h1,h2", "--ssh-config", str(self.cluster.ssh_config), *options, str(self._script)
        )
        return done.status, sorted(done.stdout.splitlines()), done.stderr


@pytest.fixture
def fleet(make_cluster: Callable[..., Cluster], library: Path, tmp_path: Path) -> Fleet:
    return Fleet(make_cluster(2), library, tmp_path / "show.py")


WORKING = ["[h1:0] 0 0 None", "[h1:1] 1 1 None", "[h1:2] 2 2 None"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_lost_gpu_is_named_and_the_others_keep_their_numbers(fleet: Fleet, transport: str) -> None:
    fleet.set(fleet.cluster["h2"], STUB_COUNT="3", STUB_LOST="0:15")
    status, lines, errors = fleet.run("--transport", transport)
    assert lines == [*WORKING, "[h2:3] 0 1 None", "[h2:4] 1 2 None"]
    assert (status, errors) == (0, "mnspawn: h2: GPU 0 can't be used (GPU is lost); 2 can be used\n")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"STUB_LOST": "0:15,1:15"}, "GPU 0 can't be used (GPU is lost); GPU 1 can't be used (GPU is lost)"),
        ({"STUB_INIT": "18"}, "NVML: Driver/library version mismatch: RM has detected an NVML/RM version mismatch."),
        ({"CUDA_VISIBLE_DEVICES": "0,0"}, "{list}='0,0': device 0 is listed twice, which hides all devices"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-9"}, "{list}='GPU-9': GPU-9 is no device of this host: CUDA stops there"),
    ],
    ids=["all lost", "mismatch", "duplicates", "unknown uuid"],
)  # fmt: skip
def test_a_host_that_can_not_use_its_accelerators_is_refused(
    fleet: Fleet, transport: str, variables: dict[str, str], text: str
) -> None:
    fleet.set(fleet.cluster["h2"], **variables)
    status, lines, errors = fleet.run("--transport", transport)
    assert (status, lines) == (4, [])
    assert (
        errors.splitlines()[0] == f"mnspawn: h2: no accelerator can be used: {text.format(list='CUDA_VISIBLE_DEVICES')}"
    )
    assert "--nproc-per-node cpu" in errors
    assert "--exclude" in errors


def test_cpus_that_are_asked_for_need_no_driver(fleet: Fleet) -> None:
    fleet.set(fleet.cluster["h2"], STUB_INIT="18")
    everywhere = [f"[h{1 + rank // 2}:{rank}] {rank % 2} None gloo" for rank in range(4)]
    status, lines, errors = fleet.run("--nproc-per-node", "2", "-x", "CUDA_VISIBLE_DEVICES=")
    assert (status, lines) == (0, everywhere)
    hidden = "CUDA_VISIBLE_DEVICES='' (--env) hides all accelerators: ranks are given none"
    assert errors.splitlines() == [f"mnspawn: {host}: {hidden}" for host in ("h1", "h2")]
    status, lines, errors = fleet.run("--nproc-per-node", "cpu")
    assert (status, errors) == (0, "")
    assert {line.partition(" ")[2] for line in lines} >= {"0 None gloo"}
    assert not [line for line in lines if not line.endswith(" None gloo")]


def test_a_number_of_ranks_that_lost_gpus_leave_short_is_refused(fleet: Fleet) -> None:
    fleet.set(fleet.cluster["h2"], STUB_COUNT="3", STUB_LOST="1:15")
    status, lines, errors = fleet.run("--nproc-per-node", "3")
    assert (status, lines) == (4, [])
    assert "h2: expected an accelerator for each of 3 ranks, found 2: GPU 1 can't be used (GPU is lost)" in errors
    status, lines, errors = fleet.run("--nproc-per-node", "2")
    assert lines == [*WORKING[:2], "[h2:2] 0 0 None", "[h2:3] 1 2 None"]
    assert status == 0


def test_the_list_of_a_host_is_read_as_cuda_reads_it_and_what_is_wrong_is_told(fleet: Fleet) -> None:
    fleet.set(fleet.cluster["h2"], STUB_COUNT="3", CUDA_VISIBLE_DEVICES="2,0,7,1")
    status, lines, errors = fleet.run()
    assert lines == [*WORKING, "[h2:3] 0 0 None", "[h2:4] 1 1 None"]
    reason = "there is no device 7, only 0 to 2: CUDA stops there"
    assert errors == f"mnspawn: h2: CUDA_VISIBLE_DEVICES='2,0,7,1': {reason}; 2 can be used\n"
    fleet.set(fleet.cluster["h2"], STUB_COUNT="3", CUDA_VISIBLE_DEVICES="NoDevFiles")
    status, lines, errors = fleet.run()
    assert status == 0
    assert errors == ("mnspawn: h2: CUDA_VISIBLE_DEVICES='NoDevFiles' hides all accelerators: ranks are given none\n")


def test_a_check_of_hosts_names_what_can_not_be_used(fleet: Fleet) -> None:
    fleet.set(fleet.cluster["h2"], STUB_COUNT="3", STUB_LOST="0:15", CUDA_VISIBLE_DEVICES="1,9")
    done = fleet.cluster.mnspawn("hosts", "check", "h1,h2", "--json")
    found = [one for one in json.loads(done.stdout)["findings"] if one["check"] == "devices"]
    assert [one["hosts"] for one in found] == [["h2"], ["h2"]]
    assert "NVML: GPU 0: GPU is lost" in found[0]["message"]
    assert "CUDA_VISIBLE_DEVICES='1,9': there is no device 9" in found[1]["message"]
    assert done.status == 1
