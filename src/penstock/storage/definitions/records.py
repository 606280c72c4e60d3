"""The records of ``definitions.db``: one class per table, and ``Topology`` for all of them.

They carry values and decide nothing; who declares writes them, who starts reads them.
"""

from typing import Final, NamedTuple

from penstock.storage.definitions.parameters import ParameterRecord
from penstock.storage.definitions.staging import ProducerRecord, StagedSetRecord


class VhostMetadata(NamedTuple):
    """What administrators say of a virtual host; ``default_queue_type`` "" = none is named."""

    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: str = ""


NO_METADATA: Final = VhostMetadata()


class VhostRecord:
    """``segment_entries``: of its queues' index; it must never change under data.

    ``closing``: it is being removed.
    """

    __slots__ = ("closing", "metadata", "name", "segment_entries")

    def __init__(
        self,
        name: str,
        segment_entries: int = 16_384,
        metadata: VhostMetadata = NO_METADATA,
        *,
        closing: bool = False,
    ) -> None:
        self.name = name
        self.segment_entries = segment_entries
        self.metadata = metadata
        self.closing = closing


class UserRecord:
    __slots__ = ("hashing_algorithm", "name", "password_hash", "tags")

    def __init__(
        self, name: str, password_hash: str, hashing_algorithm: str, tags: list[str]
    ) -> None:
        self.name = name
        self.password_hash = password_hash
        self.hashing_algorithm = hashing_algorithm
        self.tags = tags


class PermissionRecord:
    __slots__ = ("configure", "read", "user", "vhost", "write")

    def __init__(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        self.user = user
        self.vhost = vhost
        self.configure = configure
        self.write = write
        self.read = read


class TopicPermissionRecord:
    """``write`` and ``read`` are patterns of routing keys."""

    __slots__ = ("exchange", "read", "user", "vhost", "write")

    def __init__(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None:
        self.user = user
        self.vhost = vhost
        self.exchange = exchange
        self.write = write
        self.read = read


class PolicyRecord:
    """``kind`` is "policy" or "operator"; vhost, kind and name are the identity."""

    __slots__ = ("apply_to", "definition", "kind", "name", "pattern", "priority", "vhost")

    def __init__(
        self,
        vhost: str,
        kind: str,
        name: str,
        pattern: str,
        apply_to: str,
        priority: int,
        definition: dict[str, object],
    ) -> None:
        self.vhost = vhost
        self.kind = kind
        self.name = name
        self.pattern = pattern
        self.apply_to = apply_to
        self.priority = priority
        self.definition = definition


class LimitRecord:
    """How much a virtual host or user (``scope``) called ``owner`` may have of ``name``."""

    __slots__ = ("name", "owner", "scope", "value")

    def __init__(self, scope: str, owner: str, name: str, value: int) -> None:
        self.scope = scope
        self.owner = owner
        self.name = name
        self.value = value


class ExchangeRecord:
    __slots__ = ("arguments", "auto_delete", "internal", "name", "type", "vhost")

    def __init__(
        self,
        vhost: str,
        name: str,
        type: str,  # noqa: A002 - the field's own word
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, object],
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.type = type
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments


NO_PRIORITIES: Final = -1


def highest_priority(arguments: dict[str, object]) -> int:
    """Of the messages of a queue; ``NO_PRIORITIES`` when it knows none."""
    value = arguments.get("x-max-priority")
    return value if isinstance(value, int) else NO_PRIORITIES


def part_count(highest_priority: int) -> int:
    """How many backings, and queue ids, a queue takes: one for each priority."""
    return max(0, highest_priority) + 1


class QueueRecord:
    """``incarnation`` tells a queue from an earlier one of the same name: 32 hex digits."""

    __slots__ = ("arguments", "auto_delete", "incarnation", "name", "paused", "queue_id", "vhost")

    def __init__(
        self,
        queue_id: int,
        incarnation: str,
        vhost: str,
        name: str,
        auto_delete: bool,
        arguments: dict[str, object],
        paused: bool = False,
    ) -> None:
        self.paused = paused
        self.queue_id = queue_id
        self.incarnation = incarnation
        self.vhost = vhost
        self.name = name
        self.auto_delete = auto_delete
        self.arguments = arguments

    def queue_ids(self) -> list[int]:
        """Of all its backings."""
        count = part_count(highest_priority(self.arguments))
        return list(range(self.queue_id, self.queue_id + count))


class BindingRecord:
    """``destination_type`` is "queue" or "exchange".  All fields together are the identity."""

    __slots__ = (
        "arguments",
        "destination",
        "destination_type",
        "routing_key",
        "source",
        "vhost",
    )

    def __init__(
        self,
        vhost: str,
        source: str,
        destination: str,
        destination_type: str,
        routing_key: str,
        arguments: dict[str, object],
    ) -> None:
        self.vhost = vhost
        self.source = source
        self.destination = destination
        self.destination_type = destination_type
        self.routing_key = routing_key
        self.arguments = arguments


class Topology:
    """Everything that is defined."""

    __slots__ = (
        "bindings",
        "exchanges",
        "limits",
        "parameters",
        "permissions",
        "policies",
        "queues",
        "staged_producers",
        "staged_sets",
        "topic_permissions",
        "users",
        "vhosts",
    )

    def __init__(
        self,
        staged_sets: list[StagedSetRecord],
        staged_producers: list[ProducerRecord],
        parameters: list[ParameterRecord],
    ) -> None:
        self.vhosts: list[VhostRecord] = []
        self.users: list[UserRecord] = []
        self.permissions: list[PermissionRecord] = []
        self.topic_permissions: list[TopicPermissionRecord] = []
        self.policies: list[PolicyRecord] = []
        self.limits: list[LimitRecord] = []
        self.exchanges: list[ExchangeRecord] = []
        self.queues: list[QueueRecord] = []
        self.bindings: list[BindingRecord] = []
        self.staged_sets: list[StagedSetRecord] = staged_sets
        self.staged_producers: list[ProducerRecord] = staged_producers
        self.parameters: list[ParameterRecord] = parameters
