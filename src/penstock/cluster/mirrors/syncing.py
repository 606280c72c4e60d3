"""``Syncing``: the master's side of all synchronisations of one queue.

In: questions of mirrors, and since when each of them hears of every message.  Out: chunks.

A question waits until its asker is in the ring: an answer is as of a parcel that it will hear.
While no synchronisation is wanted it waits further, until all messages from before the asker's
time are gone: then the answer is that there is nothing to fetch.
"""

from typing import final

from mypy_extensions import i64

from penstock.cluster.mirrors.backing import MirroredBacking
from penstock.cluster.mirrors.sync import Syncer
from penstock.core.clock_types import MonoMs


@final
class Syncing:
    def __init__(self, batch_messages: i64) -> None:
        self.is_wanted: bool = True
        self.syncers: dict[str, Syncer] = {}
        self._batch: i64 = batch_messages
        self._questions: dict[str, bytes] = {}
        self._marks: dict[str, list[int]] = {}  # of the parts, where a member began to hear

    def want(self, is_wanted: bool) -> None:
        """Shall mirrors fetch what they lack?"""
        self.is_wanted = is_wanted

    def begin(self, mirrored: MirroredBacking, members: list[str]) -> None:
        """A term; ``members`` are in the ring."""
        self._marks = {}
        for member in members:
            self.hears(mirrored, member)

    def end(self) -> None:
        for syncer in self.syncers.values():
            syncer.cancel()
        self.syncers = {}
        self._questions = {}
        self._marks = {}

    def hears(self, mirrored: MirroredBacking, member: str) -> None:
        """From here on it hears of every message."""
        self._marks[member] = [int(part.records.next_seq_id) for part in mirrored.parts]
        if mirrored.stream is not None:
            self._marks[member].append(int(mirrored.stream.log.next_offset))

    def forget(self, member: str) -> None:
        syncer = self.syncers.pop(member, None)
        if syncer is not None:
            syncer.cancel()
        self._questions.pop(member, None)
        self._marks.pop(member, None)

    def ask(self, member: str, question: bytes) -> None:
        self._questions[member] = question

    def is_waiting(self) -> bool:
        if self.is_wanted and len(self._questions) > 0:
            return True
        for syncer in self.syncers.values():  # noqa: SIM110 - a generator costs more than the loop
            if syncer.is_reading():
                return True
        return False

    def is_asked(self) -> bool:
        """Has a member asked, and not been answered?  Publishers may wait for its copy."""
        return len(self._questions) > 0 or self.is_waiting()

    def take_questions(self, mirrored: MirroredBacking, now_ms: MonoMs) -> None:
        """Before the turn's parcel is taken: some of them begin one."""
        for member in list(self._questions):
            if member in self._marks and self._may_answer(mirrored, member):
                syncer = self.syncers.get(member)
                if syncer is None:
                    syncer = self.syncers[member] = Syncer(mirrored, self._batch, now_ms)
                syncer.ask(self._questions.pop(member))

    def _may_answer(self, mirrored: MirroredBacking, member: str) -> bool:
        if self.is_wanted:
            return True
        marks = self._marks[member]
        for place in range(len(mirrored.parts)):
            part = mirrored.parts[place]
            if part.tiers.pending.count > 0 or part.tiers.delayed.count() > 0:
                return False
            if part.tiers.floor_seq_id() < marks[place]:
                return False
        stream = mirrored.stream
        return stream is None or stream.log.first_offset >= marks[0]

    def take_chunks(self) -> list[tuple[str, bytes]]:
        """Right after the parcel was taken; member and chunk."""
        chunks: list[tuple[str, bytes]] = []
        for member, syncer in self.syncers.items():
            chunk = syncer.take_chunk()
            if chunk is not None:
                chunks.append((member, chunk))
        return chunks
