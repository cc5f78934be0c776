"""Trains a small network with DistributedDataParallel over gloo.

    mnspawn --hosts a:2,b:2 torch_ddp.py

init_process_group() finds all it needs in the environment. Exits with 1 unless the loss falls and all ranks end with
the same weights.
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 60


def batches(rank, count, size=64):
    """Yields this rank's samples, y = sin(3 a) * b; every rank has its own stream."""
    source = torch.Generator().manual_seed(1000 + rank)
    for _ in range(count):
        x = torch.rand(size, 2, generator=source) * 2 - 1
        yield x, torch.sin(3 * x[:, :1]) * x[:, 1:]


def train(model, rank):
    """Returns the losses of the first and of the last step, each the mean over all ranks."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for x, y in batches(rank, STEPS):
        optimiser.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()  # averages the gradients over all ranks
        optimiser.step()
        losses.append(loss.detach())
    ends = torch.stack([losses[0], losses[-1]])
    dist.all_reduce(ends)
    return (ends / dist.get_world_size()).tolist()


def spread(model):
    """Returns the largest difference in any weight between two ranks."""
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    lowest, highest = weights.clone(), weights.clone()
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    return (highest - lowest).max().item()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # initial weights differ; DistributedDataParallel broadcasts those of rank 0
    network = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    model = DistributedDataParallel(network)
    first, last = train(model, rank)
    difference = spread(network)
    dist.barrier()
    dist.destroy_process_group()
    host = os.environ.get("MNSPAWN_HOST", "?")
    print(f"rank {rank} of {world_size} on {host}: loss {first:.4f} -> {last:.4f}, weights differ by {difference:g}")
    return 0 if last < first / 2 and difference == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
