"""The console: whole lines, one prefix each, the right stream, and readers that misbehave."""

import asyncio
import json
import os
import pty
import threading
from base64 import b64decode
from collections.abc import Iterable, Sequence
from contextlib import suppress

import pytest

from mnspawn.events import Event, HostLost, Notice, RunStarting, Stream, WorkerExited, WorkerOutput, WorkerStarted
from mnspawn.output import fold
from mnspawn.output.painters import Look
from mnspawn.output.sinks import ConsoleSink, OutputMode
from tests.support import PATIENCE

OUT, ERR = Stream.STDOUT, Stream.STDERR


class Words:
    """Notices are lines; nothing else is worded."""

    def line(self, event: Event) -> str | None:
        return f"mnspawn: {event.text}" if isinstance(event, Notice) else None

    def live(self, event: Event) -> str | None:
        return None


def starting(world_size: int = 4) -> RunStarting:
    return RunStarting(0.0, "r", world_size, {})


def started(rank: int, host: str = "a") -> WorkerStarted:
    return WorkerStarted(0.0, host, rank, rank, 100 + rank)


def output(rank: int, chunk: bytes, stream: Stream = OUT, host: str = "a") -> WorkerOutput:
    return WorkerOutput(0.0, host, rank, stream, 0, chunk)


def exited(rank: int, host: str = "a") -> WorkerExited:
    return WorkerExited(0.0, host, rank, rank, 100 + rank, 0, 1.0, stopped=False, killed=False)


def show(
    events: Iterable[Event],
    mode: OutputMode = OutputMode.PREFIX,
    ranks: Sequence[range] | None = None,
    look: Look = Look(),  # noqa: B008 - frozen
) -> tuple[bytes, bytes]:
    """What stands on stdout and on stderr in the end."""
    out_reader, out = os.pipe()
    err_reader, err = os.pipe()
    sink = ConsoleSink(mode, ranks=ranks, look=look, wording=Words(), stdout=out, stderr=err)

    async def tell() -> None:
        for event in events:
            sink.on_event(event)
        await sink.aclose()

    asyncio.run(tell())
    os.close(out)
    os.close(err)
    with os.fdopen(out_reader, "rb") as one, os.fdopen(err_reader, "rb") as other:
        return one.read(), other.read()


def show_on_one(fd: int, reader: int, events: Iterable[Event], mode: OutputMode = OutputMode.PREFIX) -> bytes:
    """What stands on a file that is stdout and stderr at once; closes it."""
    twin = os.dup(fd)
    sink = ConsoleSink(mode, wording=Words(), stdout=fd, stderr=twin)
    for event in events:
        sink.on_event(event)
    asyncio.run(sink.aclose())
    for one in (fd, twin):
        os.close(one)
    shown = b""
    with open(reader, "rb", buffering=0) as screen, suppress(OSError):  # EIO: the end of a terminal
        while chunk := screen.read(65536):  # what was written to a terminal comes in its own time
            shown += chunk
    return shown


def test_every_line_has_one_prefix_and_keeps_its_stream() -> None:
    out, err = show([output(0, b"one\ntwo\n"), output(3, b"oops\n", ERR, host="b"), output(0, b"three\n")])
    assert out == b"[a:0] one\n[a:0] two\n[a:0] three\n"
    assert err == b"[b:3] oops\n"


def test_half_lines_of_many_ranks_never_mix() -> None:
    out, _ = show([output(0, b"he"), output(1, b"wor"), output(0, b"llo\n"), output(1, b"ld\n")])
    assert out == b"[a:0] hello\n[a:1] world\n"


def test_a_tail_is_ended_when_its_worker_exits() -> None:
    out, _ = show([output(0, b"no end"), exited(0), output(1, b"next\n")])
    assert out == b"[a:0] no end\n[a:1] next\n"


def test_a_tail_comes_before_the_line_that_says_its_host_is_lost() -> None:
    _, err = show([started(0), output(0, b"last words", ERR), HostLost(0.0, "a", "gone"), Notice(0.0, None, "a lost")])
    assert err == b"[a:0] last words\nmnspawn: a lost\n"


