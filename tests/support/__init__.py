"""What tests stand on: hosts that are real except for the hardware, commands with deadlines, waiting, leak checks.

Fixtures (tests/conftest.py); those with a cluster need root and are marked `netns` by themselves:

    def test_three_hosts(cluster):                        # 3 hosts shared by the whole session: leave them as they were
        done = cluster.mnspawn("--hosts", cluster.hosts_option, "--nproc-per-node", "2", "train.py")
        assert done.status == 0, done                     # done.stdout, done.stderr, done.raw_stdout, done.seconds

    def test_a_lost_host(make_cluster):                   # hosts of your own: break them
        cluster = make_cluster(2, delay=0.02, sshd_config="MaxStartups 10:30:100")
        with cluster.start_mnspawn("--hosts", cluster.hosts_option, "sleep.py") as running:
            running.wait_for(lambda: "ready" in running.stdout)
            cluster["h2"].cut()                           # heal() off() boot() set_delay(s) set_shell(path) kill(pid)
            done = running.wait(timeout=60)               # running.send_signal(..), running.interrupt() = Ctrl-C

    def test_on_this_machine(controller):                 # no root: the command line with a HOME of its own
        assert controller.mnspawn("--sandbox", "2", "train.py").status == 0

    async def test_over_ssh(local_sshd):                  # no root: a real sshd of the current user on loopback
        ...local_sshd.port, .ssh_config, .identity, .known_hosts

    def test_agent(agent_python):                         # runs once under every CPython from 3.6 on that there is
        subprocess.run([agent_python, "-c", ...])

Inside a host: `host.run("cat", "/etc/hostname")`, `host.processes(run_id)` (those that carry the id in their
environment or arguments), `host.path("/tmp/x")` (its file, seen from outside), `host.write("/root/.bashrc", text)`,
`host.remove("/usr/bin/python3*")`, `host.mount("/tmp", options="noexec")`, `host.log`, `host.address`.
`cluster.run("ssh", "-F", str(cluster.ssh_config), ..)` runs any command where the controller stands;
`cluster.wait_idle()` waits until no host runs anything; after a run that has told of its end,
`cluster.check_clean()` lets nothing of it be left. `share=DIR` lets all hosts see a folder of this machine;
otherwise they see /usr and a copy of /etc, and nothing of /home, /root, /tmp or the checkout.

`wait_until(condition)` instead of sleeping; PATIENCE bounds what may hang. `work.calls(function)` counts work; no test
reads a clock. Every test is checked for what it leaves: processes, threads, open
files, files in HOME and TMPDIR, changed environment (HOME and TMPDIR of the tests are folders of their own).
"""

from tests.support.cluster import Cluster
from tests.support.commands import Finished, Running
from tests.support.controller import Controller
from tests.support.host import HostProcess, VirtualHost
from tests.support.local_sshd import LocalSshd
from tests.support.waiting import PATIENCE, wait_until, wait_until_async

__all__ = [
    "PATIENCE",
    "Cluster",
    "Controller",
    "Finished",
    "HostProcess",
    "LocalSshd",
    "Running",
    "VirtualHost",
    "wait_until",
    "wait_until_async",
]
