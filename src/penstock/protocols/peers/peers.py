"""``Peers``: all links of a node to the other members of its cluster.

    membership ─► set_members ─► links: called, awaited, ended
    owner ─► send                                            each turn: end ─► sockets
    sockets ─► came ─► begin (each turn) ─► owner.arrived

Which nodes are members is decided by the coordinator alone, and told here (``set_members``).  A
link begins when its member is first named and ends when it is not any more, or another incarnation
of its name is; the owner is told of both.  An incarnation that answers or calls without being named
is refused and tries again: one that was paused for long may still think it is alive, so what it
says of itself must not end its successor's link.  For the same reason a life that has ended here
stays ended, should it be named again: its session's state is gone.  A session is between two lives:
with a new one of our own (``begin_life``) there are new sessions with the others.

A call that fails is repeated after a delay that doubles up to ``retry_max_ms``, and is shortened by
chance so that nodes do not call in step.  A connection that lasted longer than that, or another
address, begins it anew.

Everything here is on the data loop; only the opening of sockets is in threads (``peers.dialer``).

Invariants (``check``):
  Y1  there is at most one link for a name, and none for our own
  Y2  no link's member has ended
  Y3  connections that have not proven themselves are counted right
"""

import logging
import random
import socket
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.clocks import mono_ms
from penstock.cluster.remote.link_session import Delivery
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.credit import FlowBook
from penstock.core.events.line_limit import LineLimit
from penstock.protocols.peers.codec.frames import (
    ENDED,
    NOT_A_MEMBER,
    STOPPING,
    WRONG_DIRECTION,
    Wrong,
)
from penstock.protocols.peers.codec.hello import SECRET_MIN_BYTES, Hello
from penstock.protocols.peers.dialer import PeerDialer
from penstock.protocols.peers.link import LinkFacts, Member, PeerLink
from penstock.protocols.peers.session import PeerSession
from penstock.runtime.cluster_part import ClusterPart
from penstock.runtime.connection import UNIX, Connection
from penstock.runtime.loop import Loop
from penstock.runtime.secure_socket import SecureSocket
from penstock.settings.listener_table import PEER
from penstock.tls.options import TlsOptions

HUNG_UP_MS: Final = 200
UNHEARD_MS: Final = 500
UNPROVEN_MAX: Final = 64
"""Connections at a time that have not proven yet that they know the secret."""
ENDED_MAX: Final = 10_000
"""So many lives that are over are remembered."""
SAME_AGAIN_S: Final = 30.0
"""The same complaint about the same member is logged once in this time."""
STRANGER_LINES_MAX: Final = 5
"""In a minute, of one address: what a stranger sends may be another text each time."""

REFUSED: Final = "link to %s refused or failed: %s"

logger = logging.getLogger("penstock.peers")


class PeerLimits(NamedTuple):
    """How long is waited, and how much may wait."""

    silence_ms: int = 5000
    handshake_ms: int = 5000
    connect_ms: int = 3000
    retry_min_ms: int = 100
    retry_max_ms: int = 5000
    waiting_bytes: int = 16 * 1024 * 1024


class PeerOwner:
    """The layer above the links.  What it raises stops the node (``cluster_part``)."""

    def begun(self, member: Member) -> None:
        """It is a member now; what is sent to it waits until there is a connection."""
        raise NotImplementedError

    def ended(self, member: Member) -> None:
        """It is no more; nothing of it comes after this, and what was not acknowledged is gone."""
        raise NotImplementedError

    def arrived(self, member: Member, deliveries: list[Delivery]) -> None:
        """Streams and payloads, in order, each once in the life of both members."""
        raise NotImplementedError

    def may_take(self, member: Member) -> bool:
        """Asked before each batch.  False stops all streams of this member, so only for a while."""
        return True