def test_ours_is_on_stderr_in_order_with_the_workers() -> None:
    out, err = show([output(0, b"1\n", ERR), Notice(0.0, None, "two"), output(0, b"3\n", ERR)])
    assert (out, err) == (b"", b"[a:0] 1\nmnspawn: two\n[a:0] 3\n")


def test_only_chosen_ranks_are_shown() -> None:
    out, _ = show([output(rank, b"x\n") for rank in range(4)], ranks=[range(1, 2), range(3, 4)])
    assert out == b"[a:1] x\n[a:3] x\n"


def test_ranks_that_a_run_does_not_have_are_told() -> None:
    _, err = show([starting(4)], ranks=[range(3, 10**9)])
    assert err == b"mnspawn: --ranks: the highest rank of this run is 3\n"
    assert show([starting(4)], ranks=[range(3, 4)]) == (b"", b"")


def test_none_shows_no_output_but_ours() -> None:
    out, err = show([output(0, b"x\n"), output(0, b"y\n", ERR), Notice(0.0, None, "hello")], OutputMode.NONE)
    assert (out, err) == (b"", b"mnspawn: hello\n")


def test_plain_keeps_lines_whole_without_prefixes() -> None:
    out, _ = show([starting(), output(0, b"a"), output(1, b"b\n"), output(0, b"A\n")], OutputMode.PLAIN)
    assert out == b"b\naA\n"


def test_plain_adds_a_line_end_only_where_another_rank_goes_on() -> None:
    events = [starting(), output(0, b"no end"), exited(0), output(1, b"next"), exited(1)]
    out, _ = show(events, OutputMode.PLAIN)
    assert out == b"no end\nnext"


def test_plain_passes_the_bytes_of_an_only_rank_unchanged() -> None:
    raw = b"prompt> \x00\xff\r50%\r100%"
    out, _ = show([starting(1), output(0, raw[:5]), output(0, raw[5:]), exited(0)], OutputMode.PLAIN)
    assert out == raw
    out, _ = show([starting(4), output(2, raw), output(0, b"x\n")], OutputMode.PLAIN, ranks=[range(2, 3)])
    assert out == raw


def test_a_line_over_the_limit_stays_whole_while_nobody_else_writes() -> None:
    long = b"x" * 700_000
    assert show_big([output(0, long), output(0, b"end\n")]) == b"[a:0] " + long + b"end\n"


def show_big(events: list[Event], mode: OutputMode = OutputMode.PREFIX) -> bytes:
    """What stands on stdout, read while it is written."""
    reader, out = os.pipe()
    got: list[bytes] = []

    def read() -> None:
        with os.fdopen(reader, "rb") as stream:
            got.append(stream.read())

    thread = threading.Thread(target=read)
    thread.start()
    with open(os.devnull, "wb") as nowhere:
        sink = ConsoleSink(mode, stdout=out, stderr=nowhere.fileno())
        for event in events:
            sink.on_event(event)
        asyncio.run(sink.aclose())
    os.close(out)
    thread.join(PATIENCE)
    return got[0]


def test_a_broken_off_long_line_gets_a_prefix_on_every_console_line() -> None:
    pieces = show_big([output(0, b"x" * 1_200_000), output(1, b"y\n"), output(0, b"x\n")])
    lines = pieces.splitlines()
    assert [line[:6] for line in lines] == [b"[a:0] ", b"[a:1] ", b"[a:0] "]
    assert sum(line.count(b"x") for line in lines) == 1_200_001


def test_on_one_file_an_open_line_is_ended_before_another_stream_writes() -> None:
    reader, fd = os.pipe()
    events = [starting(2), output(0, b"no end"), exited(0), output(1, b"err\n", ERR)]
    assert show_on_one(fd, reader, events, OutputMode.PLAIN) == b"no end\nerr\n"


def test_a_terminal_shows_a_progress_bar_as_it_goes() -> None:
    reader, fd = pty.openpty()
    events = [output(0, b" 10%\r 20%\r", ERR), output(1, b"done\n"), output(0, b" 100%\n", ERR)]
    screen = show_on_one(fd, reader, events)
    assert b"\r\x1b[K[a:0]  20%" in screen
    assert screen.endswith(b"\r\x1b[K\x1b[0;36m[a:0]\x1b[0m  100%\r\n")
    assert screen.count(b"[a:1]\x1b[0m done\r\n") == 1


