"""``ClusterNode``: what makes a node one of several; a node that stands alone has none.

    ClusterNode   a member (member.py) with the broker and what this node knew last; complete when
                  it is at the cluster's present state
    begin, end    its part of each turn: news of the cluster, then what other nodes sent; at the end
                  of the turn what it brought forth goes out in one batch per neighbour
    leave         an orderly stop

Three clocks are in use: CLOCK_BOOTTIME where leases are concerned, the monotonic clock for all that
the cluster waits for, and wall time, which is the loop's ``now_ms``, for messages and operators.

A node whose lease has ended counts as gone (K4): its exclusive queues are, and its links end.  It
goes on serving the queues whose only copy it has, and joins again as a new member as soon as etcd
answers.
"""

import logging
import secrets
import time
from collections.abc import Callable
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.vhost_removal import CloseSome
from penstock.clocks import mono_ms, wall_ms
from penstock.cluster.agreement.agreed import Agreed
from penstock.cluster.agreement.batch_homes import BatchHomes
from penstock.cluster.agreement.cluster_alarms import ClusterAlarms
from penstock.cluster.agreement.common_metadata import CommonMetadata
from penstock.cluster.agreement.coordinator import Event
from penstock.cluster.agreement.forgetting import Forgetting
from penstock.cluster.agreement.locating import Locating
from penstock.cluster.agreement.lost_transients import LostTransients
from penstock.cluster.agreement.membership import DOWN, FORGOTTEN, JOINED, Happening, KnownNode
from penstock.cluster.agreement.pauses import Pauses
from penstock.cluster.agreement.proposing import Surroundings
from penstock.cluster.mirrors.first_views import FirstViews
from penstock.cluster.mirrors.masters import ViewedMasters
from penstock.cluster.mirrors.mirroring import UNREACHED_MS
from penstock.cluster.mirrors.verbs import ClusterMirrors
from penstock.cluster.remote.link_session import Delivery
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.pending import Pending
from penstock.node.cluster.known_revisions import KnownRevisions
from penstock.node.cluster.member import (
    JOIN_LOOK_S,
    LEASES_WAITED,
    PEER_ADDRESS,
    PEER_UNIX_ADDRESS,
    ClusterMember,
)
from penstock.node.cluster.mirrors import MIRRORS_STREAM, MirrorsHere
from penstock.node.cluster.queues import QUEUES_STREAM, ClusterQueues
from penstock.node.coordination.etcd_coordinator import EtcdUnavailable
from penstock.node.coordination.etcd_lease import boot_ms
from penstock.node.data_dir import is_from_backup
from penstock.node.resource_monitor import tell_alarm
from penstock.protocols.peers.access import unix_path_of
from penstock.protocols.peers.link import LinkFacts, Member
from penstock.protocols.peers.peers import PeerLimits, PeerOwner, Peers
from penstock.queues.consumers import Consumer
from penstock.runtime.cluster_part import ClusterPart
from penstock.runtime.loop import Loop

TOLD: Final = {DOWN: "is down", FORGOTTEN: "was forgotten"}
DONE_STREAM: Final = 2
"""Of a link: up to which revision of the cluster's metadata the sender is."""
RETURN_MS: Final = 5000
"""A node that has only lost etcd with all others is back within this time, after them."""
PROMOTION_MS: Final = 2000
"""From the end of a master's lease until its successor is known everywhere, at most."""
LEASE_PATIENCE_S: Final = 1.0
"""After a pause, until it is known whether the lease lasts."""
HAND_OVER_PATIENCE_S: Final = 5
LOOK_MS: Final = 20
"""So often a busy node looks at what only time changes: leases, who lives, alarms, old requests."""

logger = logging.getLogger("penstock.cluster")


