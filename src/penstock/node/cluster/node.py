"""``ClusterNode``: what makes a node one of several; a node that stands alone has none.

    join        the messages are recovered: etcd, the lease, the name; the listener for other nodes
    attach      at once behind it: the broker, with what this node knew last
    begin, end  its part of each turn: news of the cluster, then what other nodes sent; at the end
                of the turn what it brought forth goes out in one batch per neighbour
    leave       an orderly stop

Three clocks are in use: CLOCK_BOOTTIME where leases are concerned, the monotonic clock for all that
the cluster waits for, and wall time, which is the loop's ``now_ms``, for messages and people.

A node whose lease has ended counts as gone (K4): its exclusive queues are, and its links end.  It
goes on serving the queues whose only copy it has, and joins again as a new member as soon as etcd
answers.
"""

import logging
import platform
import secrets
import time
from collections.abc import Callable
from typing import Final

from penstock import __version__
from penstock.broker.broker import Broker
from penstock.broker.vhost_removal import CloseSome
from penstock.clocks import mono_ms, wall_ms
from penstock.cluster.agreement.batch_homes import BatchHomes
from penstock.cluster.agreement.common_metadata import CommonMetadata
from penstock.cluster.agreement.coordinator import Event, Proposal
from penstock.cluster.agreement.forgetting import Forgetting
from penstock.cluster.agreement.lost_transients import LostTransients
from penstock.cluster.agreement.membership import (
    DOWN,
    FORGOTTEN,
    JOINED,
    OVER,
    REFUSED_HERE,
    Happening,
    KnownNode,
    MemberRecord,
    Membership,
)
from penstock.cluster.agreement.pauses import Pauses
from penstock.cluster.agreement.store_client import ServedCoordinator
from penstock.cluster.mirrors.mirroring import UNREACHED_MS
from penstock.cluster.remote.link_session import Delivery
from penstock.core.errors import PenstockError, SettingInvalid
from penstock.core.pending import Pending
from penstock.node.cluster.known_revisions import KnownRevisions
from penstock.node.cluster.mirrors import MIRRORS_STREAM, MirrorsHere
from penstock.node.cluster.queues import QUEUES_STREAM, ClusterQueues
from penstock.node.coordination.etcd_coordinator import EtcdCoordinator, EtcdUnavailable
from penstock.node.coordination.etcd_http import EtcdOptions
from penstock.node.coordination.etcd_lease import boot_ms
from penstock.node.coordination.local_coordinator import local_coordinator
from penstock.protocols.peers.access import (
    peer_listener,
    read_secret,
    tls_between_nodes,
    unix_address,
    unix_path_of,
)
from penstock.protocols.peers.link import LinkFacts, Member
from penstock.protocols.peers.peers import PeerLimits, PeerOwner, Peers
from penstock.queues.consumers import Consumer
from penstock.runtime.cluster_part import ClusterPart
from penstock.runtime.listener import Listener
from penstock.runtime.loop import Loop
from penstock.settings.listener_table import door_at, etcd_risks, host_and_port
from penstock.settings.settings import Settings
from penstock.storage.engine.ram import RamAccount

TOLD: Final = {DOWN: "is down", FORGOTTEN: "was forgotten"}
PEER_ADDRESS: Final = "peer"
"""In a member's addresses: where other nodes call it."""
PEER_UNIX_ADDRESS: Final = "peer_unix"
DONE_STREAM: Final = 2
"""Of a link: up to which revision of the cluster's metadata the sender is."""
ANSWER_PATIENCE_S: Final = 20
"""For a coordinator that does not answer."""
LEASES_WAITED: Final = 2
"""Whoever has our name for longer is another process."""
RETURN_MS: Final = 5000
"""Who has only lost etcd with all others is back within this time, after them."""
PROMOTION_MS: Final = 2000
"""From the end of a master's lease until its successor is known everywhere, at most."""
JOIN_LOOK_S: Final = 0.01
LEASE_PATIENCE_S: Final = 1.0
"""After a pause, until it is known whether the lease lasts."""
HAND_OVER_PATIENCE_S: Final = 5
LOCAL: Final = "unix:"
"""In place of an endpoint of etcd: the socket of the coordinator that ``--nodes`` starts."""
ANYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound

