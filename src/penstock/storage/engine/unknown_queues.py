"""Queues with messages on disk that the definitions do not name.

In: the ids the definitions name, the ids they say are deleted, and the terms of a clean stop or
a reading of the journal.  Out: the queues of which something lives although their deletion is
recorded nowhere.  Absence is not deletion: such a queue is evidence that ``definitions.db`` is
damaged, missing or of an older day, so a start refuses it and removes nothing.

A deletion is recorded in the definitions, in the transaction that removes the queue's row, and
in the journal (``forget``).  Messages and directories of such a queue are what a crash left of
it, and go.  So does a directory of which the terms of a clean stop know nothing.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.storage.common.files import FileSystem
from penstock.storage.common.seq_ranges import SeqRanges
from penstock.storage.engine.terms import Terms
from penstock.storage.index.segment_codec import segment_no
from penstock.storage.journal.recovery import JournalledQueue

NAMED_AT_MOST: Final = 20


@final
class UnknownQueue:
    """``messages`` and ``segments`` (files): what was found of it, at least one is not 0."""

    __slots__ = ("messages", "queue_id", "segments")

    def __init__(self, queue_id: int, messages: i64, segments: i64) -> None:
        self.queue_id: int = queue_id
        self.messages: i64 = messages
        self.segments: i64 = segments

    def text(self) -> str:
        found: list[str] = []
        if self.messages > 0:
            found.append(f"{int(self.messages)} messages")
        if self.segments > 0:
            found.append(f"{int(self.segments)} segment files in queues/{self.queue_id}")
        return f"queue {self.queue_id} ({', '.join(found)})"


@final
class QueueDirectories:
    """What lies in ``queues`` and belongs to no queue; ``unknown`` stops a start, ``dead`` goes.

    ``strange``  names that are no queue's
    """

    def __init__(self, files: FileSystem, directory: str, known: set[int]) -> None:
        self.unknown: list[UnknownQueue] = []
        self.dead: list[str] = []
        self.strange: list[str] = []
        self._files: FileSystem = files
        self._directory: str = f"{directory}/queues"
        self._known: set[int] = known
        self._segments: dict[int, int] = {}  # of queues that are not known
        if not files.exists(self._directory):
            return
        for name in files.listdir(self._directory):
            if not name.isdigit():
                self.strange.append(name)
            elif int(name) not in known:
                self._segments[int(name)] = self._count_segments(name)

    def _count_segments(self, name: str) -> int:
        count: i64 = 0
        for file in self._files.listdir(f"{self._directory}/{name}"):
            if segment_no(file) >= 0:
                count += 1
        return int(count)

    def judge_terms(self, terms: Terms, deleted: SeqRanges) -> None:
        """After a clean stop, whose terms name every durable queue there was."""
        named: set[int] = set()
        for queue in terms.queues:
            queue_id = int(queue.queue_id)
            if queue_id in self._known or deleted.contains(queue_id):
                continue
            named.add(queue_id)
            messages: i64 = 0
            for segment in queue.segments:
                messages += segment.live_count
            if messages > 0:
                self.unknown.append(UnknownQueue(queue_id, messages, len(queue.segments)))
        for queue_id in self._segments:
            if queue_id not in named:
                self.dead.append(f"{self._directory}/{queue_id}")

    def judge_journal(self, found: dict[int, JournalledQueue], deleted: SeqRanges) -> None:
        """After a crash; ``found``: what the journal knows of queues that are not known."""
        for queue_id in sorted(set(found) | set(self._segments)):
            segments = self._segments.get(queue_id, 0)
            journalled = found.get(queue_id)
            forgotten = journalled is not None and journalled.forgotten
            messages = 0 if journalled is None else len(journalled.messages)
            gone = forgotten or deleted.contains(queue_id)
            if not gone and (messages > 0 or segments > 0):
                self.unknown.append(UnknownQueue(queue_id, messages, segments))
            elif queue_id in self._segments:
                self.dead.append(f"{self._directory}/{queue_id}")

    def remove_dead(self, deleted: SeqRanges) -> None:
        """With the names durable: a power cut brings none of them back.

        Nor those of ``deleted`` that were removed before this start: their deletion is about to be
        forgotten.
        """
        for path in self.dead:
            self._files.remove_dir(path)
        if self.dead or (deleted.starts and self._files.exists(self._directory)):
            self._files.sync_dir(self._directory)


def refusal(directory: str, unknown: list[UnknownQueue]) -> str:
    """Why a start refuses the directory, and what helps."""
    named = ", ".join([queue.text() for queue in unknown[:NAMED_AT_MOST]])
    if len(unknown) > NAMED_AT_MOST:
        named += f" and {len(unknown) - NAMED_AT_MOST} more"
    return (
        f"{directory}/definitions.db: names nothing of {named}, and no deletion is recorded:"
        " it is damaged, or older than the rest; restore definitions.db from a copy, or give"
        f" these messages up with: penstock repair {directory} --delete-unknown-queues"
    )
