import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mnspawn.core.agent_events import Complete, FileOpened
from mnspawn_agent.posix import native
from mnspawn_agent.protocol import messages
from tests.agent.live import RUN, Account, Live
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


def test_answers_about_a_home_that_is_not_ascii_are_spelt_as_the_controller_knows_it(
    account: Account, agent_python: Path
) -> None:
    account.python = agent_python  # without a locale: Python 3.6 then takes every path for ASCII
    account.home = account.home / "größe"
    account.home.mkdir()
    folder = str(account.pod)
    with Live(account) as agent:
        agent.begin("/bin/sh", "-c", "echo up; sleep 100")
        agent.until_said(b"up")
        with Live(account, ("list",)) as asked:
            assert [pod["path"] for pod in json.loads(asked.read_line()) if pod["run"] == RUN] == [folder]
        with Live(account, ("watch", RUN, "0")) as watcher:
            assert watcher.read_line() == b"here"
            watcher.read_up_to(json.dumps(folder).encode())
        agent.send(messages.STOP, grace=0)
        agent.until_a(Complete)
        agent.finish()
    with Live(account, ("clean", "0", "dry")) as cleaner:
        assert [action["path"] for action in json.loads(cleaner.read_line()) if action["run"] == RUN] == [folder]


@pytest.mark.parametrize("name", ["größe.log".encode(), b"caf\xe9.log"])
def test_files_of_any_name_are_followed_and_gone_on_with(account: Account, agent_python: Path, name: bytes) -> None:
    account.python = agent_python
    path = os.fsencode(account.home) + b"/" + name
    Path(os.fsdecode(path)).write_bytes(b"one\ntwo\n")
    pattern = path.decode("utf-8", "surrogateescape")
    shown = path.decode("utf-8", "backslashreplace")
    with Live(account, ("tail",)) as tailer:
        tailer.send(messages.TAIL, patterns=[pattern], lines=1, resume=[])
        opened = tailer.until_a(FileOpened)
        tailer.until_said(b"two\n", rank=opened.number)
        assert (opened.path, tailer.text(opened.number)) == (shown, b"two\n")
    with Live(account, ("tail",)) as again:
        again.send(messages.TAIL, patterns=[pattern], lines=1, resume=[[opened.path, opened.inode, opened.at + 4]])
        resumed = again.until_a(FileOpened)
        assert (resumed.path, resumed.at) == (shown, 8)
