"""The kinds of events in the event log, with their fields in order, and the line of each.

    {"at_ms":1700000000000,"event":"queue_deleted","vhost":"/","queue":"orders","crc":"0a1b2c3d"}

One event is one line of JSON in ASCII, so whatever reads JSON lines reads it (docs/formats/
event_log.md is the page for readers).  ``crc`` is the CRC-32 of everything before it: a line that
was cut, by a full disk or a power cut, is known by that.  A field without a value is left out.

The writer, the readers and the documentation of events use this table.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Final

from penstock.core.clock_types import WallMs

TEXT: Final = "string"
WHOLE: Final = "long"
REAL: Final = "double"
TRUTH: Final = "boolean"

_QUEUE: Final = {"vhost": TEXT, "queue": TEXT}
_CHANNEL: Final = {"connection": TEXT, "channel": WHOLE}
_FAULT: Final = _CHANNEL | {
    "user": TEXT,
    "vhost": TEXT,
    "operation": TEXT,
    "code": WHOLE,
    "reason": TEXT,
}
_EXCHANGE: Final = {"vhost": TEXT, "exchange": TEXT}
_BINDING: Final = _EXCHANGE | {"destination": TEXT, "destination_kind": TEXT, "routing_key": TEXT}
_PARAMETER: Final = {"vhost": TEXT, "component": TEXT, "name": TEXT}
_STATE: Final = {"state": TEXT, "was": TEXT}
_CONSUMER: Final = _QUEUE | _CHANNEL | {"consumer": TEXT}
_USER: Final = {"user": TEXT}
_VHOST: Final = {
    "vhost": TEXT,
    "description": TEXT,
    "tags": TEXT,
    "default_queue_type": TEXT,
    "protected_from_deletion": TRUTH,
}
_LIMITED: Final = {"max_connections": WHOLE}

KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "node_started": {"node": TEXT, "version": TEXT, "interval_ms": WHOLE},
    "node_stopped": {"node": TEXT},
    "node": {
        "up_ms": WHOLE,
        "window_s": WHOLE,
        "connections": WHOLE,
        "channels": WHOLE,
        "queues": WHOLE,
        "memory_used_bytes": WHOLE,
        "memory_limit_bytes": WHOLE,
        "disk_free_bytes": WHOLE,
        "disk_limit_bytes": WHOLE,
        "connections_in_flow_s": WHOLE,
        "channels_in_flow_s": WHOLE,
        "queues_in_flow_s": WHOLE,
        "because": TEXT,
        "connections_cpu": REAL,
        "channels_cpu": REAL,
        "queues_cpu": REAL,
        "blocked": TEXT,
    },
    "connection_opened": {
        "connection": TEXT,
        "user": TEXT,
        "vhost": TEXT,
        "protocol": TEXT,
        "given_name": TEXT,
    },
    "login_accepted": {"connection": TEXT, "user": TEXT, "mechanism": TEXT},
    "login_refused": {"connection": TEXT, "user": TEXT, "mechanism": TEXT, "reason": TEXT},
    "logins_refused": {"address": TEXT, "count": WHOLE, "users": TEXT},
    "opening_failed": {"connection": TEXT, "protocol": TEXT, "reason": TEXT},
    "openings_failed": {"address": TEXT, "count": WHOLE, "reasons": TEXT},
    "connection_failed": _FAULT,
    "connection_closed": {"connection": TEXT, "lasted_ms": WHOLE},
    "connection_state": {"connection": TEXT} | _STATE,
    "channel_opened": _CHANNEL,
    "channel_failed": _FAULT,
    "channel_closed": _CHANNEL,
    "channel_state": _CHANNEL | _STATE,
    "consumer_added": _CONSUMER | {"exclusive": TRUTH, "ack_required": TRUTH, "prefetch": WHOLE},
    "consumer_removed": _CONSUMER,
    "queue_declared": _QUEUE | {"durable": TRUTH, "auto_delete": TRUTH, "type": TEXT},
    "queue_deleted": _QUEUE,
    "exchange_declared": _EXCHANGE
    | {"type": TEXT, "durable": TRUTH, "auto_delete": TRUTH, "internal": TRUTH},
    "exchange_deleted": _EXCHANGE,
    "binding_added": _BINDING,
    "binding_removed": _BINDING,
    "vhost_created": _VHOST,
    "vhost_updated": _VHOST,
    "vhost_deleted": {"vhost": TEXT},
    "vhost_limits_set": {"vhost": TEXT}
    | _LIMITED
    | {
        "max_queues": WHOLE,
        "max_memory_bytes": WHOLE,
        "max_disk_bytes": WHOLE,
        "max_publish_rate": WHOLE,
    },
    "vhost_limits_cleared": {"vhost": TEXT},
    "user_created": _USER,
    "user_deleted": _USER,
    "user_password_changed": _USER,
    "user_password_cleared": _USER,
    "user_tags_set": _USER | {"tags": TEXT},
    "user_limits_set": _USER | _LIMITED | {"max_channels": WHOLE},
    "user_limits_cleared": _USER,
    "permission_set": {
        "user": TEXT,
        "vhost": TEXT,
        "configure": TEXT,
        "write": TEXT,
        "read": TEXT,
    },
    "permission_deleted": {"user": TEXT, "vhost": TEXT},
    "topic_permission_set": {
        "user": TEXT,
        "vhost": TEXT,
        "exchange": TEXT,
        "write": TEXT,
        "read": TEXT,
    },
    "topic_permission_deleted": {"user": TEXT, "vhost": TEXT},
    "policy_set": {
        "vhost": TEXT,
        "policy": TEXT,
        "pattern": TEXT,
        "apply_to": TEXT,
        "priority": WHOLE,
    },
    "policy_deleted": {"vhost": TEXT, "policy": TEXT},
    "operator_policy_deleted": {"vhost": TEXT, "policy": TEXT},
    "parameter_set": _PARAMETER,
    "parameter_deleted": _PARAMETER,
    "queue_state": _QUEUE | _STATE,
    "queue_rates": _QUEUE
    | {
        "interval_ms": WHOLE,
        "published": WHOLE,
        "delivered": WHOLE,
        "acked": WHOLE,
        "redelivered": WHOLE,
        "ready": WHOLE,
        "unacked": WHOLE,
        "ready_bytes": WHOLE,
        "consumers": WHOLE,
    },
    "wait": {
        "waiter_kind": TEXT,
        "waiter": TEXT,
        "waits_for_kind": TEXT,
        "waits_for": TEXT,
        "because": TEXT,
        "blocked_ms": WHOLE,
        "interval_ms": WHOLE,
    },
    "mirror_changed": _QUEUE | {"node": TEXT, "change": TEXT, "reason": TEXT},
    "paging_begun": _QUEUE | {"held_bytes": WHOLE, "target_bytes": WHOLE},
    "paging_ended": _QUEUE | {"held_bytes": WHOLE, "paged_bytes": WHOLE, "lasted_ms": WHOLE},
    "alarm_set": {"resource": TEXT, "used_bytes": WHOLE, "limit_bytes": WHOLE},
    "alarm_cleared": {
        "resource": TEXT,
        "used_bytes": WHOLE,
        "limit_bytes": WHOLE,
        "lasted_ms": WHOLE,
    },
    "timing": _QUEUE
    | {
        "seq_id": WHOLE,
        "every": WHOLE,
        "published_at_ms": WHOLE,
        "precision_ms": WHOLE,
        "enqueued_at_ms": WHOLE,
        "delivered_at_ms": WHOLE,
        "settled_at_ms": WHOLE,
        "outcome": TEXT,
        "was_redelivered": TRUTH,
    },
    "events_dropped": {"count": WHOLE, "because": TEXT},
}

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
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def line_of(at_ms: WallMs, kind: str, values: tuple[object, ...]) -> bytes:
    """The line of one event, newline included."""
    named = zip(_NAMES[kind], values, strict=True)
    fields: dict[str, object] = {"at_ms": at_ms, "event": kind}
    fields.update((name, value) for name, value in named if value is not None)
    body = _encode(fields)[:-1].encode("ascii")
    return b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def read_line(line: bytes) -> dict[str, object] | None:
    """What a line says; None for one that is not whole."""
    line = line.rstrip(b"\n")
    body, check = line[:-CHECK_BYTES], line[-CHECK_BYTES:]
    if check != b',"crc":"%08x"}' % zlib.crc32(body):
        return None
    found = json.loads(line)
    return found if isinstance(found, dict) else None