class Peers(ClusterPart):
    """``calling_tls``: for calling; the listener has its own.  Unix sockets go without."""

    def __init__(
        self,
        loop: Loop,
        own: Member,
        cluster: str,
        secret: bytes,
        owner: PeerOwner,
        limits: PeerLimits | None = None,
        calling_tls: TlsOptions | None = None,
        clock: Callable[[], MonoMs] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        assert len(secret) >= SECRET_MIN_BYTES
        self.own = own
        self.cluster = cluster
        self.secret = secret
        self.limits = limits or PeerLimits()
        self.clock = clock or mono_ms
        self.links: dict[str, PeerLink] = {}
        self._loop = loop
        self._owner = owner
        self._tls = calling_tls
        self.chance = chance
        self._book = FlowBook()
        self._dialer = PeerDialer(loop.call, self.limits.connect_ms)
        self._unproven: dict[PeerSession, None] = {}  # the oldest first
        self._ended: dict[tuple[str, str], None] = {}
        self._lines = LineLimit(window_s=SAME_AGAIN_S)
        self._stranger_lines = LineLimit(STRANGER_LINES_MAX)
        self._stopped = False

    # -- members -------------------------------------------------------------------------

    def set_members(self, members: Sequence[Member]) -> None:
        """All that live now, we among them or not."""
        named = {one.name: one for one in members if one.name != self.own.name}
        for name, link in list(self.links.items()):
            now = named.get(name)
            if now is None or now.life() != link.member.life():
                self._end(link)
        for name, member in named.items():
            known = self.links.get(name)
            if known is not None:
                known.moved(member)
            elif member.life() in self._ended:
                self.complain(str(member), "it has ended here, and must come back as a new member")
            else:
                self._begin(member)

    def begin_life(self, own: Member) -> None:
        """This node was gone for the others; which of them live is told anew."""
        self.set_members([])
        self._ended.clear()
        self.own = own

    def _begin(self, member: Member) -> None:
        logger.info("%s is a member of the cluster", member)
        self.links[member.name] = PeerLink(self, member, self._owner)
        self._owner.begun(member)

    def _end(self, link: PeerLink) -> None:
        logger.info("%s is no member of the cluster any more", link.member)
        del self.links[link.member.name]
        self._ended[link.member.life()] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        link.let_go(ENDED, "this life of the node counts as over")
        self._owner.ended(link.member)

    # -- for the owner -------------------------------------------------------------------

    def send(self, name: str, stream: int, payload: bytes) -> None:
        """To a member; one that is none any more gets nothing."""
        link = self.links.get(name)
        if link is not None:
            link.send(stream, payload)

    def full(self) -> list[str]:
        """Names of members to which no more should be sent for now."""
        return [name for name, link in self.links.items() if link.session.is_full()]

    def has_room(self, name: str) -> bool:
        """Was full, and may be sent to again; also when it is no member: nothing waits for it."""
        link = self.links.get(name)
        return link is None or link.session.has_room()

    def is_connected(self, name: str) -> bool:
        link = self.links.get(name)
        return link is not None and link.connection is not None

    def silent_ms(self, name: str) -> int:
        """For how long there has been no connection to that member; 0 = there is one."""
        link = self.links.get(name)
        if link is None or link.connection is not None:
            return 0
        return int(self.clock() - link.session.disconnected_since_ms)

    def is_unheard(self, name: str) -> bool:
        """It has hung up and is not back yet, or has said nothing for some heartbeats."""
        link = self.links.get(name)
        if link is None or link.connection is None:
            return self.silent_ms(name) > HUNG_UP_MS
        return link.connection.silent_ms() > UNHEARD_MS

    def facts(self) -> list[LinkFacts]:
        return [self.links[name].describe() for name in sorted(self.links)]

    def waiting_bytes(self) -> int:
        """Kept for members until they have it, connected or not."""
        return sum(int(link.session.waiting_bytes) for link in self.links.values())

    # -- the turn ------------------------------------------------------------------------

    def begin(self, now_ms: WallMs) -> None:
        for link in list(self.links.values()):
            link.deliver()

    def end(self, now_ms: WallMs) -> None:
        now = self.clock()
        for link in self.links.values():
            link.session.tick(now)
            link.flush()

    def stood_still(self, now_ms: WallMs) -> bool:
        return False

    def has_work(self) -> bool:
        return any(link.has_deliveries() or link.can_flush() for link in self.links.values())

    def touch(self, session: PeerSession) -> None:
        """It has something to say."""
        self._loop.turn.touch(session)

    def tick(self, now_ms: WallMs) -> None:
        """Several times a second: which members are to be called?"""
        now = self.clock()
        for link in self.links.values():
            if link.is_call_due(now) and not self._stopped:
                self._call(link)

    def are_alone(self) -> bool:
        """All others have left, and nothing waits for any member that is connected."""
        if any(link.connection and link.session.waiting_bytes for link in self.links.values()):
            return False
        connections = self._loop.connections.values()
        return all(isinstance(one.session, PeerSession) for one in connections)

    def stop(self) -> None:
        """Goodbye to all, and no call any more."""
        self._stopped = True
        self._dialer.stop()
        for link in self.links.values():
            link.let_go(STOPPING, "the node stops")

    # -- calling -------------------------------------------------------------------------

    def _call(self, link: PeerLink) -> None:
        call = link.begin_call()
        member = link.member

        def answer(sock: socket.socket | None, error: str) -> None:
            if not link.is_calling(call) or self.links.get(member.name) is not link:
                if sock is not None:
                    sock.close()
            elif sock is None:
                reason = f"cannot connect to {member.address()}: {error}"
                self.complain(str(member), reason)
                link.call_later(reason)
            else:
                self._open(link, member, sock)

        self._dialer.call(member, answer)

    def _open(self, link: PeerLink, member: Member, sock: socket.socket) -> None:
        where = (UNIX, 0) if member.unix_path else (member.host, member.port)
        session = PeerSession(self, self._book, member.address(), link)
        up = session.transport_up
        if self._tls is None or member.unix_path:
            self._loop.adopt(Connection(sock, where, mono_ms(), PEER), session)
            up()
            return
        try:
            secure = SecureSocket(sock, self._tls, where, up=up, server_name=member.host)
        except ValueError as error:  # no name that a certificate could have
            sock.close()
            link.call_later(f"cannot call {member.address()} with TLS: {error}")
            return
        self._loop.adopt(Connection(secure, where, mono_ms(), PEER), session)
        secure.begin()

    # -- being called --------------------------------------------------------------------

    def called_by(self, peer: tuple[str, int]) -> PeerSession:
        """A peer has connected to the cluster's listener and sent something."""
        host, port = peer
        session = PeerSession(self, self._book, f"{host}:{port}", None)
        if len(self._unproven) >= UNPROVEN_MAX:
            # The one that has had the most time: a node needs milliseconds, and strangers that
            # only sit there must not keep it out.
            oldest = next(iter(self._unproven))
            oldest.give_up("too many others came before it had introduced itself")
            self.touch(oldest)
        self._unproven[session] = None
        return session

    def caller(self, hello: Hello) -> PeerLink:
        """The link of one that has proven itself; raises ``Wrong``."""
        name, life = hello.name, f"{hello.name}/{hello.incarnation}"
        if (name, hello.incarnation) in self._ended:
            raise Wrong(f"{life} has ended here, it must come back as a new member", ENDED)
        link = self.links.get(name)
        if link is None or link.member.incarnation != hello.incarnation:
            known = "no node of that name" if link is None else str(link.member)
            raise Wrong(f"{life} is not known as a member here, but {known}", NOT_A_MEMBER)
        if link.calls:
            raise Wrong(f"{name} is called by {self.own.name}, not the other way", WRONG_DIRECTION)
        return link

    # -- what connections tell -----------------------------------------------------------

    def introduced(self, session: PeerSession) -> None:
        """Both nodes know each other."""
        self._unproven.pop(session, None)
        link = session.link
        assert link is not None
        logger.info("%s is connected, %s", link.member, session.where)

    def ended(self, session: PeerSession, link: PeerLink | None, called: PeerLink | None) -> None:
        """A connection of any kind, for any reason; ``link``: the one it belonged to."""
        self._unproven.pop(session, None)
        if link is not None:
            logger.warning("%s is disconnected: %s", link.member, session.reason)
        elif called is not None:
            self.complain(f"{called.member} at {session.where}", session.reason)
        else:
            self._complain_of_stranger(session)
        if called is not None and self.links.get(called.member.name) is called:
            called.call_later(session.reason)

    def _complain_of_stranger(self, session: PeerSession) -> None:
        host = session.where.rpartition(":")[0]
        if self._stranger_lines.allows(host, int(self.clock()) / 1000):
            logger.warning(REFUSED, session.where, session.reason)

    def complain(self, who: str, text: str) -> None:
        """About a member, but not all the time: calls are repeated."""
        if self._lines.allows((who, text), int(self.clock()) / 1000):
            logger.warning(REFUSED, who, text)

    def check(self) -> None:
        for name, link in self.links.items():
            assert link.member.name == name, "Y1"
            assert name != self.own.name, "Y1"
            assert link.member.life() not in self._ended, "Y2"
            link.check()
        sessions = (connection.session for connection in self._loop.connections.values())
        callers = {one for one in sessions if isinstance(one, PeerSession) and not one.called}
        unproven = {one for one in callers if one.link is None and not one.closed}
        assert set(self._unproven) == unproven, "Y3"
