"""Writes what the command line itself has to say: results to stdout, errors and summaries to stderr."""

import errno
import json
import logging
import os
import select
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

from mnspawn.errors import MnspawnError, UsageError
from mnspawn.report import RunReport
from mnspawn.system import interrupts

from .wording.run import counted, error_lines, message_lines, summary, visible

_colours = "auto"  # what --color said
LONGEST_VALUE = 300  # of a variable or an argument in --dry-run's text, in characters; --json has them whole
IN_ASCII = {"±": "+-"}  # of our own words; what comes from others is escaped
LOOK = 100  # milliseconds between two looks whether a reader that has stopped is still waited for
_ALARM = "\x1b[1;31m"
_PLAIN = "\x1b[0m"


def print_error(error: MnspawnError) -> None:
    """On stderr."""
    print_ours(error_lines(error))


def print_summary(report: RunReport) -> None:
    """The end of a run that did not go well, on stderr; nothing for one that did.

    A stopped reader is waited for, until a signal says that nobody wants to.
    """
    _print_ours(summary(report), lambda block: _write_while_waited_for(sys.stderr, block, report.has_left))


def print_note(text: str) -> None:
    """Write a message of ours on stderr."""
    print_ours(message_lines(text))


def print_ours(lines: Iterable[str]) -> None:
    """Lines of ours on stderr; their `mnspawn:` stands out on terminals."""
    _print_ours(lines, lambda text: _write(sys.stderr, text))


def _print_ours(lines: Iterable[str], write: Callable[[str], None]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if not text:
        return
    if has_colours(sys.stderr):
        text = "".join(
            f"{_ALARM}mnspawn:{_PLAIN}{line[8:]}" if line.startswith("mnspawn:") else line
            for line in text.splitlines(keepends=True)
        )
    write(text)


def log_to(show: Callable[[Sequence[str]], None], verbosity: int) -> None:
    """Show logging, which is for operators: errors always, all of ours from -vv on, of libraries from -vvv on."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            show([visible(line) for line in self.format(record).splitlines()])

    handler = Handler()
    handler.setFormatter(_OwnErrorsPlain("mnspawn: %(name)s: %(message)s"))
    logging.root.addHandler(handler)
    logging.root.setLevel(logging.ERROR if verbosity < 3 else logging.DEBUG)
    logging.getLogger("mnspawn").setLevel(logging.DEBUG if verbosity >= 2 else logging.WARNING)


class _OwnErrorsPlain(logging.Formatter):
    """Leave the module's name out of our own errors, which are for everybody."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        if record.levelno >= logging.ERROR and record.name.startswith("mnspawn"):
            return f"mnspawn: {record.message}"
        return super().formatMessage(record)


def print_out(text: str | bytes) -> None:
    """A result on stdout; bytes for what is a file's content, which is the same for everybody."""
    _write(sys.stdout, text)


def print_lines(lines: Iterable[str]) -> None:
    """A result on stdout, line by line."""
    print_out("".join(f"{line}\n" for line in lines))


def print_json(document: object) -> None:
    """A result for machines on stdout."""
    print_out(json.dumps(document, indent=2) + "\n")


def width() -> int | None:
    """Of the terminal that results go to; None when they go to none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None


def print_plan(plan: Mapping[str, Any], as_json: bool) -> None:
    """What --dry-run found, on stdout: for people, or for machines."""
    if as_json:
        print_json(plan)
    else:
        print_lines(plan_lines(plan))


def plan_lines(plan: Mapping[str, Any]) -> list[str]:
    """A launch plan for people: what all ranks of a host share stands once."""
    pods = plan["pods"]
    size = f"{counted(plan['world_size'], 'rank')} on {counted(len(pods), 'host')}"
    lines = [f"run {plan['run']}: {size}, rendezvous at {plan['rendezvous']}; nothing was started"]
    for pod in pods:
        interface = f", interface {pod['interface']}" if pod.get("interface") else ""
        lines += ["", visible(f"host {pod['host']}: node rank {pod['node_rank']}, address {pod['address']}{interface}")]
        if pod.get("workdir"):
            lines.append(visible(f"  in {pod['workdir']}"))
        if pod.get("prelude"):
            lines.append("  prelude, before each rank:")
            lines += [f"    {visible(line)}" for line in pod["prelude"].splitlines()]
        shared = set.intersection(*(set(worker["env"].items()) for worker in pod["trainers"]))
        for worker in pod["trainers"]:
            devices = ",".join(str(device) for device in worker["devices"]) or "none"
            lines.append(
                f"  rank {worker['rank']}: local rank {worker['local_rank']}, endpoint {worker['endpoint']},"
                f" devices {devices}"
            )
            lines.append("    " + " ".join(shown(word) for word in worker["argv"]))
            lines += _variables(
                item for item in worker["env"].items() if item not in shared or len(pod["trainers"]) == 1
            )
        if len(pod["trainers"]) > 1:
            lines.append("  all ranks of this host:")
            lines += _variables(item for item in pod["trainers"][0]["env"].items() if item in shared)
        if pod.get("unset"):
            lines.append(f"  taken out of the host's environment: {' '.join(pod['unset'])}")
    return lines


def shown(word: str) -> str:
    """As one would type it in a shell, cut when very long."""
    if len(word) > LONGEST_VALUE:
        return f"{shown(word[:LONGEST_VALUE])}...({len(word)} characters)"
    if word.isprintable():
        return shlex.quote(word)
    escaped = "".join({"\\": "\\\\", "'": "\\'"}.get(sign) or visible(sign).replace("\t", "\\t") for sign in word)
    return f"$'{escaped}'"


def choose_colours(word: str) -> None:
    """From now on: auto, always or never."""
    global _colours
    _colours = word


def has_colours(stream: TextIO) -> bool:
    """As --color says; else a terminal, whose user did not ask for no colours (no-color.org)."""
    if _colours != "auto":
        return _colours == "always"
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def _variables(items: Iterable[tuple[str, str]]) -> list[str]:
    return [f"    {visible(name)}={shown(value) if value else ''}" for name, value in sorted(items)]


def _write_while_waited_for(stream: TextIO, text: str, has_left: bool) -> None:
    """Write while the reader takes it, or while nobody has sent a signal that says not to wait for it."""
    poll = select.poll()
    poll.register(stream, select.POLLOUT)
    rest = encoded(text, stream)
    while rest:
        is_over = has_left or interrupts.is_urged()
        if poll.poll(0 if is_over else LOOK):
            # no more than what a pipe that can be written takes without waiting
            _write(stream, rest[: select.PIPE_BUF])
            rest = rest[select.PIPE_BUF :]
        elif is_over:
            return


def encoded(text: str, stream: TextIO) -> bytes:
    """As the stream's user reads it: what their locale or PYTHONIOENCODING has no sign for is written out."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if not encoding.lower().startswith("utf"):
        for sign, words in IN_ASCII.items():
            text = text.replace(sign, words)
    return text.encode(encoding, "backslashreplace")


def _write(stream: TextIO, text: str | bytes) -> None:
    try:
        stream.buffer.write(text if isinstance(text, bytes) else encoded(text, stream))
        stream.buffer.flush()
    except OSError as exc:
        if stream is sys.stdout and exc.errno not in (errno.EPIPE, errno.EIO):
            raise UsageError(f"can't be written: {exc.strerror}", place="standard output") from exc
        # The reader has what it wanted (`| head -1`) or the terminal is gone. Nothing more goes there, and what Python
        # still holds for it shall not fail at its exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