def test_a_closed_pipe_is_no_failure() -> None:
    reader, out = os.pipe()
    err_reader, err = os.pipe()
    os.close(reader)
    sink = ConsoleSink(wording=Words(), stdout=out, stderr=err)
    for _ in range(100):
        sink.on_event(output(0, b"x" * 9999 + b"\n"))
    sink.on_event(Notice(0.0, None, "still here"))
    asyncio.run(sink.aclose())
    assert sink.backlog == 0
    assert os.read(err_reader, 999) == b"mnspawn: still here\n"
    for fd in (out, err, err_reader):
        os.close(fd)


def test_a_full_disk_is_told_on_stderr() -> None:
    reader, err = os.pipe()
    with open("/dev/full", "wb") as full:
        sink = ConsoleSink(stdout=full.fileno(), stderr=err)
        sink.on_event(output(0, b"x\n"))
        asyncio.run(sink.aclose())
    assert b"No space left on device" in os.read(reader, 999)
    os.close(reader)
    os.close(err)


@pytest.mark.parametrize("line", [b"\xff\xfe\x00\n", b"dos\r\n", b"\n", b"\x1b[31mred\x1b[0m\n"])
def test_bytes_pass_as_they_are(line: bytes) -> None:
    out, _ = show([output(0, line)])
    assert out == b"[a:0] " + line


# -- progress bars, times, colours, what is filtered


def test_in_a_file_a_progress_bar_is_its_final_state() -> None:
    out, _ = show([output(0, b"\r10%"), output(0, b"\r99%\r100%\nnext\n"), output(1, b"a\rb"), exited(1)])
    assert out == b"[a:0] 100%\n[a:0] next\n[a:1] b\n"


def test_a_line_says_when_its_host_saw_it() -> None:
    events = [WorkerOutput(1767225600.0 + n, "a", 0, OUT, 0, chunk) for n, chunk in enumerate([b"x\nha", b"lf\n"])]
    assert show(events, look=Look(has_times=True))[0] == (
        b"[a:0] 2026-01-01T00:00:00.000Z x\n[a:0] 2026-01-01T00:00:01.000Z half\n"
    )
    plain, _ = show([starting(1), *events], OutputMode.PLAIN, look=Look(has_times=True))
    assert plain == b"2026-01-01T00:00:00.000Z x\n2026-01-01T00:00:01.000Z half\n"


def test_colours_can_be_had_in_a_pipe() -> None:
    out, _ = show([output(0, b"x\n"), output(1, b"y\n")], look=Look(is_coloured=True))
    assert out == b"\x1b[0;36m[a:0]\x1b[0m x\n\x1b[0;32m[a:1]\x1b[0m y\n"


def test_workers_colours_can_be_left_out() -> None:
    out, _ = show([output(0, b"\x1b[31mred\x1b["), output(0, b"0m\n")], look=Look(keeps_colours=False))
    assert out == b"[a:0] red\n"


@pytest.mark.parametrize("mode", [OutputMode.PREFIX, OutputMode.PLAIN])
def test_control_sequences_are_filtered_on_request(mode: OutputMode) -> None:
    events = [starting(1), output(0, b"\x1b]0;ti"), output(0, b"tle\x07\x1b[2Ja\x1b[1mb\x1b[3"), exited(0)]
    out, _ = show(events, mode, look=Look(is_sanitized=True))
    assert out == {OutputMode.PREFIX: b"[a:0] a\x1b[1mb\n", OutputMode.PLAIN: b"a\x1b[1mb"}[mode]


# -- fold


def test_fold_shows_equal_lines_once_with_their_ranks() -> None:
    events = [starting(4), *(output(rank, b"same\nrank %d\n" % rank) for rank in range(4))]
    out, _ = show(events, OutputMode.FOLD)
    assert out == b"[0-3] same\n[0] rank 0\n[1] rank 1\n[2] rank 2\n[3] rank 3\n"


