"""Events as JSON lines: names, fields, and output whose bytes can be had back exactly."""

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnspawn.errors import UsageError
from mnspawn.events import Event, HostConnected, Notice, Stream, WorkerExited, WorkerOutput
from mnspawn.output.journal import EventsSink, name_of, unfinished_character


def output(chunk: bytes, offset: int = 0, rank: int = 3) -> WorkerOutput:
    return WorkerOutput(time=1.5, host="b", rank=rank, stream=Stream.STDOUT, offset=offset, chunk=chunk)


def exited(rank: int = 3) -> WorkerExited:
    return WorkerExited(2.0, "b", rank, 1, 99, 7, 0.5, stopped=False, killed=False)


def write(tmp_path: Path, events: list[Event]) -> list[dict[str, Any]]:
    sink = EventsSink.open(str(tmp_path / "events.jsonl"))
    for event in events:
        sink.on_event(event)
    asyncio.run(sink.aclose())
    return [json.loads(line) for line in (tmp_path / "events.jsonl").read_bytes().splitlines()]


def test_an_event_is_one_object_with_its_name_time_host_and_rank(tmp_path: Path) -> None:
    [record] = write(tmp_path, [exited()])
    assert record == {
        "event": "trainer_exited",
        "time": 2.0,
        "host": "b",
        "rank": 3,
        "local_rank": 1,
        "pid": 99,
        "code": 7,
        "seconds": 0.5,
        "stopped": False,
        "killed": False,
        "raised": None,
    }


def test_output_has_text_offset_and_stream(tmp_path: Path) -> None:
    [record] = write(tmp_path, [output(b"caf\xc3\xa9\r\n\x00", offset=10)])
    assert (record["text"], record["offset"], record["stream"]) == ("café\r\n\0", 10, "stdout")
    assert "base64" not in record


def test_bytes_that_are_no_text_can_be_had_back(tmp_path: Path) -> None:
    [record] = write(tmp_path, [output(b"a\xff\xfeb")])
    assert record["text"] == "a\ufffd\ufffdb"
    assert base64.b64decode(record["base64"]) == b"a\xff\xfeb"


def test_a_character_split_over_two_chunks_is_whole_in_the_second_event(tmp_path: Path) -> None:
    first, second = write(tmp_path, [output(b"caf\xc3"), output(b"\xa9!", offset=4)])
    assert (first["text"], first["offset"]) == ("caf", 0)
    assert (second["text"], second["offset"]) == ("é!", 3)


def test_half_a_character_comes_out_before_its_worker_exits(tmp_path: Path) -> None:
    records = write(tmp_path, [output(b"\xf0\x9f"), output(b"x", rank=4), exited()])
    assert [(record["event"], record["rank"]) for record in records] == [
        ("trainer_output", 4),
        ("trainer_output", 3),
        ("trainer_exited", 3),
    ]
    assert base64.b64decode(records[1]["base64"]) == b"\xf0\x9f"


@given(chunks=st.lists(st.binary(max_size=12) | st.text(max_size=6).map(str.encode), max_size=20))
def test_the_bytes_of_a_stream_come_back_whatever_the_chunks(chunks: list[bytes]) -> None:
    reader, fd = os.pipe()
    sink = EventsSink(fd, owns_fd=True)
    offset = 0
    for chunk in chunks:
        sink.on_event(output(chunk, offset))
        offset += len(chunk)
    asyncio.run(sink.aclose())
    with os.fdopen(reader, "rb") as stream:
        records = [json.loads(line) for line in stream]
    back = b""
    for record in records:
        assert record["offset"] == len(back)
        back += base64.b64decode(record["base64"]) if "base64" in record else record["text"].encode()
    assert back == b"".join(chunks)


def test_a_host_stands_only_where_there_is_one(tmp_path: Path) -> None:
    first, second = write(tmp_path, [Notice(1.0, None, "hello"), HostConnected(1.0, "a", {"cpus": 4}, cached=True)])
    assert "host" not in first
    assert second == {"event": "host_connected", "time": 1.0, "host": "a", "facts": {"cpus": 4}, "cached": True}


def test_every_event_has_a_snake_case_name() -> None:
    names = {name_of(kind) for kind in Event.__subclasses__()}
    assert {"host_connected", "run_starting", "trainer_output", "run_finished"} <= names
    assert all(name == name.lower() for name in names)


@pytest.mark.parametrize(
    ("chunk", "count"),
    [
        (b"", 0),
        (b"a", 0),
        (b"\xc3", 1),
        (b"\xc3\xa9", 0),
        (b"\xe2\x82", 2),
        (b"\xf0\x9f\x98", 3),
        (b"\xff", 0),
        (b"\xa9" * 4, 0),
    ],
)
def test_only_what_may_become_a_character_is_held(chunk: bytes, count: int) -> None:
    assert unfinished_character(chunk) == count


def test_a_file_that_cant_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory") as caught:
        EventsSink.open(str(tmp_path / "no" / "folder"))
    assert caught.value.place == "--events"


def test_the_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    write(tmp_path, [exited()])
    assert (tmp_path / "events.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with open("/dev/full", "wb") as full:
        sink = EventsSink(full.fileno())
        sink.on_event(exited())
        asyncio.run(sink.aclose())
    assert "No space left on device" in caplog.text
