"""``Segment``: the state in memory of one segment file of a queue index.

No object, no entry, no byte per message: a directory of blocks (one for some hundred
kilobytes on disk), counters, and two bitmaps of E / 8 bytes that exist only once something
in the segment was settled or delivered.

Invariants (``check``):
  G1  0 <= live_count <= records in the blocks (settled positions that never had a record do
      not count); live_count is 0 exactly when live_bytes is
  G2  blocks are sorted by their first position and lie within the file's size
  G3  synced <= size
  G4  what is delayed or counted has a record and is not settled
  G5  record_bytes, what the living take in the file, is within the blocks
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from penstock.storage.index.segment_codec import HEADER_BYTES

NEVER_MS: Final[i64] = 1 << 62


@final
@mypyc_attr(acyclic=True)
class Block:
    """A messages block: where it is and which positions it spans (``size``: of the payload)."""

    __slots__ = ("content_bytes", "count", "first", "last", "offset", "size")

    def __init__(
        self, first: i64, last: i64, count: i64, offset: i64, size: i64, content_bytes: i64
    ) -> None:
        self.first: i64 = first
        self.last: i64 = last
        self.count: i64 = count
        self.offset: i64 = offset
        self.size: i64 = size
        self.content_bytes: i64 = content_bytes

    def end(self) -> i64:
        return self.offset + HEADER_BYTES + self.size


@final
class Segment:
    """One segment; ``size`` and ``blocks`` include what is still being written."""

    __slots__ = (
        "attempts",
        "blocks",
        "count",
        "delays",
        "delivered",
        "entries",
        "failed",
        "fresh_soonest_ms",
        "gone",
        "has_stored",
        "left_alone",
        "live_bytes",
        "live_count",
        "marks_dirty",
        "named",
        "number",
        "queue_id",
        "record_bytes",
        "renaming",
        "rewriting",
        "settled",
        "size",
        "soonest_ms",
        "synced",
        "transient_count",
        "writing",
    )

    def __init__(self, queue_id: i64, number: i64, entries: i64) -> None:
        self.queue_id: i64 = queue_id
        self.number: i64 = number
        self.entries: i64 = entries
        self.blocks: list[Block] = []
        self.size: i64 = 0
        self.synced: i64 = 0
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
        self.marks_dirty: bool = False
        self.soonest_ms: i64 = NEVER_MS  # no message here expires before; 0 = not known
        self.fresh_soonest_ms: i64 = NEVER_MS  # the same of those written since the last look
        self.settled: bytearray | None = None
        self.delivered: bytearray | None = None
        self.delays: dict[int, int] = {}
        self.attempts: dict[int, int] = {}  # counted since the records were written

    def note_expiry(self, expires_at_ms: i64) -> None:
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
        self.count += block.count
        self.live_count += block.count
        self.live_bytes += block.content_bytes
        self.record_bytes += block.size
        if block.end() > self.size:
            self.size = block.end()

    def take_copy(self, blocks: list[Block], size: i64) -> None:
        """The file is about to be replaced by one with these blocks, which is on disk."""
        self.blocks = []
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

    def is_wasteful(self) -> bool:
        """Is more of the file garbage than not?  Marks and headers of a copy are no garbage."""
        return self.size > 2 * self.record_bytes + 3 * (2 * self.bitmap_bytes() + 2 * HEADER_BYTES)

    def is_at_rest(self) -> bool:
        return self.writing == 0 and not (self.failed or self.left_alone)

    def settle(self, position: i64, size: i64, record_size: i64, transient: bool) -> None:
        """The message at this position is done."""
        settled = self.settled
        if settled is None:
            settled = bytearray(self.bitmap_bytes())
            self.settled = settled
        byte = position >> 3
        bit: i64 = 1 << (position & 7)
        assert not settled[byte] & bit
        settled[byte] |= bit
        self.live_count -= 1
        self.live_bytes -= size
        self.record_bytes -= record_size
        if self.delays:
            self.delays.pop(int(position), None)
        if self.attempts:
            self.attempts.pop(int(position), None)
        if transient:
            self.transient_count -= 1
        self.marks_dirty = True

    def settle_all_but(self, kept: set[int]) -> None:
        """Every position that may have a record is done, except these.

        Positions behind the last record are left alone: they may get one later.
        """
        last: i64 = -1
        for block in self.blocks:
            if block.last > last:
                last = block.last
        settled = bytearray(self.bitmap_bytes())
        for position in range(last + 1):
            if int(position) not in kept:
                settled[position >> 3] |= 1 << (position & 7)
        self.settled = settled
        self.delays = {place: until for place, until in self.delays.items() if place in kept}
        self.attempts = {place: count for place, count in self.attempts.items() if place in kept}
        self.marks_dirty = True

    def is_settled(self, position: i64) -> bool:
        settled = self.settled
        if settled is None:
            return False
        bit: i64 = 1 << (position & 7)
        return bool(settled[position >> 3] & bit)

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
        settled = self.settled
        if settled is None:
            return True
        low = int(block.first >> 3)
        high = int(block.last >> 3) + 1
        return settled.count(0, low, high) == high - low

    def mark_delivered(self, position: i64) -> None:
        delivered = self.delivered
        if delivered is None:
            delivered = bytearray(self.bitmap_bytes())
            self.delivered = delivered
        bit: i64 = 1 << (position & 7)
        delivered[position >> 3] |= bit
        self.marks_dirty = True

    def was_delivered(self, position: i64) -> bool:
        delivered = self.delivered
        if delivered is None:
            return False
        bit: i64 = 1 << (position & 7)
        return bool(delivered[position >> 3] & bit)

    def bitmap_bytes(self) -> int:
        return int((self.entries + 7) // 8)

    def garbage_bytes(self) -> i64:
        """Bytes of records in the file whose messages are gone."""
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
        for position in self.delays:
            assert not self.is_settled(position), "G4"
        for position in self.attempts:
            assert not self.is_settled(position), "G4"
        assert 0 < self.record_bytes <= size or self.live_count == 0, "G5"


def has_bit(bits: bytes, position: i64) -> bool:
    """Of a bitmap as it was."""
    bit: i64 = 1 << (position & 7)
    return bool(bits[position >> 3] & bit)
