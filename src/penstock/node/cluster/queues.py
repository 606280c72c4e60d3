"""``ClusterQueues``: the queues of a node that is one of several, and where their masters are.

    Applier ─► make ─┬─ its home is here, and it has no view: a queue with its messages
                     └─ else: a RemoteQueue, which follows its master's node
    links ─► begun, ended, arrived ─► PeerQueues, one for each neighbour
    ``end``, once a turn ─► what each has to say ─► the link

A remote queue whose master's node is down follows no node: what is published to it waits
unconfirmed, what is asked is told so at once, and all of it goes on when the node is back.

A master's node that lives and is not reached (``patience_ms`` without a connection) is one that is
down, as far as this node can serve its queues.  A mirrored queue most likely goes on elsewhere: its
clients here are sent away, for there they can go on; another one has nothing but its home: who
asks is told that it is inaccessible.  When the connection is back all follow again.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from penstock.broker.broker import Broker
from penstock.broker.topology.histories import Gathered
from penstock.broker.topology.vhost import Vhost
from penstock.cluster.agreement.applying import identity_of, make_here
from penstock.cluster.agreement.metadata import QueueMeta
from penstock.cluster.mirrors.queue import QueueDirectory
from penstock.cluster.remote.queue import RemoteQueue
from penstock.cluster.remote.queue_places import inaccessible
from penstock.cluster.remote.remote_history import RemoteHistory
from penstock.core.clock_types import WallMs
from penstock.protocols.peers.queues import PeerQueues
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.runtime.session import Session
from penstock.runtime.turn import Turn

QUEUES_STREAM: Final = 1
"""Of a link: what nodes say to each other about queues."""

LOOK_MS: Final = 100

Send = Callable[[str, int, bytes], None]
"""(node, stream, payload)"""


class LinkSession(Session):
    """A link as the turn knows it: it waits for the disk, and is told; it has no socket."""

    def __init__(self, broker: Broker, turn: Turn, name: str) -> None:
        super().__init__(broker.flow.book)
        self.queues = PeerQueues(broker, turn, self, name)

    def confirm(self, durable_position: i64) -> None:
        self.queues.confirm()


class ClusterQueues(QueueDirectory):
    """Of one node, called ``home``.

    ``master_node``  of a mirrored queue: where its view says that the master is; else None
    ``made_here``    is told of queues that are made with their messages here
    ``full_links``   neighbours to which no more should be sent now
    ``silent_ms``    for how long there has been no connection to that neighbour
    """

    def __init__(
        self,
        broker: Broker,
        turn: Turn,
        home: str,
        send: Send,
        full_links: Callable[[], list[str]],
        silent_ms: Callable[[str], int],
        master_node: Callable[[str, str], str | None],
        made_here: Callable[[Vhost, Queue], None],
    ) -> None:
        self._broker = broker
        self._turn = turn
        self._home = home
        self._send = send
        self._full_links = full_links
        self._silent_ms = silent_ms
        self._master_node = master_node
        self._made_here = made_here
        self._looked_ms = WallMs(0)
        self._links: dict[str, PeerQueues] = {}  # by the neighbour's name
        self._remote: dict[str, list[RemoteQueue]] = {}  # by the master's node
        self._unreached: set[str] = set()  # neighbours that live

    # -- queues --------------------------------------------------------------------------

    def make(self, vhost: Vhost, meta: QueueMeta, owner: object) -> Queue:
        """``MakeQueue`` of the applier."""
        home = self._master_node(vhost.name, meta.name)
        if home is None:
            home = meta.home
            if home == self._home:
                queue = make_here(vhost, meta, owner)
                self._made_here(vhost, queue)
                return queue
        remote = RemoteQueue(identity_of(vhost, meta), self._broker.queue_context, owner)
        vhost.enter_queue(remote)
        self.follow(remote, home if home != self._home else "", "")
        return remote

    def ask_histories(self, vhost: str, name: str, gathered: Gathered) -> None:
        """Those of the neighbours that are reached."""
        for node, link in self._links.items():
            if node not in self._unreached:
                RemoteHistory(link.client, vhost, name, gathered)

    def remote(self, queue: Queue) -> RemoteQueue:
        remote = RemoteQueue(queue.identity(), self._broker.queue_context)
        vhost = self._broker.vhosts[queue.vhost]
        vhost.apply_settings(remote)
        return remote

    def follow(self, queue: RemoteQueue, node: str, why: str) -> None:
        known = self._remote.get(queue.home)
        if known is not None and queue in known:
            known.remove(queue)
        link = None if node in self._unreached else self._links.get(node)
        if node:
            queue.move(node)
            self._remote.setdefault(node, []).append(queue)
        if link is not None:
            self._turn.cancelled(queue.follow(link.client))
            return
        queue.unfollow()
        if node in self._unreached:
            self._give_up(queue, node)
            return
        if node and not self._has_view(queue):
            why = inaccessible(queue, node)
        if why:
            queue.give_up(why, no_mirror=self._has_view(queue))

    def moved(self, consumers: list[Consumer], queue: Queue) -> None:
        self._turn.moved(consumers, queue)

    def full_links(self) -> list[str]:
        return self._full_links()

    def send_away(self, consumers: list[Consumer], why: str) -> None:
        self._turn.send_away(consumers, why)

    def _give_up(self, queue: RemoteQueue, node: str) -> None:
        """Its master lives, and is not reached."""
        if not self._has_view(queue):
            queue.give_up(inaccessible(queue, node))
            return
        text = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        why = f"node '{self._home}' does not reach '{node}', the master of {text}: ask another node"
        queue.give_up(why, elsewhere=True)
        self._turn.send_away(list(queue.consumers), why)

    def _has_view(self, queue: Queue) -> bool:
        """If its master's node is down, another becomes master, or it is said that none does."""
        return self._master_node(queue.vhost, queue.name) is not None

    # -- links ---------------------------------------------------------------------------

    def _look_who_is_reached(self, patience_ms: int) -> None:
        late = {name for name in self._links if self._silent_ms(name) > patience_ms}
        lost = late - self._unreached
        self._unreached = late
        for name in lost:
            for queue in self._living(name):
                queue.unfollow()
                self._give_up(queue, name)

    def begun(self, name: str) -> None:
        link = self._links[name] = LinkSession(self._broker, self._turn, name).queues
        for queue in self._living(name):
            self._turn.cancelled(queue.follow(link.client))

    def ended(self, name: str, now_ms: WallMs) -> None:
        self._links.pop(name).lost(now_ms)
        was_unreached = name in self._unreached
        self._unreached.discard(name)
        for queue in self._living(name):
            if was_unreached:
                queue.unfollow()
            if not self._has_view(queue):
                queue.give_up(inaccessible(queue, name))

    def _living(self, name: str) -> list[RemoteQueue]:
        """Those that were deleted are forgotten on the way."""
        known = [queue for queue in self._remote.get(name, []) if not queue.deleted]
        self._remote[name] = known
        return known

    def arrived(self, name: str, payload: bytes, now_ms: WallMs) -> None:
        self._links[name].receive(payload, now_ms)

    def _follow_again(self) -> None:
        """A request before the master was one, or after it had gone, was refused."""
        for name, link in self._links.items():
            if name in self._unreached:
                continue
            for queue in self._living(name):
                if queue.way is None:
                    self._turn.cancelled(queue.follow(link.client))

    # -- the turn ------------------------------------------------------------------------

    def end(self, now_ms: WallMs, patience_ms: int) -> None:
        """``patience_ms``: for how long a master's node that lives may be without a connection."""
        if not 0 <= now_ms - self._looked_ms < LOOK_MS:
            self._looked_ms = now_ms
            self._look_who_is_reached(patience_ms)
            self._follow_again()
        for name, link in self._links.items():
            link.client.connection_is(self._silent_ms(name) == 0)
            while payload := link.take_payload(now_ms):
                self._send(name, QUEUES_STREAM, payload)
