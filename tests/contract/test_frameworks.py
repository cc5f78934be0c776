"""The frameworks themselves read what the contracts set."""

import json
from pathlib import Path

import pytest

from mnspawn.plan.contract import paddle as paddle_contract
from mnspawn.plan.launch_plan import Program
from tests.contract.ranks import Ranks
from tests.contract.worked_example import cluster, environments
from tests.support import PATIENCE, Controller, frameworks
from tests.support.controller import REPOSITORY

pytestmark = pytest.mark.frameworks

TORCH, PADDLE, JAX = (frameworks.python(name) for name in ("torch", "paddle", "jax"))


@pytest.fixture(name="ranks")
def ranks_here(controller: Controller, tmp_path: Path) -> Ranks:
    return Ranks(controller, tmp_path)


# -- torch


def test_torch_starts_from_the_environment_alone(ranks: Ranks) -> None:
    source = """
import json, os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1]); dist.all_reduce(total)
print(json.dumps([dist.get_rank(), dist.get_world_size(), total.item(), dist.is_torchelastic_launched()]))
dist.barrier(); dist.destroy_process_group()
"""
    assert ranks.said(TORCH, source, ["torch"], count=3) == [[rank, 3, 6, True] for rank in range(3)]


def test_torchs_record_leaves_the_error_where_we_look_for_it(ranks: Ranks) -> None:
    script = ranks.folder / "train.py"
    script.write_text(
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main(): raise ValueError('no luck')\nmain()\n"
    )
    plan = ranks.plan(TORCH, Program("script", str(script)), ["torch"], count=1)
    assert [done.status for done in ranks.run(plan)] == [1]
    left = json.loads((ranks.folder / "error.0.json").read_text())
    assert left["message"]["message"] == "ValueError: no luck"


# -- paddle


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_paddles_parallel_env_of_the_worked_example(kind: str, controller: Controller) -> None:
    source = """
import json, paddle.distributed as dist
env = dist.ParallelEnv()
print(json.dumps([env.rank, env.world_size, env.current_endpoint, env.trainer_endpoints]))
"""
    done = controller.run(str(PADDLE), "-c", source, env=environments(cluster(kind))[3], timeout=4 * PATIENCE)
    endpoints = ["10.0.0.1:6070", "10.0.0.1:6071", "10.0.0.2:6070", "10.0.0.2:6071"]
    assert json.loads(done.check().stdout.splitlines()[-1]) == [3, 4, "10.0.0.2:6071", endpoints]


SUM = """
import json, paddle, paddle.distributed as dist
dist.init_parallel_env()
total = paddle.to_tensor([dist.get_rank() + 1]); dist.all_reduce(total)
dist.barrier(); dist.destroy_process_group()
print(json.dumps([dist.get_rank(), dist.get_world_size(), total.item(), len(dist.ParallelEnv().trainer_endpoints)]))
"""


def test_paddle_starts_from_the_environment_alone(ranks: Ranks) -> None:
    assert ranks.said(PADDLE, SUM, ["paddle"]) == [[0, 2, 3, 2], [1, 2, 3, 2]]


def test_paddle_finds_a_long_endpoint_list_in_the_file(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paddle_contract, "LONGEST_LIST", 0)
    assert ranks.said(PADDLE, SUM, ["paddle"]) == [[0, 2, 3, 2], [1, 2, 3, 2]]
    assert (ranks.folder / "paddle_env.json").exists()


# -- jax

INITIALIZE = """
import json, os, jax
jax.distributed.initialize({})
print(json.dumps([jax.process_index(), jax.process_count(), jax.device_count()]))
jax.distributed.shutdown()
"""


def test_jax_starts_by_itself_under_its_own_contract(ranks: Ranks) -> None:
    assert ranks.said(JAX, INITIALIZE.format(""), ["jax"]) == [[0, 2, 2], [1, 2, 2]]


def test_jax_finds_the_coordinator_under_the_default_contracts(ranks: Ranks) -> None:
    numbers = "num_processes=int(os.environ['MNSPAWN_WORLD_SIZE']), process_id=int(os.environ['MNSPAWN_RANK'])"
    assert ranks.said(JAX, INITIALIZE.format(numbers)) == [[0, 2, 2], [1, 2, 2]]


# -- all together


@pytest.mark.parametrize(
    ("python", "example"),
    [(TORCH, "torch_ddp.py"), (PADDLE, "paddle_allreduce.py"), (JAX, "jax_allgather.py")],
    ids=["torch", "paddle", "jax"],
)
def test_examples_pass_under_the_default_contracts(python: Path, example: str, ranks: Ranks) -> None:
    plan = ranks.plan(python, Program("script", str(REPOSITORY / "examples" / example)))
    lines = [done.check().stdout.splitlines()[-1] for done in ranks.run(plan)]
    assert [line.partition(":")[0] for line in lines] == ["rank 0 of 2 on here", "rank 1 of 2 on here"]
