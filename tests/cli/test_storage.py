"""``penstock queue show`` and ``penstock status``: what they print of what the server says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.data.storage import percent, size
from penstock.cli.main import cli
from tests.cli.conftest import Answers

PATH = "/api/queues/%2F/or%2Fders"
STORAGE = "/api/penstock/storage"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def part(messages: int, size_bytes: int | None, ram_messages: int | None) -> dict[str, Any]:
    return {"messages": messages, "bytes": size_bytes, "ram_messages": ram_messages}


def queue(**changes: Any) -> dict[str, Any]:
    facts = {
        "mode": "default",
        "converting": False,
        "fault": "",
        "memory_bytes": 3_145_728,
        "q1": part(11, 1100, 11),
        "q2": part(22, None, None),
        "q3": part(33, 3300, 30),
        "q4": part(44, 4400, 44),
        "delta": part(55, 5500, 5) | {"start": 100, "end": 200},
        "pending": part(66, 6600, 60),
        "delayed": 0,
        "persistent_messages": 99,
        "target_ram_count": None,
        "target_ram_bytes": None,
        "bytes_per_second": 0,
        "duration_s": None,
        "rates": {"in": 1.5, "out": 2.5, "ack_in": 3.5, "ack_out": 4.5},
        "next_seq_id": 777,
        "index": {
            "bytes": 2048,
            "messages": 55,
            "message_bytes": 1500,
            "journal_entries": 12,
            "files": [
                {
                    "name": "0.idx",
                    "bytes": 2048,
                    "messages": 55,
                    "settled": 9,
                    "garbage_share": 0.125,
                }
            ],
        },
    }
    return {
        "name": "or/ders",
        "vhost": "/",
        "durable": True,
        "consumers": 2,
        "messages_ready": 165,
        "messages_unacknowledged": 66,
        "messages_ram": 150,
        "penstock": facts | changes,
    }


def store(files: int, size_bytes: int, garbage_share: float) -> dict[str, Any]:
    return {"files": files, "bytes": size_bytes, "messages": 7, "garbage_share": garbage_share}


def storage(**changes: Any) -> dict[str, Any]:
    return {
        "memory": {
            "used_bytes": 1024,
            "paging_bytes": 2048,
            "limit_bytes": 4096,
            "paging": False,
            "full": False,
        },
        "disk": {
            "stalled": None,
            "publishers_wait": False,
            "reason": None,
            "segment_bytes_waiting": 512,
        },
        "alarms": {
            "memory": False,
            "disk": False,
            "reason": None,
            "memory_used_bytes": 3072,
            "memory_resident_bytes": 6144,
            "memory_limit_bytes": 1 << 30,
            "memory_total_bytes": 4 << 30,
            "disk_free_bytes": 5 << 30,
            "disk_limit_bytes": 2 << 30,
            "disk_shrinks_by_bytes_per_s": 0,
            "seconds_to_disk_limit": None,
            "seconds_to_disk_full": None,
        },
        "journal": {
            "files": 2,
            "bytes": 3072,
            "limit_bytes": 8192,
            "files_retired": 5,
            "behind": False,
        },
        "segments": {
            "files": 2,
            "bytes": 4096,
            "living_bytes": 3072,
            "garbage_share": 0.25,
            "rewriting": 0,
            "files_rewritten": 3,
            "bytes_reclaimed": 5000,
        },
        "stores": {"persistent": store(1, 5120, 0.5), "transient": store(0, 0, 0.0)},
        "recovery": {
            "clean": False,
            "queues": 3,
            "messages": 40,
            "bytes_read": 6144,
            "bytes_cut": 17,
            "unconfirmed_dropped": 1,
        },
        "files": {
            "journal": [
                {"name": "8.jif", "bytes": 2048, "finished": True},
                {"name": "9.jif", "bytes": 1024, "finished": False},
            ],
            "persistent_store": [
                {
                    "name": "4.rdq",
                    "bytes": 5120,
                    "messages": 7,
                    "garbage_share": 0.5,
                    "damaged": False,
                }
            ],
            "transient_store": [],
        },
    } | changes


OVERVIEW = {
    "node": "penstock@here",
    "product_name": "Penstock",
    "product_version": "0.2",
    "object_totals": {"connections": 1, "channels": 2, "consumers": 3, "queues": 4},
    "queue_totals": {"messages_ready": 50, "messages_unacknowledged": 6},
}


def words(result: Result, first: str) -> list[str]:
    """The line that begins so, as words."""
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.output.splitlines() if line.split()[:1] == [first]]
    return line.split()


def test_a_queue_from_its_head_to_its_tail(api: str) -> None:
    Answers.at = {PATH: (200, queue()), STORAGE: (200, storage())}
    result = run("queue", "show", "or/ders", "--url", api)
    order = [line.split()[0] for line in result.output.splitlines() if line]
    places = [order.index(name) for name in ("q4", "q3", "delta", "q2", "q1", "pending")]
    assert places == sorted(places)
    assert words(result, "q4")[:4] == ["q4", "44", "4400", "44"]
    assert words(result, "q3")[:4] == ["q3", "33", "3300", "30"]
    assert words(result, "q2")[:4] == ["q2", "22", "-", "-"], "nobody counted"
    assert words(result, "q1")[:4] == ["q1", "11", "1100", "11"]
    assert words(result, "pending")[:4] == ["pending", "66", "6600", "60"]
    assert "numbers 100 to 199; the last wait to be written" in result.output
    assert words(result, "delta")[:4] == ["delta", "55", "5500", "5"]
    assert "150 messages, 3.0 MiB" in result.output
    assert "any number in memory, any size" in result.output
    assert "1.5 in, 2.5 out, 3.5 to be acknowledged, 4.5 acknowledged" in result.output
    assert words(result, "0.idx") == ["0.idx", "2048", "55", "9", "12.5", "%"]
    assert words(result, "8.jif") == ["8.jif", "2048", "finished"]
    assert words(result, "4.rdq") == ["4.rdq", "5120", "7", "50.0", "%"]
    assert "12 messages in the journal only" in result.output


def test_targets_and_a_stopped_queue_are_told(api: str) -> None:
    said = queue(
        mode="lazy",
        converting=True,
        fault="damaged\x1b[2J",
        target_ram_count=10,
        target_ram_bytes=2048,
        bytes_per_second=1_048_576,
        duration_s=3.0,
        persistent_messages=None,
        delayed=4,
    )
    Answers.at = {PATH: (200, said), STORAGE: (200, storage())}
    result = run("queue", "show", "or/ders", "--url", api)
    assert "durable, mode lazy, on the way there" in result.output
    assert "10 messages in memory, 2.0 KiB" in result.output
    assert "3.0 s for what is in memory, 1.0 MiB leave in a second" in result.output
    assert words(result, "stopped") == ["stopped", "damaged\\x1b[2J"]
    assert words(result, "delayed") == ["delayed", "4", "messages"]
    assert "persistent " not in result.output.partition("sub-queue")[0]


def test_of_very_many_files_the_oldest_and_the_newest_are_shown(api: str) -> None:
    said = queue()
    (file,) = said["penstock"]["index"]["files"]
    said["penstock"]["index"]["files"] = [file | {"name": f"{i}.idx"} for i in range(100)]
    Answers.at = {PATH: (200, said), STORAGE: (200, storage())}
    lines = run("queue", "show", "or/ders", "--url", api).output.splitlines()
    names = [line.split()[0] for line in lines if ".idx" in line]
    assert names == [f"{i}.idx" for i in [*range(10), *range(90, 100)]]
    assert any(line.startswith("... 80 more") for line in lines)


def test_json_is_what_the_server_said(api: str) -> None:
    Answers.at = {PATH: (200, queue()), STORAGE: (200, storage())}
    said = json.loads(run("queue", "show", "or/ders", "--url", api, "-o", "json").output)
    assert said == {"queue": queue(), "storage": storage()}
    Answers.at = {"/api/overview": (200, OVERVIEW), STORAGE: (200, storage())}
    said = json.loads(run("status", "--url", api, "-o", "json").output)
    assert said == {"overview": OVERVIEW, "storage": storage()}


def test_who_may_not_see_the_node_sees_the_queue(api: str) -> None:
    Answers.at = {PATH: (200, queue()), STORAGE: (401, {"reason": "Not monitor user"})}
    result = run("queue", "show", "or/ders", "--url", api)
    assert words(result, "q4")[1] == "44"
    assert "users with the tag monitoring" in result.output
    said = json.loads(run("queue", "show", "or/ders", "--url", api, "-o", "json").output)
    assert said["storage"] is None


def test_a_queue_that_is_not_there(api: str) -> None:
    Answers.status, Answers.body = 404, b'{"reason":"Not Found"}'
    result = run("queue", "show", "or/ders", "--url", api, "--vhost", "v")
    assert result.exit_code == 1
    assert "no queue 'or/ders' in virtual host 'v'" in result.stderr
    assert Answers.asked[0][0] == "/api/queues/v/or%2Fders"


def test_another_broker_is_told_apart(api: str) -> None:
    Answers.at = {PATH: (200, {"name": "or/ders"}), "/api/overview": (200, OVERVIEW)}
    Answers.status, Answers.body = 404, b"{}"
    for arguments in (["queue", "show", "or/ders"], ["status"]):
        result = run(*arguments, "--url", api)
        assert result.exit_code == 1
        assert "for Penstock only" in result.stderr


def test_status(api: str) -> None:
    Answers.at = {"/api/overview": (200, OVERVIEW), STORAGE: (200, storage())}
    result = run("status", "--url", api)
    assert result.exit_code == 0
    rows = {line[:16].strip(): line[18:] for line in result.output.splitlines()}
    assert rows == {
        "node": "penstock@here, Penstock",
        "version": "0.2",
        "clients": "1 connection, 2 channels, 3 consumers",
        "messages": "50 ready, 6 unacknowledged, in 4 queues",
        "alarms": "none",
        "process": "6.0 KiB resident, 3.0 KiB by count; limit 1.0 GiB of 4.0 GiB",
        "memory": "1.0 KiB of messages, paged above 2.0 KiB, limit 4.0 KiB: no paging",
        "disk": "ok",
        "free disk": "5.0 GiB, limit 2.0 GiB",
        "to write": "512 B for segments",
        "publishers": "allowed",
        "journal": "2 files, 3.0 KiB (retired above 8.0 KiB), 5 retired since the start",
        "segments": "2 files, 4.0 KiB, 25.0 % garbage, 3 rewritten since the start",
        "persistent store": "1 file, 5.0 KiB, 7 contents, 50.0 % garbage",
        "transient store": "0 files, 0 B, 7 contents, 0.0 % garbage",
        "last start": "40 messages in 3 durable queues, after a crash:"
        " 6.0 KiB read, 17 bytes of unfinished writes cut, 1 unconfirmed message dropped",
    }


@pytest.mark.parametrize(
    "group, field, value, line",
    [
        ("memory", "paging", True, "limit 4.0 KiB: paging"),
        ("memory", "full", True, "limit 4.0 KiB: full"),
        ("memory", "paging_bytes", None, "of messages, never paged, limit 4.0 KiB"),
        (
            "alarms",
            "reason",
            "low on disk",
            "alarms            low on disk: publishers are blocked",
        ),
        ("alarms", "disk_free_bytes", None, "free disk         cannot be read"),
        ("disk", "stalled", "no space left: /data", "stalled, no space left: /data"),
        ("disk", "publishers_wait", True, "publishers        wait: the disk is behind"),
        ("journal", "behind", True, "behind: publishers wait"),
        ("recovery", "clean", True, "40 messages in 3 durable queues, after a clean stop"),
        ("recovery", "new", True, "in a new data directory"),
    ],
)
def test_status_says_what_is_wrong(
    api: str, group: str, field: str, value: object, line: str
) -> None:
    said = storage()
    said[group] = said[group] | {field: value}
    Answers.at = {"/api/overview": (200, OVERVIEW), STORAGE: (200, said)}
    assert line in run("status", "--url", api).output


@pytest.mark.parametrize(
    "limit, full, ending",
    [
        (3600, 7500, ", the limit is reached in 1 h 0 min, full in 2 h 5 min"),
        (0, 59, ", full in 59 s"),
        (None, 90, ", full in 1 min 30 s"),
        (172_799, 1_000_000, ", the limit is reached in 47 h 59 min, full in 11 days"),
    ],
)
def test_status_foresees_a_full_disk(api: str, limit: int | None, full: int, ending: str) -> None:
    said = storage()
    said["alarms"] |= {
        "disk_shrinks_by_bytes_per_s": 1 << 20,
        "seconds_to_disk_limit": limit,
        "seconds_to_disk_full": full,
    }
    Answers.at = {"/api/overview": (200, OVERVIEW), STORAGE: (200, said)}
    output = run("status", "--url", api).output
    assert f"5.0 GiB, limit 2.0 GiB; 1.0 MiB a second less{ending}\n" in output


@pytest.mark.parametrize(
    "number, text",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (2 << 40, "2.0 TiB"),
    ],
)
def test_sizes_for_people(number: int, text: str) -> None:
    assert size(number) == text


def test_shares_for_people() -> None:
    assert percent(0.125) == "12.5 %"
