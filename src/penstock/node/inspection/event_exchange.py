"""The event exchange: events as messages, for queues bound to ``amq.rabbitmq.event``.

In: events of the book, as the event log gets them.  Out: each that RabbitMQ's plug-in has as well
is published to the topic exchange of one virtual host, persistent, without a body: its routing key
and its headers are in ``EVENTS``.  Called by the data loop between two turns, for a slice of them
(``some_of``).  None waits while no queue is bound, and at most ``WAITING_MAX`` do.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.topology.vhost import Vhost
from penstock.clocks import wall_ms
from penstock.core.clock_types import WallMs
from penstock.core.event_book import Event
from penstock.core.event_kinds import KINDS
from penstock.node.inspection.log_exchange import own_exchange, publish_own, some_of
from penstock.protocols.amqp.codec.properties import Properties
from penstock.settings.settings import Settings

NAME: Final = "amq.rabbitmq.event"
WAITING_MAX: Final = 10_000

_NAMED: Final = dict.fromkeys(("queue", "exchange", "policy", "connection"), "name")
_POLICY: Final = _NAMED | {"apply_to": "apply-to"}
_USER: Final = {"user": "name"}
_VHOST: Final = {"vhost": "name"}
_BINDING: Final = {"exchange": "source_name", "destination": "destination_name"}
_CHANNEL: Final = {"connection": "connection_name", "channel": "number"}
_LOGIN: Final = {
    **_USER,
    "connection": "connection_name",
    "mechanism": "auth_mechanism",
    "reason": "error",
}
EVENTS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "connection_opened": ("connection.created", _NAMED | {"given_name": "user_provided_name"}),
    "connection_closed": ("connection.closed", _NAMED),
    "login_refused": ("user.authentication.failure", _LOGIN),
    "channel_opened": ("channel.created", _CHANNEL),
    "channel_closed": ("channel.closed", _CHANNEL),
    "queue_declared": ("queue.created", _NAMED),
    "queue_deleted": ("queue.deleted", _NAMED),
    "exchange_declared": ("exchange.created", _NAMED),
    "exchange_deleted": ("exchange.deleted", _NAMED),
    "binding_added": ("binding.created", _BINDING),
    "binding_removed": ("binding.deleted", _BINDING),
    "vhost_created": ("vhost.created", _VHOST),
    "vhost_deleted": ("vhost.deleted", _VHOST),
    "user_created": ("user.created", _USER),
    "user_deleted": ("user.deleted", _USER),
    "permission_set": ("permission.created", {}),
    "permission_deleted": ("permission.deleted", {}),
    "policy_set": ("policy.set", _POLICY),
    "policy_deleted": ("policy.cleared", _POLICY),
    "parameter_set": ("parameter.set", {}),
    "parameter_deleted": ("parameter.cleared", {}),
    "alarm_set": ("alarm.set", {}),
    "alarm_cleared": ("alarm.cleared", {}),
}
"""Kind of event -> routing key, and the names of headers where they are not those of the fields."""


class EventExchange:
    """Of one node; without the setting ``event_exchange`` it does nothing."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self._broker = broker
        self._on = settings.event_exchange
        self._vhost = settings.event_exchange_vhost or settings.default_vhost
        self._waiting: deque[Event] = deque()

    def put(self, events: list[Event]) -> None:
        """Those that are published, as far as there is room for them."""
        vhost = self._there()
        if vhost is None or not vhost.exchanges[NAME].has_bindings():
            return
        for event in events:
            if event[1] in EVENTS and len(self._waiting) < WAITING_MAX:
                self._waiting.append(event)

    def look(self) -> None:
        """Publish what waits, or some of it."""
        if not self._waiting:
            return
        vhost = self._there()
        now_ms = wall_ms()
        for at_ms, kind, values in some_of(self._waiting):
            if vhost is not None:
                key, headers = EVENTS[kind][0], headers_of(at_ms, kind, values)
                properties = Properties(
                    delivery_mode=2, timestamp=int(at_ms) // 1000, headers=headers
                )
                publish_own(vhost, NAME, key, properties, b"", now_ms)

    def _there(self) -> Vhost | None:
        return own_exchange(self._broker, self._vhost, NAME) if self._on else None


def headers_of(at_ms: WallMs, kind: str, values: tuple[object, ...]) -> dict[str, object]:
    """Without those that have no value."""
    names = EVENTS[kind][1]
    headers: dict[str, object] = {"timestamp_in_ms": int(at_ms)}
    for field, value in zip(KINDS[kind], values, strict=True):
        if value is not None:
            headers[names.get(field, field)] = value
    return headers
