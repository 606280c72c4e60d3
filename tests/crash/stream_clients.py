"""A stream that is written and read until the broker dies, and what must be true of it then.

One publisher a life writes to it, one message after the other.  So the stream is a list: what the
lives before left, then this life's numbers from 1 on without a gap, in their order, as far as they
came, which is behind the last one confirmed.  Retention takes from the begin, whole segments; what
it was about to take when the broker died may be there again.

A reader goes on where the one before it ended.  What it was given keeps its offset for good.
"""

from __future__ import annotations

from tests.crash.kill_clients import Line, Worker, method_ids
from tests.helpers import raw_codec as codec

STREAM = "log"
ARGUMENTS: dict[str, object] = {
    "x-queue-type": "stream",
    "x-stream-max-segment-size-bytes": 20_000,
    "x-max-length-bytes": 100_000,
}
SIZES = (0, 10, 300, 300, 3000)
MOST = 60_000
ACKED = 100
_ACK = codec.METHOD_IDS["basic.ack"]


class StreamAccount:
    """Since the first life.

    ``lives``       the offset at which each began, and its name
    ``end``         of the last look
    ``position``    where the next reader begins
    """

    def __init__(self) -> None:
        self.lives: list[tuple[int, str]] = []
        self.end = 0
        self.sent = self.confirmed = 0
        self.position = 0

    def begin(self, name: str) -> None:
        self.lives.append((self.end, name))
        self.sent = self.confirmed = 0

    def workers(self, url: str, life: int, seed: str) -> list[Worker]:
        """Not started yet."""
        publisher = StreamPublisher(url, f"s{life}", f"{seed}:{life}:s", {})
        publisher.account = self
        reader = StreamReader(url, f"r{life}", f"{seed}:{life}:r", {})
        reader.account = self
        return [publisher, reader]

    def judge_body(self, offset: int, body: bytes) -> None:
        base, name = next(life for life in reversed(self.lives) if life[0] <= offset)
        told = body.rstrip(b"x")
        assert told == f"{name}:{offset - base + 1}:".encode(), f"{told!r} is at {offset}"

    def look(self, line: Line) -> int:
        """Read all of it; returns how many messages there are.

        Retention may take a segment between the count and the reader's first message: what a
        reader gives is counted again when it gives no more.
        """
        reader = StreamReading(line, "first")
        count = self.count(line)
        found: list[int] = []
        reader.consume()
        while len(found) < count:
            arrived = reader.arrived(5.0)
            if not arrived:
                count = self.count(line)
                break
            for offset, body in arrived:
                self.judge_body(offset, body)
                found.append(offset)
        assert len(found) >= count, f"{STREAM} has {count} messages and gives {len(found)}"
        first = found[0] if found else 0
        end = first + len(found)
        base = self.lives[-1][0] if self.lives else 0
        assert found == list(range(first, end))
        assert base + self.confirmed <= end <= base + self.sent, f"{end} is the end"
        self.end = end
        return len(found)

    @staticmethod
    def count(line: Line) -> int:
        return int(str(line.call("queue.declare", queue=STREAM, passive=True)["messages"]))


class StreamReading:
    """One consumer: its deliveries, in order."""

    def __init__(self, line: Line, offset: object, prefetch: int = MOST) -> None:
        self._line = line
        self._offset = offset
        line.call("basic.qos", prefetch_count=prefetch)
        self.tag = 0
        self._at = -1

    def consume(self) -> None:
        arguments = {"x-stream-offset": self._offset}
        self._line.send(
            codec.method_frame(
                1, "basic.consume", queue=STREAM, consumer_tag="r", nowait=True, arguments=arguments
            )
        )

    def arrived(self, wait_s: float) -> list[tuple[int, bytes]]:
        """Offset and body of each; a body is of one frame."""
        found: list[tuple[int, bytes]] = []
        for frame in self._line.frames(wait_s):
            if frame.type == codec.HEADER:
                properties = codec.decode_header(frame.payload)[2]
                self._at = properties["headers"]["x-stream-offset"].value
            elif frame.type == codec.BODY:
                found.append((self._at, frame.payload))
        self.tag += len(found)
        return found


class StreamPublisher(Worker):
    """Publishes with confirms, a window at a time."""

    account: StreamAccount

    def work(self, line: Line) -> None:
        line.call("confirm.select")
        self.account.begin(self.name)
        self.ready.set()
        window = self.rng.choice((1, 10, 100))
        while True:
            parts: list[bytes] = []
            for _ in range(self.rng.randint(1, window)):
                self.account.sent += 1
                body = f"{self.name}:{self.account.sent}:".encode()
                body += b"x" * self.rng.choice(SIZES)
                parts.append(codec.method_frame(1, "basic.publish", routing_key=STREAM))
                parts.append(codec.content_frames(1, body, {}))
            line.send(b"".join(parts))
            while self.account.confirmed < self.account.sent:
                for frame in line.frames():
                    if method_ids(frame) == _ACK:
                        confirmed = int.from_bytes(frame.payload[4:12], "big")
                        self.account.confirmed = max(self.account.confirmed, confirmed)


class StreamReader(Worker):
    """Goes on from the last position; nothing is left out but what retention took."""

    account: StreamAccount

    def work(self, line: Line) -> None:
        reader = StreamReading(line, self.account.position, 2 * ACKED)
        reader.consume()
        self.ready.set()
        acked = 0
        while True:
            for offset, body in reader.arrived(0.05):
                assert offset >= self.account.position, "given a second time"
                self.account.judge_body(offset, body)
                self.account.position = offset + 1
            if reader.tag - acked >= ACKED:
                acked = reader.tag
                line.send(codec.method_frame(1, "basic.ack", delivery_tag=acked, multiple=True))
