"""The event exchange: events as messages, for queues bound to ``amq.rabbitmq.event``.

In: events of the book, as the event log gets them.  Out: each that RabbitMQ's plug-in has as well,
and what becomes of the copies of mirrored queues, is published to the topic exchange of one virtual
host, persistent, without a body: its routing key and its headers are in ``EVENTS``.  Called by the
data loop between two turns, for a slice of them
(``some_of``).  None waits while no queue is bound, and at most ``WAITING_MAX`` do.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.broker.broker import Broker
from penstock.broker.rules.log_ins import PROTOCOLS
from penstock.broker.topology.vhost import Vhost
from penstock.clocks import wall_ms
from penstock.core.clock_types import WallMs
from penstock.core.counting.traffic import AMQP as AMQP091
from penstock.core.events.book import Noted
from penstock.core.events.kinds import KINDS, NODE_ITSELF, fields_of
from penstock.node.inspection.log_exchange import own_exchange, publish_own, some_of
from penstock.protocols.amqp.codec.properties import Properties
from penstock.settings.settings import Settings

NAME: Final = "amq.rabbitmq.event"
WAITING_MAX: Final = 10_000

Fields = dict[str, object]


def _channel(fields: Fields) -> str:
    return f"{fields['connection']} ({fields['channel']})"


def _split_tags(fields: Fields) -> Fields:
    return {"tags": [one for one in str(fields["tags"]).split(",") if one]}


class Published(NamedTuple):
    """How a kind of event is published.

    ``names``: of headers where they are not those of the fields, "" = the field is no header.
    ``more``: headers beside them, made of the fields.
    """

    key: str
    names: Mapping[str, str] = {}
    more: Callable[[Fields], Fields] = lambda _told: {}


_NAMED: Final = dict.fromkeys(("queue", "exchange", "policy", "connection", "vhost"), "name")
_IN_VHOST: Final = _NAMED | {"vhost": "vhost", "apply_to": "apply-to"}
_USER: Final = {"user": "name"}
_LIMITS: Final = {
    field: field.replace("_", "-")
    for kind in ("vhost_limits_set", "user_limits_set")
    for field in KINDS[kind]
} | {"user": "username"}
_BINDING: Final = {"exchange": "source_name", "destination": "destination_name"}
_CONSUMER: Final = {"connection": "", "consumer": "consumer_tag", "prefetch": "prefetch_count"}
_LOGIN: Final = _USER | {
    "connection": "connection_name",
    "mechanism": "auth_mechanism",
    "reason": "error",
}
_CHANNEL: Final = {"connection": "connection_name", "channel": "number"}
OF_THE_NODE: Final = ("connection_opened", "connection_closed", "alarm_set", "alarm_cleared")
"""Kinds that have a header with the name of the node."""
OF_NO_USER: Final = (
    *("connection_closed", "login_accepted", "login_refused"),
    *("alarm_set", "alarm_cleared"),
)
"""Kinds of which RabbitMQ does not say whose doing they are."""
UNTOLD: Final = {("login_accepted", protocol) for protocol in PROTOCOLS if protocol != AMQP091}
"""Kinds of one protocol that RabbitMQ does not publish."""
USER: Final = "user_who_performed_action"
AMQP: Final = "{0,9,1}"
EVENTS: Final[Mapping[str, Published]] = {
    "connection_opened": Published(
        "connection.created",
        _IN_VHOST | {"given_name": "user_provided_name"},
        lambda told: {"protocol": AMQP} if told["protocol"] == "AMQP 0-9-1" else {},
    ),
    "connection_closed": Published("connection.closed", _NAMED),
    "login_accepted": Published(
        "user.authentication.success", _LOGIN, lambda _: {"protocol": AMQP}
    ),
    "login_refused": Published("user.authentication.failure", _LOGIN),
    "channel_opened": Published("channel.created", _CHANNEL, lambda told: {"name": _channel(told)}),
    "channel_closed": Published("channel.closed", _CHANNEL, lambda told: {"name": _channel(told)}),
    "consumer_added": Published(
        "consumer.created", _CONSUMER, lambda told: {"channel": _channel(told)}
    ),
    "consumer_removed": Published(
        "consumer.deleted", _CONSUMER, lambda told: {"channel": _channel(told)}
    ),
    "queue_declared": Published(
        "queue.created", _IN_VHOST, lambda told: {"type": f"rabbit_{told['type']}_queue"}
    ),
    "queue_deleted": Published("queue.deleted", _IN_VHOST),
    "exchange_declared": Published("exchange.created", _IN_VHOST),
    "exchange_deleted": Published("exchange.deleted", _IN_VHOST),
    "binding_added": Published("binding.created", _BINDING, lambda _: {"source_kind": "exchange"}),
    "binding_removed": Published(
        "binding.deleted", _BINDING, lambda _: {"source_kind": "exchange"}
    ),
    "vhost_created": Published("vhost.created", _NAMED, _split_tags),
    "vhost_updated": Published("vhost.updated", _NAMED, _split_tags),
    "vhost_deleted": Published("vhost.deleted", _NAMED),
    "vhost_limits_set": Published("vhost.limits.set", _LIMITS, lambda _: {"name": "limits"}),
    "vhost_limits_cleared": Published("vhost.limits.cleared", {}, lambda _: {"name": "limits"}),
    "user_created": Published("user.created", _USER),
    "user_deleted": Published("user.deleted", _USER),
    "user_password_changed": Published("user.password.changed", _USER),
    "user_password_cleared": Published("user.password.cleared", _USER),
    "user_tags_set": Published("user.tags.set", _USER, _split_tags),
    "user_limits_set": Published("user.limits.set", _LIMITS, lambda _: {"name": "limits"}),
    "user_limits_cleared": Published("user.limits.cleared", _LIMITS, lambda _: {"name": "limits"}),
    "permission_set": Published("permission.created"),
    "permission_deleted": Published("permission.deleted"),
    "topic_permission_set": Published("topic.permission.created"),
    "topic_permission_deleted": Published("topic.permission.deleted"),
    "policy_set": Published("policy.set", _IN_VHOST),
    "policy_deleted": Published("policy.cleared", _IN_VHOST),
    "operator_policy_deleted": Published("operator.policy.cleared", _IN_VHOST),
    "parameter_set": Published(
        "parameter.set", more=lambda told: {"component": told.get("component", "global")}
    ),
    "parameter_deleted": Published(
        "parameter.cleared", more=lambda told: {"component": told.get("component", "global")}
    ),
    "node_started": Published("audit.node.started"),
    "node_stopped": Published("audit.node.stopped"),
    "settings_reloaded": Published("audit.settings.reloaded"),
    "request_answered": Published("audit.request"),
    "mirror_changed": Published("queue.mirror.changed", _IN_VHOST),
    "alarm_set": Published("alarm.set", {"resource": "source"}),
    "alarm_cleared": Published("alarm.cleared", {"resource": "source"}),
}
"""By the kind of event."""


class EventExchange:
    """Of one node; without the setting ``event_exchange`` it does nothing."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self._broker = broker
        self._on = settings.event_exchange
        self._vhost = settings.event_exchange_vhost or settings.default_vhost
        self._waiting: deque[Noted] = deque()

    def put(self, events: list[Noted]) -> None:
        """Those that are published, as far as there is room for them."""
        vhost = self._there()
        if vhost is None or not vhost.exchanges[NAME].has_bindings():
            return
        for event in events:
            told = event[1] in EVENTS and (event[1], event[3].protocol) not in UNTOLD
            if told and len(self._waiting) < WAITING_MAX:
                self._waiting.append(event)

    def look(self) -> None:
        """Publish what waits, or some of it."""
        if not self._waiting:
            return
        vhost = self._there()
        now_ms = wall_ms()
        for at_ms, kind, values, actor in some_of(self._waiting):
            if vhost is not None:
                headers = headers_of(at_ms, kind, values)
                if kind not in OF_NO_USER:
                    headers[USER] = actor.user or NODE_ITSELF
                if kind in OF_THE_NODE:
                    headers["node"] = self._broker.options.node_name
                properties = Properties(
                    delivery_mode=2, timestamp=int(at_ms) // 1000, headers=headers
                )
                publish_own(vhost, NAME, EVENTS[kind].key, properties, b"", now_ms)

    def _there(self) -> Vhost | None:
        return own_exchange(self._broker, self._vhost, NAME) if self._on else None


def headers_of(at_ms: WallMs, kind: str, values: tuple[object, ...]) -> dict[str, object]:
    """Without those that have no value."""
    row = EVENTS[kind]
    told = fields_of(kind, values)
    headers: Fields = {"timestamp_in_ms": int(at_ms)}
    headers |= {row.names.get(field, field): value for field, value in told.items()}
    headers |= row.more(told)
    headers.pop("", None)
    return headers
