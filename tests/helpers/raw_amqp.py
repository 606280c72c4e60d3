"""A blocking AMQP client that can misbehave, and writes down what happens.

Goes in: bytes, frames or methods to send, right or wrong.  Comes out: the broker's answer
as ``Event`` objects, and one line of *transcript* per thing sent or received, in order.
Nothing is hidden: no reconnect, no answer on its own, no dropped frame, except heartbeats
(unless ``keep_heartbeats``).

A transcript line reads like ``A > basic.publish ch=1 exchange='' routing_key='q'``; fields
that are zero, empty or false are left out on both ways.
"""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.helpers import raw_codec as codec

DEFAULT_TIMEOUT_S = 10.0
CLOSED = "closed"
SILENCE = "silence"


@dataclass
class Event:
    """One thing the broker did: a method (with content when it carries one), or a close."""

    name: str
    channel: int = 0
    args: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""
    has_content: bool = False

    def __str__(self) -> str:
        text = self.name + (f" ch={self.channel}" if self.channel else "") + show(self.args)
        if self.has_content:
            text += f" body={_short(self.body)}" + show(self.properties)
        return text


def _short(value: Any) -> str:
    if isinstance(value, bytes) and len(value) > 60:
        return f"<{len(value)} bytes>"
    text = repr(value)
    return text if len(text) < 1000 else f"<{len(text)} letters>"


def show(args: dict[str, Any]) -> str:
    """Fields that say something, as ``name=value``."""
    told = [(k, v) for k, v in args.items() if v not in (0, "", b"", {}) or v is True]
    return "".join(f" {k.rstrip('_')}={_short(v)}" for k, v in told)


class Unexpected(AssertionError):
    """The broker answered something else than the test asked for."""


class HungUp(Unexpected):
    """It did not answer: the line was cut."""


def unexpected(asked: str, answer: Event) -> Unexpected:
    kind = HungUp if answer.name == CLOSED else Unexpected
    return kind(f"{asked} answered with {answer}")