def test_fold_keeps_streams_apart_and_ours_in_order() -> None:
    events = [output(0, b"x\n", ERR), output(1, b"x\n", ERR), output(2, b"x\n"), Notice(0.0, None, "hello")]
    assert show(events, OutputMode.FOLD) == (b"[2] x\n", b"[0-1] x\nmnspawn: hello\n")


def test_fold_waits_for_the_shown_ranks_only() -> None:
    sink_out, _ = show([starting(4), output(1, b"x\n"), output(3, b"x\n")], OutputMode.FOLD, [range(1, 2), range(3, 4)])
    assert sink_out == b"[1,3] x\n"


def test_fold_shows_a_lonely_line_when_its_window_is_over() -> None:
    reader, out = os.pipe()

    async def tell() -> bytes:
        sink = ConsoleSink(OutputMode.FOLD, stdout=out, stderr=out)
        sink.on_event(starting(4))
        sink.on_event(output(2, b"alone\n"))
        shown = await asyncio.to_thread(os.read, reader, 99)
        await sink.aclose()
        return shown

    assert fold.WINDOW < 1
    assert asyncio.run(tell()) == b"[2] alone\n"
    os.close(reader)
    os.close(out)


def test_fold_ends_tails() -> None:
    events = [starting(2), output(0, b"no end"), exited(0), output(1, b"no end"), exited(1)]
    assert show(events, OutputMode.FOLD)[0] == b"[0] no end\n[1] no end\n"


def test_fold_has_a_colour_for_one_rank_and_none_for_many() -> None:
    events = [starting(2), output(0, b"x\n"), output(1, b"x\ny\n")]
    out, _ = show(events, OutputMode.FOLD, look=Look(is_coloured=True))
    assert out == b"\x1b[0;1m[0-1]\x1b[0m x\n\x1b[0;32m[1]\x1b[0m y\n"


# -- json


def test_json_has_an_object_for_every_line_on_stdout() -> None:
    events = [output(0, "é 10%\r20%\n\n".encode()), output(3, b"oops\n", ERR, host="b"), Notice(0.0, None, "ours")]
    out, err = show(events, OutputMode.JSON)
    assert [json.loads(line) for line in out.splitlines()] == [
        {"host": "a", "rank": 0, "stream": "stdout", "time": 0.0, "text": "é 10%\r20%"},
        {"host": "a", "rank": 0, "stream": "stdout", "time": 0.0, "text": ""},
        {"host": "b", "rank": 3, "stream": "stderr", "time": 0.0, "text": "oops"},
    ]
    assert err == b"mnspawn: ours\n"


def test_json_has_the_bytes_where_they_are_no_text() -> None:
    out, _ = show([output(0, b"a\xffb\n")], OutputMode.JSON)
    line = json.loads(out)
    assert (line["text"], b64decode(line["base64"])) == ("a\ufffdb", b"a\xffb")


def test_json_says_what_is_no_whole_line() -> None:
    out = show_big([output(0, b"x" * 1_200_000), output(0, b"\nno end"), exited(0)], OutputMode.JSON)
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line.get("partial", False) for line in lines] == [True, False, True]
    assert "".join(line["text"] for line in lines) == "x" * 1_200_000 + "no end"


@pytest.mark.parametrize("mode", [OutputMode.PREFIX, OutputMode.FOLD])
@pytest.mark.parametrize("look", [Look(), Look(is_sanitized=True)])
def test_bars_of_several_lines_are_shown_as_they_end(mode: OutputMode, look: Look) -> None:
    bars = b"".join(b"\ra %d%%\n\rb %d%%\x1b[A" % (step, step) for step in range(100))
    out, _ = show([started(0), output(0, bars), output(0, b"\n\nend\n"), exited(0)], mode, look=look)
    prefix = b"[a:0] " if mode is OutputMode.PREFIX else b"[0] "
    assert out == prefix + b"a 99%\n" + prefix + b"b 99%\n" + prefix + b"end\n"


def test_json_has_every_state_of_bars() -> None:
    bars = b"".join(b"\ra %d%%\n\rb %d%%\x1b[A" % (step, step) for step in range(3))
    out, _ = show([started(0), output(0, bars), exited(0)], OutputMode.JSON)
    assert "".join(json.loads(line)["text"] + "\n" for line in out.splitlines())[:-1].encode() == bars
