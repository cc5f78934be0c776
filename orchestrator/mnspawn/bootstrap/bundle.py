"""The agent's archive: its sources and the accelerator library, compressed, named by its digest."""

import functools
import hashlib
import importlib.util
import zlib
from dataclasses import dataclass
from pathlib import Path

import mnspawn_agent

STAGE_2 = "mnspawn_agent/unpack.py"
VENDORED = ("pynvml",)  # nvidia-ml-py: one pure module, imported on hosts that have a driver


@dataclass(frozen=True, slots=True)
class Archive:
    """`digest` is the sha256 of `content` in hexadecimal; it names the archive on hosts."""

    content: bytes
    digest: str


@functools.cache
def build() -> Archive:
    """Return the archive of this installation; the same bytes for the same files."""
    root = Path(mnspawn_agent.__file__).parent
    sources = {f"mnspawn_agent/{path.relative_to(root).as_posix()}": path for path in root.rglob("*.py")}
    for name in VENDORED:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            sources[f"{name}.py"] = Path(spec.origin)
    names = sorted(sources, key=lambda name: (name != STAGE_2, name))
    records = b"".join(_record(name, sources[name].read_bytes()) for name in names)
    content = zlib.compress(records, 9)
    return Archive(content, hashlib.sha256(content).hexdigest())


def _record(name: str, content: bytes) -> bytes:
    return b"%s\n%d\n%s" % (name.encode("ascii"), len(content), content)
