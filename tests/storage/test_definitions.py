"""Clauses of docs/formats/definitions.md, and a process killed while it commits."""

from __future__ import annotations

import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.clock_types import WallMs
from penstock.core.errors import Corrupt
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import (
    BindingRecord,
    PermissionRecord,
    QueueRecord,
    UserRecord,
    VhostRecord,
)
from penstock.storage.definitions.staging import ProducerRecord
from penstock.storage.definitions.sweep import SWEPT_AT_ONCE
from penstock.storage.definitions.values import arguments_from_json, arguments_to_json
from tests.storage.filled_definitions import HEX, everything, fields, fill

PAGE = Path(__file__).parents[2] / "docs/formats/definitions.md"


def test_what_is_put_comes_back(path: str, definitions: Definitions) -> None:
    fill(definitions)
    assert definitions.dirty
    definitions.commit()
    assert not definitions.dirty
    before = everything(definitions)
    again = Definitions(path)
    assert everything(again) == before
    again.close()
    assert {kind: len(rows) for kind, rows in before.items()} == {
        "vhosts": 2, "users": 1, "permissions": 2, "exchanges": 4, "queues": 2, "bindings": 10,
        "topic_permissions": 2, "policies": 4, "limits": 4,
        "staged_sets": 2, "staged_producers": 2, "parameters": 1,
    }  # fmt: skip
    queue = definitions.load().queues[0]
    assert fields(queue) == ({"y": b"\xff"}, True, HEX, "q", False, 1, "ann", "/")
    user = definitions.load().users[0]
    assert fields(user) == ("sha256", "guest", "hash", ["administrator", "x"])
    exchange = definitions.load().exchanges[0]
    assert fields(exchange) == ({"x": 1}, False, True, "e", "topic", "ann", "/")
    permission = definitions.load().permissions[0]
    assert fields(permission) == ("^c", "^r", "guest", "/", "^w")
    topology = definitions.load()
    assert fields(topology.topic_permissions[0]) == ("e", "^r", "guest", "/", "^w")
    assert fields(topology.policies[0]) == (
        "queues", {"message-ttl": 5, "queue-mode": "lazy"}, "operator", "p", "^q", 7, "/",
    )  # fmt: skip
    assert [fields(limit) for limit in topology.limits] == [
        ("max-channels", "guest", "user", 1), ("max-connections", "guest", "user", -1),
        ("max-queues", "/", "vhost", 3), ("max-queues", "two", "vhost", 3),
    ]  # fmt: skip
    assert fields(topology.parameters[0]) == ("", "g", "", {"a": [None, 1]}, "")


def test_putting_again_replaces(definitions: Definitions) -> None:
    fill(definitions)
    before = everything(definitions)
    definitions.put_vhost(VhostRecord("/"))
    definitions.put_binding(BindingRecord("/", "e", "q", "queue", "a.#", {}))
    assert everything(definitions) == before
    definitions.put_user(UserRecord("guest", "other", "sha512", []))
    definitions.put_permission(PermissionRecord("guest", "/", "", "", ""))
    topology = definitions.load()
    assert [user.password_hash for user in topology.users] == ["other"]
    assert sorted(grant.write for grant in topology.permissions) == ["", "^w"]


def test_clause_1_3_names_that_are_not_utf8(path: str, definitions: Definitions) -> None:
    name = b"q\xff\xfe".decode("utf-8", "surrogateescape")
    for queue in (name, "grün"):
        definitions.put_queue(QueueRecord(definitions.next_queue_id(), HEX, "/", queue, False, {}))
        definitions.put_binding(BindingRecord("/", "e", queue, "queue", name, {}))
    definitions.commit()
    assert [queue.name for queue in definitions.load().queues] == [name, "grün"]
    definitions.delete_queue("/", name)
    (left,) = definitions.load().bindings
    assert (left.destination, left.routing_key) == ("grün", name)
    definitions.delete_binding(left)
    assert definitions.load().bindings == []


