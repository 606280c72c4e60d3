"""A minimal AMQP peer that discards messages: the yardstick of the load generator.

``discard`` takes publishes, counts them and throws them away, confirming them when asked:
the ceiling of the publishing side.  ``blast`` answers ``basic.consume`` with deliveries
without end: the ceiling of the consuming side.  What it does not know it refuses by
hanging up.  It says its port on standard output and ends when its standard input ends.

    python -m penstock.client.sink discard|blast BODY_BYTES
"""

import select
import socket
import sys
import threading
import time
from typing import Final

from penstock.client.load import KEY_PUBLISH, Composer, DeliveryScanner
from penstock.client.templates import filler, stamp_size
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import Method, decode_method, encode_method
from penstock.protocols.amqp.codec.properties import Properties, encode_content

RECEIVE_BYTES: Final = 131_072
BLAST_BYTES: Final = 131_072
FRAME_MAX: Final = 131_072
PROTOCOL_HEADER_BYTES: Final = 8
UNLIMITED: Final = 1 << 40

ANSWERS: Final[dict[int, tuple[int, tuple[object, ...]]]] = {
    m.CONNECTION_START_OK: (m.CONNECTION_TUNE, (2047, FRAME_MAX, 0)),
    m.CONNECTION_OPEN: (m.CONNECTION_OPEN_OK, ("",)),
    m.CONNECTION_CLOSE: (m.CONNECTION_CLOSE_OK, ()),
    m.CHANNEL_OPEN: (m.CHANNEL_OPEN_OK, (b"",)),
    m.CHANNEL_CLOSE: (m.CHANNEL_CLOSE_OK, ()),
    m.QUEUE_DECLARE: (m.QUEUE_DECLARE_OK, ("sink", 0, 0)),
    m.QUEUE_DELETE: (m.QUEUE_DELETE_OK, (0,)),
    m.BASIC_QOS: (m.BASIC_QOS_OK, ()),
    m.CONFIRM_SELECT: (m.CONFIRM_SELECT_OK, ()),
}
SILENT: Final = frozenset({m.CONNECTION_TUNE_OK, m.BASIC_ACK})


class SinkConnection:
    """One peer of the sink, served by a thread of its own."""

    def __init__(self, peer: socket.socket, blasting: bool, body_bytes: int) -> None:
        self._socket = peer
        self._blasting = blasting
        self._body_bytes = body_bytes
        self._blast: Composer | None = None
        self._scanner = DeliveryScanner(KEY_PUBLISH, 1, 1 << 15, 0)
        self._confirming = False
        self._confirmed = 0
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def serve(self) -> None:
        try:
            self._greet()
            while self._turn():
                pass
        except OSError:
            pass  # the peer hung up, which is how a run ends
        finally:
            self._socket.close()

    def _turn(self) -> bool:
        """Send a blob of deliveries, or read what the peer says; False when it hung up."""
        if self._blast is not None and not select.select([self._socket], [], [], 0)[0]:
            blob = self._blast.compose(UNLIMITED, BLAST_BYTES, time.monotonic_ns())
            self._socket.sendall(blob)
            return True
        data = self._socket.recv(RECEIVE_BYTES)
        self._scanner.feed(data, time.monotonic_ns())
        for channel, payload in self._scanner.control:
            self._answer(channel, decode_method(payload))
        self._scanner.control.clear()
        self._confirm()
        return bool(data)

    def _greet(self) -> None:
        header = b""
        while len(header) < PROTOCOL_HEADER_BYTES:
            header += self._socket.recv(PROTOCOL_HEADER_BYTES - len(header))
        product: dict[str, object] = {"product": "Penstock bench sink"}
        values = (0, 9, product, b"PLAIN", b"en_US")
        self._socket.sendall(encode_method(0, m.CONNECTION_START, values))

    def _answer(self, channel: int, method: Method) -> None:
        if method.key == m.BASIC_CONSUME:
            tag = method.text("consumer_tag")
            self._socket.sendall(encode_method(channel, m.BASIC_CONSUME_OK, (tag,)))
            if self._blasting:
                self._blast = delivery_composer(channel, tag, self._body_bytes)
        elif method.key in ANSWERS:
            key, values = ANSWERS[method.key]
            self._socket.sendall(encode_method(channel, key, values))
            self._confirming |= method.key == m.CONFIRM_SELECT
            if method.key == m.CONNECTION_CLOSE:
                self._blast = None  # nothing may follow the close-ok
        elif method.key not in SILENT:
            raise OSError(f"the sink does not know {method.name}")

    def _confirm(self) -> None:
        messages = int(self._scanner.messages)
        if self._confirming and messages > self._confirmed:
            self._confirmed = messages
            self._socket.sendall(encode_method(1, m.BASIC_ACK, (messages, True)))


def delivery_composer(channel: int, tag: str, body_bytes: int) -> Composer:
    """Makes deliveries stamped like those of publisher 0."""
    deliver = encode_method(channel, m.BASIC_DELIVER, (tag, 0, False, "", "sink"))
    content = encode_content(Properties(), filler(body_bytes), channel, FRAME_MAX)
    tag_at = 7 + 4 + 1 + len(tag.encode())
    whole = deliver + content
    stamp_at = len(deliver) + 8 + int.from_bytes(content[3:7], "big") + 7
    stamp_bytes = stamp_size(body_bytes)
    composer = Composer(0)
    composer.add_template(
        whole[tag_at + 8 : stamp_at],
        whole[stamp_at + stamp_bytes :],
        stamp_bytes,
        head=whole[:tag_at],
    )
    return composer


def listen(blasting: bool, body_bytes: int) -> socket.socket:
    """Serve in the background on a free port until the socket returned is closed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            connection = SinkConnection(peer, blasting, body_bytes)
            threading.Thread(target=connection.serve, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener


def main() -> None:
    kind, body_bytes = sys.argv[1], int(sys.argv[2])
    assert kind in {"discard", "blast"}, kind
    listener = listen(kind == "blast", body_bytes)
    print(listener.getsockname()[1], flush=True)  # noqa: T201 - its parent waits for it
    sys.stdin.read()


if __name__ == "__main__":
    main()
