"""The types of ``staging``: a staged set, and a committed batch.

OPEN ──end──► ENDING ──on disk──► FINISHED ──commit──► DECIDED ──published, on disk──► GONE
  └─────────────┴────────dropped─────┴────────────────────────────────────────────► GONE
"""

from collections import deque
from typing import Final, final

from penstock.broker.topology.vhost import Vhost
from penstock.broker.transfers.producers import Key
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirm, all_over, any_stranded
from penstock.core.errors import BrokerError
from penstock.core.message import PERSISTENT, Address, Message
from penstock.queues.local import LocalQueue
from penstock.storage.definitions.staging import UNDECIDED, StagedSetRecord

OPEN: Final = 1
ENDING: Final = 2
FINISHED: Final = 3
DECIDED: Final = 4
GONE: Final = 5

ADDRESSES_MAX: Final = 4096
"""Of a set; more are not looked at again when it is committed."""


class RunFenced(BrokerError):
    """A newer run of the same producer has taken over."""


@final
class StagedSet:
    """``addresses`` are those of its messages, as far as they are remembered."""

    def __init__(self, record: StagedSetRecord, vhost: Vhost, queue: LocalQueue) -> None:
        self.record = record
        self.vhost = vhost
        self.queue = queue
        self.state: int = OPEN
        self.position: int = 0  # of the journal, behind the last of it
        self.addresses: dict[bytes, Address] = {}
        self.waits: bool = False  # what comes next is on its way from the disk
        self.watcher: object = None
        queue.releases_to = self

    @property
    def name(self) -> str:
        return self.record.name

    def watch(self, watcher: object) -> None:
        """A move of the set is an event for this watcher; None = no watcher."""
        self.watcher = watcher

    def is_droppable(self) -> bool:
        """There is no decision about it."""
        return self.state in (OPEN, ENDING, FINISHED)

    @property
    def producer(self) -> Key:
        return (self.record.vhost, self.record.user, self.record.producer)

    def take(self, address: Address, run: list[Message], now_ms: WallMs) -> None:
        """They rest as persistent ones without a time to die, whatever they are."""
        size = 0
        for message in run:
            message.flags |= PERSISTENT
            message.expires_at_ms = WallMs(0)
            size += int(message.size)
        self.record.add(len(run), size)
        if len(self.addresses) < ADDRESSES_MAX:
            self.addresses[address.wire] = address
        self.queue.publish(run, now_ms)

    def end(self, position: int) -> None:
        """Nothing more comes; it is finished when the journal is on disk up to ``position``."""
        self.state = ENDING
        self.position = position

    def finish(self) -> None:
        self.state = FINISHED
        self.record.finish()

    def decide(self, place: int) -> None:
        """Its batch will be published; it is the one of that place in it."""
        self.state = DECIDED
        self.record.decide(place)

    def resume(self) -> None:
        """As it was when the node ended."""
        if self.record.place != UNDECIDED:
            self.state = DECIDED
        elif self.record.finished:
            self.state = FINISHED

    def leave(self) -> None:
        """It is dropped, or all of it is where it should be."""
        self.state = GONE

    def await_disk(self) -> None:
        self.waits = True

    def woken(self) -> None:
        """The disk has brought something of it."""
        self.waits = False


@final
class Slice:
    """What was published at once, and other nodes have to say that they have it.

    Its messages are held in their set until then: the set's node may go, and the queue get a master
    that has heard nothing of them.
    """

    def __init__(
        self, at: int, staged: StagedSet, messages: list[Message], waits: list[PendingConfirm]
    ) -> None:
        self.at = at  # of the set in its batch
        self.staged = staged
        self.messages = messages
        self.waits = waits
        for wait in waits:
            wait.must_arrive()  # there is no writer to tell that a node was lost

    def is_over(self) -> bool:
        """Nothing more will be said of it."""
        return all_over(self.waits)

    def is_stranded(self) -> bool:
        """A queue got another master, and it is not known what that has of it."""
        return any_stranded(self.waits)


@final
class Batch:
    """Being published, from ``sets[at]`` on; ``resumed``: an earlier process began with it."""

    def __init__(
        self, vhost: Vhost, producer: Key, number: int, sets: list[StagedSet], resumed: bool
    ) -> None:
        self.vhost = vhost
        self.producer = producer
        self.number = number
        self.sets = sets
        self.resumed = resumed
        self.at: int = 0
        self.published: int = 0
        self.unroutable: int = 0  # reached no queue, or not all of theirs
        self.position: int = 0  # of the journal, when all was published
        self.under_way: deque[Slice] = deque()  # to other nodes
        self.full_at_ms = WallMs(0)  # when a queue last had no room
        self.trouble: str = ""  # why it does not go on
        self.duplicate: bool = False
        self.done: bool = False
        self.watchers: list[object] = []  # who are told when it moves

    def publish(self, messages: int, unroutable: int, trouble: str) -> None:
        """So many more are where they should be; ``trouble``: why not all of the slice is."""
        self.published += messages
        self.unroutable += unroutable
        self.trouble = trouble

    def wait(self, trouble: str) -> None:
        self.trouble = trouble

    def wait_for_room(self, now_ms: WallMs) -> None:
        self.full_at_ms = now_ms

    def publish_again(self, one: Slice) -> None:
        """It is not known whether a slice has arrived."""
        self.at = min(self.at, one.at)
        self.published -= len(one.messages)

    def next_set(self, position: int) -> None:
        """All of a set is published; ``position``: of the journal."""
        self.at += 1
        if self.is_published():
            self.position = position

    def take_sets(self, at_most: int) -> list[StagedSet]:
        """Of a batch that is published: they may be dropped."""
        taken = [self.sets.pop() for _ in range(min(at_most, len(self.sets)))]
        self.at = len(self.sets)
        return taken

    def end(self) -> None:
        """It is published."""
        self.done = True

    def repeated(self) -> None:
        """Its producer asks for it again."""
        self.duplicate = True

    def is_published(self) -> bool:
        return self.at == len(self.sets)

    def is_safe(self, durable_position: int) -> bool:
        """All of it is published, and where it should be."""
        return self.is_published() and self.position <= durable_position and not self.under_way

    def why_waiting(self) -> str:
        if self.under_way and not self.trouble:
            return "other nodes have not said yet that they have it"
        return self.trouble

    def is_stranded(self) -> bool:
        """Some of it must be published again, before what is behind it."""
        return any(one.is_stranded() for one in self.under_way)

    def can_settle(self) -> bool:
        """Would ``Batches.settle`` do something?"""
        if not self.under_way:
            return False
        if self.is_stranded():
            return all(one.is_over() for one in self.under_way)
        return self.under_way[0].is_over()
