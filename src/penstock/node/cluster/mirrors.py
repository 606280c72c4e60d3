"""``ClusterMirrors``: joins the mirrored queues of a node (``mirrors/mirroring.py``) to its loop.

links ─► arrived ─► Mirroring          Mirroring ─► say ─► one payload for each neighbour ─► links
Mirroring ─► Places ─► ClusterQueues: which queue follows whom; Turn: whose consumers moved
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Final

from penstock.broker.broker import Broker
from penstock.cluster.agreement.common_metadata import CommonMetadata
from penstock.cluster.agreement.coordinator import Coordinator, Entry, Event
from penstock.cluster.agreement.forgetting import KnownView
from penstock.cluster.agreement.membership import Membership
from penstock.cluster.agreement.queue_views import node_of
from penstock.cluster.mirrors.mirroring import Mirroring
from penstock.cluster.mirrors.queue import QueueDirectory
from penstock.cluster.mirrors.verbs import ClusterMirrors
from penstock.cluster.remote.queue import RemoteQueue
from penstock.core.clock_types import MonoMs
from penstock.core.credit import FlowBook
from penstock.node.cluster.queues import ClusterQueues
from penstock.protocols.peers.codec.mirrors import decode_said, encode_said
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.runtime.session import Session
from penstock.runtime.turn import Turn

MIRRORS_STREAM: Final = 3
"""Of a link: what groups of mirrored queues say to each other."""
PAYLOAD_BYTES: Final = 1024 * 1024
"""More goes into the next: a link that is cut sends whole payloads again."""


class MirrorQueueDirectory(QueueDirectory):
    """What ``Mirroring`` asks of the node."""

    def __init__(self, queues: ClusterQueues, turn: Turn) -> None:
        self._queues = queues
        self._turn = turn

    def remote(self, queue: Queue) -> RemoteQueue:
        return self._queues.remote_like(queue)

    def follow(self, queue: RemoteQueue, node: str, why: str) -> None:
        self._queues.follow(queue, node, why)

    def moved(self, consumers: list[Consumer], queue: Queue) -> None:
        self._turn.moved(consumers, queue)

    def send_away(self, consumers: list[Consumer], why: str) -> None:
        self._turn.send_away(consumers, why)


class DiskWaiter(Session):
    """Waits for the disk as the turn knows it, while masters elsewhere do; it has no socket."""

    def __init__(self, book: FlowBook, mirroring: Mirroring) -> None:
        super().__init__(book)
        self._mirroring = mirroring

    def look(self, turn: Turn) -> None:
        self.awaiting_disk = self._mirroring.awaits_disk()
        if self.awaiting_disk:
            turn.fed(self)

    def confirm(self, durable_position: int) -> None:
        """Mirrors say so at the end of the turn."""
        self.awaiting_disk = self._mirroring.awaits_disk()


class PeerOutbox:
    """What is to be said to each neighbour, gathered until the end of the turn."""

    def __init__(
        self, lives: Callable[[str], bool], send: Callable[[str, int, bytes], None]
    ) -> None:
        self._lives = lives
        self._send = send
        self._said: dict[str, list[bytes]] = {}
        self._sizes: dict[str, int] = {}

    def say(self, member: str, vhost: str, queue: str, speaker: str, data: bytes) -> None:
        """To a member that is none any more nothing is said."""
        if not self._lives(member):
            return
        node = node_of(member)
        said = self._said.setdefault(node, [])
        said.append(encode_said(vhost, queue, speaker, data))
        size = self._sizes.get(node, 0) + len(data)
        self._sizes[node] = size
        if size >= PAYLOAD_BYTES:
            self._flush(node)

    def flush(self) -> None:
        for node in list(self._said):
            self._flush(node)

    def _flush(self, node: str) -> None:
        self._send(node, MIRRORS_STREAM, b"".join(self._said.pop(node)))
        self._sizes.pop(node, None)


class MirrorsHere:
    """``facts_and_verbs`` is the broker's ``mirrors``."""

    def __init__(
        self,
        broker: Broker,
        coordinator: Coordinator,
        metadata: CommonMetadata,
        membership: Membership,
        queues: ClusterQueues,
        turn: Turn,
        send: Callable[[str, int, bytes], None],
        is_connected: Callable[[str], bool],
    ) -> None:
        self._membership = membership
        self._turn = turn
        self._changes = metadata.changes
        self._mouth = PeerOutbox(membership.lives, send)
        self.mirroring = Mirroring(
            broker,
            coordinator,
            metadata.agreed,
            metadata.changes.member,
            MirrorQueueDirectory(queues, turn),
            self._mouth.say,
            secrets.randbelow,
        )
        self.mirroring.told(snapshot_events(coordinator.snapshot()))
        self.facts_and_verbs = ClusterMirrors(self.mirroring, metadata.changes, membership.known)
        broker.mirrors = self.facts_and_verbs
        metadata.changes.is_master = self.is_master
        queues.master_node = self.mirroring.master_node
        queues.made_here = self.mirroring.made
        self._is_connected = is_connected
        self._waiter = DiskWaiter(broker.flow.book, self.mirroring)

    def is_master(self, queue: Queue) -> bool:
        mastered = self.mirroring.is_master(queue)
        return self._changes.is_at_home(queue) if mastered is None else mastered

    def view_of(self, vhost: str, queue: str) -> KnownView | None:
        known = self.mirroring.queues.get((vhost, queue))
        if known is None or known.view is None:
            return None
        return KnownView(known.view, known.view_revision)

    def look_who_lives(self, mono_ms: MonoMs, *, is_cut_off: bool) -> None:
        """``is_cut_off``: this node's lease is over, as far as it knows."""
        nodes = self._membership.nodes.values()
        living = {node.name: node.living.member for node in nodes if node.living is not None}
        unreached = [name for name in living if not self._is_reached(name)]
        self.mirroring.look_who_lives(
            mono_ms, self._changes.member, living, unreached, is_cut_off=is_cut_off
        )

    def _is_reached(self, node: str) -> bool:
        return node == self.mirroring.nodes.here or self._is_connected(node)

    def begin(self, now_ms: int) -> None:
        self.mirroring.begin(now_ms)
        self._waiter.look(self._turn)

    def arrived(self, member: str, payload: bytes) -> None:
        """Raises Malformed; then the link is to be ended."""
        for said in decode_said(payload):
            self.mirroring.arrived(member, *said)

    def end(self, now_ms: int) -> bool:
        """True = there is more to do at once."""
        more = self.mirroring.end(now_ms)
        self._mouth.flush()
        return more


def snapshot_events(entries: Sequence[Entry]) -> list[Event]:
    """What there was before the first event, in the order in which it was made."""
    return [Event(entry.revision, entry.key, entry.value, created=True) for entry in entries]
