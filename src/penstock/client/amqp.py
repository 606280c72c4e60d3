"""A small blocking AMQP 0-9-1 client on the broker's own codec.

For programs of the project that must speak to a broker: the load generator, tests, pipelines,
shovels.  One thread, no automatic reconnection; every wait has a limit.  Heartbeats only where
``heartbeat_s`` asks for them and the owner of the connection calls ``beat`` now and then.  What the
broker sends while something else is awaited is kept: deliveries and returns in their channel,
``connection.blocked`` in ``Connection.blocked``.

    with Connection(Endpoint.parse("amqp://guest:guest@127.0.0.1:5672/")) as connection:
        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        channel.confirm_select()
        channel.publish(b"hello", routing_key="work")
        channel.wait_for_confirms()

A channel the broker closed raises ``ChannelClosed`` from then on, a connection
``ConnectionClosed``; both carry the broker's code and text.
"""

import socket
import ssl
import struct
import time
from collections import deque
from types import TracebackType
from typing import Final, Self

from penstock.client.channel import Channel, Delivery
from penstock.client.endpoint import (
    BrokerClosed,
    ChannelClosed,
    ClientError,
    ConnectionClosed,
    ConnectionLost,
    ConsumerCancelled,
    Endpoint,
)
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import Method, decode_method, encode_method

__all__ = [
    "BrokerClosed", "Channel", "ChannelClosed", "ClientError", "Connection", "ConnectionClosed",
    "ConnectionLost", "ConsumerCancelled", "Delivery", "Endpoint",
]  # fmt: skip

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
FRAME_HEARTBEAT: Final = 8
HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
RECEIVE_BYTES: Final = 131_072
FRAMES_AT_ONCE: Final = 1024
KEPT_BYTES: Final = 16 * 1024 * 1024
"""With more deliveries that wait to be fetched ``take_all`` leaves the rest to the broker."""

CLIENT_PROPERTIES: Final[dict[str, object]] = {
    "product": "Penstock client",
    "platform": "Python",
    "capabilities": {
        "authentication_failure_close": True,
        "basic.nack": True,
        "connection.blocked": True,
        "consumer_cancel_notify": True,
        "exchange_exchange_bindings": True,
        "publisher_confirms": True,
    },
}


