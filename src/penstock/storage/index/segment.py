"""``Segment``: the state in memory of one segment file of a queue index.

No object, no entry, no byte per message: a directory of blocks (one for some hundred
kilobytes on disk), counters, and marks (marks.py).  Its fields are written here only, also in the
threads of its jobs: ``failed`` is the one thing that the jobs of a lane tell each other.

Invariants (``check``):
  G1  0 <= live_count <= records in the blocks (settled positions that never had a record do
      not count); live_count is 0 exactly when live_bytes is
  G2  blocks are sorted by their first position and lie within the file's size
  G3  synced <= size
  G4  what is delayed or counted has a record and is not settled
  G5  record_bytes, what the living take in the file, is within the blocks
"""

import errno
from typing import Final, final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, mypyc_attr

from penstock.core.byte_reader import ByteReader
from penstock.core.clock_types import WallMs
from penstock.storage.common.files import NO_SPACE
from penstock.storage.index.marks import SegmentMarks
from penstock.storage.index.segment_codec import HEADER_BYTES

NEVER_MS: Final = WallMs(1 << 62)
_NO_REFERENCES: Final[dict[int, int]] = {}


@final
@mypyc_attr(acyclic=True)
class Block:
    """A block of messages: where it is and which positions it spans.

    ``size``       bytes of the records, which are the payload
    ``file_no``    of the journal, if the records are there and the payload refers to them; else 0
    ``own_bytes``  of the payload in the segment's file
    """

    __slots__ = (
        "content_bytes", "count", "file_no", "first", "last", "offset", "own_bytes", "size",
    )  # fmt: skip

    def __init__(
        self,
        first: i64,
        last: i64,
        count: i64,
        offset: i64,
        size: i64,
        content_bytes: i64,
        file_no: i64 = 0,
        own_bytes: i64 = 0,
    ) -> None:
        self.first: i64 = first
        self.last: i64 = last
        self.count: i64 = count
        self.offset: i64 = offset
        self.size: i64 = size
        self.content_bytes: i64 = content_bytes
        self.file_no: i64 = file_no
        self.own_bytes: i64 = own_bytes if file_no > 0 else size

    def end(self) -> i64:
        return self.offset + HEADER_BYTES + self.own_bytes

    def take(self, position: i64, content_size: i64) -> None:
        """One more record, behind those so far."""
        if self.count == 0:
            self.first = position
        self.last = position
        self.count += 1
        self.content_bytes += content_size

    def close(self, offset: i64, size: i64) -> None:
        """It has all its records, and its place."""
        self.offset = offset
        self.size = size
        self.own_bytes = size


