"""``ClusterMirrors``: joins the mirrored queues of a node (``mirrors/mirroring.py``) to its loop.

links ─► arrived ─► Mirroring          Mirroring ─► say ─► one payload for each neighbour ─► links
Mirroring ─► ClusterQueues: which queue follows which node, and whose consumers moved
LogIns ◄─► links: wrong passwords, so that a lock-out is the cluster's
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from mypy_extensions import i64

from penstock.broker.broker import Broker
from penstock.broker.rules.lockouts import News
from penstock.cluster.agreement.agreed import Agreed
from penstock.cluster.agreement.coordinator import Entry, Event, node_of
from penstock.cluster.agreement.hearing import Hearing
from penstock.cluster.mirrors.first_views import FirstViews
from penstock.cluster.mirrors.masters import ViewedMasters
from penstock.cluster.mirrors.mirroring import Mirroring
from penstock.cluster.mirrors.scrubbing import CopyScrub
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.credit import FlowBook
from penstock.node.cluster.member import ClusterMember
from penstock.node.cluster.queues import ClusterQueues
from penstock.node.data_dir import is_current
from penstock.protocols.peers.codec.mirrors import (
    LOG_INS,
    decode_news,
    decode_said,
    encode_news,
    encode_said,
)
from penstock.protocols.peers.peers import Peers
from penstock.runtime.session import Session
from penstock.runtime.turn import Turn

logger = logging.getLogger("penstock.mirroring")

MIRRORS_STREAM: Final = 3
"""Of a link: what groups of mirrored queues say to each other."""
OF_NODES: Final = ""
"""In the place of a virtual host: what a node says of nodes (``Hearing``)."""
PAYLOAD_BYTES: Final = 1024 * 1024
"""More goes into the next: a link that is cut sends whole payloads again."""


class DiskWaiter(Session):
    """Waits for the disk as the turn knows it, while masters elsewhere do; it has no socket."""

    def __init__(self, book: FlowBook, mirroring: Mirroring) -> None:
        super().__init__(book)
        self._mirroring = mirroring

    def look(self, turn: Turn) -> None:
        self.awaiting_disk = self._mirroring.awaits_disk()
        if self.awaiting_disk:
            turn.fed(self)

    def confirm(self, durable_position: i64) -> None:
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

    def say(self, member: str, vhost: str, queue: str, speaker: str, said: list[bytes]) -> None:
        """To a member that is none any more nothing is said."""
        if not self._lives(member):
            return
        node = node_of(member)
        pieces = encode_said(vhost, queue, speaker, said)
        self._said.setdefault(node, []).extend(pieces)
        size = self._sizes.get(node, 0)
        for piece in pieces:
            size += len(piece)
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
    """Of one node of a cluster; ``member``: this one."""

    def __init__(
        self,
        broker: Broker,
        member: ClusterMember,
        agreed: Agreed,
        queues: ClusterQueues,
        turn: Turn,
        peers: Peers,
        masters: ViewedMasters,
        first: FirstViews,
    ) -> None:
        self._member = member
        self._turn = turn
        self._peers = peers
        self._users = broker.users
        self._hearing = Hearing(member.membership.here.name)
        self._outbox = PeerOutbox(member.membership.lives, peers.send)
        self.mirroring = Mirroring(
            broker,
            member.coordinator,
            agreed,
            str(member),
            queues,
            self._outbox.say,
            first.chance,
            masters,
            first,
        )
        settings = member.access.settings
        self._scrub = CopyScrub(self.mirroring.queues, settings.cluster_scrub_bytes_per_s)
        self._masters = masters
        if masters.is_old_disk:
            logger.warning(
                "the data directory is a backup: copies of quorum queues have no vote before they"
                " have caught up"
            )
        self.mirroring.told(snapshot_events(member.coordinator.snapshot()))
        self._mono_ms = MonoMs(0)  # of the turn
        self._waiter = DiskWaiter(broker.flow.book, self.mirroring)

    def begin_life(self, now_ms: WallMs) -> None:
        """This node is a new member."""
        self.mirroring.begin_life(str(self._member), now_ms)
        self._hearing.begin_life()

    def look_who_lives(self, mono_ms: MonoMs) -> None:
        self._mono_ms = mono_ms
        nodes = self._member.membership.nodes.values()
        living = {node.name: node.living.member for node in nodes if node.living is not None}
        others = [name for name in living if name != self.mirroring.nodes.here]
        unreached = [name for name in others if not self._peers.is_connected(name)]
        unheard = [name for name in others if self._peers.is_unheard(name)]
        for member, data in self._hearing.look(living, unheard):
            self._outbox.say(member, OF_NODES, "", "", [data])
        self.mirroring.look_who_lives(
            mono_ms,
            living,
            unreached,
            self._hearing.unheard,
            is_cut_off=not self._member.may_act(),
        )

    def begin(self, now_ms: WallMs) -> None:
        self.mirroring.begin(now_ms)
        if self._masters.is_old_disk and self.mirroring.trust_copies():
            is_current(self._member.access.settings.data_dir)
            logger.info("the copies of quorum queues have caught up, and vote")
        for sentence in self.mirroring.changes.take_sentences():
            logger.info("%s", sentence)
        self._waiter.look(self._turn)

    def arrived(self, member: str, payload: bytes) -> None:
        """Raises Malformed; then the link is to be ended."""
        for vhost, queue, speaker, data in decode_said(payload):
            if vhost != OF_NODES:
                self.mirroring.arrived(member, vhost, queue, speaker, data)
            elif queue == LOG_INS:
                self._users.hear([News(*one) for one in decode_news(data)])
            else:
                self._hearing.hear(member, data)

    def end(self, now_ms: WallMs) -> bool:
        """True = there is more to do at once."""
        more = self.mirroring.end(now_ms)
        self._scrub.tick(self._mono_ms)
        news = self._users.take_news()
        if news:
            data = encode_news(news)
            for node in self._member.membership.nodes.values():
                if node.living is not None and node.name != self.mirroring.nodes.here:
                    self._outbox.say(node.living.member, OF_NODES, LOG_INS, "", [data])
        self._outbox.flush()
        return more


def snapshot_events(entries: Sequence[Entry]) -> list[Event]:
    """What there was before the first event, in the order in which it was made."""
    return [Event(entry.revision, entry.key, entry.value, created=True) for entry in entries]