class RawClient:
    """One TCP connection to a broker; ``log`` receives the transcript lines."""

    def __init__(
        self,
        host: str,
        port: int,
        name: str = "A",
        log: Callable[[str], None] = lambda line: None,
        sock: socket.socket | None = None,
    ) -> None:
        """``sock``: one that is connected already, of whatever kind."""
        self.name = name
        self._log = log
        if sock is None:
            sock = socket.create_connection((host, port), timeout=DEFAULT_TIMEOUT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._rest = b""
        self._frames: list[codec.Frame] = []
        self._closed = False
        self.keep_heartbeats = False
        self.body_frame_sizes: list[int] = []
        self.last_send = time.monotonic()

    # sending ---------------------------------------------------------------------------

    def note(self, line: str) -> None:
        self._log(f"{self.name} {line}")

    def send_bytes(self, data: bytes, note: str = "") -> None:
        """Any bytes at all; ``note`` is what the transcript says instead of the bytes."""
        self.note(f"> {note or _short(data)}")
        self.send_off_record(data)

    def send_off_record(self, data: bytes) -> None:
        """Send without a line in the transcript."""
        self.last_send = time.monotonic()
        with suppress(ConnectionError):  # the broker hung up: receiving will say so
            self.sock.sendall(data)

    def send(self, channel: int, method: str, **args: Any) -> None:
        where = f" ch={channel}" if channel else ""
        self.note(f"> {method}{where}{show(args)}")
        self.send_off_record(codec.method_frame(channel, method, **args))

    def send_frame(self, frame_type: int, channel: int, payload: bytes, note: str = "") -> None:
        self.send_bytes(
            codec.encode_frame(frame_type, channel, payload),
            note or f"frame type={frame_type} ch={channel} payload={_short(payload)}",
        )

    def publish(
        self,
        channel: int,
        exchange: str,
        routing_key: str,
        body: bytes = b"m",
        mandatory: bool = False,
        **properties: Any,
    ) -> None:
        args = {"exchange": exchange, "routing_key": routing_key, "mandatory": mandatory}
        shown = show(args) + f" body={_short(body)}" + show(properties)
        self.note(f"> basic.publish ch={channel}{shown}")
        content = codec.content_frames(channel, body, properties)
        self.send_off_record(codec.method_frame(channel, "basic.publish", **args) + content)

    # receiving -------------------------------------------------------------------------

    def _read_more(self, deadline: float) -> bool:
        """Reads once; False when nothing came before ``deadline``."""
        wait = deadline - time.monotonic()
        if wait <= 0:
            return False
        self.sock.settimeout(wait)
        try:
            data = self.sock.recv(1 << 16)
        except TimeoutError:
            return False
        except ConnectionError:
            data = b""
        if not data:
            self._closed = True
            return True
        frames, self._rest = codec.split_frames(self._rest + data)
        self._frames += frames
        return True

    def _next_frame(self, deadline: float) -> codec.Frame | str:
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if frame.type != codec.HEARTBEAT or self.keep_heartbeats:
                    return frame
            if self._closed:
                return CLOSED
            if not self._read_more(deadline):
                return SILENCE

    def receive(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Event:
        """The next event; its name is ``closed`` or ``silence`` when there is no frame."""
        event = self._receive(time.monotonic() + timeout_s)
        self.note(f"< {event}")
        return event

    def _receive(self, deadline: float) -> Event:
        frame = self._next_frame(deadline)
        if isinstance(frame, str):
            return Event(frame)
        if frame.type == codec.HEARTBEAT:
            return Event("heartbeat", frame.channel)
        if frame.type != codec.METHOD:
            raise Unexpected(f"a frame of type {frame.type} without a method")
        name, args = codec.decode_method(frame.payload)
        event = Event(name, frame.channel, args)
        if name in ("basic.deliver", "basic.get-ok", "basic.return"):
            self._receive_content(event, deadline)
        return event

    def _receive_content(self, event: Event, deadline: float) -> None:
        header = self._next_frame(deadline)
        if isinstance(header, str) or header.type != codec.HEADER:
            raise Unexpected(f"{event.name} without its header: {header}")
        _class_id, size, event.properties = codec.decode_header(header.payload)
        event.has_content = True
        self.body_frame_sizes = []
        while len(event.body) < size:
            frame = self._next_frame(deadline)
            if isinstance(frame, str) or frame.type != codec.BODY:
                raise Unexpected(f"{event.name} without its body: {frame}")
            event.body += frame.payload
            self.body_frame_sizes.append(len(frame.payload))

    def receive_quietly(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Event:
        """The next event, off the record."""
        return self._receive(time.monotonic() + timeout_s)

    def note_end(self, event: Event, timed: bool) -> None:
        """Write down how the connection ended; ``timed``: how long after the last send."""
        late = f" {_bucket(time.monotonic() - self.last_send)}" if timed else ""
        self.note(f"< {event}{late if event.name == CLOSED else ''}")

    def receive_bytes(self, count: int, timeout_s: float = DEFAULT_TIMEOUT_S) -> bytes:
        """Bytes that are no frame (the broker's own protocol header); fewer at close."""
        deadline = time.monotonic() + timeout_s
        while len(self._rest) < count and not self._closed and self._read_more(deadline):
            pass
        data, self._rest = self._rest[:count], self._rest[count:]
        self.note(f"< bytes {data!r}")
        return data

    def expect(self, *names: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> Event:
        """The next event must have one of these names."""
        event = self.receive(timeout_s)
        if event.name not in names:
            raise Unexpected(f"{self.name}: expected {' or '.join(names)}, got: {event}")
        return event

    def call(self, channel: int, method: str, **args: Any) -> Event:
        """Send a method and write down the one event that answers, whatever it is."""
        self.send(channel, method, **args)
        return self.receive()

    def until_closed(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[Event]:
        """Everything up to the end of the connection, or until ``timeout_s`` of silence."""
        events: list[Event] = []
        while not events or events[-1].name not in (CLOSED, SILENCE):
            events.append(self.receive(timeout_s))
        return events

    def drain_sorted(self, quiet_s: float = 0.5) -> None:
        """All that comes until the broker is quiet; written down sorted.

        For answers whose order the protocol leaves open (two queues, or a reply and messages).
        """
        lines = []
        while (event := self.receive_quietly(quiet_s)).name not in (SILENCE, CLOSED):
            lines.append(str(event))
        for line in sorted(lines):
            self.note(f"< {line}")

    def close_socket(self) -> None:
        self.sock.close()

    # opening ---------------------------------------------------------------------------

    def start(self) -> Event:
        """Protocol header, then what the broker says."""
        self.send_off_record(codec.PROTOCOL_HEADER)
        return self._receive(time.monotonic() + DEFAULT_TIMEOUT_S)

    def login(
        self,
        user: str = "guest",
        password: str = "guest",
        capabilities: dict[str, bool] | None = None,
    ) -> Event:
        """Start and start-ok; returns what the broker says to the credentials."""
        self.start()
        self.send_off_record(
            codec.method_frame(
                0,
                "connection.start-ok",
                client_properties={"capabilities": capabilities or {}},
                mechanism="PLAIN",
                response=f"\0{user}\0{password}",
                locale="en_US",
            )
        )
        return self._receive(time.monotonic() + DEFAULT_TIMEOUT_S)

    def open(
        self,
        vhost: str = "/",
        user: str = "guest",
        password: str = "guest",
        channel_max: int = 2047,
        frame_max: int = 131072,
        heartbeat: int = 0,
        capabilities: dict[str, bool] | None = None,
    ) -> "RawClient":
        """The whole handshake, off the record."""
        tune = self.login(user, password, capabilities)
        if tune.name != "connection.tune":
            raise unexpected("login", tune)
        self.send_off_record(
            codec.method_frame(
                0,
                "connection.tune-ok",
                channel_max=channel_max,
                frame_max=frame_max,
                heartbeat=heartbeat,
            )
            + codec.method_frame(0, "connection.open", virtual_host=vhost)
        )
        answer = self._receive(time.monotonic() + DEFAULT_TIMEOUT_S)
        if answer.name != "connection.open-ok":
            raise unexpected("connection.open", answer)
        return self

    def open_channel(self, channel: int = 1) -> None:
        """Off the record too."""
        self.send_off_record(codec.method_frame(channel, "channel.open"))
        answer = self._receive(time.monotonic() + DEFAULT_TIMEOUT_S)
        if answer.name != "channel.open-ok":
            raise unexpected("channel.open", answer)


def _bucket(seconds: float) -> str:
    for limit, words in ((0.6, "at once"), (2.2, "after about a second"), (6.0, "after seconds")):
        if seconds < limit:
            return words
    return "after about ten seconds"


def connect(url: str, name: str = "A", log: Callable[[str], None] = lambda line: None) -> RawClient:
    """A TCP connection to the host and port of an ``amqp://`` URL; nothing is sent."""
    parts = urlsplit(url)
    return RawClient(parts.hostname or "127.0.0.1", parts.port or 5672, name, log)


def open_client(url: str, **options: Any) -> RawClient:
    """Connected, logged in as the URL says, channel 1 open."""
    parts = urlsplit(url)
    client = connect(url)
    try:
        client.open(
            user=unquote(parts.username or "guest"),
            password=unquote(parts.password or "guest"),
            **options,
        )
        client.open_channel(1)
    except BaseException:
        client.sock.close()
        raise
    return client
