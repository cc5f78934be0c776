"""Imports asyncssh cheaply; who needs it takes it from here.

asyncssh looks for liboqs while it is imported, which runs ldconfig, gcc and ld (15 % of a time that is long already);
ML-KEM it has from cryptography.
"""

import ctypes.util
import logging
import warnings


def _no_library(name: str) -> None:
    return None


_find_library = ctypes.util.find_library
ctypes.util.find_library = _no_library
try:
    import asyncssh
    from asyncssh import encryption, kex, mac, public_key
finally:
    ctypes.util.find_library = _find_library

# what cryptography will drop some day is nothing that a user of ssh_config's KexAlgorithms could do anything about
warnings.filterwarnings("ignore", category=UserWarning, module=r"asyncssh\.")
_log = logging.getLogger("asyncssh")
_log.addHandler(logging.NullHandler())  # what it has to say comes as exceptions too
if _log.level == logging.NOTSET:  # a caller that logs at INFO is not told of every channel
    _log.setLevel(logging.WARNING)

__all__ = ["asyncssh", "encryption", "kex", "mac", "public_key"]
