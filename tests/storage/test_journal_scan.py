"""``JournalScan``: finds the records of a finished journal file, with few bytes in memory."""

from __future__ import annotations

import pytest
from librt.strings import BytesWriter

from penstock.core.message import PERSISTENT, Message
from penstock.storage.common.message_record import write_message_head
from penstock.storage.journal.codec import BLOCK_HEADER_BYTES, JournalGroup, journal_file_name
from penstock.storage.journal.resting import SCAN_BYTES, JournalScan
from tests.helpers.sim_files import SimFileSystem

FILE_NO, QUEUE_ID = 5, 7
PATH = f"j/{journal_file_name(FILE_NO)}"
BLOCKS = [3, 300, 2000, 1, 40, 3000, 2]
"""Of so many messages of a kilobyte; some are longer than what is read at once."""


class MeasuredFiles(SimFileSystem):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def pread(self, path: str, offset: int, size: int) -> bytes:
        self.sizes.append(size)
        assert len(self.sizes) < 100, "it reads for ever"
        return super().pread(path, offset, size)


def a_file() -> tuple[bytes, int]:
    """Its bytes, and how long its longest block is."""
    data, longest, seq_id = b"", 0, 0
    for count in BLOCKS:
        writer = BytesWriter()
        for _ in range(count):
            one = Message(b"x" * 1024, b"\x00\x01k", PERSISTENT, 0)
            one.place(seq_id, 1)
            seq_id += 1
            write_message_head(writer, QUEUE_ID, one)
            writer.write(one.content)
        block = JournalGroup(FILE_NO, len(data), 0, [writer.getvalue()], True, 0, [])
        longest = max(longest, block.end_offset() - len(data))
        data += block.header() + block.data
    return data, longest


DATA, LONGEST = a_file()


def scan(data: bytes, size: int) -> tuple[JournalScan, list[int]]:
    """What it finds, and how much it asked for at once."""
    files = MeasuredFiles()
    files.makedirs("j")
    handle = files.open_write(PATH)
    files.pwrite_parts(handle, 0, [data])
    files.close(handle)
    job = JournalScan("j", FILE_NO, size, {QUEUE_ID})
    job.run(files)
    return job, files.sizes


def test_it_reads_one_block_at_once_or_what_it_reads_anyway() -> None:
    job, sizes = scan(DATA, len(DATA))
    assert job.found[QUEUE_ID].count == sum(BLOCKS)
    assert max(sizes) == LONGEST > 2 * SCAN_BYTES
    assert sum(sizes) < 2 * len(DATA)


@pytest.mark.parametrize("missing", [1, 500, 3 * 1024 + 50, 3 * 1024 * 1024, len(DATA) - 10])
def test_of_a_file_that_is_not_whole_nothing_is_known(missing: int) -> None:
    job, _ = scan(DATA[:-missing], len(DATA))
    assert job.found == {}
    job, _ = scan(DATA, len(DATA) - missing)
    assert job.found == {}


@pytest.mark.parametrize("says", [-1, 0, 1 << 20, 1 << 40, (1 << 63) - 1])
def test_a_block_that_says_another_size_is_not_believed(says: int) -> None:
    size_at = BLOCK_HEADER_BYTES - 12
    wrong = DATA[:size_at] + says.to_bytes(8, "big", signed=True) + DATA[size_at + 8 :]
    job, sizes = scan(wrong, len(wrong))
    assert job.found == {}
    assert max(sizes) <= len(wrong)
