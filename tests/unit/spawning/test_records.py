import io
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnspawn.spawning.results.records import HEAD, Damaged, Discarded, Exited, Piece, Raised, Reader, Record, Returned
from mnspawn_agent import worker_main


def record(kind: bytes, body: Any = b"") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HEAD.pack(kind, len(content)) + content


STREAM = (
    record(b"D", b"abc") + record(b"D") + record(b"C", {}) + record(b"D", b"x" * 5) + record(b"R", {})
    + record(b"X", {"status": 3}) + record(b"N", {})
    + record(b"E", {"type": "T", "text": "t", "traceback": "tb", "is_pickled": False})
)  # fmt: skip


def joined(records: list[Record]) -> list[Record]:
    """Neighbouring pieces as one: how they are cut says nothing."""
    found: list[Record] = []
    for one in records:
        if isinstance(one, Piece) and found and isinstance(found[-1], Piece):
            found[-1] = Piece(found[-1].content + one.content)
        else:
            found.append(one)
    return found


@given(st.lists(st.integers(min_value=1, max_value=len(STREAM)), max_size=20))
def test_records_are_the_same_however_they_arrive(cuts: list[int]) -> None:
    reader, found, begin = Reader(), [], 0
    for cut in [*sorted(cuts), len(STREAM)]:
        found += list(reader.feed(STREAM[begin:cut]))
        begin = max(begin, cut)
    assert joined(found) == [
        Piece(b"abc"),
        Discarded(),
        Piece(b"xxxxx"),
        Returned(True),
        Exited(3),
        Returned(False),
        Raised("T", "t", "tb", False),
    ]


@pytest.mark.parametrize(
    "stream",
    [b"hello world", record(b"X", {}), record(b"E", {"type": 1}), record(b"X", b"{"), HEAD.pack(b"E", 1 << 31)],
)
def test_what_is_no_record_ends_the_stream(stream: bytes) -> None:
    reader = Reader()
    found = list(reader.feed(stream))
    assert [type(one) for one in found] == [Damaged]
    assert list(reader.feed(record(b"R", {}))) == []


def test_the_worker_writes_what_the_reader_reads(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.touch()
    results = worker_main.Results(str(path))
    value = {"a": b"x" * 200_000, "b": [1, 2]}
    worker_main.give_back(results, value)
    results.add(b"X", status=worker_main.as_status("text"))
    records = list(Reader().feed(path.read_bytes()))
    content = b"".join(one.content for one in records if isinstance(one, Piece))
    assert pickle.load(io.BytesIO(content)) == value
    assert [one for one in records if not isinstance(one, Piece)] == [Returned(True), Exited(1)]
    os.close(results._fd)


@pytest.mark.parametrize(("code", "status"), [(None, 0), (0, 0), (3, 3), (True, 1), (-1, 255), (256, 0), ("x", 1)])
def test_the_status_that_an_exit_stands_for(code: Any, status: int) -> None:
    assert worker_main.as_status(code) == status


def test_the_chain_of_an_exception_has_each_link_once(tmp_path: Path) -> None:
    try:
        try:
            raise KeyError("low")
        except KeyError as low:
            raise ValueError("top") from low
    except ValueError as top:
        top.__cause__.__context__ = top  # type: ignore[union-attr] # a loop
        chain = worker_main.chain_of(top)
    assert [(link["type"], link["text"], link["is_cause"]) for link in chain] == [
        ("ValueError", "top", True),
        ("KeyError", "'low'", False),
    ]
    assert repr(pickle.loads(chain[1]["pickle"])) == "KeyError('low')"
    assert sys.exc_info() == (None, None, None)


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"status": 1e400}', b'{"status": null}', b"7", b'{"status": ' + b"9" * 5000 + b"}", b"\xff"],
)
def test_a_record_of_any_content_is_damaged_at_worst(body: bytes) -> None:
    (record,) = Reader().feed(HEAD.pack(b"X", len(body)) + body)
    assert isinstance(record, Damaged)
