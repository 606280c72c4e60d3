"""Clauses of docs/formats/message_log.md that concern reading, dropping and compaction: 4, 5.

With a limit of one byte every group gets a file of its own: the first block of a new log is
in 1.log, the first group in 2.log, and so on.
"""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import Corrupt
from penstock.core.message import PERSISTENT, REDELIVERED, Message
from penstock.storage.files import WRITE_PARTS_MAX
from penstock.storage.message_log import LARGE_CONTENT_BYTES
from tests.helpers.sim_files import SimFileSystem
from tests.storage.log_tools import OpenLog, message, messages


def numbers(files: SimFileSystem) -> list[int]:
    return sorted(int(name[4:-4]) for name in files.names)


def publish(opened: OpenLog, start: int, end: int, queue_id: int = 1) -> list[Message]:
    batch = messages(start, end)
    opened.log.publish(queue_id, batch)
    opened.commit()
    return batch


def ack(opened: OpenLog, batch: list[Message], queue_id: int = 1) -> None:
    opened.log.ack(queue_id, batch)
    opened.commit()


def three_files() -> tuple[SimFileSystem, OpenLog, list[Message]]:
    """Files 1 (tables), 2, 3 and 4 with two messages each, all synced."""
    files = SimFileSystem()
    opened = OpenLog(files, {1}, limit_bytes=1)
    batch = publish(opened, 0, 2) + publish(opened, 2, 4) + publish(opened, 4, 6)
    return files, opened, batch


# -- positions and groups ------------------------------------------------------------------


def test_a_confirm_waits_for_a_synced_group() -> None:
    opened = OpenLog(SimFileSystem(), {1})
    log = opened.log
    log.publish(1, messages(0, 1))
    position = log.position
    assert log.pending_bytes() == position > 0
    opened.commit(sync=False)
    assert log.pending_bytes() == 0
    assert log.durable_position < position
    group = opened.commit(sync=True)
    assert group is not None
    assert group.data == b""
    assert log.durable_position == position
    assert log.seal(sync=True) is None
    assert log.seal(sync=False) is None


def test_a_later_synced_group_covers_earlier_ones_across_files() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1}, limit_bytes=1)
    for start in range(5):
        opened.log.publish(1, messages(start, start + 1))
        opened.commit(sync=False)
    opened.commit(sync=True)
    assert opened.log.durable_position == opened.log.position
    files.power_cut(random.Random(1))
    assert OpenLog(files, {1}).seq_ids(1) == [0, 1, 2, 3, 4]


def test_transient_messages_leave_no_record() -> None:
    opened = OpenLog(SimFileSystem(), {1})
    batch = [message(0, persistent=False), message(1), message(2, persistent=False)]
    opened.log.publish(1, batch)
    assert [one.file_no for one in batch] == [0, 1, 0]
    opened.log.ack(1, [batch[0], batch[2]])
    assert opened.log.statistics()["live_messages"] == 1
    opened.log.check()


def test_an_ack_counts_once() -> None:
    opened = OpenLog(SimFileSystem(), {1})
    batch = messages(0, 2)
    opened.log.publish(1, batch)
    opened.log.ack(1, batch)
    position = opened.log.position
    opened.log.ack(1, batch)
    assert opened.log.position == position
    opened.log.check()


# -- clause 4 ------------------------------------------------------------------------------


def test_clause_4_1_a_newest_file_without_a_block_is_cut_to_nothing() -> None:
    files, _, _ = three_files()
    handle = files.open_append("log/5.log")
    files.write(handle, files.read("log/4.log")[:30])
    reopened = OpenLog(files, {1}, 1)
    assert reopened.seq_ids(1) == [0, 1, 2, 3, 4, 5]
    assert files.size("log/5.log") == 0
    assert reopened.log.statistics()["bytes_cut"] == 30
    assert OpenLog(files, {1}, 1).seq_ids(1) == [0, 1, 2, 3, 4, 5]


def test_clause_4_2_every_torn_tail_is_cut() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1})
    publish(opened, 0, 2)
    whole = files.size("log/1.log")
    publish(opened, 2, 4)
    data = files.read("log/1.log")
    for size in range(whole, len(data)):
        files.names["log/1.log"].cache[:] = data[:size]
        files.names["log/1.log"].sync()
        files.names.pop("log/2.log", None)
        reopened = OpenLog(files, {1})
        assert reopened.seq_ids(1) == [0, 1]
        assert reopened.log.statistics()["bytes_cut"] == size - whole
        assert files.size("log/1.log") == whole


