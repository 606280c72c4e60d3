"""``DataAudit``: checks the files of a data directory and counts its messages; changes nothing.

In: a file system that is only read, the data directory of a stopped broker, the queues its
definitions name.  Out: a walk of every file (``audit.files``), the messages each queue would
have after a start, ``damages``, and ``notes`` on what is odd but harmless.

**The walk.**

    1  terms      valid, they say what is on disk, to the byte; else everything is as after
                  a crash
    2  journal    from the newest file to the oldest; recovery's own reading of it, which
                  changes nothing, says which messages it keeps and which it has settled
    3  store      which contents are there
    4  segments   queue by queue; what lives, and whether its contents are there
    5  crosswise  messages only the journal has, contents without a reference, what the terms
                  say and what was found, files without an owner

After a clean stop the journal is of no use to the next start: its damages are named, but no
message is taken from it.

**The verdict.**  A torn tail is no damage: a crash leaves one every day, and the next start cuts
it off.  A living record whose content is missing is damage: the store is on disk before journal
and segments.  But in the end of the journal that was never known to be synced it was not
confirmed to anybody, and the next start drops it.

Why not recovery itself on a disk that ignores writes: it stops at the first damage, and it reads
what it has just written.  A test holds both against each other.

Invariants:
  U1  no file system verb but listdir, exists, size and read is used
  U2  where a start would refuse the directory, ``damages`` is not empty
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.core.errors import Corrupt
from penstock.core.message import STORED
from penstock.storage.audit.contents import Contents
from penstock.storage.audit.files import (
    UNTRUE,
    Damage,
    FileWalk,
    JournalWalk,
    SegmentWalk,
    StoreWalk,
)
from penstock.storage.common.files import FileSystem
from penstock.storage.common.seq_ranges import SeqRanges
from penstock.storage.engine.lost_journal import lost_journal
from penstock.storage.engine.terms import TERMS_FILE, Terms, read_terms
from penstock.storage.engine.unknown_queues import QueueDirectories
from penstock.storage.index.references import check_references, pieces_of, referred_file_no
from penstock.storage.index.segment import Segment
from penstock.storage.index.segment_codec import UNFINISHED_SUFFIX as UNFINISHED_SEGMENT
from penstock.storage.index.segment_codec import segment_file_name, segment_no
from penstock.storage.journal.codec import SPARE_SUFFIX, journal_file_name, journal_file_no
from penstock.storage.journal.recovery import JournalledQueue, JournalRecovery
from penstock.storage.store.codec import (
    UNFINISHED_SUFFIX,
    TableReader,
    store_file_name,
    store_file_no,
)

DEFINITIONS: Final = "definitions.db"
JOURNAL: Final = "journal"
QUEUES: Final = "queues"
STORE: Final = "store/persistent"
FORGOTTEN_AT_START: Final = ("transient", "store/transient")
KNOWN_NAMES: Final = (
    *("journal", "queues", "streams", "transient", "store", "terms", "lock", "reserve"),
    *(
        "events",
        "audit-trail",
        "history",
        "logs",
        "control.json",
        "nsqd-taken-over.json",
    ),  # not of the engine
)

Progress = Callable[[str, int], None]
"""(file about to be read, its size)"""


@dataclass(slots=True)
class QueueFacts:
    """A durable queue, as the definitions have it; ``entries``: its segment size."""

    queue_id: int
    vhost: str
    name: str
    entries: int
    is_stream: bool = False


@dataclass(slots=True)
class QueueAudit:
    """One queue: what a start would find.

    ``messages``     kept: those ``in_segments`` and those that are ``journal_only``
    ``in_journal``   what lives in the journal, also where a segment has it too
    ``stored``       of those kept, with their content in the store
    ``transient``    in segments, not to outlive the process
    ``unconfirmed``  only in the journal, never known to be synced, and without their content
    """

    facts: QueueFacts
    segments: list[FileWalk] = field(default_factory=list)
    in_segments: int = 0
    in_journal: int = 0
    journal_only: int = 0
    content_bytes: int = 0
    stored: int = 0
    transient: int = 0
    unconfirmed: int = 0

    @property
    def messages(self) -> int:
        return self.in_segments + self.journal_only

    def note_segment(self, walk: SegmentWalk) -> None:
        self.segments.append(walk)
        self.transient += walk.transient_count

    def note_stream(self, walks: Sequence[FileWalk], messages: int, content_bytes: int) -> None:
        """All of a stream is in its segments."""
        self.segments = list(walks)
        self.in_segments = messages
        self.content_bytes = content_bytes

    def note_journal(self, messages: int) -> None:
        self.in_journal = messages

    def keep(self, size_bytes: int, *, in_segment: bool, stored: bool) -> None:
        """A message that a start would find, and where."""
        self.in_segments += in_segment
        self.journal_only += not in_segment
        self.content_bytes += size_bytes
        self.stored += stored

    def drop_unconfirmed(self) -> None:
        self.unconfirmed += 1


class DataAudit:
    """One look; ``run`` it, then look at the attributes.

    ``journal``, ``store``  walks of their files, oldest first
    ``queues``              id → ``QueueAudit``
    ``terms_state``         "valid", "damaged" or "absent"
    """

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        queues: list[QueueFacts],
        progress: Progress,
        deleted: SeqRanges | None = None,
    ) -> None:
        """``deleted``: numbers of queues whose deletion the definitions have recorded."""
        self.damages: list[Damage] = []
        self.notes: list[str] = []
        self.journal: list[JournalWalk] = []
        self.store: list[StoreWalk] = []
        self.contents = Contents()
        self.queues = {facts.queue_id: QueueAudit(facts) for facts in queues}
        self.terms: Terms | None = None
        self.terms_state = "absent"
        self._files = files
        self._directory = directory
        self._progress = progress
        self._journalled: dict[int, JournalledQueue] = {}
        self._referred_no = 0  # the journal file that a segment referred to last
        self._referred_data = b""
        self._newest_referred = 0
        self._tail: JournalWalk | None = None
        self._deleted = SeqRanges() if deleted is None else deleted
        self._left = QueueDirectories(files, directory, set(self.queues))

    def run(self) -> None:
        self._read_terms()
        self._read_journal()
        self._read_store()
        for queue in self.queues.values():
            if not queue.facts.is_stream:
                self._read_queue(queue)
        self._check_newest()
        self._compare_references()
        self._look_around()
        self.damages.sort(key=lambda damage: (damage.file, damage.offset))

    def note(self, notes: list[str]) -> None:
        """More that is odd but harmless, of a stream."""
        self.notes += notes

    def known_offset(self, queue_id: int) -> int:
        """Of a stream: messages below it had been on disk."""
        journalled = self._journalled.get(queue_id)
        if self.terms is None:
            return 0 if journalled is None else int(journalled.next_seq_id)
        offsets = [int(one.next_seq_id) for one in self.terms.queues if one.queue_id == queue_id]
        return max(offsets, default=0)

    def torn_bytes(self) -> int:
        return sum(walk.torn_bytes for walk in self.walks())

    def walks(self) -> list[FileWalk]:
        """Of all files."""
        walks: list[FileWalk] = [*self.journal, *self.store]
        for queue in self.queues.values():
            walks.extend(queue.segments)
        return walks

    # -- files -----------------------------------------------------------------------------

    def _names(self, path: str) -> list[str]:
        where = f"{self._directory}/{path}" if path else self._directory
        return sorted(self._files.listdir(where)) if self._files.exists(where) else []

    def _read(self, path: str) -> bytes:
        where = f"{self._directory}/{path}"
        self._progress(path, self._files.size(where))
        return self._files.read(where)

    def _damage(self, path: str, offset: int, length: int, text: str) -> None:
        self.damages.append(Damage(path, offset, length, text))

    def _take(self, walk: FileWalk) -> None:
        self.damages += walk.damages

    # -- terms -----------------------------------------------------------------------------

    def _read_terms(self) -> None:
        where = f"{self._directory}/{TERMS_FILE}"
        if not self._files.exists(where):
            return
        self.terms = read_terms(self._files, self._directory)
        self.terms_state = "damaged" if self.terms is None else "valid"
        if self.terms is None:
            text = "no true terms; the next start reads everything instead"
            self._damage(TERMS_FILE, 0, self._files.size(where), text)

    # -- journal ---------------------------------------------------------------------------

    def _read_journal(self) -> None:
        numbers = sorted(filter(None, map(journal_file_no, self._names(JOURNAL))))
        walks: dict[int, JournalWalk] = {}
        tail: JournalWalk | None = None
        for number in reversed(numbers):
            path = self._journal_path(number)
            listed_size = None if tail is None else (tail.listed | tail.kept).get(number)
            walk = JournalWalk(path, number, self._read(path), listed_size)
            walks[number] = walk
            if tail is None and walk.has_begun():
                tail = walk
            elif tail is None and number != numbers[-1] and not walk.damages:
                walk.damage(0, walk.size, UNTRUE)
            if tail is None and walk.damages:
                break  # the list of the files is lost
        self._tail = tail
        if tail is not None:
            self._check_list(tail, walks)
            self._check_whole(tail, walks)
        elif numbers and numbers[-1] > 1 and not any(walk.damages for walk in walks.values()):
            text = "it never began, and the journal files before it are gone"
            self._damage(self._journal_path(numbers[-1]), 0, walks[numbers[-1]].size, text)
        self.journal = [walks[number] for number in sorted(walks)]
        for walk in self.journal:
            self._take(walk)
        self._check_last(numbers)
        self._check_resting(walks)
        if self.terms is None:
            self._recover_journal()
        else:
            self._note_lost_journal(self._journal_recovery())

    def _journal_path(self, number: int) -> str:
        return f"{JOURNAL}/{journal_file_name(number)}"

    def _check_list(self, tail: JournalWalk, walks: dict[int, JournalWalk]) -> None:
        """The files the newest one names must be there, and no others are needed."""
        needed = tail.listed | tail.kept
        for number in tail.dropped:
            needed.pop(number, None)
        for number, size in sorted(needed.items()):
            if number not in walks and number not in tail.kept:  # else segments miss it, if any do
                self._damage(self._journal_path(number), 0, size, "the file is missing")
        for number in sorted(walks):
            if number < tail.number and number not in needed:
                # Its removal was undone by a crash: nothing in it counts, nor is damaged.
                del walks[number]
                self.notes.append(
                    f"{self._journal_path(number)} was retired; the next start removes it"
                )

    def _check_whole(self, tail: JournalWalk, walks: dict[int, JournalWalk]) -> None:
        """The newest file has the size that it or the one before says, and is the newest."""
        begun: dict[int, int] = {}
        for walk in walks.values():
            begun.update(walk.begun)
        for number, size in sorted(begun.items()):
            path = self._journal_path(number)
            length = walks[number].size if number in walks else -1
            if number < tail.number:
                continue
            if length < 0:
                self._damage(path, 0, size, "the file is missing")
            elif length < size:
                text = f"{size} bytes of it were on disk: it was cut short"
                self._damage(path, length, size - length, text)
            elif number > tail.number and not walks[number].damages:
                self._damage(path, 0, length, UNTRUE)

    def _check_last(self, numbers: list[int]) -> None:
        if self.terms is not None and numbers and numbers[-1] > self.terms.journal_file_no:
            text = (
                f"the terms end with journal file {int(self.terms.journal_file_no)},"
                f" but file {numbers[-1]} is there"
            )
            self._damage(TERMS_FILE, 0, 0, text)

    def _check_resting(self, walks: dict[int, JournalWalk]) -> None:
        """After a clean stop segments may refer to any file, and the terms say to which."""
        resting = {} if self.terms is None else self.terms.resting
        for number, size in sorted(resting.items()):
            path = self._journal_path(number)
            if number not in walks or walks[number].size < size:
                self._damage(path, 0, size, "it is missing or too short, and segments refer to it")

    def _check_newest(self) -> None:
        """No segment refers to the newest file, but after a clean stop."""
        tail = self._tail
        if self.terms is None and tail is not None and tail.number <= self._newest_referred:
            newest = self.journal[-1]
            path, size = (JOURNAL, 0) if newest is tail else (newest.path, newest.size)
            text = "the newest files of the journal are missing or damaged"
            self._damage(path, 0, size, f"{text}: segments refer to file {self._newest_referred}")

    def _referred(self, payload: bytes) -> bytes:
        """The records that a segment refers to."""
        number = int(referred_file_no(payload))
        path = self._journal_path(number)
        self._newest_referred = max(self._newest_referred, number)
        if number != self._referred_no:
            if not self._files.exists(f"{self._directory}/{path}"):
                raise Corrupt(f"{path}: is missing, and a segment refers to it")
            self._referred_no, self._referred_data = number, self._read(path)
        data = self._referred_data
        records = b"".join([data[at : at + size] for at, size in pieces_of(payload)])
        check_references(path, payload, records)
        return records

    def _recover_journal(self) -> None:
        """What the journal knows, by recovery's own reading."""
        recovery = self._journal_recovery()
        try:
            recovery.run()
        except Corrupt as error:
            if not any(damage.file.startswith(JOURNAL) for damage in self.damages):
                self._damage(JOURNAL, 0, 0, str(error))
            self.notes.append(
                "the journal cannot be read as a whole: what it settled counts as living,"
                " and what only it has is not counted"
            )
            return
        self._note_lost_journal(recovery)
        self._journalled = recovery.queues
        self._left.judge_journal(recovery.unknown, self._deleted)

    def _journal_recovery(self) -> JournalRecovery:
        directory = f"{self._directory}/{JOURNAL}"
        return JournalRecovery(self._files, directory, set(self.queues), self._deleted)

    def _note_lost_journal(self, recovery: JournalRecovery) -> None:
        text = lost_journal(recovery, self.terms, self._directory, len(self.queues))
        if text:
            self._damage(JOURNAL, 0, 0, text)

    # -- store -----------------------------------------------------------------------------

    def _read_store(self) -> None:
        numbers = sorted(filter(None, map(store_file_no, self._names(STORE))))
        sizes = self._table_sizes()
        for number in numbers:
            path = f"{STORE}/{store_file_name(number)}"
            if sizes is not None and number not in sizes:
                self.notes.append(f"{path} is dead; the next start removes it")
                continue
            data = self._read(path)
            # The file before is synced to its end before a new one is begun.
            whole = number != numbers[-1] or sizes is not None
            walk = StoreWalk(path, number, data, whole)
            if sizes is not None and sizes[number] != walk.size:
                self._wrong_size(path, walk.size, sizes[number])
            elif whole and walk.size == 0:
                self._damage(path, 0, 0, "the file is empty")
            self.store.append(walk)
            self._take(walk)
            self.contents.add(walk)
            walk.forget_rows()
        for number in sorted(set(sizes or {}) - set(numbers)):
            text = "the file is missing"
            self._damage(f"{STORE}/{store_file_name(number)}", 0, (sizes or {})[number], text)

    def _wrong_size(self, path: str, size: int, expected: int) -> None:
        start, end = sorted((size, expected))
        text = f"the file has {size} bytes, {expected} when the broker stopped"
        self._damage(path, start, end - start, text)

    def _table_sizes(self) -> dict[int, int] | None:
        """The sizes of the store's files by the terms; None = there are none to go by."""
        table = self._table()
        return None if table is None else {int(file.number): int(file.size) for file in table.files}

    def _table(self) -> TableReader | None:
        if self.terms is None:
            return None
        try:
            return TableReader(self.terms.store_table)
        except ValueError as error:
            if not any(damage.file == TERMS_FILE for damage in self.damages):
                self._damage(TERMS_FILE, 0, 0, f"the table of the message store: {error}")
            return None

    # -- segments --------------------------------------------------------------------------

    def _read_queue(self, queue: QueueAudit) -> None:
        queue_id = queue.facts.queue_id
        known = self._known_segments(queue.facts)
        journalled = self._journalled.get(queue_id)
        directory = f"{QUEUES}/{queue_id}"
        missing = set(known or {})
        for name in sorted(self._names(directory), key=segment_no):
            path = f"{directory}/{name}"
            number = segment_no(name)
            missing.discard(number)
            if segment_no(name, UNFINISHED_SEGMENT) >= 0:
                self.notes.append(f"{path} is unfinished; the next start removes it")
            elif number < 0:
                self.notes.append(f"{path} is no file of this broker")
            elif known is not None and number not in known:
                self.notes.append(f"{path} is dead: the terms do not name it")
            else:
                terms = None if known is None else known[number]
                self._read_segment(queue, path, number, terms, journalled)
        for number in sorted(missing):
            path = f"{directory}/{segment_file_name(number)}"
            self._damage(path, 0, int((known or {})[number].synced), "the file is missing")
        if journalled is not None:
            self._count_journalled(queue, journalled)

    def _known_segments(self, facts: QueueFacts) -> dict[int, Segment] | None:
        """The segments the queue had at a clean stop; None = nothing is known."""
        if self.terms is None:
            return None
        for terms in self.terms.queues:
            if terms.queue_id == facts.queue_id:
                if terms.entries != facts.entries:
                    text = f"queue {facts.queue_id} has segments of {int(terms.entries)} entries"
                    self._damage(TERMS_FILE, 0, 0, f"{text}, {facts.entries} by the definitions")
                return {int(segment.number): segment for segment in terms.segments}
        return {}

    def _read_segment(
        self,
        queue: QueueAudit,
        path: str,
        number: int,
        terms: Segment | None,
        journalled: JournalledQueue | None,
    ) -> None:
        # What is behind that, the attestation of the last sync, need not have reached the disk.
        size = 0 if terms is None else int(terms.synced)
        facts = queue.facts
        walk = SegmentWalk(
            path,
            facts.queue_id,
            number,
            self._read(path),
            facts.entries,
            size,
            self._referred,
        )
        queue.note_segment(walk)
        self._take(walk)
        if walk.size < size:
            self._wrong_size(path, walk.size, size)
        elif terms is not None and not walk.damages:
            self._compare(path, walk, int(terms.live_count))
        self._count(queue, walk, journalled)
        # Only for this: they would be millions.
        walk.forget_rows()

    def _compare(self, path: str, walk: SegmentWalk, expected: int) -> None:
        found = walk.living + walk.transient_count
        if found != expected:
            text = f"{found} messages live in it, {expected} by the terms"
            self._damage(path, 0, walk.size, text)

    def _count(
        self, queue: QueueAudit, walk: SegmentWalk, journalled: JournalledQueue | None
    ) -> None:
        """What of this segment a start would keep."""
        for i, seq_id in enumerate(walk.seq_ids):
            if journalled is not None and journalled.acked.contains(seq_id):
                continue
            msg_id = walk.msg_ids[i]
            if msg_id and not self.contents.refer(msg_id):
                self._damage(walk.path, walk.offsets[i], 0, _missing_content(seq_id, msg_id))
                continue
            queue.keep(walk.content_sizes[i], in_segment=True, stored=msg_id > 0)

    def _count_journalled(self, queue: QueueAudit, journalled: JournalledQueue) -> None:
        """What lives only in the journal."""
        queue.note_journal(len(journalled.messages))
        segments = {walk.number: walk for walk in queue.segments if isinstance(walk, SegmentWalk)}
        entries = queue.facts.entries
        for message in journalled.messages:
            seq_id = int(message.seq_id)
            walk = segments.get(seq_id // entries)
            if walk is not None and walk.had(seq_id % entries):
                continue
            if message.flags & STORED and not self.contents.refer(int(message.msg_id)):
                if message.file_no > 0:
                    text = _missing_content(seq_id, int(message.msg_id), queue.facts.queue_id)
                    self._damage(self._journal_path(int(message.file_no)), 0, 0, text)
                else:
                    queue.drop_unconfirmed()
                continue
            stored = bool(message.flags & STORED)
            queue.keep(int(message.size), in_segment=False, stored=stored)
        journalled.forget_messages()

    # -- crosswise -------------------------------------------------------------------------

    def _compare_references(self) -> None:
        """The table of a clean stop counts references; so did we."""
        table = self._table()
        if table is None or self.damages:
            return
        expected: dict[int, int] = {}
        for file in table.files:
            expected.update(zip(file.ids, file.references, strict=True))
        for i, msg_id in enumerate(self.contents.ids):
            found = self.contents.references[i]
            if found != expected.pop(msg_id, 0):
                text = f"message {msg_id} of the store is not referred to as often as the terms say"
                self._damage(TERMS_FILE, 0, 0, text)
        for msg_id in expected:
            self._damage(TERMS_FILE, 0, 0, f"message {msg_id} of the store is nowhere")

    def _look_around(self) -> None:
        """Files without an owner."""
        if self.terms is not None:
            self._left.judge_terms(self.terms, self._deleted)
        for queue in self._left.unknown:
            text = f"names nothing of {queue.text()}, and no deletion is recorded"
            self._damage(DEFINITIONS, 0, 0, text)
        for path in self._left.dead:
            name = path.removeprefix(f"{self._directory}/")
            self.notes.append(f"{name} is of a deleted queue; the next start removes it")
        for name in sorted(self._left.strange):
            self.notes.append(f"{name} is no file of this broker")
        for name in self._names(JOURNAL):
            if journal_file_no(name) == 0 and not name.endswith(SPARE_SUFFIX):
                self.notes.append(f"{JOURNAL}/{name} is no file of this broker")
        for name in self._names(STORE):
            if store_file_no(name, UNFINISHED_SUFFIX) > 0:
                self.notes.append(f"{STORE}/{name} is unfinished; the next start removes it")
            elif store_file_no(name) == 0:
                self.notes.append(f"{STORE}/{name} is no file of this broker")
        for name in self._names(""):
            if name not in KNOWN_NAMES and not name.startswith("definitions.db"):
                self.notes.append(f"{name} is no file of this broker")
        for path in FORGOTTEN_AT_START:
            count = sum(self._count_files(f"{path}/{name}") for name in self._names(path))
            if count:
                self.notes.append(f"{path}: {count} files; the next start removes them")

    def _count_files(self, path: str) -> int:
        where = f"{self._directory}/{path}"
        try:
            return len(self._files.listdir(where))
        except (FileNotFoundError, NotADirectoryError):
            return 1


def _missing_content(seq_id: int, msg_id: int, queue_id: int = 0) -> str:
    where = f" of queue {queue_id}" if queue_id else ""
    return f"the content of message {seq_id}{where} is missing, number {msg_id} of the store"
