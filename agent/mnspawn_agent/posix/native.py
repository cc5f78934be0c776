"""Text between wire and system: UTF-8 there, here what the host's locale makes of bytes. Only translates.

Python 3.6 without a locale, as sshd often starts it, takes every name and value for ASCII; a locale may say Latin-1.
Then an umlaut of the controller would not reach a worker as the two bytes that it is.
"""

import codecs
import os
import sys
from typing import Any

IS_UTF8 = codecs.lookup(sys.getfilesystemencoding()).name == "utf-8"


def inward(value: Any) -> Any:
    """Names, arguments and values that reach the system with the bytes that the controller meant."""
    return value if IS_UTF8 else _translate(value, _to_native)


def outward(value: Any) -> Any:
    """Names and values of this system as the controller reads them."""
    return value if IS_UTF8 else _translate(value, _to_wire)


def _translate(value: Any, one: Any) -> Any:
    if isinstance(value, str):
        return one(value)
    if isinstance(value, list):
        return [_translate(item, one) for item in value]
    if isinstance(value, dict):
        return {_translate(name, one): _translate(item, one) for name, item in value.items()}
    return value


def _to_native(text: str) -> str:
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def _to_wire(text: str) -> str:
    try:
        return os.fsencode(text).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text  # it did not come from the system