def test_clause_1_4_queue_ids_are_never_used_twice(path: str) -> None:
    seen: set[int] = set()
    for turn in range(6):
        definitions = Definitions(path)
        count = (1, 1023, 1025, 3000, 0, 1)[turn]
        ids = [definitions.next_queue_id() for _ in range(count)]
        assert len(set(ids)) == count
        assert seen.isdisjoint(ids)
        seen.update(ids)
        if turn % 2:
            definitions.put_vhost(VhostRecord("lost"))
        definitions.close()  # without commit: as in a crash
    assert min(seen) == 1
    assert max(seen) < 2**31


def test_clause_1_5_deleting_a_queue(definitions: Definitions) -> None:
    fill(definitions)
    definitions.delete_queue("/", "q")
    topology = definitions.load()
    assert [queue.vhost for queue in topology.queues] == ["two"]
    assert [one.destination_type for one in topology.bindings if one.vhost == "/"] == [
        "exchange"
    ] * 2
    assert len([one for one in topology.bindings if one.vhost == "two"]) == 5


def test_clause_1_5_deleting_an_exchange(definitions: Definitions) -> None:
    fill(definitions)
    definitions.delete_exchange("/", "f")
    topology = definitions.load()
    assert [one.name for one in topology.exchanges if one.vhost == "/"] == ["e"]
    left = [(one.source, one.destination) for one in topology.bindings if one.vhost == "/"]
    assert left == [("e", "q")] * 2


def test_clause_1_5_deleting_a_virtual_host_and_a_user(definitions: Definitions) -> None:
    fill(definitions)
    definitions.delete_vhost("/")
    topology = definitions.load()
    for kind in (
        "exchanges", "queues", "bindings", "permissions", "topic_permissions", "policies",
    ):  # fmt: skip
        assert {one.vhost for one in getattr(topology, kind)} == {"two"}
    assert [one.owner for one in topology.limits] == ["guest", "guest", "two"]
    definitions.delete_permission("guest", "nowhere")
    assert len(definitions.load().permissions) == 1
    definitions.delete_user("guest")
    topology = definitions.load()
    assert topology.users == topology.permissions == topology.topic_permissions == []
    assert [one.owner for one in topology.limits] == ["two"]


def test_clause_1_7_a_virtual_host_on_its_way_out_is_known_after_a_start(path: str) -> None:
    definitions = Definitions(path)
    fill(definitions)
    definitions.vhost_leaves("two")
    assert not definitions.is_sweeping("two")
    definitions.commit()
    definitions.close()
    again = Definitions(path)
    assert [(one.name, one.closing) for one in again.load().vhosts] == [("/", False), ("two", True)]
    again.delete_vhost("two")
    again.put_vhost(VhostRecord("two"))
    assert not any(one.closing for one in again.load().vhosts)
    again.close()


def test_a_binding_is_deleted_by_all_its_fields(definitions: Definitions) -> None:
    fill(definitions)
    definitions.delete_binding(BindingRecord("/", "e", "q", "queue", "a.#", {"n": 2}))
    assert len(definitions.load().bindings) == 10
    definitions.delete_binding(BindingRecord("/", "e", "q", "queue", "a.#", {"n": 1}))
    left = [one.arguments for one in definitions.load().bindings if one.routing_key == "a.#"]
    assert sorted(map(repr, left)) == ["{'n': 1}", "{}", "{}"]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.binary(max_size=8)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "$", "$bytes", "$dict", "$decimal"]), inner)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5) | st.just("$bytes"), VALUES, max_size=4))
def test_clause_2_1_arguments_come_back(arguments: dict[str, object]) -> None:
    text = arguments_to_json(arguments)
    assert text.isascii()
    assert repr_of(arguments_from_json(text)) == repr_of(arguments)
    shuffled = dict(reversed(arguments.items()))
    assert arguments_to_json(shuffled) == text


def repr_of(value: object) -> str:
    """Like equality, but 1, 1.0, True and Decimal(1) differ, and order does not count."""
    if isinstance(value, dict):
        return f"{{{sorted((key, repr_of(item)) for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"{[repr_of(item) for item in value]}"
    return repr(value)


