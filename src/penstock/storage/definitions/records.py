"""The records of ``definitions.db``: one class per table, and ``Topology`` for all of them.

They carry values and decide nothing; who declares writes them, who starts reads them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.core.errors import Corrupt
from penstock.storage.definitions.parameters import ParameterRecord
from penstock.storage.definitions.staging import ProducerRecord, StagedSetRecord


class VhostMetadata(NamedTuple):
    """What administrators say of a virtual host; ``default_queue_type`` "" = none is named."""

    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: str = ""
    protected_from_deletion: bool = False


NO_METADATA: Final = VhostMetadata()


class VhostRecord(NamedTuple):
    """``segment_entries``: of its queues' index; it must never change under data.

    ``closing``: it is being removed.
    """

    name: str
    segment_entries: int = 16_384
    metadata: VhostMetadata = NO_METADATA
    closing: bool = False


class UserRecord(NamedTuple):
    name: str
    password_hash: str
    hashing_algorithm: str
    tags: list[str]


class PermissionRecord(NamedTuple):
    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermissionRecord(NamedTuple):
    """``write`` and ``read`` are patterns of routing keys."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class PolicyRecord(NamedTuple):
    """``kind`` is "policy" or "operator"; vhost, kind and name are the identity."""

    vhost: str
    kind: str
    name: str
    pattern: str
    apply_to: str
    priority: int
    definition: dict[str, object]


class LimitRecord(NamedTuple):
    """How much a virtual host or user (``scope``) called ``owner`` may have of ``name``."""

    scope: str
    owner: str
    name: str
    value: int


class ExchangeRecord(NamedTuple):
    """``user``: who declared it, "" = it is not known."""

    vhost: str
    name: str
    type: str
    auto_delete: bool
    internal: bool
    arguments: dict[str, object]
    user: str = ""


NO_PRIORITIES: Final = -1
QUORUM_PRIORITIES: Final = 32
QUORUM_NORMAL: Final = 4
"""The priority of a quorum queue's messages that name none."""


def highest_priority(arguments: dict[str, object]) -> int:
    """By the arguments of a queue; ``NO_PRIORITIES`` when they name none."""
    value = arguments.get("x-max-priority")
    return value if isinstance(value, int) else NO_PRIORITIES


def part_count(arguments: dict[str, object]) -> int:
    """How many backings a new queue has: one for each priority that its arguments name."""
    return max(0, highest_priority(arguments)) + 1


def id_count(arguments: dict[str, object]) -> int:
    """How many queue ids it takes: one for each backing that it may have."""
    is_quorum = arguments.get("x-queue-type") == "quorum"
    return QUORUM_PRIORITIES if is_quorum else part_count(arguments)


class QueueRecord(NamedTuple):
    """``incarnation`` tells a queue from an earlier one of the same name: 32 hex digits.

    ``user``: who declared it, "" = it is not known.
    """

    queue_id: int
    incarnation: str
    vhost: str
    name: str
    auto_delete: bool
    arguments: dict[str, object]
    paused: bool = False
    user: str = ""

    def queue_ids(self) -> list[int]:
        """Of all its backings."""
        return list(range(self.queue_id, self.queue_id + id_count(self.arguments)))


def owners_of_ids(queues: Iterable[QueueRecord]) -> dict[int, QueueRecord]:
    """Queue id -> its queue.  Raises Corrupt when two queues have the same.

    Builds between the releases 0.1.0 and the next gave a quorum queue one id.
    """
    owners: dict[int, QueueRecord] = {}
    for queue in queues:
        for queue_id in queue.queue_ids():
            other = owners.setdefault(queue_id, queue)
            if other is not queue:
                raise Corrupt(
                    f"definitions.db: the queues '{other.name}' and '{queue.name}' have the same"
                    f" number {queue_id}: drain and delete quorum queues with the build that made"
                    " them, then start this one"
                )
    return owners


class BindingRecord(NamedTuple):
    """``destination_type`` is "queue" or "exchange".  All fields together are the identity."""

    vhost: str
    source: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: dict[str, object]


@dataclass(slots=True)
class Topology:
    """Everything that is defined."""

    staged_sets: list[StagedSetRecord]
    staged_producers: list[ProducerRecord]
    parameters: list[ParameterRecord]
    vhosts: list[VhostRecord] = field(default_factory=list)
    users: list[UserRecord] = field(default_factory=list)
    permissions: list[PermissionRecord] = field(default_factory=list)
    topic_permissions: list[TopicPermissionRecord] = field(default_factory=list)
    policies: list[PolicyRecord] = field(default_factory=list)
    limits: list[LimitRecord] = field(default_factory=list)
    exchanges: list[ExchangeRecord] = field(default_factory=list)
    queues: list[QueueRecord] = field(default_factory=list)
    bindings: list[BindingRecord] = field(default_factory=list)
