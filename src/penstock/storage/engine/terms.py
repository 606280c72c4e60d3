"""The *terms* of a clean stop: a file that spares the next start the reading of all data files.

For each durable queue its numbers and the directory of its segments (blocks, counts, settled
and delivered positions), for the message store its table.  Written last of all, to another
name and renamed; used up by the start that reads it, before anything is changed, so terms
that are there describe the data directory exactly.  docs/formats/terms.md is the page.

    file     magic "PST" 04 | size u64 | crc u32 | payload

Those of version 2, before there were references, are read too.  Terms that are damaged are no
loss: the start then reads everything, as after a crash.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from penstock.core.byte_reader import ByteReader
from penstock.core.checksum import crc32
from penstock.storage.common.failpoints import reach
from penstock.storage.common.files import FileSystem
from penstock.storage.index.segment import Segment, write_blob

TERMS_FILE: Final = "terms"
MAGIC_BYTES: Final = b"PST\x04"
WITHOUT_REFERENCES: Final = b"PST\x02"
HEADER_BYTES: Final[i64] = 16


@final
class QueueTerms:
    """How one queue stood."""

    __slots__ = ("entries", "expiring", "next_seq_id", "queue_id", "redelivered_below", "segments")

    def __init__(
        self,
        queue_id: i64,
        entries: i64,
        next_seq_id: i64,
        redelivered_below: i64,
        expiring: bool,
        segments: list[Segment],
    ) -> None:
        self.queue_id: i64 = queue_id
        self.entries: i64 = entries
        self.next_seq_id: i64 = next_seq_id
        self.redelivered_below: i64 = redelivered_below
        self.expiring: bool = expiring
        self.segments: list[Segment] = segments


@final
class Terms:
    """``resting``: sizes of the journal files that segments refer to."""

    __slots__ = ("journal_file_no", "queues", "resting", "store_table")

    def __init__(
        self,
        journal_file_no: i64,
        resting: dict[int, int],
        store_table: bytes,
        queues: list[QueueTerms],
    ) -> None:
        self.journal_file_no: i64 = journal_file_no
        self.resting: dict[int, int] = resting
        self.store_table: bytes = store_table
        self.queues: list[QueueTerms] = queues


def write_terms(files: FileSystem, directory: str, terms: Terms) -> None:
    """Durable, all or nothing."""
    payload = _encode(terms)
    head = MAGIC_BYTES + len(payload).to_bytes(8, "big") + crc32(payload).to_bytes(4, "big")
    path = f"{directory}/{TERMS_FILE}"
    unfinished = f"{path}.unfinished"
    if files.exists(unfinished):
        files.remove(unfinished)
    handle = files.open_write(unfinished)
    try:
        files.pwrite_parts(handle, 0, [head, payload])
        files.sync(handle)
    finally:
        files.close(handle)
    files.rename(unfinished, path)
    files.sync_dir(directory)
    reach("terms.written")


def read_terms(files: FileSystem, directory: str) -> Terms | None:
    """None = there are none, or none that can be believed."""
    path = f"{directory}/{TERMS_FILE}"
    if not files.exists(path):
        return None
    data = files.read(path)
    if len(data) < HEADER_BYTES or data[:4] not in (MAGIC_BYTES, WITHOUT_REFERENCES):
        return None
    payload = data[HEADER_BYTES:]
    if read_i64_be(data, 4) != len(payload):
        return None
    if crc32(payload) != i64(read_i32_be(data, 12)) & 0xFFFFFFFF:
        return None
    return _decode(payload, data[:4] == MAGIC_BYTES)


def remove_terms(files: FileSystem, directory: str) -> None:
    """Use them up, for good.

    Also when there are none to be seen: the start before may have died between the two steps,
    and a power cut would bring them back when they have long become untrue.
    """
    path = f"{directory}/{TERMS_FILE}"
    found = files.exists(path)
    if found:
        files.remove(path)
    files.sync_dir(directory)
    if found:
        reach("terms.removed")


def _encode(terms: Terms) -> bytes:
    writer = BytesWriter()
    write_i64_be(writer, terms.journal_file_no)
    write_i32_be(writer, i32(len(terms.resting)))
    for file_no, size in terms.resting.items():
        write_i64_be(writer, i64(file_no))
        write_i64_be(writer, i64(size))
    write_blob(writer, terms.store_table)
    write_i32_be(writer, i32(len(terms.queues)))
    for queue in terms.queues:
        write_i64_be(writer, queue.queue_id)
        write_i64_be(writer, queue.entries)
        write_i64_be(writer, queue.next_seq_id)
        write_i64_be(writer, queue.redelivered_below)
        writer.append(1 if queue.expiring else 0)
        write_i32_be(writer, i32(len(queue.segments)))
        for segment in queue.segments:
            segment.save(writer)
    return writer.getvalue()


def _decode(payload: bytes, refers: bool) -> Terms:
    reader = ByteReader(payload, 0, len(payload))
    journal_file_no = reader.signed()
    resting: dict[int, int] = {}
    for _ in range(reader.long() if refers else 0):
        file_no = reader.signed()
        resting[int(file_no)] = int(reader.signed())
    store_table = reader.raw(reader.signed())
    queues: list[QueueTerms] = []
    for _ in range(reader.long()):
        queue_id = reader.signed()
        entries = reader.signed()
        next_seq_id = reader.signed()
        redelivered_below = reader.signed()
        expiring = reader.octet() == 1
        segments: list[Segment] = []
        for _segment in range(reader.long()):
            segment = Segment(queue_id, reader.signed(), entries)
            segment.restore(reader, refers)
            segments.append(segment)
        queues.append(
            QueueTerms(queue_id, entries, next_seq_id, redelivered_below, expiring, segments)
        )
    return Terms(journal_file_no, resting, store_table, queues)
