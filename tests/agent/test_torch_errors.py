"""What torch's `record` leaves of an exception, read by the agent; whatever else a program may put there."""

import json
import os
from pathlib import Path

import pytest

from mnspawn_agent.posix.run import torch_files
from mnspawn_agent.protocol.checks import is_line


def left(folder: Path, content: object) -> str:
    path = folder / "error.0.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(path)


def torchs(text: object) -> dict[str, object]:
    return {"message": {"message": text, "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1"}}}


def test_exception_and_message_are_read(tmp_path: Path) -> None:
    assert torch_files.read(left(tmp_path, torchs("ValueError: no luck"))) == "ValueError: no luck"


def test_so_is_a_message_without_an_exception(tmp_path: Path) -> None:
    assert torch_files.read(left(tmp_path, {"message": "Signal 11", "timestamp": 1})) == "Signal 11"


def test_a_rank_that_recorded_nothing_is_no_problem(tmp_path: Path) -> None:
    assert torch_files.read(str(tmp_path / "error.0.json")) is None


def test_a_long_message_is_cut_and_says_so(tmp_path: Path) -> None:
    told = torch_files.read(left(tmp_path, torchs("E: " + "x" * 10_000)))
    assert told == "E: " + "x" * 3997 + "... (6003 more characters)"


def test_what_is_no_text_on_the_wire_is_escaped(tmp_path: Path) -> None:
    told = torch_files.read(left(tmp_path, torchs("E: \ud800\x1b[2J")))
    assert told == "E: \\ud800\x1b[2J"  # colours and the like are made visible where they are shown
    assert is_line(told)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not the JSON that torch writes"),
        (b'{"message": {"mess', "not the JSON that torch writes"),
        (b"\xff\xfe", "not the JSON that torch writes"),
        (b"[" * 100_000, "not the JSON that torch writes"),
        (b"[]", "not the JSON that torch writes"),
        (b"{}", "not the JSON that torch writes"),
        (b'{"message": {}}', "not the JSON that torch writes"),
        (b'{"message": {"message": 7}}', "its message is no text"),
        (b'{"message": null}', "its message is no text"),
        (b'{"message": "' + b"x" * (5 << 20) + b'"}', "it is larger than 4 MiB"),
    ],
    ids=["empty", "half", "no text", "deep", "a list", "no message", "an empty one", "a number", "null", "large"],
)
def test_what_is_not_torchs_is_told(tmp_path: Path, content: bytes, problem: str) -> None:
    with pytest.raises(torch_files.Unusable, match=problem):
        torch_files.read(left(tmp_path, content))


def test_a_pipe_a_link_and_a_folder_are_not_waited_for_nor_followed(tmp_path: Path) -> None:
    left(tmp_path, torchs("E: somebody else's"))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "error.0.json")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder"):
        with pytest.raises(torch_files.Unusable):
            torch_files.read(str(tmp_path / name))


def test_only_files_of_the_runs_own_folder_are_read(tmp_path: Path) -> None:
    mine = left(tmp_path, torchs("E: mine"))
    errors = torch_files.Recorded()
    errors.expect([{"rank": 3, "env": {torch_files.VARIABLE: mine}}, {"rank": 4, "env": {}}], str(tmp_path))
    errors.expect([{"rank": 5, "env": {torch_files.VARIABLE: mine}}], "/another")
    assert [errors.of(rank) for rank in (3, 4, 5)] == [("E: mine", ""), (None, ""), (None, "")]