class Connection:
    """One connection; opening it does the whole handshake."""

    def __init__(
        self,
        endpoint: Endpoint,
        frame_max: int = 131_072,
        timeout_s: float = 10.0,
        *,
        name: str = "",
        heartbeat_s: int = 0,
        sock: socket.socket | None = None,
    ) -> None:
        """``name``: the broker shows it; ``sock``: it is connected.  Raises ClientError."""
        self.timeout_s = timeout_s
        self.heartbeat_s = heartbeat_s
        self.frame_max = frame_max
        self.channel_max = 2047
        self.server_properties: dict[str, object] = {}
        self.blocked: str | None = None
        self._received = bytearray()
        self._channels: dict[int, Channel] = {}
        self._methods: deque[Method] = deque()
        self._gone: ClientError | None = None
        self._sent_s = self._received_s = time.monotonic()
        self._socket = _connected(endpoint, timeout_s) if sock is None else sock
        try:
            self._handshake(endpoint, name)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _handshake(self, endpoint: Endpoint, name: str) -> None:
        self.send(PROTOCOL_HEADER)
        start = self._await(m.CONNECTION_START)
        mechanisms = start.raw("mechanisms").split()
        mechanism, response = "PLAIN", f"\0{endpoint.user}\0{endpoint.password}".encode()
        if endpoint.password == "":
            mechanism, response = "EXTERNAL", b""
        if mechanism.encode() not in mechanisms:
            raise ClientError(f"the broker offers {mechanisms!r}, not {mechanism}")
        self.server_properties = start.table("server_properties")
        properties = CLIENT_PROPERTIES | ({"connection_name": name} if name else {})
        self._send_method(m.CONNECTION_START_OK, properties, mechanism, response, "en_US")
        tune = self._await(m.CONNECTION_TUNE)
        # 0 means: no limit of the broker's.
        self.frame_max = min(tune.number("frame_max") or self.frame_max, self.frame_max)
        self.channel_max = min(tune.number("channel_max") or self.channel_max, self.channel_max)
        if self.heartbeat_s:
            self.heartbeat_s = min(tune.number("heartbeat") or self.heartbeat_s, self.heartbeat_s)
        self._send_method(m.CONNECTION_TUNE_OK, self.channel_max, self.frame_max, self.heartbeat_s)
        self._send_method(m.CONNECTION_OPEN, endpoint.vhost, "", False)
        self._await(m.CONNECTION_OPEN_OK)

    def channel(self) -> Channel:
        number = 1
        while number in self._channels:
            number += 1
        if number > self.channel_max:
            raise ClientError(f"all {self.channel_max} channels are in use")
        channel = Channel(self, number)
        self._channels[number] = channel
        channel.call(m.CHANNEL_OPEN, m.CHANNEL_OPEN_OK, "")
        return channel

    def close(self) -> None:
        """Say goodbye; a connection that is already gone is only forgotten."""
        if self._gone is None:
            try:
                self._send_method(m.CONNECTION_CLOSE, 200, "Goodbye", 0, 0)
                self._await(m.CONNECTION_CLOSE_OK)
            except ClientError:
                pass
            self._gone = ClientError("the connection was closed by this side")
        self._socket.close()

    def detach(self) -> tuple[socket.socket, bytes]:
        """Give the socket away, with what was read from it and not yet used.

        For the load generator, whose loops read frames in bulk.
        """
        self._gone = ClientError("the connection was given away")
        return self._socket, bytes(self._received)

    # -- frames ------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if self._gone is not None:
            raise self._gone
        try:
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(data)
            self._sent_s = time.monotonic()
        except OSError as error:
            # The broker may have said why before it hung up: that is the better answer.
            self._drain_last_words()
            raise self._lose(f"sending failed: {error}") from error

    def _drain_last_words(self) -> None:
        try:
            while self.process(1.0):
                pass
        except ConnectionLost:
            return

    def process(self, timeout_s: float) -> bool:
        """Read and dispatch one frame; False when none came in time (0: when none is there)."""
        if self._gone is not None:
            raise self._gone
        deadline = time.monotonic() + timeout_s
        while True:
            frame = self._cut_frame()
            if frame is not None:
                self._dispatch(frame)
                return True
            left_s = max(0.0, deadline - time.monotonic())
            if not self._receive(left_s) and left_s == 0.0:
                return False

    def take_all(self, timeout_s: float = 0.0) -> bool:
        """Dispatch frames that are there, or that come within the time; True = more may be there.

        A broker that sends faster than its messages are used is not read meanwhile.
        """
        if self.is_full():
            self._received_s = time.monotonic()  # it is silent because of this side
            return False
        for _ in range(FRAMES_AT_ONCE):
            if not self.process(timeout_s):
                return False
            timeout_s = 0.0
        return True

    def is_full(self) -> bool:
        return sum(channel.kept_bytes for channel in self._channels.values()) >= KEPT_BYTES

    def fileno(self) -> int:
        """To wait for frames of several connections."""
        return self._socket.fileno()

    def beat(self) -> None:
        """Say that this side is there, and look whether the other is; raises ConnectionLost."""
        if self.heartbeat_s == 0:
            return
        now_s = time.monotonic()
        if now_s - self._received_s > 2 * self.heartbeat_s:
            raise self._lose(f"the broker was silent for {2 * self.heartbeat_s} s")
        if now_s - self._sent_s >= self.heartbeat_s / 2:
            self.send(HEARTBEAT)

    def _cut_frame(self) -> bytes | None:
        received = self._received
        if len(received) < 7:
            return None
        end = 7 + int.from_bytes(received[3:7], "big")
        if end >= self.frame_max:
            raise self._lose(f"a frame of {end + 1} bytes came, {self.frame_max} were agreed on")
        if len(received) <= end:
            return None
        if received[end] != m.FRAME_END:
            raise self._lose(f"frame end octet is {received[end]}, not 206")
        frame = bytes(received[: end + 1])
        del received[: end + 1]
        return frame

    def _receive(self, timeout_s: float) -> bool:
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError as error:
            raise self._lose(f"receiving failed: {error}") from error
        if not data:
            raise self._lose("the broker hung up")
        self._received_s = time.monotonic()
        if self._received[:4] + data[:4] == PROTOCOL_HEADER[:4]:
            raise self._lose(f"the broker wants another protocol: {data[:8]!r}")
        self._received += data
        return True

    def _lose(self, text: str) -> ClientError:
        """Remember the end; the first reason is the one that counts."""
        if self._gone is None:
            self._gone = ConnectionLost(text)
            self._socket.close()
        return self._gone

    def _dispatch(self, frame: bytes) -> None:
        kind, number, size = struct.unpack_from(">BHI", frame)
        if kind == FRAME_HEARTBEAT:
            if self.heartbeat_s == 0:
                self.send(HEARTBEAT)
        elif number == 0 and kind == m.FRAME_METHOD:
            self._connection_method(decode_method(frame[7 : 7 + size]))
        elif number in self._channels:
            self._channels[number].take_frame(kind, frame)
        else:
            raise self._lose(f"frame of type {kind} on channel {number}, which is not open")

    def _connection_method(self, method: Method) -> None:
        if method.key == m.CONNECTION_CLOSE:
            self.send(encode_method(0, m.CONNECTION_CLOSE_OK, ()))
            self._gone = ConnectionClosed(method.number("reply_code"), method.text("reply_text"))
            self._socket.close()
            raise self._gone
        if method.key == m.CONNECTION_BLOCKED:
            self.blocked = method.text("reason")
        elif method.key == m.CONNECTION_UNBLOCKED:
            self.blocked = None
        else:
            self._methods.append(method)

    def forget(self, number: int) -> None:
        """Called by a channel that is closed: its number may be used again."""
        self._channels.pop(number, None)

    def _send_method(self, key: int, *values: object) -> None:
        self.send(encode_method(0, key, values))

    def _await(self, key: int) -> Method:
        deadline = time.monotonic() + self.timeout_s
        while not self._methods:
            if not self.process(deadline - time.monotonic()):
                raise self._lose(f"no {m.METHODS[key][0]} within {self.timeout_s} s")
        method = self._methods.popleft()
        if method.key != key:
            raise self._lose(f"{method.name} came where {m.METHODS[key][0]} was due")
        return method


def _connected(endpoint: Endpoint, timeout_s: float) -> socket.socket:
    """Raises ConnectionLost."""
    where = f"{endpoint.host}:{endpoint.port}"
    try:
        sock = socket.create_connection((endpoint.host, endpoint.port), timeout_s)
    except OSError as error:
        raise ConnectionLost(f"{where}: {error}") from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if endpoint.tls is None:
        return sock
    try:
        return endpoint.tls.wrap_socket(sock, server_hostname=endpoint.server_name)
    except OSError as error:
        sock.close()
        raise ConnectionLost(f"{where}: TLS: {error}") from error