def test_clause_4_3_a_attested_damage_is_not_cut() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1})
    publish(opened, 0, 1)
    at = files.size("log/1.log")
    publish(opened, 1, 2)
    publish(opened, 2, 3)
    files.flip("log/1.log", 8 * at + 500)
    with pytest.raises(Corrupt, match=rf"log/1\.log: damaged at offset {at}, \d+ bytes"):
        OpenLog(files, {1})


def test_clause_4_3_a_holes_before_unsynced_blocks_are_cut() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1})
    publish(opened, 0, 1)
    at = files.size("log/1.log")
    for start in (1, 2):
        opened.log.publish(1, messages(start, start + 1))
        opened.commit(sync=False)
    files.flip("log/1.log", 8 * at + 500)  # the first reached the disk torn, the second whole
    assert OpenLog(files, {1}).seq_ids(1) == [0]


def test_clause_4_3_a_a_first_block_may_be_attested_too() -> None:
    files, opened, _ = three_files()
    opened.log._file_size_limit_bytes = 1 << 20
    publish(opened, 6, 7)
    publish(opened, 7, 8)
    files.flip("log/5.log", 300)
    with pytest.raises(Corrupt, match=r"log/5\.log: damaged at offset 0, "):
        OpenLog(files, {1})


def test_clause_4_3_a_only_the_same_file_is_attested() -> None:
    files, opened, _ = three_files()
    opened.log._file_size_limit_bytes = 1 << 20
    for start in (6, 7):
        opened.log.publish(1, messages(start, start + 1))
        opened.commit(sync=False)
    files.flip("log/5.log", 300)
    assert OpenLog(files, {1}).seq_ids(1) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("harm", ["missing", "short", "long", "flipped"])
def test_clause_4_3_b_listed_files_must_be_whole(harm: str) -> None:
    files, _, _ = three_files()
    if harm == "missing":
        files.remove("log/2.log")
    elif harm == "short":
        files.truncate("log/2.log", files.size("log/2.log") - 1)
    elif harm == "long":
        files.write(files.open_append("log/2.log"), b"x")
    else:
        files.flip("log/2.log", 500)
    with pytest.raises(Corrupt, match=r"log/2\.log: damaged at offset \d+, \d+ bytes"):
        OpenLog(files, {1})


def test_clause_4_3_c_a_file_that_was_left_is_not_cut() -> None:
    files, _, _ = three_files()
    files.write(files.open_append("log/4.log"), b"x")
    files.write(files.open_append("log/5.log"), b"PS")
    with pytest.raises(Corrupt, match=r"log/4\.log"):
        OpenLog(files, {1})


def test_clause_4_3_d_two_files_without_a_block() -> None:
    files, _, _ = three_files()
    files.write(files.open_append("log/5.log"), b"PS")
    files.write(files.open_append("log/6.log"), b"PS")
    with pytest.raises(Corrupt, match=r"log/5\.log: damaged at offset 0, 2 bytes"):
        OpenLog(files, {1})


@given(pick=st.integers(0, 2**32), newest=st.booleans())
def test_clause_4_3_a_flipped_bit_never_makes_a_wrong_message(pick: int, newest: bool) -> None:
    files, opened, batch = three_files()
    opened.log.ack(1, batch[1:3])
    opened.commit()
    opened.log._file_size_limit_bytes = 1 << 20  # what follows stays in one file
    states = [[0, 3, 4, 5]]
    for seq_id in range(6, 10):
        publish(opened, seq_id, seq_id + 1)
        states.append(states[-1] + [seq_id])
    last = numbers(files)[-1]
    number = last if newest else numbers(files)[pick % (len(numbers(files)) - 1)]
    name = f"log/{number}.log"
    files.flip(name, pick % (8 * files.size(name)))
    if not newest:
        with pytest.raises(Corrupt, match=re.escape(name)):
            OpenLog(files, {1})
        return
    try:
        found = OpenLog(files, {1}).recovered[1].messages
    except Corrupt:
        return  # attested by a later block
    assert [one.seq_id for one in found] in states
    assert all(one.content == message(one.seq_id).content for one in found)


def test_clause_4_4_a_dropped_file_that_came_back_is_removed() -> None:
    files, opened, batch = three_files()
    old = files.names["log/2.log"]
    ack(opened, batch[:2])
    publish(opened, 6, 7)
    assert 2 not in numbers(files)
    files.names["log/2.log"] = old
    reopened = OpenLog(files, {1}, 1)
    assert reopened.seq_ids(1) == [2, 3, 4, 5, 6]
    assert 2 not in numbers(files)
    assert reopened.log.statistics()["files_removed_at_start"] == 1


