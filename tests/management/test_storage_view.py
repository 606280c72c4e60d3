"""A queue's storage in RabbitMQ's shape, and the engine's, on a simulated disk."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.management.facts.storage_view import (
    DiskFacts,
    files_row,
    listed_fields,
    shown_fields,
    storage_row,
)
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

# What RabbitMQ 3.10.8 said of a durable lazy queue: 2872 published, 14 of them transient, the
# first ten handed out.
RECORDED: dict[str, Any] = {
    "backing_queue_status": {
        "avg_ack_egress_rate": 0.0,
        "avg_ack_ingress_rate": 0.3537478533923938,
        "avg_egress_rate": 0.3537478533923938,
        "avg_ingress_rate": 214.18779194957577,
        "delta": ["delta", 10, 2862, 14, 2872],
        "len": 2862,
        "mode": "lazy",
        "next_deliver_seq_id": 10,
        "next_seq_id": 2872,
        "q1": 0,
        "q2": 0,
        "q3": 0,
        "q4": 0,
        "target_ram_count": "infinity",
        "version": 1,
    },
    "message_bytes": 285_814,
    "message_bytes_paged_out": 14,
    "message_bytes_persistent": 285_800,
    "message_bytes_ram": 1000,
    "message_bytes_ready": 284_814,
    "message_bytes_unacknowledged": 1000,
    "messages_paged_out": 14,
    "messages_persistent": 2858,
    "messages_ram": 10,
    "messages_ready_ram": 0,
    "messages_unacknowledged_ram": 10,
}
OF_ANOTHER_STORAGE = {"version"}
ADDED = {"ram_msg_count", "ram_ack_count"}


def opened(**of_limits: int) -> OpenEngine:
    return OpenEngine(SimFileSystem(), {1: 16_384}, limits(**of_limits))


def test_a_lazy_queue_as_rabbitmq_describes_it() -> None:
    """The same queue as in the recording; what differs is what rests elsewhere."""
    engine = opened()
    queue = engine.queues[1]
    queue.set_mode(True)
    first = int(queue.records.next_seq_id)
    queue.publish([message(b"x" * 100) for _ in range(10)], 0)
    assert queue.fetch(10, 1 << 20) or queue.fetch(10, 1 << 20)
    queue.publish([message(b"x" * 100) for _ in range(2848)], 0)
    queue.publish([message(b"x", persistent=False) for _ in range(14)], 0)
    queue.pager.flush_tail()
    engine.settle(0)
    said: dict[str, Any] = shown_fields(queue)
    theirs, ours = RECORDED["backing_queue_status"], said["backing_queue_status"]
    assert set(ours) == set(theirs) - OF_ANOTHER_STORAGE | ADDED
    for key in ("len", "mode", "q1", "q2", "q3", "q4", "target_ram_count"):
        assert ours[key] == theirs[key], key
    for key in ("next_seq_id", "next_deliver_seq_id"):
        assert ours[key] - first == theirs[key]
    name, start, count, transient, end = ours["delta"]
    assert [name, start - first, count, transient, end - first] == theirs["delta"]
    for key, value in RECORDED.items():
        if key not in ("backing_queue_status", "message_bytes_persistent"):
            # Nobody counts the bytes of transient messages in the segments of a durable queue.
            assert said.get(key, value) == value, key
    assert {key for key in RECORDED if key not in said} <= {
        "message_bytes_paged_out",
        "message_bytes_persistent",
    }


def test_an_empty_queue_has_every_field_and_no_bounds() -> None:
    said = listed_fields(opened().queues[1])
    status: Any = said.pop("backing_queue_status")
    assert said.pop("memory") == 0
    assert set(said) == set(RECORDED) - {"backing_queue_status"}
    assert set(said.values()) == {0}
    assert status["delta"] == ["delta", "undefined", 0, 0, "undefined"]


def test_a_list_leaves_out_what_nobody_has_counted() -> None:
    queue = opened().queues[1]
    queue.publish([message(b"x" * 100) for _ in range(50)], 0)
    assert listed_fields(queue)["messages_persistent"] == 50
    passing = message(b"x" * 100)
    passing.flags = 0
    queue.publish([passing], 0)
    listed, shown = listed_fields(queue), shown_fields(queue)
    assert set(shown) - set(listed) == {
        "message_bytes_persistent",
        "penstock",
    }
    assert all(shown[key] == value for key, value in listed.items())
    assert (shown["messages_persistent"], shown["message_bytes_persistent"]) == (50, 5000)


def test_targets_are_numbers_when_there_are_some() -> None:
    queue = opened().queues[1]
    queue.publish([message(b"x" * 100) for _ in range(50)], 0)
    queue.set_target(5 * 300)
    status: Any = listed_fields(queue)["backing_queue_status"]
    assert status["target_ram_count"] == 5


def writes(disk: OpenEngine) -> dict[str, Any]:
    """The engine's row; all of it is JSON."""
    row = storage_row(disk.engine, DiskFacts("", publishers_wait=False, reason=""), disk.opening)
    said: dict[str, Any] = json.loads(json.dumps(row))
    assert said == row
    return said


