"""What two copies of a queue have in common, for the judges of mirrored queues."""

from __future__ import annotations

from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.mirrors.backing import MirroredBacking
from penstock.cluster.mirrors.operations import Parcel, read_parcel
from penstock.cluster.mirrors.replica import Replica
from penstock.cluster.mirrors.sync import Joiner, Syncer
from penstock.core.message import PERSISTENT, Message, attempts_of
from tests.backing.engine_tools import OpenEngine, message
from tests.helpers.sim_files import SimFileSystem

EVERY_PLACE = 1 << 62
NOW_MS = 1_000_000
TERM = 3
FIRST = 16_384
"""The first sequence id of a new queue, in a data directory that no broker closed."""

Set = dict[int, tuple[bytes, bool, int]]
"""By place: content, persistent, not before that time (0 = what is over counts as that)."""


def set_of(queue: VariableQueue, now_ms: int) -> Set:
    """All messages of whatever state."""
    places: list[int] = []
    below = EVERY_PLACE
    while (last := int(queue.copies.last_place(below))) >= 0:
        below = max(0, last - 5000)
        places = queue.copies.places(below, last + 1) + places
    if not places:
        return {}
    delays = dict(queue.copies.delays_at(places))
    return {
        int(one.seq_id): (
            one.content,
            bool(one.flags & PERSISTENT),
            delays.get(int(one.seq_id), 0) if delays.get(int(one.seq_id), 0) > now_ms else 0,
        )
        for one in queue.copies.messages_at(places, 1 << 60)
    }


def attempts_in(queue: VariableQueue, now_ms: int) -> dict[int, int]:
    places = list(set_of(queue, now_ms))
    found = queue.copies.messages_at(places, 1 << 60) if places else []
    return {int(one.seq_id): int(attempts_of(one)) for one in found}


class Pair:
    """A master's backing and one replica of it, with nothing between them."""

    def __init__(self, mirrored: MirroredBacking, replica: Replica, opened: OpenEngine) -> None:
        self.mirrored = mirrored
        self.replica = replica
        self.opened = opened
        self.joiner = Joiner(replica, opened.engine.journal)

    def tell(self) -> None:
        """What the master did is done to the replica."""
        parcel = self.mirrored.take_operations()
        if parcel is not None:
            assert self.replica.apply(read_parcel(parcel))
            self.joiner.advance()

    def synchronise(self, batch: int = 7) -> Syncer:
        syncer = Syncer(self.mirrored, batch, 0)
        for _ in range(100_000):
            question = self.joiner.next_question()
            if question is None:
                self.opened.commit()
                if self.joiner.is_done():
                    return syncer
                continue
            syncer.ask(question)
            self.tell()
            chunk = syncer.take_chunk()
            assert chunk is not None
            self.joiner.take_chunk(chunk)
            self.joiner.check()
        raise AssertionError("the synchronisation never ends")


def engine(files: SimFileSystem | None = None, queues: int = 1) -> OpenEngine:
    return OpenEngine(files or SimFileSystem(), {1 + place: 16 for place in range(queues)})


def pair_of(master: OpenEngine, copy: OpenEngine) -> Pair:
    mirrored = MirroredBacking(master.queues[1], {}, ("/", "q"))
    mirrored.begin(TERM, 0)
    return joined(mirrored, copy)


def joined(mirrored: MirroredBacking, copy: OpenEngine) -> Pair:
    replica = Replica(copy.queues[1], copy.engine.journal)
    while replica.prepare():
        pass
    replica.follow(TERM, False)
    return Pair(mirrored, replica, copy)


def publish(queue: VariableQueue, count: int, **kinds: bool) -> list[Message]:
    batch = [message(b"message %d" % place, **kinds) for place in range(count)]
    queue.publish(batch, NOW_MS)
    return batch


def parcel_of(number: int, term: int = TERM) -> Parcel:
    return Parcel(term, number, [])
