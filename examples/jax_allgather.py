"""Gathers a number from every process with JAX, then sums the numbers in one jitted program over all processes.

    mnspawn --hosts a:2,b:2 jax_allgather.py

JAX's CPU collectives (gloo) use the address of the host's own name. Debian's /etc/hosts maps that name to 127.0.1.1,
which other hosts cannot reach, and JAX has no setting to change it. `use_interface` works around this: it makes JAX's
CPU client use the interface that mnspawn names in GLOO_SOCKET_IFNAME. It calls private functions of JAX (tested with
0.10.2). Accelerators do not need it, nor do hosts whose own names resolve to reachable addresses.

Exits with 1 on a wrong result.
"""

import os
import sys

import jax
import jax.extend.backend
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def use_interface(name):
    """Make the CPU collectives of this process use a network interface. Call it after initialize()."""
    from jax._src import distributed, xla_bridge
    from jaxlib import _jax

    def make_client():
        collectives = _jax.make_gloo_tcp_collectives(distributed_client=distributed.global_state.client, interface=name)
        return xla_bridge.make_cpu_client(collectives=collectives)

    jax.extend.backend.register_backend_factory("cpu", make_client, priority=0, fail_quietly=False)


def main():
    rank, world_size = int(os.environ["MNSPAWN_RANK"]), int(os.environ["MNSPAWN_WORLD_SIZE"])
    # JAX reads the coordinator from JAX_COORDINATOR_ADDRESS but has no variables for the other two. With
    # `mnspawn --contract default,jax`, initialize() needs no arguments: JAX takes the run for one of Open MPI.
    jax.distributed.initialize(num_processes=world_size, process_id=rank)
    if os.environ.get("GLOO_SOCKET_IFNAME"):
        use_interface(os.environ["GLOO_SOCKET_IFNAME"])
    gathered = multihost_utils.process_allgather(np.array([rank + 1])).reshape(-1).tolist()

    mesh = Mesh(np.array(jax.devices()), ("all",))
    mine = np.full(jax.local_device_count(), (rank + 1) / jax.local_device_count(), np.float32)
    numbers = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("all")), mine)
    add_up = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))
    total = float(add_up(numbers))
    jax.distributed.shutdown()

    expected = list(range(1, world_size + 1))
    host = os.environ.get("MNSPAWN_HOST", "?")
    print(f"rank {rank} of {world_size} on {host}: gathered {gathered}, sum {total:g}")
    return 0 if gathered == expected and abs(total - sum(expected)) < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
