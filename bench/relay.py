"""Output from hosts to our stdout against `ssh HOST cat`, the latency of one line, and what quiet agents cost.

Needs root: virtual hosts. BENCH_RELAY_MB is how much each comparison moves in all (1024).
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.harness import Comparison, compare
from tests.support import Cluster, VirtualHost

TOTAL = int(os.environ.get("BENCH_RELAY_MB", "1024")) << 20
HOSTS = 8
LINES = 200
QUIET = 10.0  # seconds of silence over which an agent's CPU is counted
TICKER = f"""
import sys, time
for _ in range({LINES}):
    print(time.monotonic_ns(), flush=True)
    time.sleep(0.02)
"""


def sending(cluster: Cluster, count: int) -> Comparison:
    """The same bytes from `count` hosts at once, made of lines of 100 bytes."""
    each = TOTAL // count
    names = [host.name for host in cluster.hosts][:count]
    program = f"yes {'x' * 99} | head -c {each}"
    null = open(os.devnull, "wb")  # noqa: SIM115 - for as long as the comparison takes

    def ours() -> None:
        hosts = ",".join(names)
        args = ["--hosts", hosts, "--ssh-config", str(cluster.ssh_config), "--nproc-per-node", "1", "--no-python"]
        cluster.mnspawn(*args, "sh", "-c", program, timeout=600, stdout=null).check()

    def theirs() -> None:
        calls = " & ".join(f"ssh -F {cluster.ssh_config} {name} '{program}'" for name in names)
        cluster.run("sh", "-c", f"{calls} & wait", timeout=600, stdout=null).check()

    with null:
        return compare(f"{TOTAL >> 20} MiB from {count} hosts / ssh", ours, theirs, rounds=3)


def latency(cluster: Cluster) -> str:
    """From a worker's write to our stdout: hosts and we share one machine's clock."""
    delays = []
    args = ["--hosts", "h1", "--ssh-config", str(cluster.ssh_config), "--nproc-per-node", "1", "--output", "plain"]
    script = cluster.folder / "ticker.py"
    script.write_text(TICKER)
    with cluster.start_mnspawn(*args, str(script), stdout=subprocess.PIPE) as running:
        stream = running.popen.stdout
        assert stream is not None
        for line in stream:
            delays.append((time.monotonic_ns() - int(line)) / 1e6)
        running.wait().check()
    return f"a line from write to stdout: median {statistics.median(delays):.1f} ms, worst {max(delays):.1f} ms"


def quiet(cluster: Cluster) -> str:
    """CPU and memory of one agent whose workers say nothing."""
    args = ["--hosts", "h1", "--ssh-config", str(cluster.ssh_config), "--nproc-per-node", "2", "--no-python"]
    with cluster.start_mnspawn(*args, "sleep", "600") as running:
        host = cluster["h1"]
        running.wait_for(lambda: _sleepers(host) >= 2)
        agents = [int(pid) for pid in host.run("pgrep", "-f", "^[^ ]*python3 -S").stdout.split()]
        before = [_ticks(host.run("cat", f"/proc/{pid}/stat").stdout) for pid in agents]
        time.sleep(QUIET)
        after = [_ticks(host.run("cat", f"/proc/{pid}/stat").stdout) for pid in agents]
        sizes = [_rss(host.run("cat", f"/proc/{pid}/status").stdout) for pid in agents]
        running.kill()
    spent = sum(after) - sum(before)
    share = 100 * spent / os.sysconf("SC_CLK_TCK") / QUIET
    return f"a quiet agent: {share:.2f} % of a core, {max(sizes) / 1024:.1f} MiB resident"


def memory(cluster: Cluster) -> str:
    """Resident memory of the controller with 500 ranks on all hosts."""
    per_host = 500 // HOSTS + 1
    args = ["--hosts", cluster.hosts_option, "--ssh-config", str(cluster.ssh_config)]
    args += ["--nproc-per-node", str(per_host), "--no-python", "sleep", "600"]
    with cluster.start_mnspawn(*args) as running:
        last = cluster.hosts[-1]
        running.wait_for(lambda: _sleepers(last) >= per_host, timeout=120)
        pids = subprocess.run(["pgrep", "-g", str(running.pid)], capture_output=True, text=True, check=True).stdout
        size = max(_rss(Path(f"/proc/{pid}/status").read_text()) for pid in pids.split())
        running.kill()
    return f"the controller with {per_host * HOSTS} ranks: {size / 1024:.0f} MiB resident"


def _sleepers(host: VirtualHost) -> int:
    return int(host.run("pgrep", "-c", "-x", "sleep").stdout or 0)


def _ticks(stat: str) -> int:
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _rss(status: str) -> int:
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def run() -> list[Comparison | str]:
    if os.geteuid() != 0:
        return ["relay: needs root for virtual hosts"]
    with Cluster(HOSTS) as cluster:
        return [sending(cluster, 1), sending(cluster, HOSTS), latency(cluster), quiet(cluster), memory(cluster)]


if __name__ == "__main__":
    print(*run(), sep="\n", file=sys.stdout)