def test_clause_2_1_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="arguments cannot hold a set"):
        arguments_to_json({"x": {1}})


def test_clause_2_2_the_example() -> None:
    (text,) = re.findall(r"```json\n(.*?)\n```", PAGE.read_text())
    arguments: dict[str, object] = {"x-max-length": 5, "key": b"\xff\x00", "$bytes": "no tag"}
    assert arguments_to_json(arguments) == text
    assert arguments_from_json(text) == arguments
    assert arguments_from_json('{"d":{"$decimal":"1.50"}}') == {"d": Decimal("1.50")}


def test_clause_3_1_a_turn_is_all_or_nothing(path: str, definitions: Definitions) -> None:
    definitions.put_vhost(VhostRecord("kept"))
    definitions.commit()
    definitions.put_vhost(VhostRecord("lost"))
    definitions.delete_vhost("kept")
    again = Definitions(path)
    assert [vhost.name for vhost in again.load().vhosts] == ["kept"]
    again.close()


def test_a_queue_costs_the_log_no_more_than_a_few_kilobytes(
    path: str, definitions: Definitions
) -> None:
    log = Path(f"{path}-wal")
    fill(definitions)
    definitions.commit()
    before = log.stat().st_size
    for number in range(100):
        queue_id = definitions.next_queue_id()
        definitions.put_queue(QueueRecord(queue_id, HEX, "/", f"queue {number}", False, {}))
        definitions.commit()
    assert 0 < log.stat().st_size - before < 100 * 4096


def test_clause_3_2_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database at all" * 400)
    with pytest.raises(Corrupt, match=r"broken\.db"):
        Definitions(str(broken))


@pytest.mark.parametrize("text", ["{", "[]", '{"x":{"$bytes":"?"}}', '{"x":{"$decimal":"y"}}'])
def test_clause_3_2_unreadable_arguments_are_refused(path: str, text: str) -> None:
    definitions = Definitions(path)
    fill(definitions)
    definitions.commit()
    definitions.close()
    database = sqlite3.connect(path)
    database.execute("UPDATE queues SET arguments = ?", [text])
    database.commit()
    database.close()
    definitions = Definitions(path)
    with pytest.raises(Corrupt, match="unreadable definitions"):
        definitions.load()
    definitions.close()


def test_clause_4_1_another_version_is_refused(path: str) -> None:
    Definitions(path).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 14")
    database.close()
    with pytest.raises(Corrupt, match="format version 14, this release reads versions 2 to 13"):
        Definitions(path)


VERSION_2 = """
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('next_queue_id', 7);
CREATE TABLE vhosts (name TEXT PRIMARY KEY, segment_entries INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO vhosts VALUES ('/', 2048);
CREATE TABLE users (
    name TEXT PRIMARY KEY, password_hash TEXT NOT NULL, hashing_algorithm TEXT NOT NULL,
    tags TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE permissions (
    user TEXT, vhost TEXT, configure TEXT NOT NULL, write TEXT NOT NULL, read TEXT NOT NULL,
    PRIMARY KEY (user, vhost)) WITHOUT ROWID;
CREATE TABLE exchanges (
    vhost TEXT, name TEXT, type TEXT NOT NULL, auto_delete INTEGER NOT NULL,
    internal INTEGER NOT NULL, arguments TEXT NOT NULL,
    PRIMARY KEY (vhost, name)) WITHOUT ROWID;
CREATE TABLE queues (
    queue_id INTEGER PRIMARY KEY, incarnation TEXT NOT NULL, vhost TEXT NOT NULL,
    name TEXT NOT NULL, auto_delete INTEGER NOT NULL, arguments TEXT NOT NULL,
    UNIQUE (vhost, name));
INSERT INTO queues VALUES (6, 'i', '/', 'old', 0, '{}');
CREATE TABLE bindings (
    vhost TEXT, source TEXT, destination TEXT, destination_type TEXT, routing_key TEXT,
    arguments TEXT,
    PRIMARY KEY (vhost, source, destination_type, destination, routing_key, arguments)
    ) WITHOUT ROWID;
CREATE INDEX bindings_by_destination ON bindings (vhost, destination_type, destination);
PRAGMA user_version = 2;
"""


