"""Files that torch leaves behind: exceptions that its `record` wrote, and locks of builds that were killed."""

import glob
import itertools
import json
import os
import stat
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..files import rundir

VARIABLE = "TORCHELASTIC_ERROR_FILE"
MOST = 4 << 20  # bytes of a file: its traceback may have thousands of calls
LONGEST = 4000  # characters that are reported; the rank's stderr has the rest
LOCKS = 1000  # extensions that are looked at
LOCKS_REPORTED = 4


class Unusable(Exception):
    """The file is not what torch writes; the text has the reason."""


class Recorded:
    """Where the ranks of a pod leave their errors."""

    def __init__(self) -> None:
        self._paths: Dict[int, str] = {}

    def expect(self, workers: Sequence[Dict[str, Any]], folder: str) -> None:
        """Note the paths. A path that the user chose is left alone: it may belong to another run."""
        for worker in workers:
            path = worker["env"].get(VARIABLE, "")
            if os.path.dirname(path) == folder:
                self._paths[worker["rank"]] = path

    def of(self, rank: int) -> Tuple[Optional[str], str]:
        """Returns (what a rank recorded or None, why it can't be used or "")."""
        path = self._paths.get(rank)
        try:
            return read(path) if path else None, ""
        except Unusable as error:
            return None, "rank %d: the error that torch recorded can't be used: %s: %s" % (rank, path, error)


def read(path: str) -> Optional[str]:
    """`ValueError: no luck`, or None where nothing was recorded.

    Where the rank is a torchrun, this is what its first failed worker recorded.

    Raises:
        Unusable
    """
    try:  # not waiting for a writer, should it be a pipe
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unusable(error.strerror or "it can't be opened")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Unusable("it is no file")
    with open(fd, "rb") as file:
        content = file.read(MOST + 1)
    if len(content) > MOST:
        raise Unusable("it is larger than %d MiB" % (MOST >> 20))
    try:
        message = json.loads(content.decode("utf-8"))["message"]
        text = message["message"] if isinstance(message, dict) else message
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unusable("it is not the JSON that torch writes")
    if not isinstance(text, str):
        raise Unusable("its message is no text")
    if len(text) > LONGEST:
        text = "%s... (%d more characters)" % (text[:LONGEST], len(text) - LONGEST)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def lock_problems(env: Dict[str, str]) -> List[str]:
    """Warnings about torch's locks for ranks with this environment.

    torch makes a file `lock` while it builds or loads an extension (torch.utils.file_baton), which DeepSpeed does when
    it starts, and keeps it open meanwhile. Nobody removes it when that process is killed.
    """
    root = env.get("TORCH_EXTENSIONS_DIR", "")
    if root:
        pattern = os.path.join(glob.escape(root), "*", "lock")
    else:
        cache = env.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        pattern = os.path.join(glob.escape(cache), "torch_extensions", "*", "*", "lock")
    left = (path for path in itertools.islice(glob.iglob(pattern), LOCKS) if not rundir.openers_of(path))
    return [
        "%s: no process of this host holds this lock, and ranks that need the extension there wait for it for ever;"
        " remove it, unless another host shares the folder and builds there" % path
        for path in itertools.islice(left, LOCKS_REPORTED)
        if os.path.exists(path)  # else its holder ended meanwhile, as it should
    ]
