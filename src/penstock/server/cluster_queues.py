"""``ClusterQueues``: the queues of a node that is one of several, and where their masters are.

    Applier ─► make ─┬─ its home is here: a queue with its messages
                     └─ elsewhere: a RemoteQueue, which follows its master's node
    links ─► begun, ended, arrived ─► PeerQueues, one for each neighbour
    ``end``, once a turn ─► what each has to say ─► the link

A remote queue whose master's node is down has nobody to follow: what is published to it waits
unconfirmed, what is asked is told so at once, and all of it goes on when the node is back.
"""

from collections.abc import Callable
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.vhost import Vhost
from penstock.cluster.applying import make_here
from penstock.cluster.metadata import QueueMeta
from penstock.cluster.remote_queue import RemoteQueue
from penstock.queues.queue import Queue
from penstock.server.peer_queues import PeerQueues
from penstock.server.session import Session
from penstock.server.turn import Turn

QUEUES_STREAM: Final = 1
"""Of a link: what nodes say to each other about queues."""

Send = Callable[[str, int, bytes], None]
"""(node, stream, payload)"""


class LinkSession(Session):
    """A link as the turn knows it: who waits for the disk, and is told; it has no socket."""

    queues: PeerQueues

    def confirm(self, durable_position: int) -> None:
        self.queues.confirm()


class ClusterQueues:
    """Of one node, called ``home``."""

    def __init__(self, broker: Broker, turn: Turn, home: str, send: Send) -> None:
        self._broker = broker
        self._turn = turn
        self._home = home
        self._send = send
        self._links: dict[str, PeerQueues] = {}  # by the neighbour's name
        self._remote: dict[str, list[RemoteQueue]] = {}  # by the master's node

    # -- queues --------------------------------------------------------------------------

    def make(self, vhost: Vhost, meta: QueueMeta, owner: object, now_ms: int) -> Queue:
        """``MakeQueue`` of the applier."""
        if meta.home == self._home:
            return make_here(vhost, meta, owner, now_ms)
        broker = self._broker
        queue = RemoteQueue(
            vhost.name,
            meta.name,
            meta.incarnation,
            meta.durable,
            meta.auto_delete,
            meta.arguments,
            broker.wakeups,
            broker.refills,
            broker.dead_letters.deaths,
            broker.waits,
            broker.answers,
            broker.flow.book,
        )
        queue.owner = owner
        queue.home = meta.home
        vhost.enter_queue(queue)
        known = self._remote.setdefault(meta.home, [])
        known.append(queue)
        link = self._links.get(meta.home)
        if link is None:
            queue.give_up(self._why_down(queue, meta.home))
        else:
            queue.follow(link.client)
        return queue

    def _why_down(self, queue: Queue, home: str) -> str:
        """In RabbitMQ's words."""
        return f"home node '{home}' of queue '{queue.name}' in vhost '{queue.vhost}' is down"

    # -- links ---------------------------------------------------------------------------

    def begun(self, name: str) -> None:
        session = LinkSession(self._broker.flow.book)
        link = session.queues = PeerQueues(self._broker, self._turn, session, name)
        self._links[name] = link
        for queue in self._living(name):
            self._turn.cancelled(queue.follow(link.client))

    def ended(self, name: str, now_ms: int) -> None:
        self._links.pop(name).lost(now_ms)
        for queue in self._living(name):
            queue.give_up(self._why_down(queue, name))

    def _living(self, name: str) -> list[RemoteQueue]:
        """Those that were deleted are forgotten on the way."""
        known = [queue for queue in self._remote.get(name, []) if not queue.deleted]
        self._remote[name] = known
        return known

    def arrived(self, name: str, payload: bytes, now_ms: int) -> None:
        self._links[name].receive(payload, now_ms)

    # -- the turn ------------------------------------------------------------------------

    def end(self, now_ms: int) -> None:
        for name, link in self._links.items():
            while payload := link.take_payload(now_ms):
                self._send(name, QUEUES_STREAM, payload)