def columns(path: str) -> dict[str, list[tuple[object, ...]]]:
    database = sqlite3.connect(path)
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master ORDER BY name")]
    found = {name: database.execute(f"PRAGMA table_info({name})").fetchall() for name in tables}
    found["version"] = database.execute("PRAGMA user_version").fetchall()
    database.close()
    return found


def test_clause_4_2_version_2_is_upgraded(path: str, tmp_path: Path) -> None:
    database = sqlite3.connect(path)
    database.executescript(VERSION_2)
    database.close()
    old = Definitions(path)
    topology = old.load()
    assert [fields(vhost) for vhost in topology.vhosts] == [(False, ("", (), "", False), "/", 2048)]
    assert [queue.name for queue in topology.queues] == ["old"]
    assert old.next_queue_id() == 7
    old.close()
    new = str(tmp_path / "new.db")
    Definitions(new).close()
    assert columns(path) == columns(new)


def test_clause_4_2_producers_of_version_12_are_their_users(path: str) -> None:
    Definitions(path).close()
    database = sqlite3.connect(path)
    database.executescript(
        """
DROP TABLE staged_producers;
CREATE TABLE staged_producers (
    vhost TEXT, producer TEXT, user TEXT NOT NULL, run TEXT NOT NULL, fenced TEXT NOT NULL,
    batch INTEGER NOT NULL, seen_at_ms INTEGER NOT NULL,
    PRIMARY KEY (vhost, producer)) WITHOUT ROWID;
INSERT INTO staged_producers VALUES ('/', 'p', 'ann', 'r2', '["r1"]', 7, 1000);
PRAGMA user_version = 12;
"""
    )
    database.close()
    definitions = Definitions(path)
    of_ann = ProducerRecord("/", "p", "ann", "r2", ["r1"], 7, WallMs(1000))
    of_eve = ProducerRecord("/", "p", "eve", "r9", [], 9, WallMs(2000))
    assert definitions.load().staged_producers == [of_ann]
    definitions.staging.put_producer(of_eve)
    assert definitions.staging.load_producers() == [of_ann, of_eve]
    definitions.staging.delete_producer(of_ann)
    assert definitions.staging.load_producers() == [of_eve]
    definitions.close()


def test_setting_queue_ids_aside_does_not_end_a_turn(path: str) -> None:
    """Else a crash might keep half of what a client was told nothing of yet."""
    definitions = Definitions(path)
    other = sqlite3.connect(path)
    for turn in range(2000):
        for part in range(3):
            queue_id = definitions.next_queue_id()
            definitions.put_queue(QueueRecord(queue_id, HEX, "/", f"{turn}.{part}", False, {}))
        (there,) = other.execute("SELECT count(*) FROM queues").fetchone()
        assert there == 3 * turn, "an unfinished turn is on disk"
        definitions.commit()
    other.close()
    definitions.close()


# -- bindings of what was deleted ----------------------------------------------------------------


