"""One end of a link: ordered messages each way across any number of wires. Pure: no I/O, no clock.

Control and blob frames carry sequence numbers and are kept until the peer has acknowledged them, so that a new wire
continues where the old one broke. Output frames carry an offset instead and are read again from their file. A beat has
all of which only the newest value matters: what was received, the clock, how much output the peer may still send.
"""

import json
import struct
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple, Union

from . import framing
from .checks import MAX_COUNT, is_moment, is_seconds, is_stream, is_time, shown

BEAT = struct.Struct(">IdddQ")  # received seq, own clock, peer's last clock, seconds since that came, output granted
OUTPUT_HEAD = struct.Struct(">IBQd")  # rank, stream, offset, when it was seen on the host (seconds since the epoch)
BLOB_HEAD = struct.Struct(">IQ")  # blob number, offset

BEAT_INTERVAL = 2.0  # a quiet link is heard this often
MISSED_BEATS = 5  # in a row: the link is lost
SILENCE_LIMIT = BEAT_INTERVAL * MISSED_BEATS  # until PREPARE gives the run's own
STDERR = 2
STDERR_RESERVE = 256 << 10  # stderr may go that far beyond the credit: nobody reading stdout must not hide what failed

Message = Dict[str, Any]


class Received(NamedTuple):
    """A control message, in order, once."""

    message: Message


class BlobChunk(NamedTuple):
    """A piece of a blob, in order, once."""

    blob: int
    offset: int
    chunk: bytes


class OutputChunk(NamedTuple):
    """A piece of a worker's stream. After a reconnect it can be one that came before: compare offsets."""

    rank: int
    stream: int
    offset: int
    chunk: bytes
    time: float


class Synced(NamedTuple):
    """A new wire is up; `message` is the peer's SYNC."""

    message: Message


class Lost(NamedTuple):
    """The wire is gone.

    `kind`: "eof", "silence", "garbage" (no frames of ours: another wire may work), or "nonsense" (the peer sends what
    can't be: no wire will work).
    """

    kind: str
    detail: str


Event = Union[Received, BlobChunk, OutputChunk, Synced, Lost]


