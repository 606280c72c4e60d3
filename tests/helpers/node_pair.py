"""Two nodes without noise, and a link between them that a test may hold, cut and end.

``here`` is where clients connect, mostly; ``there`` has the masters of the queues that ``remote``
makes.  What goes over the link are the bytes of the real codec.  Every run of one node runs both
and the link, until nothing moves any more; while ``slow``, nothing arrives.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.cluster.remote.queue import RemoteQueue
from penstock.protocols.peers.queues import PeerQueues
from penstock.queues.context import QueueIdentity
from penstock.runtime.session import Session
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.nsq_pair import NsqBroker


class PairedBroker(QuietBroker):
    """A node whose runs run the other one, too."""

    pair: NodePair | None = None

    def run(self, *, idle: bool = True) -> None:
        if self.pair is None:
            super().run(idle=idle)
        else:
            self.pair.run()

    def run_alone(self) -> None:
        super().run()


class PairedNsqBroker(PairedBroker, NsqBroker):
    """One that speaks NSQ, too."""


class LinkSession(Session):
    """The link, as a turn knows it."""

    def __init__(self, node: QuietBroker) -> None:
        super().__init__(node.turn.flow.book)
        self.queues: PeerQueues | None = None

    def confirm(self, durable_position: int) -> None:
        if self.queues is not None:
            self.queues.confirm()


class LinkEnd:
    """One node's end of the link."""

    def __init__(self, node: PairedBroker, peer: str) -> None:
        self.node = node
        session = LinkSession(node)
        self.queues = PeerQueues(node.broker, node.turn, session, peer)
        session.queues = self.queues
        self.arriving: deque[bytes] = deque()
        self.sent_count = 0


class NodePair:
    """See the head of this file."""

    def __init__(self, kind: type[PairedBroker] = PairedBroker, **options: Any) -> None:
        self.here = kind(**options)
        self.there = kind(**options)
        self.slow = False
        self.connect()
        self.here.pair = self.there.pair = self

    def connect(self) -> None:
        """A new link, of new members."""
        self.ends = [LinkEnd(self.here, "there"), LinkEnd(self.there, "here")]
        self.alive = True

    # -- moving ----------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(500):
            moved = False
            for end, other in (self.ends, self.ends[::-1]):
                end.node.run_alone()
                if not self.alive:
                    continue
                payload = end.queues.take_payload(end.node.now_ms)
                if payload:
                    other.arriving.append(payload)
                    moved = True
                if not self.slow and end.arriving:
                    self._arrive(end)
                    moved = True
                end.node.run_alone()
            if not moved:
                return
        raise AssertionError("the nodes never come to rest")

    def _arrive(self, end: LinkEnd) -> None:
        while end.arriving:
            end.queues.receive(end.arriving.popleft(), end.node.now_ms)

    def tick(self, ms: int = 1001) -> None:
        for node in (self.here, self.there):
            node.now_ms += ms
            node.mono_ms += ms
        self.run()

    def lose_link(self) -> None:
        """Each node hears that the other's member is gone; what was under way is lost."""
        self.alive = False
        for end in self.ends:
            end.arriving.clear()
            end.queues.lost(end.node.now_ms)
        self.run()

    # -- queues ----------------------------------------------------------------------------

    def remote(self, name: str, *, durable: bool = True, **arguments: Any) -> RemoteQueue:
        """A queue with its master there, and how it is known here."""
        vhost = self.there.broker.vhosts["/"]
        vhost.declare_queue(name, durable, None, False, arguments)
        queue = self.known_here(name, durable, arguments)
        queue.follow(self.ends[0].queues.client)
        self.run()
        return queue

    def known_here(self, name: str, durable: bool, arguments: dict[str, Any]) -> RemoteQueue:
        queue = self.made_here(name, durable, arguments)
        vhost = self.here.broker.vhosts["/"]
        vhost.queues[name] = queue
        vhost.forget_routes()
        return queue

    def remote_there(self, name: str) -> RemoteQueue:
        """The other way round: its master is here."""
        vhost = self.here.broker.vhosts["/"]
        vhost.declare_queue(name, True, None, False, {})
        queue = self.made(self.there, name, True, {})
        vhost = self.there.broker.vhosts["/"]
        vhost.queues[name] = queue
        vhost.forget_routes()
        queue.follow(self.ends[1].queues.client)
        self.run()
        return queue

    def made_here(self, name: str, durable: bool, arguments: dict[str, Any]) -> RemoteQueue:
        return self.made(self.here, name, durable, arguments)

    def made(
        self, node: PairedBroker, name: str, durable: bool, arguments: dict[str, Any]
    ) -> RemoteQueue:
        broker = node.broker
        vhost = broker.vhosts["/"]
        who = QueueIdentity("/", name, node.new_name("life"), durable, False, arguments)
        queue = RemoteQueue(who, broker.queue_context)
        vhost.policies.queue_settings(name, arguments).apply_to(queue)
        return queue

    def master(self, name: str) -> Any:
        queue = self.there.broker.vhosts["/"].queues.get(name)
        if queue is None or queue.remote:
            return self.here.broker.vhosts["/"].queues[name]
        return queue

    def check(self) -> None:
        self.here.check()
        self.there.check()
        for end in self.ends:
            end.queues.server.check()


# -- what stories are told with -----------------------------------------------------------------


def names(client: ClientEnd) -> list[str]:
    return [name for name, _ in client.methods()]


def confirming(pair: NodePair) -> ClientEnd:
    client = pair.here.client()
    client.call("confirm.select")
    return client


def ready(pair: NodePair, name: str = "q") -> int:
    return int(pair.master(name).backing.ready_count())