def bind_many(definitions: Definitions, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        definitions.put_binding(BindingRecord("/", "x", "q", "queue", f"k{number}", {}))


def keys_in(definitions: Definitions) -> list[str]:
    return sorted(binding.routing_key for binding in definitions.load().bindings)


def rows_in(path: str, table: str = "bindings") -> int:
    database = sqlite3.connect(path)
    (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
    database.close()
    return int(count)


@pytest.mark.parametrize("side", ["queue", "source", "exchange"])
def test_clause_1_7_bindings_are_dead_at_once_and_deleted_later(path: str, side: str) -> None:
    definitions = Definitions(path)
    many = 3 * SWEPT_AT_ONCE + 1
    if side == "exchange":
        for number in range(many):
            definitions.put_binding(BindingRecord("/", "x", "q", "exchange", f"k{number}", {}))
    else:
        bind_many(definitions, many)
    definitions.put_binding(BindingRecord("/", "x2", "q2", "queue", "other", {}))
    if side == "queue":
        definitions.delete_queue("/", "q")
    else:
        definitions.delete_exchange("/", "x" if side == "source" else "q")
    assert keys_in(definitions) == ["other"]
    definitions.commit()
    assert rows_in(path) == 2 * SWEPT_AT_ONCE + 2
    definitions.close()
    definitions = Definitions(path)  # in the middle
    assert keys_in(definitions) == ["other"]
    more = [definitions.sweep() for _ in range(3)]
    assert more == [True, True, False]
    assert not definitions.sweep()
    definitions.commit()
    assert (rows_in(path), rows_in(path, "leaving")) == (1, 0)
    definitions.close()


def test_clause_1_7_the_name_may_be_used_again_at_once(path: str) -> None:
    definitions = Definitions(path)
    bind_many(definitions, 2 * SWEPT_AT_ONCE)
    definitions.delete_queue("/", "q")
    bind_many(definitions, 5, first=2 * SWEPT_AT_ONCE - 3)  # some are the very bindings from before
    wanted = sorted(f"k{2 * SWEPT_AT_ONCE - 3 + number}" for number in range(5))
    assert keys_in(definitions) == wanted
    definitions.commit()
    definitions.close()
    definitions = Definitions(path)
    assert keys_in(definitions) == wanted
    bind_many(definitions, 1, first=99_999)
    while definitions.sweep():
        pass
    assert keys_in(definitions) == [*wanted, "k99999"]
    definitions.commit()
    assert rows_in(path) == 6
    definitions.close()


def test_clause_1_7_deleted_again_before_it_was_done(path: str) -> None:
    definitions = Definitions(path)
    for _ in range(3):
        bind_many(definitions, 3 * SWEPT_AT_ONCE)
        definitions.delete_queue("/", "q")
        assert keys_in(definitions) == []
    definitions.delete_vhost("/")
    definitions.commit()
    assert (rows_in(path), rows_in(path, "leaving")) == (0, 0)
    assert not definitions.sweep()
    bind_many(definitions, 1)
    assert keys_in(definitions) == ["k0"]
    definitions.close()


KILLED_PROGRAM = """
import sys
from penstock.storage.definitions.definitions import *

definitions = Definitions(sys.argv[1])
for turn in range(100_000):
    for part in range(5):
        queue_id = definitions.next_queue_id()
        name = f"{turn}.{part}"
        definitions.put_queue(QueueRecord(queue_id, "0" * 32, "/", name, False, {}))
        definitions.put_binding(BindingRecord("/", "e", name, "queue", "k", {}))
        if turn > 0:
            definitions.delete_queue("/", f"{turn - 1}.{part}")
    print("begin", turn, queue_id, flush=True)
    definitions.commit()
    print("done", turn, queue_id, flush=True)
"""


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_process_leaves_whole_turns(path: str, seed: int) -> None:
    rng = random.Random(seed)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_PROGRAM, path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(rng.uniform(0, 0.15))
    process.send_signal(signal.SIGKILL)
    lines = [line.split() for line in process.stdout.read().splitlines() if line.count(" ") == 2]
    process.stdout.close()
    process.wait()
    done = max((int(turn) for word, turn, _ in lines if word == "done"), default=-1)
    begun = max((int(turn) for _, turn, _ in lines), default=0)
    definitions = Definitions(path)
    topology = definitions.load()
    turns = {int(queue.name.split(".")[0]) for queue in topology.queues}
    assert len(topology.queues) in (0, 5)
    assert len(topology.bindings) == len(topology.queues)
    assert not turns or (len(turns) == 1 and done <= max(turns) <= begun)
    assert turns or done == -1
    assert definitions.next_queue_id() > max((int(last) for _, _, last in lines), default=0)
    definitions.close()
