"""Once all ranks have ended, the result stands: no signal replaces the exit status or loses the summary."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import PATIENCE, Controller, wait_until

FAILS = "import sys\nprint('out')\nsys.exit(7)\n"
SUMMARY = "mnspawn: rank 0 failed: exit status 7 (host sandbox-1, local rank 0, pid "

# the command line, with a signal to itself wherever a run's end can be told from inside
ENTRY = """
import asyncio, os, signal, sys
from mnspawn.cli import main as entry
from mnspawn.engine.run import drive
from mnspawn.system import interrupts
from mnspawn.output import sinks
import mnspawn.cli.render as render
import mnspawn.cli.commands.run as run
import mnspawn.events as seen

def hit():
    os.kill(os.getpid(), signal.{name})

def before(owner, method):
    call = getattr(owner, method)
    def wrapped(*args, **kwargs):
        hit()
        return call(*args, **kwargs)
    setattr(owner, method, wrapped)

def after(owner, method):
    call = getattr(owner, method)
    def wrapped(*args, **kwargs):
        result = call(*args, **kwargs)
        hit()
        return result
    setattr(owner, method, wrapped)

def on_event(kind):
    call = sinks.ConsoleSink.on_event
    def wrapped(self, event):
        call(self, event)
        if isinstance(event, kind):
            hit()
    sinks.ConsoleSink.on_event = wrapped

{where}
sys.exit(entry.main())
"""
MOMENTS = {
    "a rank's end is told": "on_event(seen.WorkerExited)",
    "the host has proved that nothing is left": "on_event(seen.HostStopped)",
    "the run's end is told": "on_event(seen.RunFinished)",
    "the report is made": "after(drive.Drive, '_conclude')",
    "agents go": "before(drive.Drive, '_let_agents_go')",
    "the console is closed": "before(sinks.ConsoleSink, 'aclose')",
    "the loop is closed": "before(asyncio.Runner, 'close')",
    "the loop was closed": "after(asyncio.Runner, 'close')",
    "the summary is to be printed": "before(render, 'print_summary')",
    "the summary is being printed": "before(render, '_write')",
    "the summary was printed": "after(render, 'print_summary')",
    "the command has ended": "after(run, 'perform')",
}


@pytest.mark.full
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGQUIT"])
def test_a_signal_at_any_moment_of_the_end_changes_nothing(
    controller: Controller, tmp_path: Path, moment: str, name: str
) -> None:
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    entry = tmp_path / "entry.py"
    entry.write_text(ENTRY.format(name=name, where=MOMENTS[moment]))
    done = controller.run(sys.executable, str(entry), "--sandbox", "1", "--nproc-per-node", "1", str(script))
    assert done.status == 7, done
    assert SUMMARY in done.stderr, done


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGQUIT"])
def test_a_stopped_reader_is_left_with_the_runs_own_status_by_one_signal(
    controller: Controller, tmp_path: Path, name: str
) -> None:
    """`| less` that nobody scrolls: more than the pipe holds has been said, and all ranks have ended."""
    script = tmp_path / "says.py"
    script.write_text("import sys\nsys.stdout.write('x' * 99 + '\\n' + ('y' * 99 + '\\n') * 20000)\nsys.exit(7)\n")
    events = tmp_path / "events"
    read_end, write_end = os.pipe()
    command = ["--sandbox", "1", "--nproc-per-node", "1", "--events", str(events), str(script)]
    try:
        with controller.start_mnspawn(*command, stdout=write_end) as running:
            wait_until(lambda: events.exists() and "host_stopped" in events.read_text())
            running.send_signal(getattr(signal, name))
            done = running.wait()
    finally:
        os.close(read_end)
        os.close(write_end)
    assert done.status == 7, done
    assert SUMMARY in done.stderr, done


FILLS = """
import contextlib
call = render.summary
def summary(report):
    os.set_blocking(2, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(2, b"x" * 4096):
            pass
    os.set_blocking(2, True)
    open({said!r}, "w").close()
    return call(report)
render.summary = summary
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT"])
def test_a_summary_that_nobody_reads_is_left_by_one_signal(controller: Controller, tmp_path: Path, name: str) -> None:
    """stderr itself is a pipe that is full."""
    script, entry, said = tmp_path / "fails.py", tmp_path / "entry.py", tmp_path / "said"
    script.write_text(FAILS)
    entry.write_text(ENTRY.format(name=name, where=FILLS.format(said=str(said))))
    read_end, write_end = os.pipe()
    try:
        options = ["--sandbox", "1", "--nproc-per-node", "1"]
        with controller.start(sys.executable, str(entry), *options, str(script), stderr=write_end) as running:
            running.wait_for(said.exists)
            running.send_signal(getattr(signal, name))
            assert running.wait().status == 7
    finally:
        os.close(read_end)
        os.close(write_end)


@pytest.mark.parametrize("late", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
@pytest.mark.parametrize(("command", "status"), [("os.kill(os.getpid(), signal.SIGINT)", 130), ("return 7", 7)])
def test_a_signal_while_we_go_changes_neither_the_status_nor_what_is_said(command: str, status: int, late: str) -> None:
    code = f"""
import os, signal, sys
from mnspawn.cli import main as entry
signal.signal(signal.SIGINT, signal.default_int_handler)
def command(words):
    {command}
entry._dispatch = command
status = entry.main()
os.kill(os.getpid(), signal.{late})
class Last:  # the interpreter gives signals their defaults back before it takes its last objects apart
    def __del__(self, kill=os.kill, pid=os.getpid()): kill(pid, signal.{late})
sys.last = Last()
sys.exit(status)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