def test_clause_4_5_relocated_messages_come_once_and_in_order() -> None:
    files, opened, batch = three_files()
    opened.log.relocate(1, batch[:1] + batch[3:4])
    opened.commit()
    reopened = OpenLog(files, {1})
    assert reopened.seq_ids(1) == [0, 1, 2, 3, 4, 5]
    assert [one.file_no for one in reopened.recovered[1].messages] == [5, 2, 3, 5, 4, 4]
    reopened.log.check()


def test_clause_4_5_queues_that_are_no_more_are_garbage() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1, 2}, limit_bytes=1)
    publish(opened, 0, 2, queue_id=1)
    publish(opened, 0, 2, queue_id=2)
    reopened = OpenLog(files, {2}, 1)
    assert reopened.recovered.keys() == {2}
    publish(reopened, 2, 3, queue_id=2)
    assert 2 not in numbers(files)
    assert OpenLog(files, {2}).seq_ids(2) == [0, 1, 2]


def test_clause_4_6_clean_and_unclean_stops() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, set())
    assert opened.log.recovered_cleanly()  # a new log
    opened.log.reserve(1, 100)
    publish(opened, 0, 5)
    opened.close_cleanly({1: [3, 1]}, {1: 70})
    reopened = OpenLog(files, {1})
    assert reopened.log.recovered_cleanly()
    assert reopened.recovered[1].next_seq_id == 70
    marks = [bool(one.flags & REDELIVERED) for one in reopened.recovered[1].messages]
    assert marks == [False, True, False, True, False]
    # Nothing was written since, and still the mark is used up.
    again = OpenLog(files, {1})
    assert not again.log.recovered_cleanly()
    assert again.recovered[1].next_seq_id == 16_384
    assert all(one.flags & REDELIVERED for one in again.recovered[1].messages)


def test_clause_4_6_a_queue_without_any_log_may_have_had_numbers() -> None:
    opened = OpenLog(SimFileSystem(), {1})
    assert not opened.log.recovered_cleanly()
    assert opened.recovered[1].next_seq_id == 16_384


def test_clause_4_6_exact_numbers_of_queues_that_logged_nothing() -> None:
    files = SimFileSystem()
    OpenLog(files, set()).close_cleanly({}, {5: 123})
    assert OpenLog(files, {5}).recovered[5].next_seq_id == 123


def test_clause_4_6_without_exact_numbers_the_reserved_one_is_used() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1})
    opened.log.reserve(1, 20_000)
    publish(opened, 0, 5)
    opened.close_cleanly({})
    assert OpenLog(files, {1}).recovered[1].next_seq_id == 20_000
    assert OpenLog(files, {1}).recovered[1].next_seq_id == 2 * 16_384


def test_clause_4_6_bytes_after_the_mark_make_it_unclean() -> None:
    files = SimFileSystem()
    OpenLog(files, {1}).close_cleanly({})
    files.write(files.open_append("log/1.log"), b"P")
    assert not OpenLog(files, {1}).log.recovered_cleanly()


def test_clause_4_6_numbers_outlive_their_files() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1, 2}, limit_bytes=1)
    ack(opened, publish(opened, 0, 40_000, queue_id=2), queue_id=2)
    for start in range(3):
        ack(opened, publish(opened, start, start + 1))
    assert numbers(files)[0] > 2
    assert OpenLog(files, {1, 2}).recovered[2].next_seq_id == 3 * 16_384


def test_a_closed_log_takes_no_more() -> None:
    opened = OpenLog(SimFileSystem(), {1})
    opened.close_cleanly({})
    with pytest.raises(AssertionError):
        opened.log.seal(sync=True)


# -- clause 5 ------------------------------------------------------------------------------


def test_clause_5_2_a_dead_file_goes_with_the_next_synced_group() -> None:
    files, opened, batch = three_files()
    opened.log.ack(1, batch[:2])
    opened.commit(sync=False)
    assert 2 in numbers(files)
    publish(opened, 6, 7)
    assert 2 not in numbers(files)
    assert opened.log.statistics()["files_dropped"] > 0


def test_clause_5_2_a_file_with_acks_only_goes_when_left() -> None:
    files, opened, batch = three_files()
    ack(opened, batch)
    publish(opened, 6, 7)
    publish(opened, 7, 8)
    assert numbers(files) == [6, 7]


def test_clause_5_2_acks_stay_while_their_messages_file_does() -> None:
    files, opened, batch = three_files()
    ack(opened, batch[:1] + batch[2:])  # in 5; 1 is alive in 2
    publish(opened, 6, 7)
    publish(opened, 7, 8)
    assert numbers(files) == [2, 5, 6, 7]
    assert OpenLog(files, {1}).seq_ids(1) == [1, 6, 7]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("restart", [False, True])
