"""The kinds of events in the event log, with their fields in order, and the line of each.

    {"at_ms":1700000000000,"event":"queue_deleted","vhost":"/","queue":"orders","crc":"0a1b2c3d"}

One event is one line of JSON in ASCII, so whatever reads JSON lines reads it (docs/formats/
event_log.md is the page for readers).  ``crc`` is the CRC-32 of everything before it: a line that
was cut, by a full disk or a power cut, is known by that.  A field without a value is left out.

The writer, the readers and the documentation of events use this table.
"""

import json
from collections.abc import Mapping
from typing import Final

from penstock.core.checksum import crc32
from penstock.core.clock_types import WallMs

TEXT: Final = "string"
WHOLE: Final = "long"
REAL: Final = "double"
TRUTH: Final = "boolean"

_TYPES: Final = {
    WHOLE: "at_ms interval_ms code up_ms window_s connections channels queues memory_used_bytes "
    "memory_limit_bytes disk_free_bytes disk_limit_bytes connections_in_flow_s "
    "channels_in_flow_s queues_in_flow_s seconds count channel lasted_ms prefetch "
    "max_connections max_queues max_memory_bytes max_disk_bytes max_publish_rate "
    "max_channels priority published delivered acked redelivered ready unacked ready_bytes "
    "consumers blocked_ms held_bytes target_bytes paged_bytes used_bytes limit_bytes seq_id "
    "every published_at_ms precision_ms enqueued_at_ms delivered_at_ms settled_at_ms",
    REAL: "connections_cpu channels_cpu queues_cpu",
    TRUTH: "exclusive ack_required durable auto_delete internal protected_from_deletion "
    "was_redelivered",
}
"""Fields that are no text: a name means the same in every kind."""
_KINDS: Final = """\
node_started: node version interval_ms
node_stopped: node
settings_reloaded: changed at_next_start reason
request_answered: method path code reason
node: up_ms window_s connections channels queues memory_used_bytes memory_limit_bytes \
    disk_free_bytes disk_limit_bytes connections_in_flow_s channels_in_flow_s queues_in_flow_s \
    because connections_cpu channels_cpu queues_cpu blocked
connection_opened: connection user vhost protocol given_name
login_accepted: connection user mechanism issuer
login_locked_out: user address seconds
login_unlocked: user address
logins_accepted: address count users
login_refused: connection user mechanism reason
logins_refused: address count users
opening_failed: connection protocol reason
openings_failed: address count reasons
connection_failed: connection channel user vhost operation code reason
connection_closed: connection lasted_ms
connection_state: connection state was
channel_opened: connection channel
channel_failed: connection channel user vhost operation code reason
channel_closed: connection channel
channel_state: connection channel state was
consumer_added: vhost queue connection channel consumer exclusive ack_required prefetch
consumer_removed: vhost queue connection channel consumer
queue_declared: vhost queue durable auto_delete type
queue_deleted: vhost queue
exchange_declared: vhost exchange type durable auto_delete internal
exchange_deleted: vhost exchange
binding_added: vhost exchange destination destination_kind routing_key
binding_removed: vhost exchange destination destination_kind routing_key
vhost_created: vhost description tags default_queue_type protected_from_deletion
vhost_updated: vhost description tags default_queue_type protected_from_deletion
vhost_deleted: vhost
vhost_limits_set: vhost max_connections max_queues max_memory_bytes max_disk_bytes \
    max_publish_rate max_channels
vhost_limits_cleared: vhost
user_created: user
user_deleted: user
user_password_changed: user
user_password_cleared: user
user_tags_set: user tags
user_limits_set: user max_connections max_channels
user_limits_cleared: user
permission_set: user vhost configure write read
permission_deleted: user vhost
topic_permission_set: user vhost exchange write read
topic_permission_deleted: user vhost
policy_set: vhost policy pattern apply_to priority
policy_deleted: vhost policy
operator_policy_deleted: vhost policy
parameter_set: vhost component name
parameter_deleted: vhost component name
queue_state: vhost queue state was
queue_rates: vhost queue interval_ms published delivered acked redelivered ready unacked \
    ready_bytes consumers
wait: waiter_kind waiter waits_for_kind waits_for because blocked_ms interval_ms
mirror_changed: vhost queue node change reason
paging_begun: vhost queue held_bytes target_bytes
paging_ended: vhost queue held_bytes paged_bytes lasted_ms
alarm_set: resource used_bytes limit_bytes
alarm_cleared: resource used_bytes limit_bytes lasted_ms
timing: vhost queue seq_id every published_at_ms precision_ms enqueued_at_ms delivered_at_ms \
    settled_at_ms outcome was_redelivered
events_dropped: count because
"""


def _kinds() -> dict[str, dict[str, str]]:
    types = {name: kind for kind, names in _TYPES.items() for name in names.split()}
    rows = [line.partition(": ") for line in _KINDS.splitlines()]
    return {
        kind: {name: types.get(name, TEXT) for name in names.split()} for kind, _, names in rows
    }


KINDS: Final[Mapping[str, Mapping[str, str]]] = _kinds()
"""Kind ─► its fields in order, with the type of each."""

NODE_ITSELF: Final = "rmq-internal"
"""In RabbitMQ's words the user whose doing is what expires, or goes with its connection."""

FIELDS: Final[Mapping[str, str]] = {"at_ms": WHOLE, "event": TEXT} | {
    name: kind for fields in KINDS.values() for name, kind in fields.items()
}
"""Every field there is: a name means the same in every kind."""

CHECK_BEGINS: Final = ',"crc":"'
CHECK_BYTES: Final = len(CHECK_BEGINS) + 8 + len('"}')
"""So much at the end of a line, newline excluded, is the checksum."""

_NAMES: Final = {kind: tuple(fields) for kind, fields in KINDS.items()}
encoded: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def fields_of(kind: str, values: tuple[object, ...]) -> dict[str, object]:
    """Those that have a value, by their names."""
    named = zip(_NAMES[kind], values, strict=True)
    return {name: value for name, value in named if value is not None}


def line_of(at_ms: WallMs, kind: str, values: tuple[object, ...]) -> bytes:
    """The line of one event, newline included."""
    return checked_line({"at_ms": at_ms, "event": kind} | fields_of(kind, values))


def checked_line(fields: dict[str, object]) -> bytes:
    """With the checksum as last field, newline included."""
    body = encoded(fields)[:-1].encode("ascii")
    return b'%s,"crc":"%08x"}\n' % (body, crc32(body))


def read_line(line: bytes) -> dict[str, object] | None:
    """What a line says; None for one that is not whole."""
    line = line.rstrip(b"\n")
    body, check = line[:-CHECK_BYTES], line[-CHECK_BYTES:]
    if check != b',"crc":"%08x"}' % crc32(body):
        return None
    found = json.loads(line)
    return found if isinstance(found, dict) else None
