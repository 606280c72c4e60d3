"""A client of NSQ's protocol V2 that says exactly what a test tells it to say.

It knows frames and nothing else: no state, no answers of its own.  What it sends and receives is
handed to ``say`` as lines, which the tests of conformance keep as a transcript.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from tests.helpers.snappy_frames import STREAM_IDENTIFIER, SnappyReader, plain_chunks

MAGIC = b"  V2"
CLOSED, SILENCE, RESPONSE, ERROR, MESSAGE = "closed", "silence", "response", "error", "message"
HEARTBEAT = "_heartbeat_"
_KINDS = {0: RESPONSE, 1: ERROR, 2: MESSAGE}
_SHOWN_BYTES = 60


class Event(NamedTuple):
    """One thing that came: a frame, the end of the connection, or nothing in time."""

    kind: str
    text: str = ""
    id: str = ""
    attempts: int = 0
    timestamp_ns: int = 0
    body: bytes = b""

    def __str__(self) -> str:
        if self.kind == MESSAGE:
            return f"message {self.id} attempts={self.attempts} {shown(self.body)}"
        return f"{self.kind} {self.text}".rstrip()


def shown(data: bytes) -> str:
    if len(data) > _SHOWN_BYTES:
        return f"{data[:20]!r}... ({len(data)} bytes)"
    return repr(data)


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def batch(*bodies: bytes) -> bytes:
    """What stands behind MPUB's first size: the count and the messages."""
    return struct.pack(">i", len(bodies)) + b"".join(map(sized, bodies))


def event_of(kind: int, data: bytes) -> Event:
    name = _KINDS.get(kind, f"type {kind}")
    if name != MESSAGE:
        return Event(name, data.decode(errors="replace"))
    timestamp_ns, attempts = struct.unpack_from(">qH", data)
    identifier = data[10:26].decode(errors="replace")
    return Event(MESSAGE, "", identifier, attempts, timestamp_ns, data[26:])


class RawNsq:
    """One TCP connection; nothing is sent before a method says so."""

    def __init__(
        self, host: str, port: int, name: str = "A", say: Callable[[str], None] | None = None
    ) -> None:
        self.name = name
        self._say = say or (lambda line: None)
        self._socket: socket.socket = socket.create_connection((host, port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._pack: Callable[[bytes], bytes] = lambda data: data
        self._unpack: Callable[[bytes], bytes] = lambda data: data

    # the line -----------------------------------------------------------------------------

    def note(self, text: str) -> None:
        self._say(f"{self.name} {text}")

    def send_off_record(self, data: bytes) -> None:
        # What the broker did shows when its answer is read.
        with suppress(ConnectionError, ssl.SSLError):
            self._socket.sendall(self._pack(data))

    def send(self, line: str, body: bytes | None = None) -> None:
        """A command; a body is preceded by its size."""
        self.note(f"> {line}" + ("" if body is None else f" {shown(body)}"))
        self.send_off_record(line.encode() + b"\n" + (b"" if body is None else sized(body)))

    def send_raw(self, data: bytes, remark: str = "") -> None:
        self.note(f"> raw {remark or shown(data)}")
        self.send_off_record(data)

    def finish_sending(self) -> None:
        self.note("> end")
        self._socket.shutdown(socket.SHUT_WR)

    def close_socket(self) -> None:
        self._socket.close()

    # what comes ---------------------------------------------------------------------------

    def _fill(self, count: int, deadline: float) -> str:
        """Reads until ``count`` bytes are there; returns why it stopped, if they are not."""
        while len(self._buffer) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                return SILENCE
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(65_536)
            except TimeoutError:
                return SILENCE
            except OSError:
                return CLOSED
            if not data:
                return CLOSED
            self._buffer += self._unpack(data)
        return ""

    def read_bytes(self, count: int, timeout_s: float = 8.0) -> bytes:
        """Up to so many bytes of whatever comes, frames or not."""
        self._fill(count, time.monotonic() + timeout_s)
        return self._buffer[:count]

    def take_bytes(self, count: int, timeout_s: float = 8.0) -> bytes:
        """As ``read_bytes``, and they are gone from what is read next."""
        taken = self.read_bytes(count, timeout_s)
        self._buffer = self._buffer[len(taken) :]
        return taken

    def receive_quietly(self, timeout_s: float = 8.0, heartbeats: bool = False) -> Event:
        """The next event; heartbeats are answered and passed over unless they are asked for."""
        deadline = time.monotonic() + timeout_s
        while True:
            size = 0
            why = self._fill(4, deadline)
            if not why:
                size = struct.unpack_from(">i", self._buffer)[0]
                why = self._fill(4 + size, deadline)
            if why:
                return Event(why)
            event = event_of(
                struct.unpack_from(">i", self._buffer, 4)[0], self._buffer[8 : 4 + size]
            )
            self._buffer = self._buffer[4 + size :]
            if event.text != HEARTBEAT or heartbeats:
                return event
            self.send_off_record(b"NOP\n")

    def receive(self, timeout_s: float = 8.0, heartbeats: bool = False) -> Event:
        event = self.receive_quietly(timeout_s, heartbeats)
        self.note(f"< {event}")
        return event

    # common moves -------------------------------------------------------------------------

    def magic(self) -> None:
        self.send_off_record(MAGIC)

    def ask(self, line: str, body: bytes | None = None) -> Event:
        self.send(line, body)
        return self.receive()

    def identify(self, **fields: Any) -> Event:
        """IDENTIFY with these fields, on the record."""
        return self.ask("IDENTIFY", json.dumps(fields).encode())

    def call_off_record(self, line: str, body: bytes | None = None) -> Event:
        self.send_off_record(line.encode() + b"\n" + (b"" if body is None else sized(body)))
        return self.receive_quietly()

    def identify_off_record(self, fields: Mapping[str, Any]) -> Event:
        return self.call_off_record("IDENTIFY", json.dumps(fields).encode())

    def settle(self, verb: str, event: Event, *more: object) -> None:
        """FIN, REQ or TOUCH of a message that came."""
        self.send(" ".join([verb, event.id, *map(str, more)]))

    def quiet(self, timeout_s: float = 0.4) -> Event:
        """Nothing should come; whatever happens is noted."""
        return self.receive(timeout_s)

    def fate(self, timeout_s: float = 8.0) -> None:
        """Whatever comes until the connection ends."""
        while self.receive(timeout_s).kind not in (CLOSED, SILENCE):
            pass

    # layers -------------------------------------------------------------------------------

    def begin_tls(self, context: ssl.SSLContext) -> None:
        assert not self._buffer
        self._socket.settimeout(10)
        self._socket = context.wrap_socket(self._socket, server_hostname="localhost")

    def begin_deflate(self) -> None:
        packer, unpacker = zlib.compressobj(6, wbits=-15), zlib.decompressobj(-15)
        before_pack, before_unpack = self._pack, self._unpack
        self._pack = lambda data: before_pack(
            packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
        )
        self._unpack = lambda data: unpacker.decompress(before_unpack(data))
        self._again()

    def begin_snappy(self) -> None:
        reader = SnappyReader()
        begun: list[bool] = []

        def pack(data: bytes) -> bytes:
            head = b"" if begun else STREAM_IDENTIFIER
            begun.append(True)
            return head + plain_chunks(data)

        self._pack, self._unpack = pack, reader.feed
        self._again()

    def _again(self) -> None:
        """What was read with the last frame belongs to the new layer already."""
        data, self._buffer = self._buffer, b""
        self._buffer = self._unpack(data)
