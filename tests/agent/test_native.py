import os
import subprocess
import sys
from pathlib import Path

import pytest

from mnspawn_agent.posix import native
from tests.support.source import AGENT

ROUND = """
import os, sys
sys.path.insert(0, sys.argv[1])
from mnspawn_agent.posix import native
native.IS_UTF8 = False
text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
inside = native.inward({text: [text, 7, None]})
(name, values), = inside.items()
assert os.fsencode(name) == os.fsencode(values[0]) == text.encode("utf-8", "surrogateescape")
assert native.outward(inside) == {text: [text, 7, None]}
"""


@pytest.mark.parametrize("content", [b"plain", "größe \U0001f600".encode(), b"caf\xe9 \xff", b""])
def test_bytes_reach_the_system_as_they_were_meant_under_every_python(agent_python: Path, content: bytes) -> None:
    for locale in ("C", "C.UTF-8"):
        command = [str(agent_python), "-S", "-E", "-c", ROUND, str(AGENT.parent)]
        env = {"LC_ALL": locale, "PATH": os.environ["PATH"]}
        done = subprocess.run(command, input=content, env=env, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


def test_where_the_system_speaks_utf_8_nothing_is_changed() -> None:
    assert sys.getfilesystemencoding() == "utf-8"
    message = {"a": ["ö", "\udce9"]}
    assert native.inward(message) is message
    assert native.outward(message) is message
