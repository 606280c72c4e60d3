"""The quiet broker of ``connection_pair`` with NSQ clients beside the AMQP ones."""

from __future__ import annotations

from typing import Any

from penstock.protocols.nsq.layer_stack import Layers, LayerStack
from penstock.protocols.nsq.session import NsqSession
from penstock.protocols.nsq.settings import make_nsq
from penstock.settings.settings import load_settings
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.raw_nsq import (
    ERROR,
    MAGIC,
    MESSAGE,
    RESPONSE,
    NsqMessage,
    message_in,
    split_frames,
)

PEER = ("127.0.0.1", 50_000)


class NoLayers(Layers):
    """Every layer is there at once and changes nothing; ``put`` is what was put."""

    def __init__(self) -> None:
        self.put: list[tuple[str, bytes]] = []

    def over(self, kind: str, sock: object, rest: bytes, stack: LayerStack) -> object:
        self.put.append((kind, rest))
        stack.layer_is_up()
        return sock


class NsqBroker(QuietBroker):
    """``settings`` are lines of the configuration file."""

    def __init__(self, settings: str = "", **options: Any) -> None:
        super().__init__(**options)
        found = load_settings(settings, {}, {})
        self.nsq = make_nsq(self.broker, found, self.turn.cancelled, None, lambda: None)
        self.layers = NoLayers()
        self.nsq.layers = self.layers

    def nsq_client(self, *, loopback: bool = True, greet: bool = True) -> NsqEnd:
        end = NsqEnd(self, NsqSession(self.nsq, PEER, loopback, self.now_ms))
        self.clients.append(end)
        if greet:
            end.send(MAGIC)
        return end

    def check(self) -> None:
        ends, self.clients = self.clients, []
        self.clients = [end for end in ends if not isinstance(end, NsqEnd)]
        super().check()
        self.clients = ends
        for vhost in self.broker.vhosts.values():
            vhost.topics.check()
            for queue in vhost.queues.values():
                if queue.leases is not None:
                    queue.leases.check()


class NsqEnd(ClientEnd):
    """The peer of one NSQ session."""

    session: Any

    def flush(self) -> None:
        super().flush()
        while self.session.swaps_carrier and not self.blocked and not self.lost:
            self.session.next_carrier(None, lambda: None)
            super().flush()
        if self.session.closed and not self.lost:
            self.lost = True
            self.session.lost(self.node.now_ms)

    def heard(self) -> list[bytes | NsqMessage]:
        """What has arrived since the last time: answers and errors as they are, and messages."""
        frames, self.received = split_frames(self.received)
        found: list[bytes | NsqMessage] = []
        for frame in frames:
            assert frame.type in (RESPONSE, ERROR, MESSAGE)
            found.append(message_in(frame.data) if frame.type == MESSAGE else frame.data)
        return found

    def ask(self, data: bytes) -> list[bytes | NsqMessage]:
        self.received = b""
        self.send(data)
        return self.heard()

    def messages(self) -> list[NsqMessage]:
        return [one for one in self.heard() if isinstance(one, NsqMessage)]

    def subscribe(self, topic: str, channel: str, ready: int = 10) -> list[NsqMessage]:
        command = f"SUB {topic} {channel}\nRDY {ready}\n".encode()
        answers = self.ask(command)
        assert answers[0] == b"OK", answers
        return [one for one in answers[1:] if isinstance(one, NsqMessage)]
