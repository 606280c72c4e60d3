"""Definitions with something in each of their tables."""

from __future__ import annotations

from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.parameters import (
    ParameterRecord,
    delete_parameter,
    put_parameter,
)
from penstock.storage.definitions.records import (
    BindingRecord,
    ExchangeRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from penstock.storage.definitions.staging import ProducerRecord, StagedSetRecord

HEX = "0123456789abcdef" * 2


def fields(record: object) -> tuple[object, ...]:
    names = getattr(record, "_fields", None) or record.__slots__  # type: ignore[attr-defined]
    return tuple(getattr(record, name) for name in sorted(names))


def everything(definitions: Definitions) -> dict[str, list[tuple[object, ...]]]:
    topology = definitions.load()
    return {
        kind: sorted((fields(record) for record in getattr(topology, kind)), key=repr)
        for kind in topology.__slots__
    }


def fill(definitions: Definitions) -> None:
    for vhost in ("/", "two"):
        definitions.put_vhost(VhostRecord(vhost))
        definitions.put_permission(PermissionRecord("guest", vhost, "^c", "^w", "^r"))
        definitions.put_topic_permission(TopicPermissionRecord("guest", vhost, "e", "^w", "^r"))
        for kind in ("policy", "operator"):
            definition: dict[str, object] = {"message-ttl": 5, "queue-mode": "lazy"}
            definitions.put_policy(PolicyRecord(vhost, kind, "p", "^q", "queues", 7, definition))
        definitions.put_limits("vhost", vhost, {"max-queues": 3})
        definitions.put_exchange(ExchangeRecord(vhost, "e", "topic", False, True, {"x": 1}, "ann"))
        definitions.put_exchange(ExchangeRecord(vhost, "f", "fanout", True, False, {}))
        who = (definitions.next_queue_id(), HEX, vhost, "q")
        definitions.put_queue(QueueRecord(*who, True, {"y": b"\xff"}, user="ann"))
        definitions.put_binding(BindingRecord(vhost, "e", "q", "queue", "a.#", {}))
        definitions.put_binding(BindingRecord(vhost, "e", "q", "queue", "a.#", {"n": 1}))
        definitions.put_binding(BindingRecord(vhost, "f", "q", "queue", "", {}))
        definitions.put_binding(BindingRecord(vhost, "e", "f", "exchange", "k", {}))
        definitions.put_binding(BindingRecord(vhost, "f", "e", "exchange", "k", {}))
        staged = StagedSetRecord(vhost, "amq.staged.1", "p", "r2", 4, "guest", 1000)
        staged.messages, staged.size_bytes = 10, 2000
        staged.finished, staged.place = True, 3
        definitions.staging.put_set(staged)
        definitions.staging.put_producer(ProducerRecord(vhost, "p", "guest", "r2", ["r1"], 3, 2000))
    definitions.put_user(UserRecord("guest", "hash", "sha256", ["administrator", "x"]))
    definitions.put_limits("user", "guest", {"max-channels": 1, "max-connections": -1})
    put_parameter(definitions.change, ParameterRecord("gone", 1))
    delete_parameter(definitions.change, ParameterRecord("gone", None))
    put_parameter(definitions.change, ParameterRecord("g", {"a": [None, 1]}))
