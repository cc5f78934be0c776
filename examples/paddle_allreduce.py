"""Sums rank + 1 over all ranks with Paddle, and checks that every rank has the endpoint that the list gives it.

    mnspawn --hosts a:2,b:2 paddle_allreduce.py

On hosts without accelerators it runs on CPUs over gloo, for which mnspawn sets PADDLE_DISTRI_BACKEND. Exits with 1 on a
wrong result.
"""

import os
import sys

import paddle
import paddle.distributed as dist


def main():
    dist.init_parallel_env()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = paddle.to_tensor([rank + 1])
    dist.all_reduce(total)
    places = []
    dist.all_gather_object(places, dist.ParallelEnv().current_endpoint)
    dist.barrier()
    dist.destroy_process_group()
    expected = world_size * (world_size + 1) // 2
    host = os.environ.get("MNSPAWN_HOST", "?")
    print(f"rank {rank} of {world_size} on {host}: sum {total.item()}, expected {expected}")
    return 0 if total.item() == expected and places == dist.ParallelEnv().trainer_endpoints else 1


if __name__ == "__main__":
    sys.exit(main())
