"""A whole run of `true` on one host against `ssh host true`: what mnspawn adds to a connection.

OpenSSH: as root a virtual host, else an sshd of the user's own on loopback. The sandbox: against the same ssh.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import Comparison, compare
from tests.support import Cluster, Controller, LocalSshd

TRUE = ["--nproc-per-node", "1", "--no-python", "true"]


@contextmanager
def openssh_host() -> Iterator[tuple[Controller, str, Path]]:
    """A controller, the name of a host that it reaches, and the ssh_config that says how."""
    if os.geteuid() == 0:
        with Cluster(1) as cluster:
            yield cluster, "h1", cluster.ssh_config
    else:
        with tempfile.TemporaryDirectory() as folder, LocalSshd() as server:
            yield Controller(Path(folder)), "local", server.ssh_config


def calling(controller: Controller, *args: str) -> Callable[[], None]:
    def call() -> None:
        controller.mnspawn(*args).check()

    return call


def run() -> list[Comparison]:
    with openssh_host() as (controller, host, config):

        def ssh() -> None:
            controller.run("ssh", "-F", str(config), host, "true").check()

        def fast_ssh() -> None:
            controller.run("ssh", "-F", str(config), "-o", "KexAlgorithms=curve25519-sha256", host, "true").check()

        ours = calling(controller, "--hosts", host, "--ssh-config", str(config), *TRUE)
        sandbox = calling(controller, "--sandbox", "1", *TRUE)
        return [
            compare("mnspawn on OpenSSH / ssh", ours, ssh),
            compare("mnspawn on OpenSSH / ssh with curve25519", ours, fast_ssh),
            compare("mnspawn --sandbox 1 / ssh", sandbox, ssh),
        ]


if __name__ == "__main__":
    print(*run(), sep="\n")
