"""Stage 1: the command line that starts the agent on a host, and the answer to it. Pure but for the random nonce."""

import binascii
import re
import secrets
import zlib
from dataclasses import dataclass, field

from mnspawn.errors import BootstrapError, PythonMissing, PythonTooOld, ShellRefused, UsageError
from mnspawn.quoting import quoted
from mnspawn_agent.protocol.version import OLDEST_PYTHON

from .bundle import Archive
from .startup import hint_for

MARK = b"MNSPAWN"
NOISE_LIMIT = 1 << 20  # a login shell that prints more than this before it runs a command is broken
SAFE_WORD = re.compile(r"[A-Za-z0-9_./+,:=@%~ -]+")  # means the same inside '...' in every shell, csh's `!` included

# Python 2.7 and 3: it must be able to say that it is too old.
STUB = """\
import os,sys
from hashlib import sha256
A=sys.argv
M,H,Z=A[2:5]
def say(t):os.write(1,("\\nMNSPAWN %s %s\\n"%(M,t)).encode())
if sys.version_info<(3,6):
 say("old %d.%d.%d"%sys.version_info[:3]);sys.exit(1)
E=os.environ.get
def ok(b):return sha256(b).hexdigest()==H
U=os.getuid()
def own(d):
 s=os.lstat(d);return s[4]==U and s[0]&0o170022==0o40000
c=(E("XDG_CACHE_HOME")or os.path.expanduser("~")+"/.cache")+"/mnspawn"
P=[d+"/"+H+"/agent.z" for d in(c,"/var/tmp/mnspawn-%d"%U)if d[0]=="/"]
F=B=""
for p in P:
 try:
  if own(p[:-73])and own(p[:-8]):
   B=open(p,"rb").read()
   if ok(B):F=p;break
 except OSError:pass
if F:say("have")
else:
 say("need");B=b""
 while len(B)<int(Z):
  c=os.read(0,int(Z)-len(B))
  if not c:sys.exit(1)
  B+=c
 if not ok(B):say("damaged");sys.exit(1)
import zlib
s=zlib.decompress(B)
n,l,r=s.split(b"\\n",2)
exec(compile(r[:int(l)],"stage2","exec"))
settle(s,B,P,F)
s=r=B=0
from mnspawn_agent.main import main
sys.exit(main(A[6:],A[5],bool(F)))
"""

# $0 the interpreters to try, $1 the stub, $2 the nonce; the rest is the stub's. What -c puts on sys.path goes first: it
# stands for the working folder, and a socket.py there, whoever left it, is not what is to be imported.
SHELL = (
    'echo; echo "MNSPAWN $2 shell"; '
    "for p in $0; do case $p in \\~/*) p=$HOME/${p#??};; esac; "
    'command -v "$p" >/dev/null 2>&1 && exec "$p" -S -E -s -c '
    '"import sys;sys.path[:]=[p for p in sys.path if p];import zlib,binascii;'
    'exec(zlib.decompress(binascii.a2b_base64(sys.argv[1])))" "$@"; '
    'done; echo; echo "MNSPAWN $2 nopython"'
)
INTERPRETERS = "python3 python /usr/libexec/platform-python"


def command_line(
    archive: Archive,
    nonce: str,
    version: str,
    arguments: tuple[str, ...],
    python: str | None = None,
    *,
    is_only: bool = True,
) -> str:
    """The command line that starts the agent, for any login shell.

    Args:
        arguments: the agent's mode and its arguments, each a safe word.
        python: interpreter to use; None tries the usual names.
        is_only: False tries the usual names after it.

    Raises:
        UsageError: `python` has characters that not every shell leaves alone.
    """
    if python is not None and (not SAFE_WORD.fullmatch(python) or " " in python):
        raise UsageError(f"expected a path of letters, digits and _./+,:=@%~-, found {python!r}", place="--python")
    packed = binascii.b2a_base64(zlib.compress(STUB.encode("ascii"), 9), newline=False).decode("ascii")
    words = [packed, nonce, archive.digest, str(len(archive.content)), version, *arguments]
    for word in words:
        if not SAFE_WORD.fullmatch(word):
            raise ValueError(f"not a safe word: {word!r}")
    names = INTERPRETERS if python is None else python if is_only else f"{python} {INTERPRETERS}"
    quoted = " ".join(f"'{word}'" for word in [names, *words])
    return f"exec /bin/sh -c '{SHELL}' {quoted}"


