"""Exit codes: as Popen.returncode inside (negative for a signal), as a shell's status outside (128+n)."""

import signal
from typing import Optional

KILL_LIMIT = 5.0  # what outlives KILL this long may not be signalled or hangs in the kernel; we can't end it


def from_wait_status(status: int) -> int:
    """waitpid's status as Popen.returncode has it: 0..255, or -n for signal n."""
    low = status & 0x7F
    return -low if low else (status >> 8) & 0xFF


def as_shell_status(code: int) -> int:
    """The exit status that a shell shows for `code`: 128+n for signal n."""
    return 128 - code if code < 0 else code


def signal_name(code: int) -> Optional[str]:
    """SIGKILL for -9; None where `code` is no death by signal; SIG77 for one that this system doesn't know."""
    if code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return "SIG%d" % -code
