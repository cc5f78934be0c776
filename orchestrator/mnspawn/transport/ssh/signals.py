"""The exit status that stands for a death by signal, as SSH reports it. Pure."""

import signal


def status_of_signal(name: str) -> int:
    """Return 128+n for the signal that SSH calls `name` (without SIG); 255 for one that this system does not know."""
    number = getattr(signal, f"SIG{name.partition('@')[0]}", None)
    return 128 + int(number) if isinstance(number, signal.Signals) else 255
