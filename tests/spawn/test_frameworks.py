"""Training with the real frameworks, from a function that only the caller has."""

from pathlib import Path

import pytest

from tests.spawn.conftest import Place
from tests.support import PATIENCE, Cluster, frameworks

TORCH = """
def train(steps):
    from datetime import timedelta
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    torch.manual_seed(dist.get_rank())
    network = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    model = DistributedDataParallel(network)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    x = torch.rand(64, 2) * 2 - 1  # another share of the samples on every rank
    for step in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), torch.sin(3 * x[:, :1]) * x[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    dist.destroy_process_group()
    return losses[0] > losses[-1], [float(w) for p in network.parameters() for w in p.detach().flatten()]
"""
PADDLE = """
def train(steps):
    import paddle
    import paddle.distributed as dist

    dist.init_parallel_env()
    paddle.seed(dist.get_rank())
    network = paddle.nn.Sequential(paddle.nn.Linear(2, 16), paddle.nn.Tanh(), paddle.nn.Linear(16, 1))
    model = paddle.DataParallel(network)
    optimiser = paddle.optimizer.SGD(learning_rate=0.1, parameters=model.parameters())
    losses = []
    x = paddle.rand([64, 2]) * 2 - 1  # another share of the samples on every rank
    for step in range(steps):
        loss = ((model(x) - x[:, :1] * x[:, 1:]) ** 2).mean()
        loss.backward()
        optimiser.step()
        optimiser.clear_grad()
        losses.append(loss.item())
    dist.barrier()
    return losses[0] > losses[-1], [float(w) for p in network.parameters() for w in p.flatten().tolist()]
"""
RUN = """
results = mnspawn.spawn(train, (20,), nprocs=2, hosts="h1,h2", python={python!r}, start_method={method!r}).results()
print(len(results), results[0][0], all(weights == results[0][1] for _, weights in results), len(results[0][1]))
"""


@pytest.fixture
def cluster_with(framework_cluster: Cluster, tmp_path: Path) -> Place:
    return Place(framework_cluster, tmp_path, "h1,h2")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize(("framework", "program", "weights"), [("torch", TORCH, 129), ("paddle", PADDLE, 65)])
def test_four_ranks_on_two_hosts_end_with_the_same_weights(
    cluster_with: Place, framework: str, program: str, weights: int, method: str
) -> None:
    run = RUN.format(python=str(frameworks.python(framework)), method=method)
    said = cluster_with.check(program + run, timeout=4 * PATIENCE)
    assert said.splitlines()[-1] == f"4 True True {weights}"
