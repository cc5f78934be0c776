"""Where the command line of a test runs: a HOME of its own, a fixed environment. Needs no privileges."""

import getpass
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.commands import Finished, Running
from tests.support.waiting import PATIENCE

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE_FOLDERS = ("orchestrator", "agent", "inventory")
ENTRY = "import sys; from mnspawn.cli.main import main; sys.exit(main())"
SHORT_SILENCE = "from mnspawn.engine import request; request.SILENCE_LIMIT = 3.0; "  # seconds


class Controller:
    """Runs commands as the user of mnspawn does, apart from the real user's settings, keys and environment."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)

    def _entering(self, cwd: Path) -> list[str]:
        """The words in front of a command that bring it to where the controller stands."""
        return []

    def environment(self) -> dict[str, str]:
        """What commands find; `env=` adds to it."""
        return {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "LOGNAME": getpass.getuser(),
            "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": ":".join(str(REPOSITORY / folder) for folder in PACKAGE_FOLDERS),
            "SHELL": "/bin/bash",
            "TERM": "dumb",
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
            "USER": getpass.getuser(),
        }

    def start(
        self, *argv: str, env: Mapping[str, str | None] | None = None, cwd: Path | None = None, **popen: Any
    ) -> Running:
        """Start a command; `env` adds variables, None removes one. Use it in a `with` statement."""
        variables: dict[str, str | None] = {**self.environment(), **(env or {})}
        kept = {name: value for name, value in variables.items() if value is not None}
        where = cwd or self.home
        return Running([*self._entering(where), *argv], env=kept, cwd=where, **popen)

    def run(self, *argv: str, timeout: float = PATIENCE, **options: Any) -> Finished:
        """Run a command to its end; see `start` for the options."""
        with self.start(*argv, **options) as running:
            return running.wait(timeout)

    def start_mnspawn(self, *args: str, notices_silence_soon: bool = False, **options: Any) -> Running:
        """Start the real command line; a link of its run counts as lost after three seconds of silence if asked for."""
        entry = SHORT_SILENCE + ENTRY if notices_silence_soon else ENTRY
        return self.start(sys.executable, "-c", entry, *args, **options)

    def mnspawn(self, *args: str, timeout: float = PATIENCE, **options: Any) -> Finished:
        """Run the real command line to its end."""
        with self.start_mnspawn(*args, **options) as running:
            return running.wait(timeout)
