"""Starts the ranks of a plan on this machine without a launcher: what a framework says of a contract's variables."""

import contextlib
import json
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnspawn.plan.contract import DEFAULT
from mnspawn.plan.launch_plan import HostContext, LaunchPlan, LaunchSpec, Program, build
from mnspawn.plan.layout import Site, assign
from tests.support import PATIENCE, Controller, Finished

DEADLINE = 4 * PATIENCE  # paddle takes up to 16 s to import on two cores that do nothing else


@contextlib.contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """Ports that were free a moment ago."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        yield [one.getsockname()[1] for one in sockets]


@dataclass
class Ranks:
    """Ranks on this machine, their run directory in `folder`."""

    controller: Controller
    folder: Path

    def plan(self, python: Path, program: Program, contracts: Sequence[str] = DEFAULT, count: int = 2) -> LaunchPlan:
        with free_ports(count + 2) as ports:
            layout = assign([Site("here", "127.0.0.1", "lo", tuple(ports[2:]))], ports[0], ports[1])
        context = HostContext(str(python), str(self.folder), str(self.folder))
        return build(LaunchSpec("r1", program, contracts=tuple(contracts)), layout, [context])

    def run(self, plan: LaunchPlan) -> list[Finished]:
        """Run all ranks at once, to their ends."""
        (pod,) = plan.pods
        for name, content in pod.files:
            (self.folder / name).write_text(content)
        host = {"TMPDIR": str(self.folder)}  # torch leaves a cache there
        with contextlib.ExitStack() as all_ranks:
            running = [
                all_ranks.enter_context(self.controller.start(*pod.argv, env=host | pod.env | worker.env))
                for worker in pod.workers
            ]
            return [one.wait(DEADLINE) for one in running]

    def said(self, python: Path, source: str, contracts: Sequence[str] = DEFAULT, count: int = 2) -> list[Any]:
        """What each rank's code printed last, as JSON."""
        script = self.folder / "said.py"
        script.write_text(source)
        plan = self.plan(python, Program("script", str(script)), contracts, count)
        return [json.loads(done.check().stdout.splitlines()[-1]) for done in self.run(plan)]