def test_memory_and_its_limits() -> None:
    disk = opened(ram=1_000_000, paging=500_000, embed=1 << 20)
    memory = writes(disk)["memory"]
    assert (memory["used_bytes"], memory["paging"], memory["full"]) == (0, False, False)
    assert (memory["paging_bytes"], memory["limit_bytes"]) == (500_000, 1_000_000)
    disk.queues[1].publish([message(b"x" * 1000) for _ in range(600)], 0)
    memory = writes(disk)["memory"]
    assert memory["used_bytes"] == memory["queued_bytes"] == disk.queues[1].ram_bytes() > 600_000
    assert (memory["paging"], memory["full"]) == (True, False)
    disk.queues[1].publish([message(b"x" * 1000) for _ in range(600)], 0)
    assert writes(disk)["memory"]["full"]
    disk.work(0)
    assert writes(disk)["disk"]["segment_bytes_waiting"] > 0
    disk.settle(0)
    after = writes(disk)
    assert after["memory"]["used_bytes"] <= 500_000
    assert after["disk"]["segment_bytes_waiting"] == 0
    assert after["memory"]["paged_slices"] > 0


def test_stores_and_their_garbage() -> None:
    disk = opened(embed=100)
    queue = disk.queues[1]
    queue.publish([message(b"x" * 1000) for _ in range(10)], 0)
    disk.commit()
    said = writes(disk)
    assert said["stores"]["persistent"]["messages"] == 10
    assert said["stores"]["persistent"]["garbage_share"] < 0.1
    assert said["stores"]["transient"]["messages"] == 0
    queue.ack(queue.fetch(5, 1 << 20))
    disk.commit()
    said = writes(disk)
    assert said["stores"]["persistent"]["garbage_share"] == pytest.approx(0.5, abs=0.05)
    files: Any = files_row(disk.engine)
    (file,) = files["persistent_store"]
    assert file["garbage_share"] == said["stores"]["persistent"]["garbage_share"]
    assert (file["messages"], file["damaged"]) == (5, False)
    assert file["bytes"] == said["stores"]["persistent"]["bytes"]


def test_segments_their_garbage_and_what_was_done_about_it() -> None:
    disk = OpenEngine(SimFileSystem(), {1: 64}, limits(paging=1), store_file_bytes=500)
    queue = disk.queues[1]
    queue.publish([message(b"x" * 100) for _ in range(640)], 0)
    disk.settle(1000)
    disk.settle(2000)
    said = writes(disk)["segments"]
    assert said["files"] > 5
    assert said["bytes"] > said["living_bytes"] > 64_000 * 0.5
    assert (said["garbage_share"] < 0.05, said["files_rewritten"]) == (True, 0)
    for at_ms in range(3000, 30_000, 1000):
        queue.fetch(640, 1 << 20)
        disk.settle(at_ms)
    queue.ack([one for i, one in enumerate(queue.tiers.pending.live()) if i % 4])
    disk.work(31_000)
    said = writes(disk)["segments"]
    assert said["garbage_share"] > 0.5
    assert said["rewriting"] == said["files"] > 5
    disk.settle(31_000)
    disk.settle(32_000)
    after = writes(disk)["segments"]
    assert after["rewriting"] == 0
    assert after["files_rewritten"] == said["files"]
    assert after["bytes_reclaimed"] == said["bytes"] - after["bytes"] > 0


def test_the_journal_names_its_files() -> None:
    disk = OpenEngine(SimFileSystem(), {1: 16_384}, limits(), journal_file_bytes=20_000)
    for _ in range(5):
        disk.queues[1].publish([message(b"x" * 1000) for _ in range(10)], 0)
        disk.commit()
    said = writes(disk)["journal"]
    files: Any = files_row(disk.engine)["journal"]
    assert said["files"] == len(files) > 2
    assert said["bytes"] == sum(file["bytes"] for file in files)
    assert [file["finished"] for file in files] == [True] * (len(files) - 1) + [False]
    present = disk.files.listdir(disk.engine.journal.directory)
    assert {file["name"] for file in files} <= set(present)


def test_what_the_server_says_of_the_disk() -> None:
    disk = opened()
    facts = DiskFacts("no space left", publishers_wait=True, reason="low on disk")
    row: Any = storage_row(disk.engine, facts, None)
    assert row["disk"]["stalled"] == "no space left"
    assert row["disk"]["publishers_wait"]
    assert row["disk"]["reason"] == "low on disk"
    assert row["recovery"] is None
    quiet = writes(disk)["disk"]
    assert (quiet["stalled"], quiet["publishers_wait"], quiet["reason"]) == (None, False, None)


def test_the_last_start_is_told() -> None:
    files = SimFileSystem()
    disk = OpenEngine(files, {1: 16_384})
    disk.queues[1].publish([message(b"x" * 100) for _ in range(10)], 0)
    disk.commit()
    after_a_crash = OpenEngine(files, {1: 16_384})
    said = writes(after_a_crash)["recovery"]
    assert (said["clean"], said["queues"], said["messages"]) == (False, 1, 10)
    assert said["bytes_read"] > 1000
    after_a_crash.close_cleanly()
    said = writes(OpenEngine(files, {1: 16_384}))["recovery"]
    assert (said["clean"], said["messages"], said["bytes_read"]) == (True, 10, 0)