@final
class Segment:
    """One segment; ``size`` and ``blocks`` include what is still being written.

    ``references``: bytes of records in files of the journal, by their numbers.
    """

    __slots__ = (
        "blocks", "count", "entries", "failed", "fresh_soonest_ms", "gone", "has_stored",
        "is_old", "left_alone", "live_bytes", "live_count", "marks", "named", "number", "queue_id",
        "record_bytes", "references", "renaming", "rewriting", "size", "soonest_ms", "synced",
        "transient_count", "writing",
    )  # fmt: skip

    def __init__(self, queue_id: i64, number: i64, entries: i64) -> None:
        self.queue_id: i64 = queue_id
        self.number: i64 = number
        self.entries: i64 = entries
        self.blocks: list[Block] = []
        self.references: dict[int, int] = _NO_REFERENCES
        self.size: i64 = HEADER_BYTES  # of the attestation
        self.synced: i64 = 0
        self.is_old: bool = False  # attestations are behind what they attest, not at the beginning
        self.named: bool = False  # its name is on disk
        self.count: i64 = 0
        self.live_count: i64 = 0
        self.live_bytes: i64 = 0
        self.record_bytes: i64 = 0
        self.transient_count: i64 = 0  # living ones that are not to outlive the process
        self.writing: i64 = 0  # jobs under way on the file
        self.failed: bool = False  # set by a thread: a write or sync failed, no more may follow
        self.gone: bool = False  # dead, and nothing of it can come back after a crash
        self.rewriting: bool = False  # nothing may be appended
        self.renaming: bool = False  # the blocks are those of a copy that may lack its name
        self.left_alone: bool = False  # not to be rewritten: damage was found in it
        self.has_stored: bool = False  # some record's content is in the message store
        self.soonest_ms = NEVER_MS  # no message here expires before; 0 = not known
        self.fresh_soonest_ms = NEVER_MS  # the same of those written since the last look
        self.marks: SegmentMarks = SegmentMarks(entries)

    def note_expiry(self, expires_at_ms: WallMs) -> None:
        if expires_at_ms < self.soonest_ms:
            self.soonest_ms = expires_at_ms
        if expires_at_ms < self.fresh_soonest_ms:
            self.fresh_soonest_ms = expires_at_ms

    def add_block(self, block: Block) -> None:
        """Keep them sorted by first position; nearly always it is the last."""
        blocks = self.blocks
        place: i64 = len(blocks)
        while place > 0 and blocks[place - 1].first > block.first:
            place -= 1
        if place == len(blocks):
            blocks.append(block)
        else:
            blocks.insert(place, block)
        if block.offset == 0:
            self.is_old = True
        self.count += block.count
        self.live_count += block.count
        self.live_bytes += block.content_bytes
        self.record_bytes += block.size
        if block.file_no > 0:
            number = int(block.file_no)
            self.references = self.references | {
                number: self.references.get(number, 0) + int(block.size)
            }
        if block.end() > self.size:
            self.size = block.end()

    def note_kinds(self, transient_count: i64, has_stored: bool) -> None:
        """Of records just added: how many are transient, is the content of any in the store?"""
        self.transient_count += transient_count
        if has_stored:
            self.has_stored = True

    def claim(self, size: i64) -> i64:
        """Room for so many bytes at the end of the file; where it begins."""
        offset = self.size
        self.size += size
        return offset

    def claim_attestation(self) -> i64:
        """Where the next one is written."""
        return self.claim(HEADER_BYTES) if self.is_old else 0

    def is_synced(self) -> bool:
        """But for an attestation at its end."""
        return self.size <= self.synced + (HEADER_BYTES if self.is_old else 0)

    # -- its jobs --------------------------------------------------------------------------

    def begin_job(self) -> None:
        self.writing += 1

    def end_job(self) -> None:
        self.writing -= 1

    def must_be_whole(self, path: str) -> None:
        """After a write or a sync that failed no later sync may say anything: raises OSError."""
        if self.failed:
            raise OSError(errno.EIO, "an earlier write or sync of this segment failed", path)

    def note_failure(self, error: OSError) -> None:
        """A full disk is waited for and the same job run again; anything else is for good."""
        if error.errno not in NO_SPACE:
            self.failed = True

    def note_synced(self, size: i64) -> None:
        """Its name is, and so many bytes are."""
        self.named = True
        if size > self.synced:
            self.synced = size

    def cut_at(self, size: i64) -> None:
        """At start: what lies behind is written over."""
        self.size = size

    def note_gone(self) -> None:
        """Dead, and nothing of it can come back after a crash."""
        self.gone = True

    # -- rewriting -------------------------------------------------------------------------

    def begin_rewriting(self) -> None:
        self.rewriting = True
        self.writing += 1

    def take_copy(self, blocks: list[Block], size: i64) -> None:
        """The file is about to be replaced by one with these blocks, which is on disk."""
        self.blocks = []
        self.is_old = False
        self.references = _NO_REFERENCES
        self.count = 0
        live_count = self.live_count
        live_bytes = self.live_bytes
        record_bytes = self.record_bytes
        for block in blocks:
            self.add_block(block)
        # What died while it was copied is in the copy.
        self.live_count = live_count
        self.live_bytes = live_bytes
        self.record_bytes = record_bytes
        self.size = size
        self.synced = size
        self.named = True
        self.renaming = True

    def copy_failed(self, damaged: bool) -> None:
        """``damaged``: it is not to be tried again."""
        self.marks.not_written()
        self.left_alone = damaged

    def renamed(self) -> None:
        self.renaming = False

    def end_rewriting(self) -> None:
        self.rewriting = False
        self.writing -= 1

    def take_references(self) -> dict[int, int]:
        """They are to be released, once."""
        references = self.references
        self.references = _NO_REFERENCES
        return references

    def total_bytes(self) -> i64:
        """Of the file and of what it refers to."""
        total = self.size
        for size in self.references.values():
            total += size
        return total

    def is_wasteful(self) -> bool:
        """Is more of it garbage than not?  Marks and headers of a copy are no garbage."""
        overhead = 2 * self.marks.bitmap_bytes + 2 * HEADER_BYTES
        return self.total_bytes() > 2 * self.record_bytes + 3 * overhead

    def is_at_rest(self) -> bool:
        return self.writing == 0 and not (self.failed or self.left_alone)

    # -- the end of messages ---------------------------------------------------------------

    def settle(self, position: i64, size: i64, record_size: i64, transient: bool) -> None:
        """The message at this position is done."""
        self.marks.settle(position)
        self.live_count -= 1
        self.live_bytes -= size
        self.record_bytes -= record_size
        if transient:
            self.transient_count -= 1

    def count_dead(self, count: i64, size: i64, record_bytes: i64) -> None:
        """At start: so many records of a block just added are settled."""
        self.live_count -= count
        self.live_bytes -= size
        self.record_bytes -= record_bytes

    def settle_all_but(
        self, kept: set[int], count: i64, size: i64, record_bytes: i64, transient_count: i64
    ) -> None:
        """Every position that may have a record is done, except these.

        Positions behind the last record are left alone: they may get one later.  The numbers are of
        the records that are kept.
        """
        last: i64 = -1
        for block in self.blocks:
            if block.last > last:
                last = block.last
        self.marks.settle_all_but(kept, last)
        self.live_count = count
        self.live_bytes = size
        self.record_bytes = record_bytes
        self.transient_count = transient_count

    # -- looking ---------------------------------------------------------------------------

    def first_block_at(self, position: i64) -> i64:
        """The place of the first block that has something there or above; -1 = none."""
        for place in range(len(self.blocks)):
            if self.blocks[place].last >= position:
                return place
        return -1

    def is_whole(self, place: i64) -> bool:
        """Does all of this block live, and no other one reach into it?  (May deny it falsely.)

        Blocks before this one are taken to end before it begins.
        """
        block = self.blocks[place]
        if place + 1 < len(self.blocks) and self.blocks[place + 1].first <= block.last:
            return False
        settled = self.marks.settled
        if settled is None:
            return True
        low = int(block.first >> 3)
        high = int(block.last >> 3) + 1
        return settled.count(0, low, high) == high - low

    def garbage_bytes(self) -> i64:
        """Bytes of records in the file, or referred to, whose messages are gone."""
        total: i64 = 0
        for block in self.blocks:
            total += block.size
        return total - self.record_bytes

    def check(self) -> None:
        count: i64 = 0
        first: i64 = -1
        size: i64 = 0
        for block in self.blocks:
            size += block.size
            assert block.first >= first, "G2"
            assert 0 <= block.first <= block.last < self.entries, "G2"
            assert block.end() <= self.size, "G2"
            first = block.first
            count += block.count
        assert self.count == count, "G1"
        assert 0 <= self.live_count <= count, "G1"
        assert 0 <= self.transient_count <= self.live_count, "G1"
        assert (self.live_bytes > 0) == (self.live_count > 0), "G1"
        assert 0 <= self.synced <= self.size, "G3"
        for position in [*self.marks.delays, *self.marks.attempts]:
            assert not self.marks.is_settled(position), "G4"
        assert 0 < self.record_bytes <= size or self.live_count == 0, "G5"

    # -- the terms of a clean stop (docs/formats/terms.md) ---------------------------------

    def save(self, writer: BytesWriter) -> None:
        marks = self.marks
        write_i64_be(writer, self.number)
        write_i64_be(writer, self.size)
        write_i64_be(writer, self.synced)
        write_i64_be(writer, self.live_count)
        write_i64_be(writer, self.live_bytes)
        write_i64_be(writer, self.record_bytes)
        writer.append(1 if self.has_stored else 0)
        write_blob(writer, b"" if marks.settled is None else bytes(marks.settled))
        write_blob(writer, b"" if marks.delivered is None else bytes(marks.delivered))
        write_i32_be(writer, i32(len(marks.delays)))
        for position, until_ms in marks.delays.items():
            write_i64_be(writer, i64(position))
            write_i64_be(writer, until_ms)
        write_i32_be(writer, i32(len(marks.attempts)))
        for position, attempts in marks.attempts.items():
            write_i64_be(writer, i64(position))
            write_i32_be(writer, i32(attempts))
        write_i32_be(writer, i32(len(self.blocks)))
        for block in self.blocks:
            write_i64_be(writer, block.first)
            write_i64_be(writer, block.last)
            write_i64_be(writer, block.count)
            write_i64_be(writer, block.offset)
            write_i64_be(writer, block.size)
            write_i64_be(writer, block.content_bytes)
            write_i64_be(writer, block.file_no)
            write_i64_be(writer, block.own_bytes)

    def restore(self, reader: ByteReader, refers: bool) -> None:
        """What ``save`` wrote behind the number; not ``refers``: before there were references."""
        size = reader.signed()
        self.note_synced(reader.signed())
        live_count = reader.signed()
        live_bytes = reader.signed()
        record_bytes = reader.signed()
        self.has_stored = reader.octet() == 1
        settled = reader.raw(reader.signed())
        delivered = reader.raw(reader.signed())
        delays: dict[int, WallMs] = {}
        for _ in range(reader.long()):
            position = reader.signed()
            delays[int(position)] = WallMs(reader.signed())
        attempts: dict[int, int] = {}
        for _ in range(reader.long()):
            position = reader.signed()
            attempts[int(position)] = int(reader.long())
        self.marks.restore(settled, delivered, delays, attempts)
        for _ in range(reader.long()):
            first = reader.signed()
            last = reader.signed()
            count = reader.signed()
            offset = reader.signed()
            size_of_records = reader.signed()
            content_bytes = reader.signed()
            file_no = reader.signed() if refers else 0
            own_bytes = reader.signed() if refers else size_of_records
            self.add_block(
                Block(
                    first, last, count, offset, size_of_records, content_bytes, file_no, own_bytes
                )
            )
        self.size = size
        self.live_count = live_count
        self.live_bytes = live_bytes
        self.record_bytes = record_bytes


def write_blob(writer: BytesWriter, data: bytes) -> None:
    """Behind its size."""
    write_i64_be(writer, i64(len(data)))
    writer.write(data)
