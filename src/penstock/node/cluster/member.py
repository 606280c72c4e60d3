"""``ClusterMember``: this node as a member of its cluster: its lease, its name and its listeners.

``cluster_access`` checks the settings early in a start, and starts nothing.  When the messages are
recovered a ``ClusterMember`` listens for other nodes and joins; it is complete when it has.
"""

import logging
import platform
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from penstock import __version__
from penstock.clocks import wall_ms
from penstock.cluster.agreement.coordinator import Event, Proposal
from penstock.cluster.agreement.membership import (
    JOINED,
    OVER,
    REFUSED_HERE,
    MemberRecord,
    Membership,
)
from penstock.cluster.agreement.store_client import ServedCoordinator
from penstock.core.errors import PenstockError, SettingInvalid
from penstock.node.coordination.etcd_coordinator import EtcdCoordinator, EtcdUnavailable
from penstock.node.coordination.etcd_http import EtcdOptions
from penstock.node.coordination.etcd_lease import boot_ms
from penstock.node.coordination.local_coordinator import local_coordinator
from penstock.protocols.peers.access import peer_listener, read_secret, unix_address
from penstock.protocols.peers.link import Member
from penstock.runtime.listener import Listener
from penstock.secrets.sources import secret_of
from penstock.settings.listener_table import etcd_risks, host_and_port, listener_at
from penstock.settings.settings import Settings
from penstock.tls.options import TlsOptions

PEER_ADDRESS: Final = "peer"
"""In a member's addresses: where other nodes call it."""
PEER_UNIX_ADDRESS: Final = "peer_unix"
ANSWER_PATIENCE_S: Final = 20
"""For a coordinator that does not answer."""
LEASES_WAITED: Final = 2
"""A process that has our name for longer is another one."""
JOIN_LOOK_S: Final = 0.01
LOCAL: Final = "unix:"
"""In place of an endpoint of etcd: the socket of the coordinator that ``--nodes`` starts."""
ANYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound

NodeCoordinator = EtcdCoordinator | ServedCoordinator

logger = logging.getLogger("penstock.cluster")


def join_patience_s(lease_ttl_s: int) -> int:
    """For joining: a former life of this node, or of one that was founding, lasts a lease."""
    return LEASES_WAITED * lease_ttl_s + ANSWER_PATIENCE_S


class NameTaken(PenstockError):
    """While this node was out, another process has joined under its name."""


class ClusterAccess(NamedTuple):
    """What a node needs to join; ``tls``: for being called and for calling."""

    settings: Settings
    name: str
    incarnation: str
    secret: bytes
    tls: tuple[TlsOptions, TlsOptions] | None
    coordinator: NodeCoordinator

    def join(self) -> "ClusterMember":
        """Not before the recovery: a lease is shorter than that may be."""
        return ClusterMember(self)

    def lease_ms(self) -> int:
        return 1000 * self.settings.cluster_lease_ttl_s

    def patience_s(self) -> int:
        return join_patience_s(self.settings.cluster_lease_ttl_s)


def cluster_access(
    settings: Settings,
    name: str,
    wake: Callable[[], None],
    tls: tuple[TlsOptions, TlsOptions] | None,
) -> ClusterAccess:
    """``wake``: the coordinator has news; called from its thread.  ``tls``: ``ClusterAccess``'s.

    Raises SettingInvalid where settings do not go together, and ``EtcdUnavailable``.
    """
    if not settings.cluster_secret_file:
        raise SettingInvalid(
            "a node of a cluster needs cluster_secret_file: a file, readable by its owner"
            " only, with the secret that all nodes share"
        )
    secret = read_secret("cluster_secret_file", settings.cluster_secret_file)
    incarnation = secrets.token_hex(8)
    first = settings.cluster_etcd_endpoints[0]
    coordinator: NodeCoordinator
    if first.startswith(LOCAL):
        coordinator = local_coordinator(first.removeprefix(LOCAL), f"{name}/{incarnation}", wake)
    else:
        coordinator = EtcdCoordinator(etcd_options(settings, secret), wake)
        coordinator.look()
    return ClusterAccess(settings, name, incarnation, secret, tls, coordinator)


