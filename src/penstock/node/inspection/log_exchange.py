"""The log exchange: log lines as messages, for queues bound to ``amq.rabbitmq.log``.

In: lines that wait (``logs.Outbox``).  Out: each published to the topic exchange of the default
virtual host, transient, with its level as routing key, as by RabbitMQ's ``log.exchange``.  Called
by the data loop between two turns: a slice of them (``some_of``), and none costs anything
while no queue is bound.

A line that came of publishing lines is not published: the outbox is closed to this thread
meanwhile, so the log can never feed itself.
"""

import time
from collections import deque
from collections.abc import Iterator
from typing import Final, TypeVar

from penstock.broker.broker import Broker
from penstock.broker.topology.vhost import Vhost
from penstock.clocks import wall_ms
from penstock.core.clock_types import WallMs
from penstock.core.message import PERSISTENT, Message
from penstock.node.inspection.logs import Logs, Outbox, Waiting
from penstock.protocols.amqp.codec.encoder import short_bytes
from penstock.protocols.amqp.codec.properties import Properties, encode_content
from penstock.routing.exchanges import Exchange

NAME: Final = "amq.rabbitmq.log"
SLICE: Final = 100
AT_ONCE_S: Final = 0.005
"""A queue for each of many bindings gets its copy."""
FRAME_MAX: Final = 131_072

T = TypeVar("T")


class LogExchange:
    """Of one node."""

    def __init__(self, broker: Broker, logs: Logs, vhost: str) -> None:
        self._broker = broker
        self._logs = logs
        self._vhost = vhost
        self.published = 0

    def look(self) -> None:
        """Publish what waits, or some of it."""
        outbox = self._logs.outbox
        if outbox is None or not outbox.waiting:
            return
        with outbox.closed():
            self._publish_some(outbox, wall_ms())

    def _publish_some(self, outbox: Outbox, now_ms: WallMs) -> None:
        vhost = own_exchange(self._broker, self._vhost, NAME)
        for line in some_of(outbox.waiting):
            if vhost is not None:
                self._publish(vhost, line, now_ms)

    def _publish(self, vhost: Vhost, line: Waiting, now_ms: WallMs) -> None:
        node_name = self._broker.options.node_name
        properties = Properties(
            content_type="application/json" if line.text[:1] == "{" else "text/plain",
            timestamp=line.at_ms // 1000,
            headers={"level": line.level, "category": line.category, "node": node_name},
        )
        body = line.text.encode("utf-8", "replace")
        if publish_own(vhost, NAME, line.level, properties, body, now_ms):
            self.published += 1


def some_of(waiting: deque[T]) -> Iterator[T]:
    """Taken off one by one: ``SLICE`` at most, and no other after ``AT_ONCE_S``."""
    until_s = time.monotonic() + AT_ONCE_S
    for _ in range(min(SLICE, len(waiting))):
        yield waiting.popleft()
        if time.monotonic() >= until_s:
            return


def own_exchange(broker: Broker, vhost_name: str, name: str) -> Vhost | None:
    """The virtual host, with that exchange in it; None while it is not there, or is going."""
    vhost = broker.vhosts.get(vhost_name)
    if vhost is None or vhost.closing:
        return None
    if name in vhost.exchanges:
        return vhost
    # The broker's own, as its prefix says: no client could declare or delete it.
    exchange = Exchange(vhost.name, name, "topic", True, False, True, {}, sources=vhost.sources)
    if broker.changes.proposes:
        broker.changes.add_exchange(exchange)  # it is there when all have agreed on it
        return None
    vhost.make_exchange(exchange)
    return vhost


def publish_own(
    vhost: Vhost, name: str, key: str, properties: Properties, body: bytes, now_ms: WallMs
) -> bool:
    """To the exchange ``name``, by the broker; False where no queue gets it."""
    queues = vhost.find_queues(name, key, properties.headers or {}, [], now_ms)
    if not queues:
        return False
    content = encode_content(properties, body, 0, FRAME_MAX)
    flags = PERSISTENT if properties.delivery_mode == 2 else 0
    address = short_bytes(name) + short_bytes(key)
    vhost.publish_some(queues, [Message(content, address, flags, WallMs(0))], now_ms)
    vhost.waits.forget_after(0)
    return True
