"""Imports asyncssh cheaply; the only place that imports it.

While imported, asyncssh searches for liboqs, which runs ldconfig, gcc and ld and takes 15 % of a slow import. It
does not need liboqs: cryptography has ML-KEM.
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

# users can't do anything about cryptography's deprecations
warnings.filterwarnings("ignore", category=UserWarning, module=r"asyncssh\.")
_log = logging.getLogger("asyncssh")
_log.addHandler(logging.NullHandler())  # its errors arrive as exceptions too
if _log.level == logging.NOTSET:  # spare a caller that logs at INFO a line for every channel
    _log.setLevel(logging.WARNING)

__all__ = ["asyncssh", "encryption", "kex", "mac", "public_key"]
