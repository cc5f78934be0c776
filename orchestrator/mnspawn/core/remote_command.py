"""Makes a command line that every login shell passes on unchanged, and that ends when we do. Pure."""

import re
from collections.abc import Sequence

from mnspawn.errors import UsageError

GRACE = 5  # seconds from TERM to KILL for a command that should end
LONGEST = 120_000  # bytes: Linux takes 128 KiB in one argument, and to a login shell all of this is one
_PLAIN = re.compile(rb"[A-Za-z0-9_./+,:=@-]")

# Positional parameters: the words with %b's escapes. fd 3 is our stdin, which stays open as long as the command is
# wanted; when it ends, or the link does, the group (sshd gives each command one of its own, of which we are the first)
# hears TERM, and KILL when the command is gone or the grace is over. The shell's own remarks on how a command died go
# nowhere: they have process ids in them, and would make equal output of many hosts differ. What is a program becomes
# the subshell itself; what is none may be built into the shell (ulimit).
# No backslash, quote, "!" or newline: not every shell leaves those alone between quotes.
_SCRIPT = (
    "n=$#; while [ $n -gt 0 ]; do "
    'a=$(printf "%b." "$1"); shift; set -- "$@" "${a%.}"; n=$((n-1)); done; '
    'exec 3<&0 4>&2 </dev/null 2>/dev/null; t=; trap "t=1" TERM; '
    f'(trap "" TERM; exec >/dev/null 4>&-; read x <&3; kill -TERM -$$; sleep {GRACE}; kill -KILL -$$) & w=$!; '
    '(exec 2>&4 3<&- 4>&-; case $(command -v "$1") in */*) exec "$@";; esac; "$@"); s=$?; '
    '[ -z "$t" ] || kill -KILL -$$; kill -KILL $w; exit $s'
)


def command_line(argv: Sequence[str]) -> str:
    """Return the command line that runs these words, byte for byte, under any login shell.

    Raises:
        UsageError: there is no command, or it is far too long.
    """
    if not argv or not argv[0]:
        raise UsageError("expected a command after --, found nothing", hint="mnspawn exec h1,h2 -- uptime")
    if any("\0" in word for word in argv):
        raise UsageError("expected words without NUL characters", place="CMD")
    line = " ".join(["exec /bin/sh -c", f"'{_SCRIPT}'", "mnspawn", *(f"'{_escaped(word)}'" for word in argv)])
    if len(line) > LONGEST:
        raise UsageError(f"expected a command of at most {LONGEST} bytes, found {len(line)}", place="CMD")
    return line


def _escaped(word: str) -> str:
    """As printf's %b reads it: nothing but letters, digits, a few signs and backslashes before octal numbers."""
    return "".join(
        sign.decode("ascii") if _PLAIN.fullmatch(sign) else f"\\0{sign[0]:03o}"
        for sign in (bytes([byte]) for byte in word.encode("utf-8", "surrogateescape"))
    )
