"""``SessionInspector``: describes connections and channels for management.

Runs on the data loop, for management's requests only.  The tokens are the loop's
connections; one that has closed since is described as None.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, cast

from penstock.broker.rules.access import User
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirm, all_done
from penstock.core.errors import NotFound
from penstock.core.message import Message
from penstock.core.pending import Pending
from penstock.management.facts.on_loop import Part
from penstock.management.facts.sessions import (
    ChannelFacts,
    ConnectionFacts,
    InternalClient,
    LinkInspector,
    ListenerFacts,
    OpenDelivery,
    SessionInspector,
    SessionTally,
)
from penstock.management.facts.storage_view import DiskFacts
from penstock.node.inspection.flow_chain import chain_row
from penstock.node.inspection.flow_view import flow_row
from penstock.node.sessions import describe
from penstock.protocols.amqp.codec.properties import body_of, decode_properties
from penstock.protocols.amqp.description import open_deliveries
from penstock.protocols.amqp.loopback_client import LoopbackClient
from penstock.protocols.amqp.session import AmqpSession
from penstock.protocols.description import SessionDescription
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.runtime.connection import Connection
from penstock.runtime.disk_waiters import DiskWaiters
from penstock.runtime.loop import Loop
from penstock.runtime.session import Subscriber

SHOWN: Final = 11
"""Of the counts of a channel, those that are shown."""


class NodeSessionInspector(SessionInspector):
    """The connections of one loop."""

    def __init__(
        self,
        loop: Loop,
        inside: Callable[[str | User, WallMs], AmqpSession],
        elsewhere: Callable[[], list[ListenerFacts]] = list,
        cluster_facts: Callable[[], dict[str, object]] = dict,
        forget_in_cluster: Callable[[str], Pending | None] | None = None,
        links: LinkInspector | None = None,
    ) -> None:
        """``inside`` makes a session without a socket, for a user who has logged in over HTTP.

        ``elsewhere``: listeners that are not the loop's.  The next two:
        of a node that is one of several.  ``links``: None = there are none.
        """
        self.links = links or LinkInspector()
        self._elsewhere = elsewhere
        self._cluster_facts = cluster_facts
        self._forget_in_cluster = forget_in_cluster
        self._loop = loop
        self._inside = inside
        self._waiters = DiskWaiters(loop.turn)

    def sessions(self) -> list[object]:
        return list(self._loop.connections.values())

    def connection(self, session: object) -> ConnectionFacts | None:
        assert isinstance(session, Connection)
        description = _entered(session)
        return None if description is None else description.facts(session)

    def find(self, name: str) -> object | None:
        for connection in self._loop.connections.values():
            # Its own end of the name costs a system call: asked of one only.
            if not name.startswith(f"{connection.peer[0]}:{connection.peer[1]} -> "):
                continue
            if _entered(connection) is not None and connection.name == name:
                return connection
        return None

    def close(self, session: object, reason: str) -> None:
        there = _described(session)
        assert there is not None
        there.close(reason)
        self._loop.turn.touch(there.session)

    def channel_numbers(self, session: object) -> list[int]:
        there = _described(session)
        return [] if there is None else there.channel_numbers()

    def channels(self, session: object, numbers: Sequence[int]) -> list[ChannelFacts]:
        there = _described(session)
        return [] if there is None else there.channels(numbers)

    def consumers(self, session: object, number: int) -> list[Consumer]:
        there = _described(session)
        return [] if there is None else there.consumers(number)

    def tallies(self, parts: Sequence[Part]) -> list[SessionTally]:
        found: list[SessionTally] = []
        for one, numbers, is_first in parts:
            assert isinstance(one, Connection)
            description = _entered(one)
            if description is None:
                continue
            session = description.session
            channels = [
                (int(number), traffic.counts()[:SHOWN])
                for number, traffic in description.traffics(numbers)
            ]
            octets = (int(session.received_bytes), int(session.sent_bytes))
            found.append(SessionTally(one.name, is_first, octets, channels))
        return found

    def place_of(self, consumer: Consumer) -> tuple[object, int] | None:
        subscriber = cast(Subscriber, consumer.holder)
        carrier = subscriber.session.carrier
        return None if carrier is None else (carrier, int(subscriber.number))

    def listeners(self) -> list[ListenerFacts]:
        own = [
            ListenerFacts(one.protocol, one.host, one.port, one.tls)
            for one in self._loop.listeners.values()
        ]
        return own + self._elsewhere()

    def opened(self, message: Message) -> tuple[dict[str, object], bytes]:
        return decode_properties(message.content).as_dict(), body_of(message.content)

    def enter(self, user: str | User, vhost: str, now_ms: WallMs) -> InternalClient:
        session = self._inside(user, now_ms)
        return LoopbackClient(session, self._loop.turn, vhost, now_ms)

    def close_some(self, vhost: str, at_most: int) -> bool:
        return close_some(self._loop, vhost, at_most)

    def cancelled(self, consumers: list[Consumer]) -> None:
        self._loop.turn.cancelled(consumers)

    def when_safe(self, position: int, waits: list[PendingConfirm] | None = None) -> Future[None]:
        if position <= self._loop.turn.durable_position() and all_done(waits or []):
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return self._waiters.wait(position, waits)

    def flow(self) -> dict[str, object]:
        return flow_row(self._loop)

    def chain(self) -> dict[str, object]:
        return chain_row(self._loop)

    def open_deliveries(self, queue: Queue, at_most: int) -> list[OpenDelivery]:
        return open_deliveries(queue, at_most)

    def cluster(self) -> dict[str, object]:
        alone = {"coordinator": "", "why_not": "", "cut_off": "", "nodes": []}
        return alone | self._cluster_facts()

    def forget_node(self, name: str) -> Pending | None:
        if self._forget_in_cluster is None:
            raise NotFound(f"{name} is not a node of this cluster")
        return self._forget_in_cluster(name)

    def disk(self) -> DiskFacts:
        turn = self._loop.turn
        return DiskFacts(
            turn.disk_stalled(),
            publishers_wait=turn.publishers_wait(),
            reason=turn.blocked_reason(),
        )


def close_some(loop: Loop, vhost: str, at_most: int) -> bool:
    """See ``SessionInspector.close_some``."""
    found = False
    for connection in loop.connections.values():
        session = connection.session
        if session is None or session.closed:
            continue
        description = describe(session)
        if description.vhost_name() != vhost:
            continue
        found = True
        description.close(f"vhost '{vhost}' is deleted")
        loop.turn.touch(session)
        at_most -= 1
        if at_most == 0:
            break
    return found


def _described(connection: object) -> SessionDescription | None:
    """None: its client has not said enough to tell its protocol."""
    assert isinstance(connection, Connection)
    return None if connection.session is None else describe(connection.session)


def _entered(connection: Connection) -> SessionDescription | None:
    """Of a connection on which a user has logged in, and that is still there."""
    found = None if connection.gone else _described(connection)
    return found if found is not None and found.is_entered() else None
