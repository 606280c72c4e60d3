"""One file at a time, for ``audit``: journal, segment, store file, taken apart by their codecs.

In: the bytes of a file and what is known about it from elsewhere.  Out: what is in it, its
``damages``, and ``torn_bytes`` at its end.  Where recovery stops at the first damage and names
all that follows, a walk here goes on behind it, at the next block that is true, so that the
damage is named exactly and what survived is counted.

What tells damage from a torn tail is the formats' own rule: bytes that some true block says
were on disk, or that something else does (a list of files, the terms of a clean stop).

Invariants:
  A1  nothing here changes a file: walks get bytes
  A2  every byte of a file is in a true block, in a damage, in the torn tail, or behind the end
      of a journal file, in the room it has in reserve
"""

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import Corrupt
from penstock.storage.common.formats import check_version
from penstock.storage.common.message_record import (
    MESSAGE,
    message_record_end,
    record_content_size,
    record_is_persistent,
    record_msg_id,
    record_queue_id,
    record_seq_id,
)
from penstock.storage.index import segment_codec
from penstock.storage.index.references import are_references
from penstock.storage.index.segment_codec import (
    ATTEST,
    MARKS,
    MESSAGES,
    REFERENCES,
    BlockHeader,
)
from penstock.storage.journal import codec as journal_codec
from penstock.storage.journal.codec import (
    BEGUN,
    BLOCK_HEADER_BYTES,
    DROP,
    FILES,
    KEPT,
    JournalGroup,
)
from penstock.storage.store import codec as store_codec
from penstock.storage.store.codec import GROUP_HEADER_BYTES, RECORD_HEADER_BYTES, GroupHeader

UNTRUE: Final = "no true block"
FOREIGN: Final = "the checksum is right, the content is not of this version"
SAME_BYTES: Final = 16
"""Of a journal block's header: all that is known before it is written, but for its version."""
RECORD_NAMES: Final = {
    MESSAGE: "publish",
    journal_codec.ACK: "ack",
    journal_codec.ACK_RUN: "ack run",
    journal_codec.RESERVE: "reserve",
    journal_codec.FORGET: "forget queue",
    journal_codec.FILES: "list of files",
    journal_codec.QUEUES: "list of queues",
    journal_codec.KEPT: "list of kept files",
    journal_codec.DROP: "drop file",
    journal_codec.TO_TAIL: "to tail",
    journal_codec.DELAY: "delay",
    journal_codec.ATTEMPTS: "attempts",
    journal_codec.BEGUN: "size of a file",
}


@dataclass(slots=True)
class Damage:
    """Bytes that no crash can explain."""

    file: str
    offset: int
    length: int
    text: str


@dataclass(slots=True)
class BlockNote:
    """One block or group that is true, for who wants to see them all."""

    offset: int
    size: int
    synced: int
    content: str


