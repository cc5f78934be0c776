"""What lands on stdout and stderr: plans, errors, colours, readers that go away."""

import io
import json
import os
import sys
from typing import Any

import pytest

from mnspawn.cli import render
from mnspawn.errors import AuthRefused


def worker(rank: int, **more: str) -> dict[str, Any]:
    env = {"WORLD_SIZE": "2", "RANK": str(rank), **more}
    return {
        "rank": rank,
        "local_rank": rank,
        "endpoint": f"10.0.0.1:{6070 + rank}",
        "devices": [rank],
        "argv": ["python3", "-u", "train.py", "it's", ""],
        "env": env,
    }


def plan(*workers: dict[str, Any]) -> dict[str, Any]:
    pod = {
        "node_rank": 0,
        "host": "a",
        "address": "10.0.0.1",
        "interface": "eth0",
        "workdir": "/work",
        "unset": ["http_proxy"],
        "trainers": list(workers),
    }
    return {"run": "r1", "world_size": len(workers), "rendezvous": "10.0.0.1:29500", "pods": [pod]}


def test_a_plan_for_people_says_once_what_ranks_share() -> None:
    assert render.plan_lines(plan(worker(0), worker(1, TEXT="a b"))) == [
        "run r1: 2 ranks on 1 host, rendezvous at 10.0.0.1:29500; nothing was started",
        "",
        "host a: node rank 0, address 10.0.0.1, interface eth0",
        "  in /work",
        "  rank 0: local rank 0, endpoint 10.0.0.1:6070, devices 0",
        "    python3 -u train.py 'it'\"'\"'s' ''",
        "    RANK=0",
        "  rank 1: local rank 1, endpoint 10.0.0.1:6071, devices 1",
        "    python3 -u train.py 'it'\"'\"'s' ''",
        "    RANK=1",
        "    TEXT='a b'",
        "  all ranks of this host:",
        "    WORLD_SIZE=2",
        "  taken out of the host's environment: http_proxy",
    ]


def test_the_only_rank_of_a_host_has_all_its_variables() -> None:
    lines = render.plan_lines(plan(worker(0)))
    assert "    WORLD_SIZE=2" in lines
    assert "  all ranks of this host:" not in lines


def test_a_plan_for_machines_is_json(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    shown = plan(worker(0, RAW="\udcff\n"))
    render.print_plan(shown, as_json=True)
    out, err = capfdbinary.readouterr()
    assert json.loads(out) == shown
    assert err == b""


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("plain", "plain"),
        ("", "''"),
        ("a b", "'a b'"),
        ("a\n\tb", "$'a\\n\\tb'"),
        ("\x1b'", "$'\\x1b\\''"),
        ("\udcff", "$'\\udcff'"),
    ],
)
def test_words_are_shown_as_one_would_type_them(word: str, text: str) -> None:
    assert render.shown(word) == text


def test_a_very_long_value_is_cut() -> None:
    assert render.shown("x" * 100_000) == "x" * 300 + "...(100000 characters)"


def test_errors_go_to_stderr_as_plain_text_where_that_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    render.print_error(AuthRefused("no key was accepted", host="gpu-07", hint="add the key to ssh-agent"))
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "mnspawn: gpu-07: no key was accepted\n  hint: add the key to ssh-agent\n"


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal(io.BytesIO())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert render.has_colours(stream)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not render.has_colours(stream)


def test_a_reader_that_left_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, fd = os.pipe()
    os.close(reader)
    with os.fdopen(fd, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        render.print_out("x\n")
        render.print_out("y\n")
        monkeypatch.undo()
