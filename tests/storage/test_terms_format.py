"""Clauses of docs/formats/terms.md, by a reader written from that page alone."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from penstock.storage.engine.terms import QueueTerms, Terms, read_terms, remove_terms, write_terms
from penstock.storage.store.codec import FileTable, encode_table
from tests.helpers.sim_files import SimFileSystem
from tests.storage.record_reader import examples
from tests.storage.test_segment_format import ENTRIES, example_index

DIRECTORY = "data"
PATH = f"{DIRECTORY}/terms"


class Reader:
    """Clause 2.1: fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, layout: str) -> tuple[Any, ...]:
        fields = struct.unpack_from(f">{layout}", self.data, self.at)
        self.at += struct.calcsize(f">{layout}")
        return fields

    def blob(self) -> bytes:
        (size,) = self.take("Q")
        self.at += size
        return self.data[self.at - size : self.at]


def read_file(data: bytes) -> dict[str, Any]:
    magic, version, size, crc = struct.unpack_from(">3sBQI", data)
    payload = data[16:]
    assert (magic, version, size) == (b"PST", 4, len(payload))
    assert crc == zlib.crc32(payload)
    reader = Reader(payload)
    (journal_file_no,) = reader.take("Q")
    (count,) = reader.take("I")
    resting = dict(reader.take("QQ") for _ in range(count))
    store = reader.blob()
    (count,) = reader.take("I")
    queues = [read_queue(reader) for _ in range(count)]
    assert reader.at == len(payload)
    return {
        "journal_file_no": journal_file_no,
        "resting": resting,
        "store": store,
        "queues": queues,
    }


def read_queue(reader: Reader) -> dict[str, Any]:
    *numbers, expiring, count = reader.take("QQQQBI")
    return {
        "numbers": tuple(numbers),
        "expiring": expiring,
        "segments": [read_segment(reader) for _ in range(count)],
    }


def read_segment(reader: Reader) -> dict[str, Any]:
    *numbers, has_stored = reader.take("QQQQQQB")
    settled, delivered = reader.blob(), reader.blob()
    (count,) = reader.take("I")
    delays = [reader.take("Qq") for _ in range(count)]
    (count,) = reader.take("I")
    attempts = [reader.take("QI") for _ in range(count)]
    (count,) = reader.take("I")
    blocks = [reader.take("8Q") for _ in range(count)]
    return {
        "numbers": tuple(numbers),
        "has_stored": has_stored,
        "bitmaps": (settled, delivered),
        "delays": dict(delays),
        "attempts": dict(attempts),
        "blocks": blocks,
    }


def store_table() -> bytes:
    file = FileTable(1, 10_060)
    file.ids.append(5)
    file.offsets.append(44)
    file.sizes.append(10_000)
    file.references.append(1)
    return encode_table(6, 2, [file])


def example_terms() -> SimFileSystem:
    files = SimFileSystem()
    files.makedirs(DIRECTORY)
    segments = list(example_index().index.segments.values())
    queue = QueueTerms(7, ENTRIES, 20, 16, False, segments)
    write_terms(files, DIRECTORY, Terms(3, {}, store_table(), [queue]))
    return files


def test_clause_1_1_it_is_there_whole_or_not_at_all() -> None:
    files = SimFileSystem()
    files.makedirs(DIRECTORY)
    files.open_write(f"{PATH}.unfinished")
    write_terms(files, DIRECTORY, Terms(3, {}, b"", []))
    assert set(files.names) == set(files.synced_names) == {PATH}
    assert files.names[PATH].disk == files.names[PATH].cache
    verbs = [call.split()[0] for call in files.calls]
    assert verbs.index("sync") < verbs.index("rename") < len(verbs) - 1
    assert verbs[-1] == "sync_dir"


def test_clause_1_2_they_are_used_up() -> None:
    files = example_terms()
    remove_terms(files, DIRECTORY)
    assert PATH not in files.names
    assert PATH not in files.synced_names
    assert read_terms(files, DIRECTORY) is None


def test_clause_1_4_every_cut_and_every_flip_makes_them_no_terms() -> None:
    files = example_terms()
    whole = files.read(PATH)
    assert read_terms(files, DIRECTORY) is not None
    for size in range(len(whole)):
        files.truncate(PATH, size)
        assert read_terms(files, DIRECTORY) is None
        files.pwrite_parts(files.open_write(PATH), 0, [whole])
    for bit in range(8 * len(whole)):
        files.flip(PATH, bit)
        assert read_terms(files, DIRECTORY) is None
        files.flip(PATH, bit)
    assert read_terms(files, DIRECTORY) is not None


def test_clause_2_what_was_written_comes_back() -> None:
    terms = read_terms(example_terms(), DIRECTORY)
    assert terms is not None
    assert (terms.journal_file_no, terms.store_table) == (3, store_table())
    (queue,) = terms.queues
    assert (queue.queue_id, queue.entries, queue.next_seq_id) == (7, ENTRIES, 20)
    assert (queue.redelivered_below, queue.expiring) == (16, False)
    (segment,) = queue.segments
    (before,) = example_index().index.segments.values()
    for name in (
        "number",
        "size",
        "synced",
        "live_count",
        "live_bytes",
        "record_bytes",
        "has_stored",
    ):
        assert getattr(segment, name) == getattr(before, name), name
    assert segment.marks.settled == before.marks.settled
    assert segment.marks.delivered == before.marks.delivered
    assert segment.marks.delays == before.marks.delays
    assert segment.marks.attempts == before.marks.attempts
    segment.transient_count = before.transient_count
    segment.check()


def test_clause_2_3_segments_without_marks_have_no_bitmaps() -> None:
    opened = example_index()
    segment = next(iter(opened.index.segments.values()))
    segment.marks.settled = None
    segment.marks.delivered = None
    files = SimFileSystem()
    files.makedirs(DIRECTORY)
    queue = QueueTerms(7, ENTRIES, 20, 0, False, [segment])
    write_terms(files, DIRECTORY, Terms(3, {}, b"", [queue]))
    (found,) = read_file(files.read(PATH))["queues"][0]["segments"]
    assert found["bitmaps"] == (b"", b"")


def test_clause_5_the_example() -> None:
    (data,) = examples("terms.md")
    assert example_terms().read(PATH) == data
    found = read_file(data)
    assert (found["journal_file_no"], found["store"]) == (3, store_table())
    (queue,) = found["queues"]
    assert (queue["numbers"], queue["expiring"]) == ((7, ENTRIES, 20, 16), 0)
    (segment,) = queue["segments"]
    assert segment["numbers"] == (1, 389, 389, 2, 10_001, 95)
    assert segment["has_stored"] == 1
    assert segment["bitmaps"] == (b"\x02\x00", b"\x08\x00")
    assert (segment["delays"], segment["attempts"]) == ({3: 60_000}, {3: 2})
    assert segment["blocks"] == [
        (1, 3, 2, 56, 97, 10_003, 0, 97),
        (2, 2, 1, 209, 44, 1, 0, 44),
    ]
