"""The agent's way from exec to HELLO on a warm cache against an interpreter that does nothing: CPU is the bound."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import Comparison, command, compare
from mnspawn._version import __version__
from mnspawn.bootstrap import bundle, stub
from mnspawn.bootstrap.stub import Handshake

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
LIMIT = 0.100  # seconds of CPU


def cpu_of(pid: int) -> float:
    """Seconds of CPU of a process and its children, exact to what the scheduler counts."""
    spent = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return spent + sum(cpu_of(int(child)) for child in children)


@contextmanager
def agent(home: str) -> Iterator[tuple[subprocess.Popen[bytes], bool]]:
    """An agent that has said HELLO, and whether its host had the archive already."""
    archive, nonce = bundle.build(), stub.make_nonce()
    line = stub.command_line(archive, nonce, __version__, ("serve",), python=PYTHON)
    handshake = Handshake("here", nonce)
    env = {"HOME": home, "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(["/bin/sh", "-c", line], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        rest = None
        while not rest:
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                raise SystemExit("the agent ended before it said HELLO")
            said = handshake.feed(chunk) if handshake.answer is None else chunk
            if said is not None and rest is None and handshake.answer == "need":
                process.stdin.write(archive.content)
                process.stdin.flush()
            rest = said
        yield process, handshake.answer == "have"
        process.stdin.close()
        process.stdout.close()
        process.kill()


def run() -> list[Comparison]:
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        cpu: list[float] = []

        def hello() -> None:
            with agent(home) as (process, had_archive):
                if had_archive:
                    cpu.append(cpu_of(process.pid))

        comparison = compare("agent to HELLO / python3 -c pass", hello, command(PYTHON, "-c", "pass"))
        middle = sorted(cpu)[len(cpu) // 2]
        print(f"agent to HELLO: {1000 * middle:.1f} ms of CPU (bound {1000 * LIMIT:.0f} ms)")
        return [comparison]


if __name__ == "__main__":
    print(*run(), sep="\n")
