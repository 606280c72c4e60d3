"""What a topology run says to a broker: bindings, messages that match them, and bulk requests.

Everything is encoded before the clock starts, or by one format operation per run of messages, so
that the generator is not what is measured.  Binding ``i`` of a row takes the messages about
subject ``i`` and no others; a message names its subject and, so that its key may be like no other,
its own number:

    topic     key  bench.<subject>.d<number>.up     four shapes of patterns in turn
    headers   tenant=<subject>, kind=order, serial=d<number>     x-match all and any in turn
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from penstock.client.amqp import CLIENT_PROPERTIES, PROTOCOL_HEADER, Connection, Endpoint
from penstock.client.endpoint import ClientError
from penstock.client.templates import filler
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import decode_method, encode_method
from penstock.protocols.amqp.codec.properties import Properties, encode_content

CHANNEL: Final = 1
TRANSIENT: Final = 1
FRAME_MAX: Final = 131_072
ANSWER_LIMIT_S: Final = 600.0
RECEIVE_BYTES: Final = 262_144
RUN: Final = 250
"""Messages that are sent with one call."""
STRIDE: Final = 7919
"""A prime: neighbours are about subjects far from each other, and all subjects get their turn."""
SUBJECT: Final = "%06d"
NUMBER: Final = "d%09d"
SUBJECT_SAMPLE: Final = 111_111
NUMBER_SAMPLE: Final = 222_222_222
TOPIC_KEY: Final = f"bench.{SUBJECT}.{NUMBER}.up"
TOPIC_PATTERNS: Final = (
    f"bench.{SUBJECT}.*.up",
    f"bench.{SUBJECT}.#",
    f"*.{SUBJECT}.*.up",
    f"bench.{SUBJECT}.*.*",
)

Arguments = dict[str, object]


# -- bindings -------------------------------------------------------------------------------


def topic_pattern(subject: int) -> str:
    return TOPIC_PATTERNS[subject % len(TOPIC_PATTERNS)] % subject


def header_arguments(subject: int) -> Arguments:
    name = SUBJECT % subject
    if subject % 2:
        return {"x-match": "any", "tenant": name, "substitute": name}
    return {"x-match": "all", "tenant": name, "kind": "order"}


def binding(kind: str, subject: int) -> tuple[str, Arguments]:
    """Its key and its arguments."""
    if kind == "headers":
        return "", header_arguments(subject)
    return topic_pattern(subject), {}


def bind_frames(
    method: int, kind: str, exchange: str, queues: Sequence[str], count: int
) -> list[bytes]:
    """``count`` bindings, dealt out to the queues; ``method``: to bind or to unbind."""
    found = []
    for subject in range(count):
        key, given = binding(kind, subject)
        no_wait = (False,) if method == m.QUEUE_BIND else ()
        values = (0, queues[subject % len(queues)], exchange, key, *no_wait, given)
        found.append(encode_method(CHANNEL, method, values))
    return found


def declare_frames(names: Sequence[str]) -> list[bytes]:
    """Durable queues."""
    nothing: Arguments = {}
    flags = (False, True, False, False, False)
    return [encode_method(CHANNEL, m.QUEUE_DECLARE, (0, name, *flags, nothing)) for name in names]


# -- messages -------------------------------------------------------------------------------


class Messages:
    """Runs of encoded publishes; ``keys`` different ones in turn, 0 = each is a new one."""

    def __init__(self, kind: str, exchange: str, subjects: int, keys: int, size: int) -> None:
        self._format = message_format(kind, exchange, size) * RUN
        self._subjects = subjects
        self._next = 0
        runs = -(-keys // RUN)
        self._ready = [self._compose() for _ in range(runs)]
        self._turn = 0

    def run(self) -> bytes:
        """The next ``RUN`` messages."""
        if not self._ready:
            return self._compose()
        found = self._ready[self._turn]
        self._turn = (self._turn + 1) % len(self._ready)
        return found

    def _compose(self) -> bytes:
        first, subjects = self._next, self._subjects
        self._next += RUN
        numbers = range(first, self._next)
        return self._format % tuple([x for n in numbers for x in (n * STRIDE % subjects, n)])


def message_format(kind: str, exchange: str, size: int) -> bytes:
    """One publish as a format of subject and number, which both have a fixed width."""
    properties = Properties(delivery_mode=TRANSIENT)
    subject, number = SUBJECT % SUBJECT_SAMPLE, NUMBER % NUMBER_SAMPLE
    key = ""
    if kind == "headers":
        headers: dict[str, object] = {"tenant": subject, "kind": "order", "serial": number}
        properties = properties._replace(headers=headers)
    else:
        key = TOPIC_KEY % (SUBJECT_SAMPLE, NUMBER_SAMPLE)
    publish = encode_method(CHANNEL, m.BASIC_PUBLISH, (0, exchange, key, False, False))
    whole = publish + encode_content(properties, filler(size), CHANNEL, FRAME_MAX)
    whole = whole.replace(b"%", b"%%")
    for sample, place in ((subject, SUBJECT), (number, NUMBER)):
        assert whole.count(sample.encode()) == 1, place
        whole = whole.replace(sample.encode(), place.encode())
    return whole


# -- asking in bulk ---------------------------------------------------------------------------


class Dialogue:
    """One channel on which many requests are asked, a window at a time, and answers counted."""

    def __init__(self, url: str) -> None:
        connection = Connection(Endpoint.parse(url), timeout_s=ANSWER_LIMIT_S)
        self.channel = connection.channel()
        self._socket: socket.socket | None = None
        self._rest = b""

    def ask(self, requests: Sequence[bytes], answer: int, window: int) -> float:
        """Seconds until all are answered.  From the first call on only this may be called."""
        if self._socket is None:
            self._socket, self._rest = self.channel.connection.detach()
            self._socket.settimeout(ANSWER_LIMIT_S)
        runs = [
            (b"".join(requests[at : at + window]), len(requests[at : at + window]))
            for at in range(0, len(requests), window)
        ]
        begin_s = time.monotonic()
        for run, count in runs:
            self._socket.sendall(run)
            answered = 0
            while answered < count:
                answered += self._hear(self._socket, answer)
            if answered > count:
                raise ClientError("the broker answered what was not asked")
        return time.monotonic() - begin_s

    def _hear(self, connected: socket.socket, answer: int) -> int:
        data = connected.recv(RECEIVE_BYTES)
        if not data:
            raise ClientError("the broker hung up")
        count = 0
        frames = Frames(self._rest + data)
        for payload in frames:
            count += payload[:4] == answer.to_bytes(4, "big") or heed(payload)
        self._rest = frames.rest
        return count

    def close(self) -> None:
        if self._socket is None:
            self.channel.connection.close()
        else:
            self._socket.close()


class Frames:
    """The payloads of whole method frames; what is left over is the ``rest``."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def __iter__(self) -> Iterator[bytes]:
        data, at = self.rest, 0
        while at + 7 < len(data):
            kind, _, length = struct.unpack_from(">BHI", data, at)
            end = at + 7 + length
            if end >= len(data):
                break
            if kind == m.FRAME_METHOD:
                yield data[at + 7 : end]
            at = end + 1
        self.rest = data[at:]


