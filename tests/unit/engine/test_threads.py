"""Nobody waits for ever for a thread of ours, whatever happens in it."""

import sys

import pytest

from mnspawn.api.background import Background
from mnspawn.engine.request import RunRequest
from mnspawn.errors import UsageError
from mnspawn.plan.launch_plan import Program
from mnspawn.system.threads import in_daemon_thread
from tests.support import PATIENCE


async def test_work_that_ends_its_thread_is_told_where_it_is_awaited() -> None:
    with pytest.raises(SystemExit):
        await in_daemon_thread(lambda: sys.exit(3))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_run_ends_also_when_what_is_called_at_its_end_raises() -> None:
    def on_end() -> None:
        raise ValueError("no such luck")

    run = Background(RunRequest(Program("command", "true")), [], on_end=on_end)
    run.start()
    assert run.wait(PATIENCE)
    with pytest.raises(UsageError):
        run.outcome()