class ClusterMember:
    """Raises ``EtcdUnavailable``, OSError for the listener, SettingInvalid for the name."""

    def __init__(self, access: ClusterAccess) -> None:
        for text in etcd_risks(access.settings):
            logger.warning("%s", text)
        self.access = access
        self.name = access.name
        self.coordinator = access.coordinator
        self.listeners = _listeners(access)
        self.coordinator.start(ANSWER_PATIENCE_S)
        started_ms = wall_ms()
        addresses = _addresses(access.settings, self.listeners[0].port)
        here = MemberRecord(self.name, access.incarnation, addresses, __version__, started_ms)
        patience_ms = LEASES_WAITED * access.lease_ms()
        self.membership = Membership(self.coordinator, here, started_ms, patience_ms)
        self._early: list[Event] = []
        self._await_membership()
        logger.info("%s has joined the cluster %s", self, access.settings.cluster_name)

    def __str__(self) -> str:
        return self.membership.here.member

    def life(self) -> Member:
        """As other nodes call it."""
        return Member(self.name, self.membership.here.incarnation)

    def _await_membership(self) -> None:
        membership = self.membership
        until_s = time.monotonic() + self.access.patience_s()
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

    def take_early(self) -> list[Event]:
        """What the membership has heard while it joined, and no other part yet."""
        early, self._early = self._early, []
        return early

    def may_act(self) -> bool:
        """Its lease lasts, as far as this node knows."""
        return self.membership.may_act(boot_ms())

    def begin_life(self) -> bool:
        """As a new member, if the lease of the former life is over; raises ``NameTaken``."""
        if self.membership.state == REFUSED_HERE:
            raise NameTaken(self.membership.why_refused)
        if self.membership.state != OVER:
            return False
        former = str(self)
        self.membership.rejoin(secrets.token_hex(8))
        logger.warning("the lease of %s has ended: joining again as %s", former, self)
        return True

    def leave(self) -> None:
        """Others hear of it at once, not when the lease ends."""
        if self.membership.state == JOINED:
            self.wait_for([self.membership.leave()], 1)
        self.coordinator.close()

    def wait_for(self, proposals: Iterable[Proposal], patience_s: float) -> None:
        until_s = time.monotonic() + patience_s
        waiting = list(proposals)
        while not all(one.done for one in waiting) and time.monotonic() < until_s:
            self.coordinator.tick(boot_ms())
            time.sleep(JOIN_LOOK_S)


def _listeners(access: ClusterAccess) -> list[Listener]:
    """For other nodes: TCP first."""
    settings = access.settings
    bind = listener_at("cluster_port").address(settings)
    tls = None if access.tls is None else access.tls[0]
    found = [peer_listener(bind, settings.cluster_port, tls)]
    if settings.cluster_unix_socket:
        found.append(peer_listener(unix_path=settings.cluster_unix_socket))
    return found


def _addresses(settings: Settings, port: int) -> dict[str, str]:
    bind = listener_at("cluster_port").address(settings)
    host = settings.cluster_address or (platform.node() if bind in ANYWHERE else bind)
    addresses = {PEER_ADDRESS: host_and_port(host, port)}
    if settings.cluster_unix_socket:
        addresses[PEER_UNIX_ADDRESS] = unix_address(settings.cluster_unix_socket)
    return addresses


def etcd_options(settings: Settings, shared: bytes) -> EtcdOptions:
    return EtcdOptions(
        tuple(settings.cluster_etcd_endpoints),
        shared,
        settings.cluster_name,
        settings.cluster_lease_ttl_s,
        settings.cluster_etcd_user,
        secret_of(settings, "cluster_etcd_password"),
        settings.cluster_etcd_tls,
        settings.cluster_etcd_cacertfile,
        settings.cluster_etcd_certfile,
        settings.cluster_etcd_keyfile,
        settings.cluster_etcd_seal_records,
    )