def heed(payload: bytes) -> int:
    """0 for what needs no answer; a broker that closes has said why."""
    method = decode_method(payload)
    if method.key in {m.CHANNEL_CLOSE, m.CONNECTION_CLOSE}:
        raise ClientError(f"{method.number('reply_code')} {method.text('reply_text')}")
    return 0


# -- many connections ---------------------------------------------------------------------------


class Opening:
    """A connection on its way: what is sent when the next frame has come."""

    def __init__(self, endpoint: Endpoint, channels: int) -> None:
        self.socket = socket.create_connection((endpoint.host, endpoint.port), ANSWER_LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        response = f"\0{endpoint.user}\0{endpoint.password}".encode()
        start_ok = (CLIENT_PROPERTIES, "PLAIN", response, "en_US")
        tuned = encode_method(0, m.CONNECTION_TUNE_OK, (2047, FRAME_MAX, 0))
        tuned += encode_method(0, m.CONNECTION_OPEN, (endpoint.vhost, "", False))
        self._steps: list[tuple[int, bytes]] = [
            (m.CONNECTION_START, encode_method(0, m.CONNECTION_START_OK, start_ok)),
            (m.CONNECTION_TUNE, tuned),
            (m.CONNECTION_OPEN_OK, b""),
        ]
        for number in range(1, channels + 1):
            key, _ = self._steps.pop()
            self._steps.append((key, encode_method(number, m.CHANNEL_OPEN, ("",))))
            self._steps.append((m.CHANNEL_OPEN_OK, b""))
        self.socket.sendall(PROTOCOL_HEADER)

    def goes_on(self) -> bool:
        """Something came; False when it is open."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ClientError("the broker hung up on a connection that was being opened")
        frames = Frames(self._rest + data)
        for payload in frames:
            heed(payload)
            key, answer = self._steps.pop(0)
            if payload[:4] != key.to_bytes(4, "big"):
                raise ClientError(f"{decode_method(payload).name} came, {m.METHODS[key][0]} is due")
            if answer:
                self.socket.sendall(answer)
        self._rest = frames.rest
        return bool(self._steps)


def open_connections(url: str, count: int, channels: int, at_once: int) -> list[socket.socket]:
    """So many idle connections, ``at_once`` of them on their way at any time."""
    endpoint = Endpoint.parse(url)
    found: list[socket.socket] = []
    started = 0
    try:
        with selectors.DefaultSelector() as ways:
            while len(found) < count:
                while started < count and started - len(found) < at_once:
                    opening = Opening(endpoint, channels)
                    ways.register(opening.socket, selectors.EVENT_READ, opening)
                    started += 1
                ready: list[tuple[selectors.SelectorKey, Any]] = ways.select(ANSWER_LIMIT_S)
                if not ready:
                    raise ClientError(f"only {len(found)} of {count} connections were opened")
                for key, _ in ready:
                    if not key.data.goes_on():
                        ways.unregister(key.fileobj)
                        found.append(key.data.socket)
    except BaseException:
        for connected in found:
            connected.close()
        raise
    return found


def close_connections(connected: Sequence[socket.socket]) -> None:
    """In order, all at once."""
    goodbye = encode_method(0, m.CONNECTION_CLOSE, (200, "Goodbye", 0, 0))
    for one in connected:
        one.sendall(goodbye)
    for one in connected:
        one.recv(RECEIVE_BYTES)
        one.close()
