"""Queues that have a directory, and those of them that the definitions do not name.

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
PLACES: Final = ("queues", "streams")
STREAM_SUFFIX: Final = ".stm"


@final
class UnknownQueue:
    """``messages`` and ``segments`` (files): what was found of it, at least one is not 0.

    ``place``  the directory of these files, within that of the data
    """

    __slots__ = ("messages", "place", "queue_id", "segments")

    def __init__(self, queue_id: int, messages: i64, segments: i64, place: str) -> None:
        self.queue_id: int = queue_id
        self.messages: i64 = messages
        self.segments: i64 = segments
        self.place: str = place

    def text(self) -> str:
        found: list[str] = []
        if self.messages > 0:
            found.append(f"{int(self.messages)} messages")
        if self.segments > 0:
            found.append(f"{int(self.segments)} segment files in {self.place}")
        return f"queue {self.queue_id} ({', '.join(found)})"


@final
class QueueDirectories:
    """Directories of queues and streams.

    ``present``  known queues that have one
    ``unknown``  of these something lives: they stop a start
    ``dead``     paths of the others, which go
    ``strange``  names beside them that are no queue's
    """

    def __init__(self, files: FileSystem, directory: str, known: set[int]) -> None:
        self.present: set[int] = set()
        self.unknown: list[UnknownQueue] = []
        self.dead: list[str] = []
        self.strange: list[str] = []
        self._files: FileSystem = files
        self._directory: str = directory
        self._known: set[int] = known
        self._places: dict[int, str] = {}  # of queues that are not known
        self._segments: dict[int, int] = {}  # how many files are there
        for place in PLACES:
            if files.exists(f"{directory}/{place}"):
                for name in files.listdir(f"{directory}/{place}"):
                    self._look_at(place, name)

    def _look_at(self, place: str, name: str) -> None:
        if not name.isdigit():
            self.strange.append(f"{place}/{name}")
        elif int(name) not in self._known:
            count: i64 = 0
            for file in self._files.listdir(f"{self._directory}/{place}/{name}"):
                if segment_no(file) >= 0 or file.endswith(STREAM_SUFFIX):
                    count += 1
            self._places[int(name)] = f"{place}/{name}"
            self._segments[int(name)] = int(count)
        elif place == PLACES[0]:
            self.present.add(int(name))

    def _is_stream(self, queue_id: int) -> bool:
        return self._places.get(queue_id, "").startswith(PLACES[1])

    def _refuse(self, queue_id: int, messages: i64, segments: i64) -> None:
        place = self._places.get(queue_id, f"{PLACES[0]}/{queue_id}")
        self.unknown.append(UnknownQueue(queue_id, messages, segments, place))

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
                self._refuse(queue_id, messages, len(queue.segments))
            elif self._is_stream(queue_id) and self._segments[queue_id] > 0:
                self._refuse(queue_id, 0, self._segments[queue_id])
        for queue_id, place in self._places.items():
            if queue_id not in named:
                self.dead.append(f"{self._directory}/{place}")

    def judge_journal(self, found: dict[int, JournalledQueue], deleted: SeqRanges) -> None:
        """After a crash; ``found``: what the journal knows of queues that are not known."""
        for queue_id in sorted(set(found) | set(self._places)):
            segments = self._segments.get(queue_id, 0)
            journalled = found.get(queue_id)
            forgotten = journalled is not None and journalled.forgotten
            messages = 0 if journalled is None else len(journalled.messages)
            gone = forgotten or deleted.contains(queue_id)
            if not gone and (messages > 0 or segments > 0):
                self._refuse(queue_id, messages, segments)
            elif queue_id in self._places:
                self.dead.append(f"{self._directory}/{self._places[queue_id]}")

    def remove_dead(self, deleted: SeqRanges) -> None:
        """With the names durable: a power cut brings none of them back.

        Nor those of ``deleted`` that were removed before this start: their deletion is about to be
        forgotten.
        """
        for path in self.dead:
            self._files.remove_dir(path)
        if self.dead or deleted.starts:
            for place in PLACES:
                if self._files.exists(f"{self._directory}/{place}"):
                    self._files.sync_dir(f"{self._directory}/{place}")


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