class ClusterNode(ClusterPart, PeerOwner):
    """See the head of this file; ``tell_cancelled``: the queue of these consumers is gone.

    Raises ``EtcdUnavailable`` when the cluster's present state is not to be had in time.
    """

    def __init__(
        self,
        member: ClusterMember,
        broker: Broker,
        loop: Loop,
        close_some: CloseSome,
        tell_cancelled: Callable[[list[Consumer]], None],
    ) -> None:
        access = member.access
        self.name = member.name
        self.coordinator = member.coordinator
        self.membership = member.membership
        self._joined = member
        self._settings = access.settings
        self._ram = broker.engine.ram
        self._admission = broker.admission
        self._alarms = ClusterAlarms(self.coordinator, self.membership)
        self._tell_cancelled = tell_cancelled
        self._now_ms = WallMs(0)
        self._more = self._mirrors_more = False
        self._looked_ms = MonoMs(0)
        self._held: dict[str, list[Delivery]] = {}  # what neighbours said of queues, until then
        self._known = KnownRevisions()
        self._pauses = Pauses(self.membership, self.coordinator, access.lease_ms())
        self.peers = self._new_peers(loop)
        agreed = Agreed()
        masters = ViewedMasters(is_old_disk=is_from_backup(self._settings.data_dir))
        first = FirstViews(broker, self.coordinator, agreed, secrets.randbelow)
        peers = (self.peers.send, self.peers.full, self.peers.silent_ms)
        self.queues = ClusterQueues(
            broker, loop.turn, self.name, *peers, masters.node_of, first.made
        )
        self.mirrors = MirrorsHere(
            broker, member, agreed, self.queues, loop.turn, self.peers, masters, first
        )
        mirroring = self.mirrors.mirroring
        locating = Locating(
            agreed,
            self.name,
            self._settings.queue_master_locator,
            self._reached,
            mirroring.is_drained,
            masters.by_place,
            secrets.randbelow,
            lambda: mirroring.nodes.members,
            self.membership.known,
        )
        self.metadata = CommonMetadata(
            broker,
            self.coordinator,
            self.name,
            self.member,
            self._settings.queue_index_segment_entries,
            close_some,
            self.queues.make,
            agreed,
            Surroundings(self._is_known, mirroring.is_master, locating, self.queues.ask_histories),
        )
        changes = self.metadata.changes
        patience_ms = max(LEASES_WAITED * access.lease_ms(), RETURN_MS)
        self._lost_transients = LostTransients(changes, self.membership, patience_ms)
        self.forgetting = Forgetting(changes, self.membership, mirroring.view_of)
        self.batches = BatchHomes(broker, self.coordinator, self.membership, wall_ms)
        broker.share(ClusterMirrors(mirroring, changes, self.membership.known), self.batches)
        self._catch_up(access.patience_s())

    @property
    def member(self) -> str:
        return str(self._joined)

    def _new_peers(self, loop: Loop) -> Peers:
        access = self._joined.access
        return Peers(
            loop,
            self._joined.life(),
            self._settings.cluster_name,
            access.secret,
            self,
            PeerLimits(silence_ms=self._settings.cluster_silence_ms),
            calling_tls=None if access.tls is None else access.tls[1],
        )

    def _catch_up(self, patience_s: int) -> None:
        until_s = time.monotonic() + patience_s
        while not self.metadata.is_ready:
            if time.monotonic() > until_s:
                why = self.coordinator.why_not() or self.metadata.why_not_ready()
                raise EtcdUnavailable(f"the cluster's metadata cannot be had: {why}")
            self._hear_news(wall_ms())
            self._stay_member()
            time.sleep(JOIN_LOOK_S)
        self._name_peers()

    # -- the turn ------------------------------------------------------------------------

    def begin(self, now_ms: WallMs) -> None:
        self._now_ms = now_ms
        if self._is_time_to_look():
            self._look(now_ms)
        self.peers.begin(now_ms)
        self.metadata.changes.look()  # others may have said that they know
        self.mirrors.begin(now_ms)
        self._pauses.turned(boot_ms())

    def _is_time_to_look(self) -> bool:
        """The loop turns at once when there is news."""
        if self.coordinator.has_news() or self._more or self._held:
            return True
        return not self.metadata.changes.is_idle() or mono_ms() - self._looked_ms >= LOOK_MS

    def _look(self, now_ms: WallMs) -> None:
        self._looked_ms = mono_ms()
        happenings = self._hear_news(now_ms)
        self._stay_member()
        if happenings and self.membership.state == JOINED:
            self._name_peers()
        for happening in happenings:
            if happening.kind in TOLD:
                logger.warning("%s %s", happening.member, TOLD[happening.kind])
        for name in list(self._held):
            self._let_in(name)
        self._lost_transients.turn(self._looked_ms)
        self.batches.turn(now_ms)
        self._alarms.tell(self._admission.short_of(), boot_ms())

    def stood_still(self, now_ms: WallMs) -> bool:
        pauses = self._pauses
        if pauses.unsure_until_ms:
            pauses.settle(boot_ms())
            self._begin_with_a_look(now_ms)
            return True
        if not pauses.lapsed(boot_ms()):
            return False
        # It may have been kept alive before the pause: the coordinator knows.
        until_s = time.monotonic() + LEASE_PATIENCE_S
        while not pauses.is_known(boot_ms()) and time.monotonic() < until_s:
            time.sleep(JOIN_LOOK_S)
            self.coordinator.tick(boot_ms())
        pauses.doubt(boot_ms())
        self._begin_with_a_look(now_ms)
        return not self._joined.may_act()

    def _begin_with_a_look(self, now_ms: WallMs) -> None:
        self._looked_ms = MonoMs(0)
        self.begin(now_ms)

    def _stay_member(self) -> None:
        """Or become a new one: what was bound to the life before is gone, and its links with it."""
        if self._joined.begin_life():
            self.mirrors.begin_life(self._now_ms)
            self.peers.begin_life(self._joined.life())
            self.metadata.changes.begin_life(self.member)

    def end(self, now_ms: WallMs) -> None:
        self._say_what_is_done()
        self.queues.end(now_ms, self._patience_ms())
        self._mirrors_more = self.mirrors.end(now_ms)
        self.peers.end(now_ms)
        self._ram.count_links(self.peers.waiting_bytes())

    def has_work(self) -> bool:
        more = self._more or self._mirrors_more
        if more or self.metadata.changes.settles or self._known.is_due():
            return True
        return self.peers.has_work()

    def _hear_news(self, now_ms: WallMs) -> list[Happening]:
        self.coordinator.tick(boot_ms())
        news = self.coordinator.take_events()
        events = self._joined.take_early() + news
        happenings = self.membership.hear(news)
        self.membership.tick(boot_ms(), wall_ms())
        self.mirrors.look_who_lives(mono_ms())
        self.mirrors.mirroring.told(events)
        self.batches.told(events)
        self._hear_alarms(news)
        self._more = self.metadata.turn(mono_ms(), events)
        if self.metadata.is_begun and not self._more:
            self.metadata.heard(self.mirrors.mirroring.hear(now_ms))
        lost = self.metadata.take_lost()
        if lost:
            self._tell_cancelled(lost)
        return happenings

    def _hear_alarms(self, news: list[Event]) -> None:
        if not self._alarms.hear(news):
            return
        before, now = self._admission.elsewhere, self._alarms.elsewhere
        self._admission.note_elsewhere(now)
        for node in sorted({*before, *now}):
            for resource in sorted({*before.get(node, ()), *now.get(node, ())}):
                is_set = resource in now.get(node, ())
                if is_set != (resource in before.get(node, ())):
                    tell_alarm(self._admission, resource, node, is_set=is_set)

    def _patience_ms(self) -> int:
        """With a master that is not reached; if it died it has a successor, known here, by then."""
        if not self._joined.may_act():
            return UNREACHED_MS
        return self._joined.access.lease_ms() + PROMOTION_MS

    def _name_peers(self) -> None:
        members: list[Member] = []
        for node in self.membership.nodes.values():
            living = node.living
            if living is not None:
                host, _, port = living.addresses[PEER_ADDRESS].rpartition(":")
                host = host.strip("[]")
                unix_path = unix_path_of(living.addresses.get(PEER_UNIX_ADDRESS, ""))
                member = Member(living.name, living.incarnation, host, int(port), unix_path)
                members.append(member)
        self.peers.set_members(members)

    # -- for operators -------------------------------------------------------------------

    def forget(self, node: str) -> Pending | None:
        """It never comes back; to be run by an ``Ask``."""
        return self.forgetting.forget(node)

    def facts(self) -> dict[str, object]:
        """What ``/api/penstock/cluster`` answers; on the data loop."""
        links = {one.name: one for one in self.peers.facts()}
        return {
            "this_node": self.name,
            "cluster_name": self._settings.cluster_name,
            "coordinator": ", ".join(self._settings.cluster_etcd_endpoints),
            "why_not": self.coordinator.why_not(),
            "cut_off": self._cut_off(),
            "nodes": [
                self._node_row(node, links.get(name))
                for name, node in sorted(self.membership.nodes.items())
            ],
        }

    def _cut_off(self) -> str:
        """Why clients had better go to another node; "" = they need not.

        Without the coordinator alone a node goes on, as all others do then.
        """
        others = [name for name in self.membership.running() if name != self.name]
        away = [name for name in others if not self.peers.is_connected(name)]
        is_alone = away == others or self.mirrors.mirroring.has_isolated()
        if self._joined.may_act() or not away or not is_alone:
            return ""
        return (
            f"node '{self.name}' is cut off: it hears neither the coordinator nor {', '.join(away)}"
        )

    def _node_row(self, node: KnownNode, link: LinkFacts | None) -> dict[str, object]:
        living = node.living
        row: dict[str, object] = {
            "name": node.name,
            "running": living is not None,
            "joined_ms": node.joined_ms,
            "down_since_ms": node.down_since_ms,
        }
        if living is not None:
            row |= {
                "incarnation": living.incarnation,
                "started_ms": living.started_ms,
                "version": living.version,
                "addresses": living.addresses,
            }
        if link is not None:
            row["link"] = {
                "connected": link.is_connected,
                "connected_at_ms": link.connected_at_ms,
                "connections": link.connections,
                "last_error": link.last_error,
                "waiting_bytes": link.waiting_bytes,
                "bytes_in": link.bytes_in,
                "bytes_out": link.bytes_out,
                "full": link.is_full,
            }
        return row

    # -- links ---------------------------------------------------------------------------

    def begun(self, member: Member) -> None:
        self.peers.send(member.name, DONE_STREAM, self._known.begun(member.name))
        self.queues.begun(member.name)

    def ended(self, member: Member) -> None:
        self._known.ended(member.name)
        self._held.pop(member.name, None)
        self.queues.ended(member.name, self._now_ms)

    def arrived(self, member: Member, deliveries: list[Delivery]) -> None:
        for stream, payload in deliveries:
            if stream == DONE_STREAM:
                self._known.heard(member.name, payload)
            else:
                self._held.setdefault(member.name, []).append((stream, payload))
        self._let_in(member.name)

    def may_take(self, member: Member) -> bool:
        """What it says meanwhile waits at its own end."""
        return member.name not in self._held

    def _let_in(self, name: str) -> None:
        """A neighbour that is ahead may speak of queues that are not here yet: not before that."""
        if not self.metadata.has(self._known.wanted_by(name)) and not self.coordinator.why_not():
            return
        for stream, payload in self._held.pop(name, []):
            if stream == MIRRORS_STREAM:
                self.mirrors.arrived(str(self.peers.links[name].member), payload)
            else:
                assert stream == QUEUES_STREAM
                self.queues.arrived(name, payload, self._now_ms)

    def _is_known(self, revision: int) -> bool:
        """K8: by every node that this one can hear."""
        return self._known.is_known(revision, self.peers.is_connected)

    def _reached(self) -> list[str]:
        """Where a queue can be used as soon as it is declared."""
        return sorted([self.name, *filter(self.peers.is_connected, self._known.neighbours())])

    def _say_what_is_done(self) -> None:
        agreed = self.metadata.agreed
        news = self._known.news(agreed.revision, agreed.changed)
        if news:
            for name in self._known.neighbours():
                self.peers.send(name, DONE_STREAM, news)

    # -- the end -------------------------------------------------------------------------

    def leave(self) -> None:
        """Others are masters in its place."""
        if self.membership.state == JOINED:
            self._joined.wait_for(self.mirrors.mirroring.stop(), HAND_OVER_PATIENCE_S)
        self.peers.stop()
        self._joined.leave()