def test_clause_5_2_acks_stay_while_any_copy_does(times: int, restart: bool) -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1}, limit_bytes=1)
    first, _ = publish(opened, 0, 2)
    for _ in range(times):
        opened.log.relocate(1, [first])
        opened.commit()
    if restart:
        opened = OpenLog(files, {1}, limit_bytes=1)
        first = opened.recovered[1].messages[0]
    ack(opened, [first])
    for start in range(2, 6):
        ack(opened, publish(opened, start, start + 1))
    assert OpenLog(files, {1}, 1).seq_ids(1) == [1]


def test_clause_5_2_a_forgotten_queue_stays_forgotten() -> None:
    """Even if its definition comes back, as after a crash before the definitions' commit."""
    files = SimFileSystem()
    opened = OpenLog(files, {1, 2}, limit_bytes=1)
    opened.log.publish(1, messages(0, 3))
    opened.log.publish(2, messages(0, 1))
    opened.commit()
    opened.log.forget_queue(1)
    opened.commit()
    for start in range(1, 4):
        opened = OpenLog(files, {1, 2}, limit_bytes=1)
        assert opened.seq_ids(1) == []
        publish(opened, start, start + 1, queue_id=2)
    assert opened.seq_ids(2) == [0, 1, 2]


def test_clause_5_2_forgetting_a_queue_frees_its_files() -> None:
    files, opened, batch = three_files()
    opened.log.forget_queue(1)
    assert opened.log.pending_bytes() > 0
    opened.commit()
    opened.log.ack(1, batch)
    opened.log.relocate(1, batch)
    assert opened.log.pending_bytes() == 0
    assert numbers(files) == [5]
    opened.log.check()


def test_clause_5_3_compaction_frees_what_one_old_message_holds() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1, 2}, limit_bytes=2000)
    first = messages(0, 20)
    opened.log.publish(1, first)
    opened.log.ack(1, first[1:])
    opened.commit()
    for start in range(0, 400, 10):
        ack(opened, publish(opened, start, start + 10, queue_id=2), queue_id=2)
    assert len(numbers(files)) < 30
    compacted = 0
    for start in range(400, 2000, 10):
        ack(opened, publish(opened, start, start + 10, queue_id=2), queue_id=2)
        while opened.log.files_to_compact():
            compacted += 1
            for number in opened.log.files_to_compact():
                assert first[0].file_no == number
                opened.log.relocate(1, first[:1])
            opened.commit()
        opened.log.check()
        assert opened.log.statistics()["bytes"] < 3 * 2000 + 3000
    assert compacted > 0
    reopened = OpenLog(files, {1, 2}, 2000)
    assert reopened.seq_ids(1) == [0]
    assert reopened.seq_ids(2) == []


def test_clause_5_3_a_live_file_is_moved_if_it_holds_dead_ones() -> None:
    files = SimFileSystem()
    opened = OpenLog(files, {1, 2}, limit_bytes=2000)
    live = publish(opened, 0, 24)
    for start in range(0, 600, 10):
        batch = publish(opened, start, start + 10, queue_id=2)
        opened.log.ack(1, [live.pop()] if start % 200 == 0 else [])
        ack(opened, batch, queue_id=2)
    assert opened.log.files_to_compact() == [1]
    before = len(numbers(files))
    opened.log.relocate(1, live)
    opened.commit()
    assert len(numbers(files)) < before / 2
    assert OpenLog(files, {1}).seq_ids(1) == list(range(21))


def test_clause_5_3_a_small_or_live_log_is_left_alone() -> None:
    opened = OpenLog(SimFileSystem(), {1}, limit_bytes=2000)
    batch = publish(opened, 0, 100)
    assert opened.log.files_to_compact() == []
    ack(opened, batch[::3])
    assert opened.log.files_to_compact() == []
    ack(opened, batch[1::3])
    publish(opened, 100, 110)
    assert opened.log.files_to_compact() == [1]


def test_large_contents_are_parts_of_their_own_and_come_back() -> None:
    """They are not copied; on disk nothing tells the difference, and parts do not run out."""
    files = SimFileSystem()
    opened = OpenLog(files, {1})
    contents = [bytes([i % 251]) * (LARGE_CONTENT_BYTES if i % 3 else 10) for i in range(600)]
    batch = []
    for seq_id, content in enumerate(contents):
        sent = Message(content, b"a", PERSISTENT, 0)
        sent.seq_id = seq_id
        batch.append(sent)
    opened.log.publish(1, batch)
    group = opened.commit()
    assert group is not None
    assert any(part is contents[1] for part in group.parts)
    assert len(group.parts) <= WRITE_PARTS_MAX - 2
    opened.log.check()
    again = OpenLog(files, {1})
    assert [found.content for found in again.recovered[1].messages] == contents
