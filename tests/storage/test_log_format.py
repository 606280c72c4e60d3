"""Clauses of docs/formats/message_log.md that concern bytes: 1, 2, 3, 6 and the example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.core.errors import Corrupt
from penstock.core.message import PERSISTENT, Message
from penstock.storage.files import RealFileSystem
from penstock.storage.log_codec import (
    BLOCK_HEADER_BYTES,
    FORMAT_VERSION,
    LogGroup,
    block_end,
    log_file_name,
    log_file_no,
    publish_size,
    record_size,
)
from penstock.storage.message_log import MessageLog
from tests.helpers.sim_files import SimFileSystem
from tests.storage.log_tools import DIRECTORY, OpenLog, message, messages

PAGE = Path(__file__).parents[2] / "docs/formats/message_log.md"


def test_clause_1_1_names_and_numbers() -> None:
    assert log_file_no(log_file_name(17)) == 17
    for other in ("0.log", "01.log", "x.log", "1.logs", ".log", "1", "٣.log", "-1.log"):
        assert log_file_no(other) == 0


def test_clause_1_1_other_files_are_left_alone() -> None:
    files = SimFileSystem()
    files.makedirs(DIRECTORY)
    files.open_append(f"{DIRECTORY}/notes.txt")
    OpenLog(files, set())
    assert files.exists(f"{DIRECTORY}/notes.txt")


def test_clause_1_3_a_full_file_gets_no_further_block() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1}, limit_bytes=1000)
    opened.log.publish(1, messages(0, 1, b"x" * 2000))
    opened.commit()
    opened.log.publish(1, messages(1, 2))
    opened.commit()
    assert files.size("log/1.log") > 2000
    assert files.names.keys() == {"log/1.log", "log/2.log"}


def test_clause_2_2_every_cut_and_every_flip_is_no_true_block() -> None:
    group = LogGroup(3, 0, 0, [b"A\x00\x00\x00\x01" + bytes(8)], True, 13, [])
    block = group.header() + group.data
    assert block_end(block, 0, 3) == len(block) == BLOCK_HEADER_BYTES + 13
    for size in range(len(block)):
        assert block_end(block[:size], 0, 3) == -1
    for bit in range(8 * len(block)):
        flipped = bytearray(block)
        flipped[bit // 8] ^= 1 << (bit % 8)
        assert block_end(bytes(flipped), 0, 3) == -1


def test_clause_2_2_a_block_elsewhere_is_not_true() -> None:
    group = LogGroup(3, 0, 0, [b"C"], True, 1, [])
    block = group.header() + group.data
    assert block_end(block, 0, 4) == -1
    assert block_end(b"x" + block, 1, 3) == -1


@pytest.mark.parametrize("records", [b"Z", b"A\x00", b"P" + b"\xff" * 40, b"Q\x7f\xff\xff\xff"])
def test_clause_2_3_unknown_records_are_damage(records: bytes) -> None:
    assert record_size(records, 0, len(records)) == -1
    files = SimFileSystem()
    OpenLog(files, {1})
    size = files.size("log/1.log")
    group = LogGroup(1, size, 0, [records], True, 0, [])
    handle = files.open_append("log/1.log")
    files.write_parts(handle, [group.header(), group.data])
    with pytest.raises(Corrupt, match=rf"log/1\.log: damaged at offset {size + 36}, "):
        OpenLog(files, {1})


def test_clause_3_1_a_message_comes_back_as_it_was() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1})
    one = Message(b"\x00content\xff", b"\x00\x01q", PERSISTENT, 77)
    one.seq_id = 2**62
    one.enqueued_at_ms = 2**62 + 1
    opened.log.publish(1, [one])
    assert opened.log.pending_bytes() == publish_size(one)
    opened.commit()
    (found,) = OpenLog(files, {1}).recovered[1].messages
    assert (found.content, found.address) == (one.content, one.address)
    assert (found.seq_id, found.expires_at_ms, found.enqueued_at_ms) == (2**62, 77, 2**62 + 1)


def test_clause_3_1_empty_content_and_large_content() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1})
    empty = message(0)
    empty.content = b""
    empty.address = b""
    large = message(1, b"x" * 5_000_000)
    opened.log.publish(1, [empty, large])
    opened.commit()
    assert [one.content for one in OpenLog(files, {1}).recovered[1].messages] == [
        b"",
        large.content,
    ]


def test_clause_3_3_neighbours_become_one_run() -> None:
    opened = OpenLog(SimFileSystem(), {1})
    batch = messages(0, 100)
    opened.log.publish(1, batch)
    opened.commit()
    opened.log.ack(1, batch[:50] + batch[60:61] + batch[70:])
    group = opened.commit()
    assert group is not None
    assert group.data[:1] + group.data[17:18] + group.data[30:31] == b"RAR"
    assert len(group.data) == 17 + 13 + 17


def test_clause_6_1_another_version_is_refused_not_cut(tmp_path: Path) -> None:
    log = MessageLog(RealFileSystem(), str(tmp_path))
    log.recover(set())
    path = tmp_path / "1.log"
    old = path.read_bytes()
    import zlib

    head = b"PSL" + bytes([FORMAT_VERSION + 1]) + old[4:32]
    path.write_bytes(head + zlib.crc32(old[36:], zlib.crc32(head)).to_bytes(4, "big") + old[36:])
    with pytest.raises(Corrupt, match="version 2, this release reads version 1"):
        MessageLog(RealFileSystem(), str(tmp_path)).recover(set())


def test_clause_7_the_example(tmp_path: Path) -> None:
    blocks = re.findall(r"```hex\n(.*?)```", PAGE.read_text(), re.DOTALL)
    files = SimFileSystem()
    opened = OpenLog(files, set())
    one = Message(b"hi!", b"\x00\x01q", PERSISTENT, 0)
    one.seq_id = 0
    one.enqueued_at_ms = 1
    opened.log.publish(7, [one])
    opened.log.ack(7, [one])
    opened.log.reserve(7, 16384)
    opened.commit()
    assert files.read("log/1.log").hex() == re.sub(r"\s", "", blocks[0])
