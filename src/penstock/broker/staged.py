"""What ``staging`` works with: a staged set, and a batch that was decided.

OPEN ──end──► ENDING ──on disk──► FINISHED ──commit──► DECIDED ──poured, on disk──► GONE
  └─────────────┴────────dropped─────┴────────────────────────────────────────────► GONE
"""

from typing import Final, final

from penstock.broker.vhost import Vhost
from penstock.core.errors import BrokerError
from penstock.core.frontier import Wait, all_done
from penstock.core.message import Address
from penstock.queues.queue import Queue
from penstock.storage.definition_staging import StagedSetRecord

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

    def __init__(self, record: StagedSetRecord, vhost: Vhost, queue: Queue) -> None:
        self.record = record
        self.vhost = vhost
        self.queue = queue
        self.state: int = OPEN
        self.position: int = 0  # of the journal, behind the last of it
        self.addresses: dict[bytes, Address] = {}
        self.waits: bool = False  # what comes next is on its way from the disk
        self.watcher: object = None  # who is told when it moves

    @property
    def name(self) -> str:
        return self.record.name

    def is_droppable(self) -> bool:
        """Nobody has decided about it."""
        return self.state in (OPEN, ENDING, FINISHED)

    def is_of(self, vhost: Vhost, producer: str) -> bool:
        return self.vhost is vhost and self.record.producer == producer

    def note(self, address: Address) -> None:
        if len(self.addresses) < ADDRESSES_MAX:
            self.addresses[address.wire] = address


@final
class Batch:
    """Being poured, from ``sets[at]`` on; ``resumed``: a process before this one began with it."""

    def __init__(
        self, vhost: Vhost, producer: str, number: int, sets: list[StagedSet], resumed: bool
    ) -> None:
        self.vhost = vhost
        self.producer = producer
        self.number = number
        self.sets = sets
        self.resumed = resumed
        self.at: int = 0
        self.poured: int = 0
        self.unroutable: int = 0  # reached no queue, or not all of theirs
        self.position: int = 0  # of the journal, when all was poured
        self.waits: list[Wait] = []  # for other nodes
        self.full_at_ms: int = 0  # when a queue last had no room
        self.trouble: str = ""  # why it does not go on
        self.duplicate: bool = False
        self.done: bool = False
        self.watchers: list[object] = []  # who are told when it moves

    def is_poured(self) -> bool:
        return self.at == len(self.sets)

    def is_safe(self, durable_position: int) -> bool:
        """All of it is poured, and where it should be."""
        return self.is_poured() and self.position <= durable_position and all_done(self.waits)

    def note_waits(self, waits: list[Wait]) -> None:
        """Nobody is there to be told that a node was lost, so it is sent again then."""
        for wait in waits:
            wait.resend = True
        self.waits = [one for one in self.waits if not one.done] + waits