logger = logging.getLogger("penstock.cluster")


def join_patience_s(lease_ttl_s: int) -> int:
    """For joining: a former life of this node, or of one that was founding, lasts a lease."""
    return LEASES_WAITED * lease_ttl_s + ANSWER_PATIENCE_S


class NameTaken(PenstockError):
    """While this node was out, another process has joined under its name."""


class ClusterNode(ClusterPart, PeerOwner):
    """See the head of this file.  Raises SettingInvalid where settings do not go together."""

    def __init__(self, settings: Settings, name: str) -> None:
        if not settings.cluster_secret_file:
            raise SettingInvalid(
                "a node of a cluster needs cluster_secret_file: a file, readable by its owner"
                " only, with the secret that all nodes share"
            )
        self.name = name
        self._settings = settings
        self._secret = read_secret("cluster_secret_file", settings.cluster_secret_file)
        self._tls = tls_between_nodes(settings)
        self._incarnation = secrets.token_hex(8)
        self._loop: Loop | None = None
        self.coordinator = self._coordinator()
        self.listeners: list[Listener] = []
        self.membership: Membership
        self.metadata: CommonMetadata
        self.queues: ClusterQueues
        self.mirrors: MirrorsHere
        self.peers: Peers
        self._now_ms = 0
        self._ram: RamAccount
        self._held: dict[str, list[Delivery]] = {}  # what neighbours said of queues, until then
        self._known = KnownRevisions()
        self._early: list[Event] = []
        self._tell_cancelled: Callable[[list[Consumer]], None]
        self._more = False
        self._pauses: Pauses

    @property
    def member(self) -> str:
        return f"{self.name}/{self._incarnation}"

    def _coordinator(self) -> EtcdCoordinator | ServedCoordinator:
        first = self._settings.cluster_etcd_endpoints[0]
        if first.startswith(LOCAL):
            return local_coordinator(first.removeprefix(LOCAL), self.member, self._wake)
        return EtcdCoordinator(etcd_options(self._settings, self._secret), self._wake)

    # -- boot ----------------------------------------------------------------------------

    def join(self) -> None:
        """Raises ``EtcdUnavailable``, OSError for the listener, SettingInvalid for the name."""
        settings = self._settings
        for text in etcd_risks(settings):
            logger.warning("%s", text)
        bind = door_at("cluster_port").address(settings)
        tls = None if self._tls is None else self._tls[0]
        self.listeners.append(peer_listener(bind, settings.cluster_port, tls))
        unix_path = settings.cluster_unix_socket
        if unix_path:
            self.listeners.append(peer_listener(unix_path=unix_path))
        host = settings.cluster_address or (platform.node() if bind in ANYWHERE else bind)
        self.coordinator.start(ANSWER_PATIENCE_S)
        started_ms = wall_ms()
        addresses = {PEER_ADDRESS: host_and_port(host, self.listeners[0].port)}
        if unix_path:
            addresses[PEER_UNIX_ADDRESS] = unix_address(unix_path)
        here = MemberRecord(
            self.name,
            self._incarnation,
            addresses,
            __version__,
            started_ms,
        )
        patience_ms = LEASES_WAITED * 1000 * settings.cluster_lease_ttl_s
        self.membership = Membership(self.coordinator, here, started_ms, patience_ms)
        self._pauses = Pauses(self.membership, self.coordinator, patience_ms // LEASES_WAITED)
        self._await_membership(time.monotonic() + join_patience_s(settings.cluster_lease_ttl_s))
        logger.info("%s has joined the cluster %s", self.member, settings.cluster_name)

    def _await_membership(self, until_s: float) -> None:
        membership = self.membership
        while membership.state != JOINED:
            self.coordinator.tick(boot_ms())
            events = self.coordinator.take_events()
            self._early += events
            membership.hear(events)
            membership.tick(boot_ms(), wall_ms())
            if membership.state == REFUSED_HERE:
                self.coordinator.close()
                raise SettingInvalid(membership.why_refused)
            if time.monotonic() > until_s:
                why = self.coordinator.why_not() or "no answer"
                self.coordinator.close()
                raise EtcdUnavailable(f"the cluster cannot be joined: {why}")
            time.sleep(JOIN_LOOK_S)

    def attach(
        self,
        broker: Broker,
        loop: Loop,
        close_some: CloseSome,
        tell_cancelled: Callable[[list[Consumer]], None],
    ) -> None:
        """``tell_cancelled``: their queue is gone."""
        self._tell_cancelled = tell_cancelled
        self._ram = broker.engine.ram
        self.peers = Peers(
            loop,
            Member(self.name, self._incarnation),
            self._settings.cluster_name,
            self._secret,
            self,
            PeerLimits(silence_ms=self._settings.cluster_silence_ms),
            calling_tls=None if self._tls is None else self._tls[1],
        )
        self.queues = ClusterQueues(
            broker, loop.turn, self.name, self.peers.send, self.peers.silent_ms
        )
        self.metadata = CommonMetadata(
            broker,
            self.coordinator,
            self.name,
            self.member,
            self._settings.queue_index_segment_entries,
            close_some,
            self.queues.make,
        )
        self.metadata.changes.is_known = self._is_known
        self.mirrors = MirrorsHere(
            broker,
            self.coordinator,
            self.metadata,
            self.membership,
            self.queues,
            loop.turn,
            self.peers.send,
            self.peers.is_connected,
        )
        self.metadata.changes.locating.arrange(
            self._settings.queue_master_locator,
            self._reached,
            lambda node: node in self.mirrors.mirroring.drained,
            self.mirrors.mirroring.masters,
            secrets.randbelow,
        )
        self._lost_transients = LostTransients(
            self.metadata.changes,
            self.membership,
            max(LEASES_WAITED * 1000 * self._settings.cluster_lease_ttl_s, RETURN_MS),
        )
        self.batches = BatchHomes(broker, self.coordinator, self.membership, wall_ms)
        broker.staging.claims = self.batches
        self.forgetting = Forgetting(self.metadata.changes, self.membership, self.mirrors.view_of)
        self._loop = loop
        until_s = time.monotonic() + join_patience_s(self._settings.cluster_lease_ttl_s)
        while not self.metadata.is_ready:
            if time.monotonic() > until_s:
                why = self.coordinator.why_not() or self.metadata.why_not_ready()
                raise EtcdUnavailable(f"the cluster's metadata cannot be had: {why}")
            self._hear_news(wall_ms())
            self._stay_member()
            time.sleep(JOIN_LOOK_S)
        self._name_peers()

    # -- the turn ------------------------------------------------------------------------

    def begin(self, now_ms: int) -> None:
        self._now_ms = now_ms
        happenings = self._hear_news(now_ms)
        self._stay_member()
        if happenings and self.membership.state == JOINED:
            self._name_peers()
        for happening in happenings:
            if happening.kind in TOLD:
                logger.warning("%s %s", happening.member, TOLD[happening.kind])
        for name in list(self._held):
            self._let_in(name)
        self.peers.begin(now_ms)
        self._lost_transients.turn(mono_ms())
        self.batches.turn(now_ms)
        self.metadata.changes.look()  # others may have said that they know
        self.mirrors.begin(now_ms)
        self._pauses.turned(boot_ms())

    def stood_still(self, now_ms: int) -> bool:
        pauses = self._pauses
        if pauses.unsure_until_ms:
            pauses.settle(boot_ms())
            self.begin(now_ms)
            return True
        if not pauses.lapsed(boot_ms()):
            return False
        # It may have been kept alive before the pause: the coordinator knows.
        until_s = time.monotonic() + LEASE_PATIENCE_S
        while not pauses.is_known(boot_ms()) and time.monotonic() < until_s:
            time.sleep(JOIN_LOOK_S)
            self.coordinator.tick(boot_ms())
        pauses.doubt(boot_ms())
        self.begin(now_ms)
        return not self.membership.may_act(boot_ms())

    def _stay_member(self) -> None:
        """Raises ``NameTaken``."""
        if self.membership.state == OVER:
            self._join_again()
        if self.membership.state == REFUSED_HERE:
            raise NameTaken(self.membership.why_refused)

    def _join_again(self) -> None:
        """As a new member: what was bound to the life before is gone, and its links with it."""
        former = self.member
        self.mirrors.mirroring.over(self._now_ms)
        self._incarnation = secrets.token_hex(8)
        self.peers.begin_life(Member(self.name, self._incarnation))
        self.metadata.changes.member = self.member
        self.membership.rejoin(self._incarnation)
        logger.warning("the lease of %s has ended: joining again as %s", former, self.member)

    def end(self, now_ms: int) -> None:
        self._say_what_is_done()
        self.queues.end(now_ms)
        self._more = self.mirrors.end(now_ms) or self._more
        self.peers.end(now_ms)
        self._ram.link_bytes = self.peers.waiting_bytes()

    def has_work(self) -> bool:
        if self._more or self.metadata.changes.settles or self._known.is_due():
            return True
        return self.peers.has_work()

    def _hear_news(self, now_ms: int) -> list[Happening]:
        self.coordinator.tick(boot_ms())
        news = self.coordinator.take_events()
        events = self._early + news  # the membership has heard the early ones
        self._early = []
        happenings = self.membership.hear(news)
        self.membership.tick(boot_ms(), wall_ms())
        is_cut_off = not self.membership.may_act(boot_ms())
        self.queues.patience_ms = UNREACHED_MS if is_cut_off else self._successor_ms()
        self.mirrors.look_who_lives(mono_ms(), is_cut_off=is_cut_off)
        self.mirrors.mirroring.told(events)
        self.batches.told(events)
        self._more = self.metadata.turn(mono_ms(), events)
        if self.metadata.is_begun and not self._more:
            self.metadata.heard(self.mirrors.mirroring.hear(now_ms))
        lost = self.metadata.take_lost()
        if lost:
            self._tell_cancelled(lost)
        return happenings

    def _successor_ms(self) -> int:
        """A master that has died has one by then, and it is heard of here."""
        return 1000 * self._settings.cluster_lease_ttl_s + PROMOTION_MS

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

    # -- for people ----------------------------------------------------------------------

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
            "nodes": [
                self._node_row(node, links.get(name))
                for name, node in sorted(self.membership.nodes.items())
            ],
        }

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

    def _wake(self) -> None:
        """From etcd's thread: there is news."""
        if self._loop is not None:
            self._loop.wake()

    # -- the end -------------------------------------------------------------------------

    def leave(self) -> None:
        """Others hear of it at once, not when the lease ends; and are masters in its place."""
        if self.membership.state == JOINED:
            self._await(self.mirrors.mirroring.stop(), HAND_OVER_PATIENCE_S)
            self.peers.stop()
            self._await([self.membership.leave()], 1)
        else:
            self.peers.stop()
        self.coordinator.close()

    def _await(self, proposals: list[Proposal], patience_s: float) -> None:
        until_s = time.monotonic() + patience_s
        while not all(one.done for one in proposals) and time.monotonic() < until_s:
            self.coordinator.tick(boot_ms())
            time.sleep(JOIN_LOOK_S)


def etcd_options(settings: Settings, secret: bytes) -> EtcdOptions:
    return EtcdOptions(
        tuple(settings.cluster_etcd_endpoints),
        secret,
        settings.cluster_name,
        settings.cluster_lease_ttl_s,
        settings.cluster_etcd_user,
        settings.cluster_etcd_password,
        settings.cluster_etcd_tls,
        settings.cluster_etcd_cacertfile,
        settings.cluster_etcd_certfile,
        settings.cluster_etcd_keyfile,
        settings.cluster_etcd_seal_records,
    )
