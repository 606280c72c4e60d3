"""Queues between two nodes, joined: the room ``cluster`` here, bytes for the link there.

    payload ─► codec/queues ─► PeerServer (their questions) or PeerClient (their answers)
    ``take_payload`` ◄─ what both have to say, once a turn

One for each link.  ``session`` is the link itself, as the turn knows it: it is touched when there
is something to send, and waits for the disk while the other node does.
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from penstock.broker.broker import Broker
from penstock.cluster.remote.peer_client import PeerClient
from penstock.cluster.remote.served import ServedConsumer
from penstock.cluster.remote.serving import PeerServer
from penstock.core import queue_requests as q
from penstock.core.clock_types import WallMs
from penstock.protocols.peers.codec.queues import decode_requests, encode_some
from penstock.queues.allocator import Delivery
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.runtime.session import Session, Subscriber
from penstock.runtime.turn import Turn

STATE_INTERVAL_MS: Final[i64] = 1000
PAYLOAD_BYTES: Final = 1024 * 1024
"""More goes into the next: a link that is cut sends whole payloads again."""

_TO_MASTER: Final = (
    q.Open, q.Close, q.Given, q.Subscribe, q.Window, q.Unsubscribe, q.Settle, q.Ask,
)  # fmt: skip


@final
class PeerSubscriber(Subscriber):
    """Stands here for a consumer at the other node."""

    def __init__(self, session: Session, server: PeerServer, one: ServedConsumer) -> None:
        super().__init__(session, one.number)
        self._server = server
        self._one = one

    def deliver(self, delivery: Delivery) -> None:
        self._server.deliver(self._one, delivery)

    def queue_lost(self, consumer: Consumer) -> None:
        consumer.cancel()
        self._server.consumer_lost(self._one)

    def queue_moved(self, consumer: Consumer, queue: Queue) -> None:
        """The other node hears where the master is now; it is no longer here."""
        self._server.queue_gone(self._one.served)


@final
class PeerQueues:
    def __init__(self, broker: Broker, turn: Turn, session: Session, node: str) -> None:
        self.client = PeerClient(broker.flow.book, node)
        self.server = PeerServer(broker, node, self._holder, turn.cancelled)
        self._turn = turn
        self._session = session
        self._told_at_ms = WallMs(0)
        self._outgoing: deque[q.QueueRequest] = deque()

    def _holder(self, server: PeerServer, one: ServedConsumer) -> object:
        return PeerSubscriber(self._session, server, one)

    def receive(self, payload: bytes, now_ms: WallMs) -> None:
        """Raises Malformed; then the link is to be ended."""
        asked: list[q.QueueRequest] = []
        answered: list[q.QueueRequest] = []
        for request in decode_requests(payload):
            (asked if isinstance(request, _TO_MASTER) else answered).append(request)
        if answered:
            self.client.hear(answered, now_ms)
            self._tell_cancelled()
        if asked:
            self.server.hear(asked, now_ms)
            self._await_disk()

    def _await_disk(self) -> None:
        self._session.awaiting_disk = self.server.awaits_disk()
        self._turn.fed(self._session)

    def _tell_cancelled(self) -> None:
        cancelled = self.client.take_cancelled()
        if cancelled:
            self._turn.cancelled(cancelled)

    def take_payload(self, now_ms: WallMs) -> bytes:
        """At the end of each turn, until there is nothing: what is to be sent."""
        self.server.collect(now_ms)
        if not 0 <= now_ms - self._told_at_ms < STATE_INTERVAL_MS:
            self._told_at_ms = now_ms
            self.server.tick()
        self._await_disk()
        self._outgoing.extend(self.client.take_requests())
        self._outgoing.extend(self.server.take_answers())
        return encode_some(self._outgoing, PAYLOAD_BYTES)

    def confirm(self) -> None:
        """The journal is on disk further than before: that is told with the next payload."""
        self._session.awaiting_disk = self.server.awaits_disk()

    def lost(self, now_ms: WallMs) -> None:
        """The other member is gone for good."""
        self.server.lost(now_ms)
        self.client.lost()
        self._tell_cancelled()