def make_nonce() -> str:
    """Return text that no login shell prints by chance."""
    return secrets.token_hex(8)


@dataclass(slots=True)
class Handshake:
    """Reads up to the stub's answer; what comes before it is a login shell's noise.

    Attributes:
        has_shell: the login shell has run our command; any further delay is the host's Python.
        answer: "have" or "need" once it is known.
        noise: what was printed before it.
    """

    host: str
    nonce: str
    python: str | None = None
    has_shell: bool = False
    answer: str | None = None
    noise: bytes = b""
    _seen: bytearray = field(default_factory=bytearray)

    def feed(self, chunk: bytes) -> bytes | None:
        """Return the bytes that follow the answer; None while there is no answer yet.

        Raises:
            BootstrapError: the answer says that there will be no agent.
        """
        self._seen += chunk
        words = self._next_words()
        if words == ["shell"]:
            self.has_shell = True
            words = self._next_words()
        if words is None:
            if len(self._seen) > NOISE_LIMIT:
                raise BootstrapError(
                    f"the login shell printed {NOISE_LIMIT >> 20} MiB before any command ran", host=self.host
                )
            return None
        rest = bytes(self._seen)
        self._seen.clear()
        self._take(words)
        return rest

    def _next_words(self) -> list[str] | None:
        """Return the words of the next line of ours, and remove it with the noise before it."""
        mark = b"\n%s %s " % (MARK, self.nonce.encode("ascii"))
        start = self._seen.find(mark)
        end = self._seen.find(b"\n", start + len(mark)) if start >= 0 else -1
        if end < 0:
            return None
        self.noise += self._seen[:start]
        words = self._seen[start + len(mark) : end].decode("ascii", "replace").split()
        del self._seen[: end + 1]
        return words

    def _take(self, words: list[str]) -> None:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        match words:
            case ["have" | "need" as answer]:
                self.answer = answer
            case ["old", version]:
                raise PythonTooOld(
                    f"expected Python {oldest} or newer, found {version}",
                    host=self.host,
                    hint="name another interpreter with --python",
                )
            case ["nopython"]:
                where = f"at {self.python}" if self.python else "(looked for python3, python, platform-python in PATH)"
                raise PythonMissing(
                    f"no Python {where}", host=self.host, hint="install python3 or name one with --python"
                )
            case _:
                raise BootstrapError(f"the stub said {' '.join(words)!r}", host=self.host)

    def explain_end(self, status: int | None, diagnostics: bytes) -> BootstrapError:
        """Return the error for a command that ended before it answered."""
        how = f"status {status}" if status is not None else "no status"
        evidence = quoted(self.noise + self._seen, diagnostics, before=":", around="")
        if not self.has_shell:
            return ShellRefused(
                f"the login shell ran no command ({how}){evidence}",
                host=self.host,
                hint=hint_for(evidence, has_ended=True),
            )
        evidence = quoted(self._seen or diagnostics or self.noise, before=":", around="")
        if self.python is not None:
            return PythonMissing(
                f"{self.python} did not run our Python code ({how}){evidence}",
                host=self.host,
                hint=f"check that `ssh HOST {self.python} --version` works for this account",
            )
        return BootstrapError(
            f"its Python did not run our code ({how}){evidence}",
            host=self.host,
            hint="check that `ssh HOST python3 --version` works for this account, or name another with --python",
        )

    def explain_delay(self, seconds: float, diagnostics: bytes) -> BootstrapError:
        """Return the error for a command that did not answer in time."""
        if self.has_shell:
            evidence = quoted(self._seen, diagnostics)
            return BootstrapError(
                f"connected, but its Python ({self.python or 'python3'}) did not start within {seconds:g} s{evidence}",
                host=self.host,
                hint="is its disk or its network file system slow? --python names another",
            )
        evidence = quoted(self.noise + self._seen, diagnostics)
        return BootstrapError(
            f"connected, but its login shell ran no command within {seconds:g} s{evidence}",
            host=self.host,
            hint=hint_for(evidence, has_ended=False),
        )