class Channel:
    """Framing, sequence, acknowledgement, heartbeat, clock offset and credit of one side.

    Args:
        now: monotonic seconds; every later `now` is of the same clock.
        silence_limit: seconds without a byte until the wire counts as lost; when short, beats come more often.
    """

    def __init__(self, now: float, silence_limit: float = SILENCE_LIMIT) -> None:
        self.silence_limit = silence_limit
        self._next_seq = 1
        self._received_seq = 0
        self._unacknowledged: Deque[Tuple[int, bytes]] = deque()
        self.unacknowledged_bytes = 0
        self._events: List[Event] = []
        self.granted_to_peer = 0  # output bytes that the peer may send on this wire
        self.granted_to_us = 0
        self.output_sent = 0
        self.output_received = 0
        self._awaits_sync = False
        self._clock_rtt: Optional[float] = None
        self.clock_offset: Optional[float] = None
        self._attach(now)

    @property
    def _beat_interval(self) -> float:
        return min(BEAT_INTERVAL, self.silence_limit / MISSED_BEATS)

    def _attach(self, now: float) -> None:
        self._decoder = framing.Decoder()
        self._urgent: List[bytes] = []
        self._bulk: List[bytes] = []
        self._peer_clock: Optional[Tuple[float, float]] = None  # its last clock, and when that came
        self._heard = now
        self._beat_at = now + self._beat_interval
        self._unacked_received = 0
        self._wants_beat = False
        self.is_lost = False

    # -- sending ---------------------------------------------------------------------------------------------------
    def send(self, message: Message) -> None:
        """Queue a control message; it is sent again on a new wire until the peer has it."""
        body = json.dumps(message, separators=(",", ":")).encode("ascii")
        self._queue_sequenced(framing.CONTROL, body)

    def send_blob(self, blob: int, offset: int, chunk: bytes) -> None:
        """Queue a piece of a blob. Mind `unacknowledged_bytes`: what is queued is held until acknowledged."""
        self._queue_sequenced(framing.BLOB, BLOB_HEAD.pack(blob, offset) + chunk)

    def _queue_sequenced(self, kind: int, body: bytes) -> None:
        frame = framing.encode(kind, self._next_seq, body)
        self._unacknowledged.append((self._next_seq, frame))
        self.unacknowledged_bytes += len(frame)
        self._next_seq += 1
        if not self.is_lost and not self._awaits_sync:
            self._urgent.append(frame)

    def send_output(self, rank: int, stream: int, offset: int, chunk: bytes, time: float) -> None:
        """Queue a piece of a stream, after everything else; the caller minds `output_allowance`."""
        self._bulk.append(framing.encode_header(framing.OUTPUT, 0, OUTPUT_HEAD.size + len(chunk)))
        self._bulk.append(OUTPUT_HEAD.pack(rank, stream, offset, time))
        self._bulk.append(chunk)
        self.output_sent += len(chunk)

    def output_allowance(self, stream: int) -> int:
        """Bytes of a stream that the peer still takes."""
        if self.is_lost or self._awaits_sync:
            return 0
        reserve = STDERR_RESERVE if stream == STDERR else 0
        return max(0, self.granted_to_us + reserve - self.output_sent)

    def grant(self, count: int) -> None:
        """Let the peer send `count` more bytes of output; sent with the next data."""
        self.granted_to_peer += count
        self._wants_beat = True

    def beat(self) -> None:
        """Send a beat with the next data (the first measures the clock)."""
        self._wants_beat = True

    def data_to_send(self, now: float) -> bytes:
        """Everything queued, as bytes for the wire; b"" when there is nothing or no wire."""
        if self.is_lost:
            return b""
        parts = self._urgent
        if parts or self._wants_beat or self._unacked_received:
            # with every message and for every message: acknowledges, and gives the clock a sample
            parts.append(self._encode_beat(now))
        if self._bulk:
            parts.extend(self._bulk)
            self._bulk = []
        if not parts:
            return b""
        self._urgent = []
        return b"".join(parts)

    def _encode_beat(self, now: float) -> bytes:
        self._wants_beat = False
        self._unacked_received = 0
        self._beat_at = now + self._beat_interval
        echo, came_at = self._peer_clock or (-1.0, now)
        beat = BEAT.pack(self._received_seq, now, echo, now - came_at, self.granted_to_peer)
        return framing.encode(framing.BEAT, 0, beat)

    # -- receiving -------------------------------------------------------------------------------------------------
    def receive(self, chunk: bytes, now: float) -> None:
        """Bytes from the wire; b"" means that it ended."""
        if self.is_lost:
            return
        if not chunk:
            self.lose("eof", "the connection ended")
            return
        self._heard = now
        try:
            for frame in self._decoder.feed(chunk):
                self._take(frame, now)
                if self.is_lost:
                    return  # nothing after a gap can be trusted
        except framing.FramingError as error:
            self.lose("garbage", str(error))
        except (ValueError, RecursionError, struct.error) as error:  # not JSON, or a body that is too short
            self.lose("garbage", "frame can't be read: %s" % error)

    def _take(self, frame: framing.Frame, now: float) -> None:
        if frame.kind == framing.OUTPUT:
            self._take_output(frame.body)
        elif frame.kind == framing.BEAT:
            self._take_beat(frame.body, now)
        elif frame.kind == framing.SYNC:
            self._take_sync(_decode_object(frame.body))
        elif frame.seq == self._received_seq + 1:
            self._received_seq = frame.seq
            self._unacked_received += 1
            if frame.kind == framing.CONTROL:
                self._events.append(Received(_decode_object(frame.body)))
            else:
                blob, offset = BLOB_HEAD.unpack_from(frame.body)
                self._events.append(BlobChunk(blob, offset, bytes(frame.body[BLOB_HEAD.size :])))
        elif frame.seq > self._received_seq + 1:
            self.lose("garbage", "expected frame %d, found %d" % (self._received_seq + 1, frame.seq))
        # a smaller number is one that we have: it was under way when the old wire broke

    def _take_output(self, body: framing.Body) -> None:
        rank, stream, offset, time = OUTPUT_HEAD.unpack_from(body)
        chunk = bytes(body[OUTPUT_HEAD.size :])
        self.output_received += len(chunk)
        if not is_stream(stream) or offset + len(chunk) >= MAX_COUNT or not is_time(time):
            self.lose("nonsense", "output: stream=%d, offset=%d, time=%s" % (stream, offset, shown(time)))
        elif self.output_received > self.granted_to_peer + STDERR_RESERVE:
            self.lose("nonsense", "output: %d bytes, granted were %d" % (self.output_received, self.granted_to_peer))
        else:
            self._events.append(OutputChunk(rank, stream, offset, chunk, time))

    def _take_beat(self, body: framing.Body, now: float) -> None:
        received, clock, echo, held, granted = BEAT.unpack(body)
        is_sane = is_moment(clock) and is_moment(echo) and is_seconds(held) and granted < MAX_COUNT
        if not is_sane or received >= self._next_seq:
            self.lose(
                "nonsense",
                "beat: received=%d of %d, clock=%s, echo=%s, held=%s, granted=%d"
                % (received, self._next_seq - 1, shown(clock), shown(echo), shown(held), granted),
            )
            return
        self._forget_acknowledged(received)
        self.granted_to_us = max(self.granted_to_us, granted)
        if self._peer_clock is None:
            self._wants_beat = True  # the peer measures its round trip with our answer
        self._peer_clock = clock, now
        if echo >= 0:
            rtt = max(0.0, now - echo - held)
            if self._clock_rtt is None or rtt <= self._clock_rtt:
                self._clock_rtt = rtt
                self.clock_offset = clock + rtt / 2 - now

    def _forget_acknowledged(self, received: int) -> None:
        while self._unacknowledged and self._unacknowledged[0][0] <= received:
            self.unacknowledged_bytes -= len(self._unacknowledged.popleft()[1])

    def events(self) -> List[Event]:
        """What happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    # -- time ------------------------------------------------------------------------------------------------------
    @property
    def deadline(self) -> Optional[float]:
        """When to call `on_time`; None while there is no wire."""
        if self.is_lost:
            return None
        return min(self._beat_at, self._heard + self.silence_limit)

    def on_time(self, now: float) -> None:
        if self.is_lost:
            return
        if now >= self._heard + self.silence_limit:
            self.lose("silence", "no heartbeat for %.0f s" % (now - self._heard))
        elif now >= self._beat_at:
            self._wants_beat = True
            self._beat_at = now + self._beat_interval  # also while the peer takes nothing: the driver must not spin

    def lose(self, kind: str, detail: str) -> None:
        """Give the wire up; nothing that comes after the events so far counts."""
        if not self.is_lost:
            self.is_lost = True
            self._urgent = []
            self._bulk = []
            self._events.append(Lost(kind, detail))

    # -- a new wire ------------------------------------------------------------------------------------------------
    def resume(self, now: float, message: Message) -> None:
        """Continue the session on a new wire: send what we have, wait for the peer's SYNC, send again what it lacks."""
        if not self.is_lost:
            self.lose("replaced", "a new connection took the session over")
        self._attach(now)
        self.output_sent = self.output_received = self.granted_to_us = self.granted_to_peer = 0
        sync = dict(message, received=self._received_seq)
        self._urgent.append(framing.encode(framing.SYNC, 0, json.dumps(sync, separators=(",", ":")).encode("ascii")))
        self._awaits_sync = True

    def _take_sync(self, message: Message) -> None:
        received = message.get("received")
        if not self._awaits_sync:
            self.lose("nonsense", "SYNC on a wire that stands")  # each makes us send again all that is not acknowledged
            return
        if not isinstance(received, int) or isinstance(received, bool) or not 0 <= received < self._next_seq:
            self.lose("garbage", "SYNC with received=%r" % (received,))
            return
        self._forget_acknowledged(received)
        self._awaits_sync = False
        self._urgent.extend(frame for _, frame in self._unacknowledged)
        self._events.append(Synced(message))


def limit_of(silence_limit: Optional[float]) -> float:
    """A channel's silence limit as PREPARE has it, where None stands for none."""
    return float("inf") if silence_limit is None else silence_limit


def _decode_object(body: framing.Body) -> Message:
    message = json.loads(bytes(body).decode("utf-8"))
    if not isinstance(message, dict):
        raise ValueError("expected an object")
    return message
