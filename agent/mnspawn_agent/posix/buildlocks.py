"""Locks that torch waits for without an end: left where a build of an extension was killed. Only looks and tells."""

import glob
import itertools
import os
from typing import Dict, List

from . import rundir

MOST = 1000  # extensions that are looked at
MOST_TOLD = 4


def problems(env: Dict[str, str]) -> List[str]:
    """What to tell of ranks that will have this environment, before they start.

    torch makes a file `lock` while it builds or loads an extension (torch.utils.file_baton), which DeepSpeed does when
    it starts, and keeps it open meanwhile. Nobody removes it when that process is killed.
    """
    root = env.get("TORCH_EXTENSIONS_DIR", "")
    if root:
        pattern = os.path.join(glob.escape(root), "*", "lock")
    else:
        cache = env.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        pattern = os.path.join(glob.escape(cache), "torch_extensions", "*", "*", "lock")
    left = (path for path in itertools.islice(glob.iglob(pattern), MOST) if not rundir.openers_of(path))
    return [
        "%s: no process of this host holds this lock, and ranks that need the extension there wait for it for ever;"
        " remove it, unless another host shares the folder and builds there" % path
        for path in itertools.islice(left, MOST_TOLD)
        if os.path.exists(path)  # else its holder ended meanwhile, as it should
    ]