class FileWalk:
    """What the three walks have in common; ``end`` is behind the last true block."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.end = 0
        self.attested = 0
        self.torn_bytes = 0
        self.blocks: list[BlockNote] = []
        self.damages: list[Damage] = []

    def damage(self, start: int, end: int, text: str) -> None:
        self.damages.append(Damage(self.path, start, end - start, text))

    def note(self, start: int, end: int, synced: int, content: str) -> None:
        self.blocks.append(BlockNote(start, end - start, synced, content))
        self.attested = max(self.attested, synced)
        self.end = end

    def next_true(self, at: int, magic: bytes, is_true: Callable[[int], bool], limit: int) -> int:
        """Where the next true block after ``at`` begins; ``limit`` when there is none."""
        found = self.data.find(magic, at + 1, limit)
        while found >= 0 and not is_true(found):
            found = self.data.find(magic, found + 1, limit)
        return found if found >= 0 else limit

    def let_go(self) -> None:
        """The walk is over: only what was found is kept."""
        self.data = b""


class JournalWalk(FileWalk):
    """A journal file.  ``listed_size``: what a newer file says of its size; None = nothing does.

    ``kinds``    records by their first byte
    ``listed``   the sizes of older files, of its first block
    ``kept``     those of files that segments refer to
    ``dropped``  files that need not be there any more
    ``begun``    files that are on disk, and the least they are long
    """

    def __init__(self, path: str, number: int, data: bytes, listed_size: int | None = None) -> None:
        super().__init__(path, data)
        self.number = number
        self.kinds: Counter[int] = Counter()
        self.queue_ids: set[int] = set()
        self.listed: dict[int, int] = {}
        self.kept: dict[int, int] = {}
        self.dropped: set[int] = set()
        self.begun: dict[int, int] = {}
        self._listed_size = listed_size
        self._limit = len(data) if listed_size is None else listed_size
        self._walk()

    def has_begun(self) -> bool:
        return bool(self.blocks) and self.blocks[0].offset == 0

    def _is_true(self, at: int) -> bool:
        return 0 <= journal_codec.block_end(self.data, at, self.number) <= self._limit

    def _walk(self) -> None:
        at = 0
        while at < self._limit:
            if self._is_true(at):
                end = int(journal_codec.block_end(self.data, at, self.number))
                self._read_block(at, end)
                at = end
            else:
                at = self._skip(at)
        self._read_note()
        self.let_go()

    def _read_note(self) -> None:
        """Behind the last block of a file that was left; not one of its blocks."""
        end = int(journal_codec.block_end(self.data, self._limit, self.number))
        at = self._limit + BLOCK_HEADER_BYTES
        while at < end:
            self._read_record(self.data[at], at)
            at += max(1, int(journal_codec.record_size(self.data, at, end)))

    def _skip(self, at: int) -> int:
        """Damage or the torn tail: where to go on."""
        if self._listed_size is None and not journal_codec.attests_damage(
            self.data, at, self.number
        ):
            self.torn_bytes = self._begun_bytes(at)
            return self._limit
        after = self.next_true(at, journal_codec.MAGIC_BYTES, self._is_true, self._limit)
        self.damage(at, after, UNTRUE)
        return after

    def _begun_bytes(self, at: int) -> int:
        """Of a block that was being written there; what else follows is room in reserve."""
        head = JournalGroup(self.number, at, 0, [], False, 0, []).header()[:SAME_BYTES]
        found = self.data[at : at + SAME_BYTES]
        if found[:3] + head[3:4] + found[4:] != head or self.size < at + BLOCK_HEADER_BYTES:
            return 0
        size = BLOCK_HEADER_BYTES + int.from_bytes(self.data[at + 24 : at + 32], "big")
        return min(int(size), self.size - at)

    def _read_block(self, start: int, end: int) -> None:
        check_version(self.path, "journal", self.data[start + 3], journal_codec.FORMAT_VERSION)
        kinds: Counter[int] = Counter()
        at = start + BLOCK_HEADER_BYTES
        while at < end:
            size = journal_codec.record_size(self.data, at, end)
            if size < 0:
                self.damage(at, end, FOREIGN)
                break
            kinds[self.data[at]] += 1
            self._read_record(self.data[at], at)
            at += size
        self.kinds.update(kinds)
        content = ", ".join(f"{count} {RECORD_NAMES[kind]}" for kind, count in kinds.items())
        self.note(start, end, int(journal_codec.synced_offset(self.data, start)), content)

    def _read_record(self, kind: int, at: int) -> None:
        if kind == MESSAGE:
            self.queue_ids.add(int(record_queue_id(self.data, at)))
        elif kind == FILES:
            self.listed.update(journal_codec.read_table(self.data, at))
        elif kind == KEPT:
            self.kept.update(journal_codec.read_table(self.data, at))
        elif kind == DROP:
            self.dropped.add(int.from_bytes(self.data[at + 1 : at + 5], "big"))
        elif kind == BEGUN:
            number = int.from_bytes(self.data[at + 1 : at + 5], "big")
            self.begun[number] = int.from_bytes(self.data[at + 5 : at + 13], "big")


class SegmentWalk(FileWalk):
    """A segment file.  ``known_size``: bytes that were on disk at a clean stop.

    ``entries`` is the segment size of the queue, 0 = not known: then it is told from the file,
    as far as that says.  After the walk: counts, ``present`` and ``settled`` (bitmaps), and what
    lives as rows of ``seq_ids``, ``msg_ids`` (0 = the content is in the record),
    ``content_sizes`` and ``offsets`` of the records.
    """

    def __init__(
        self,
        path: str,
        queue_id: int,
        number: int,
        data: bytes,
        entries: int = 0,
        known_size: int = 0,
        referred: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """``referred``: the records for the payload of a block of references; raises Corrupt."""
        super().__init__(path, data)
        self.queue_id = queue_id
        self.number = number
        self.entries = entries
        self.messages = 0
        self.settled_count = 0
        self.transient_count = 0
        self.delayed_count = 0
        self.settled = b""
        self.present = bytearray()
        self.seq_ids = array("q")
        self.msg_ids = array("q")
        self.content_sizes = array("q")
        self.offsets = array("q")
        self.headers: list[BlockHeader] = []
        self.known_size = min(known_size, len(data))
        self._referred = referred
        self._walk()

    def _header(self, at: int) -> BlockHeader | None:
        return segment_codec.read_block(self.data, at, 0, self.queue_id, self.number)

    def _is_true(self, at: int) -> bool:
        return self._header(at) is not None

    def _walk(self) -> None:
        at = int(segment_codec.first_block(self.data, self.queue_id, self.number))
        if at > 0:
            self.note(0, at, 0, "attestation, torn or not written")
        while at < self.size:
            header = self._header(at)
            if header is None:
                at = self._skip(at)
                continue
            check_version(self.path, "segment", self.data[at + 3], segment_codec.FORMAT_VERSION)
            self.headers.append(header)
            at = int(header.end())
            names = {
                int(MESSAGES): "messages",
                int(MARKS): "marks",
                int(ATTEST): "attestation",
                int(REFERENCES): "references",
            }
            name = names.get(int(header.kind), f"kind {int(header.kind)}")
            content = f"{name}, {int(header.count)}" if header.count else name
            self.note(int(header.offset), at, int(header.synced), content)
        if self.attested > self.size and self.known_size == 0:  # else the terms say so
            text = f"{self.attested} bytes of it were on disk: it was cut short"
            self.damage(self.size, self.attested, text)
        self.attested = max(self.attested, self.known_size)
        self._find_entries()
        self._read_blocks()
        self.headers = []
        self.let_go()

    def _skip(self, at: int) -> int:
        is_known = max(self.known_size, self.attested) > at
        if not is_known and not segment_codec.attests_damage(
            self.data, at, self.queue_id, self.number
        ):
            self.torn_bytes = self.size - at
            return self.size
        after = self.next_true(at, segment_codec.MAGIC_BYTES, self._is_true, self.size)
        self.damage(at, after, UNTRUE)
        return after

    def _find_entries(self) -> None:
        if self.entries == 0:
            for header in self.headers:
                at = int(header.offset + segment_codec.HEADER_BYTES)
                if header.kind == MESSAGES and self.number > 0 and header.size > 0:
                    base = int(record_seq_id(self.data, at) - header.first)
                    self.entries = base // self.number
                elif header.kind == MARKS and self.entries == 0:
                    bitmaps = int(header.size - segment_codec.marks_size(header, 0))
                    self.entries = max(0, bitmaps // 2 * 8)
        if self.entries == 0:  # segment 0 without marks: positions are seq_ids
            last = max((int(header.last) for header in self.headers), default=0)
            self.entries = last + 1
        self.present = bytearray((self.entries + 7) // 8)

    def _read_blocks(self) -> None:
        for header in self.headers:
            if header.kind == MARKS:
                self._read_marks(header)
        for header in self.headers:
            if header.kind == MESSAGES:
                start = int(header.offset + segment_codec.HEADER_BYTES)
                self._read_messages(header, self.data, start, int(header.end()))
            elif header.kind == REFERENCES:
                self._read_references(header)
            elif header.kind not in (MARKS, ATTEST):
                self.damage(int(header.offset), int(header.end()), FOREIGN)

    def _read_marks(self, header: BlockHeader) -> None:
        start, end = int(header.offset + segment_codec.HEADER_BYTES), int(header.end())
        bitmap_bytes = len(self.present)
        if header.size != segment_codec.marks_size(header, bitmap_bytes):
            self.damage(int(header.offset), end, FOREIGN)
            return
        self.settled = self.data[start : start + bitmap_bytes]
        self.delayed_count = int(header.count)

    def _read_references(self, header: BlockHeader) -> None:
        """Of one file by itself only how many there are is known."""
        start, end = int(header.offset), int(header.end())
        payload = self.data[start + int(segment_codec.HEADER_BYTES) : end]
        if not are_references(payload):
            self.damage(start, end, FOREIGN)
        elif self._referred is None:
            self.messages += int(header.count)
        else:
            try:
                records = self._referred(payload)
            except Corrupt as error:
                where, _, text = str(error).partition(": ")
                self.damages.append(Damage(where, 0, 0, f"{text} ({self.path})"))
                return
            self._read_messages(header, records, 0, len(records))

    def _read_messages(self, header: BlockHeader, data: bytes, at: int, end: int) -> None:
        """Its records are from ``at`` to ``end`` of these bytes."""
        count, last = 0, int(header.first) - 1
        while at < end:
            after = int(message_record_end(data, at, end))
            position = self._position(data, at) if after > 0 else -1
            in_order = last < position <= header.last
            offset = at if data is self.data else int(header.offset)
            if not in_order or (count == 0 and position != header.first):
                self.damage(offset, int(header.end()), FOREIGN)
                return
            if self.has(position):
                upto = after if data is self.data else int(header.end())
                self.damage(offset, upto, f"position {position} is in the file twice")
            else:
                self.present[position >> 3] |= 1 << (position & 7)
                self._count(data, at, position, offset)
            count, last, at = count + 1, position, after
        if count != header.count or last != header.last:
            self.damage(int(header.offset), end, FOREIGN)

    def _position(self, data: bytes, at: int) -> int:
        """Of the record there; -1 = it belongs to another segment."""
        if record_queue_id(data, at) != self.queue_id:
            return -1
        position = int(record_seq_id(data, at)) - self.number * self.entries
        return position if 0 <= position < self.entries else -1

    def _count(self, data: bytes, at: int, position: int, offset: int) -> None:
        """``offset``: where a damage to it would be named."""
        self.messages += 1
        if self.is_settled(position):
            self.settled_count += 1
            return
        if not record_is_persistent(data, at):
            self.transient_count += 1
            return
        self.seq_ids.append(record_seq_id(data, at))
        self.msg_ids.append(record_msg_id(data, at))
        self.content_sizes.append(record_content_size(data, at))
        self.offsets.append(offset)

    def forget_rows(self) -> None:
        """Over a whole queue they would be millions."""
        for rows in (self.seq_ids, self.msg_ids, self.content_sizes, self.offsets):
            del rows[:]

    @property
    def living(self) -> int:
        """Messages that would outlive the process, as far as the file knows."""
        return self.messages - self.settled_count - self.transient_count

    def has(self, position: int) -> bool:
        return (position >> 3) < len(self.present) and bool(
            self.present[position >> 3] & 1 << (position & 7)
        )

    def had(self, position: int) -> bool:
        """A record, perhaps before the segment was rewritten."""
        return self.has(position) or self.is_settled(position)

    def is_settled(self, position: int) -> bool:
        return (position >> 3) < len(self.settled) and bool(
            self.settled[position >> 3] & 1 << (position & 7)
        )


class StoreWalk(FileWalk):
    """A file of the message store.  ``whole``: all of it was on disk, whatever it says itself.

    After the walk ``msg_ids`` and ``content_sizes`` are the rows of its true records, ``count``
    many.
    """

    def __init__(self, path: str, number: int, data: bytes, whole: bool = False) -> None:
        super().__init__(path, data)
        self.number = number
        self.count = 0
        self.msg_ids = array("q")
        self.content_sizes = array("q")
        self._witness = len(data) if whole else self._find_witness()
        self._walk()

    def _header(self, at: int) -> GroupHeader | None:
        head = self.data[at : at + GROUP_HEADER_BYTES]
        return store_codec.read_group_header(head, self.number, at)

    def _is_true(self, at: int) -> bool:
        return self._header(at) is not None

    def _find_witness(self) -> int:
        """How much of the file its true headers, wherever they are, say was on disk."""
        witness, at = 0, -1
        while at < self.size:
            at = self.next_true(at, store_codec.MAGIC_BYTES, self._is_true, self.size)
            header = self._header(at) if at < self.size else None
            if header is not None:
                witness = max(witness, int(header.synced))
        return witness

    def _walk(self) -> None:
        at = 0
        while at < self.size:
            header = self._header(at)
            records = at + GROUP_HEADER_BYTES
            if header is not None:
                check_version(
                    self.path, "message store", int(header.version), store_codec.FORMAT_VERSION
                )
            if header is None or header.size > self.size - records:
                at = self._skip(at)
                continue
            end = records + int(header.size)
            first = len(self.msg_ids)
            false = self._read_records(records, end)
            if false and self._is_torn(at, first):
                break
            self.damages += false
            count = len(self.msg_ids) - first
            self.note(at, end, int(header.synced), f"{count} contents" if count else "no contents")
            at = end
        self.attested = min(max(self.attested, self._witness), self.size)
        self.count = len(self.msg_ids)
        self.let_go()

    def forget_rows(self) -> None:
        del self.msg_ids[:]
        del self.content_sizes[:]

    def _is_torn(self, at: int, first: int) -> bool:
        """Of a group that is not true: may a crash have left it?  Then the file ends here."""
        if self._witness > at:
            return False
        del self.msg_ids[first:]
        del self.content_sizes[first:]
        self.torn_bytes = self.size - at
        return True

    def _skip(self, at: int) -> int:
        if self._is_torn(at, len(self.msg_ids)):
            return self.size
        after = self.next_true(at, store_codec.MAGIC_BYTES, self._is_true, self.size)
        self.damage(at, after, "no true group")
        return after

    def _read_records(self, at: int, end: int) -> list[Damage]:
        """Takes the true ones; returns the places of the others."""
        false: list[Damage] = []
        while at < end:
            header = self.data[at : at + RECORD_HEADER_BYTES]
            content_at = at + RECORD_HEADER_BYTES
            size = int.from_bytes(header[:4], "big")
            msg_id = int.from_bytes(header[4:12], "big")
            after = content_at + size
            if after > end:
                false.append(Damage(self.path, at, end - at, "no true record"))
                break
            if not store_codec.is_record(header, self.data[content_at:after], msg_id, size):
                false.append(
                    Damage(self.path, at, after - at, f"the content of message {msg_id} is false")
                )
            elif self.msg_ids and msg_id <= self.msg_ids[-1]:
                false.append(Damage(self.path, at, after - at, FOREIGN))
            else:
                self.msg_ids.append(msg_id)
                self.content_sizes.append(size)
            at = after
        return false


def walk_file(path: str, data: bytes) -> FileWalk | None:
    """One file by itself, told by its name; None = no file of a data directory."""
    directory, _, name = path.rpartition("/")
    if journal_codec.journal_file_no(name):
        return JournalWalk(path, journal_codec.journal_file_no(name), data)
    if store_codec.store_file_no(name):
        return StoreWalk(path, store_codec.store_file_no(name), data)
    if segment_codec.segment_no(name) >= 0:
        queue_id = directory.rpartition("/")[2]
        known = int(queue_id) if queue_id.isdigit() else int.from_bytes(data[4:8], "big")
        return SegmentWalk(path, known, segment_codec.segment_no(name), data)
    return None
