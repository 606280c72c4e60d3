"""Clauses of docs/formats/coordination.md, and the store against a dictionary, with kills."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.cluster.agreement.coordinator import Change, Condition
from penstock.core.errors import Corrupt
from penstock.storage.definitions.coordination import (
    NO_LEASE,
    REFUSED,
    CoordinationStore,
    HistoryForgotten,
)
from tests.helpers.failing_rows import FailingRows
from tests.models.model_coordination import ModelCoordination

TTL_MS = 3000
KEYS = st.sampled_from(["a", "a/", "a/x", "a/ü", "b", "b/x", "b/\U0010ffff"])


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "coordination.db")


def put(key: str, value: str = "1", *, leased: bool = False) -> tuple[str, str, bool, bool]:
    return key, value, leased, False


def test_1_1_what_was_not_committed_is_gone_as_a_whole(path: str) -> None:
    store = CoordinationStore(path, 0)
    lease = store.grant(TTL_MS, 0)
    store.transact(lease, [], [put("k")])
    store.commit()
    store.transact(lease, [], [put("k", "2"), put("other")])
    assert store.revision == 2
    store.close()
    again = CoordinationStore(path, 0)
    assert again.entries() == [("k", "1", 1, 1)]
    assert again.revision == 1
    again.check()
    again.close()


def test_1_2_another_version_is_refused(path: str) -> None:
    CoordinationStore(path, 0).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(Corrupt, match="version 9, this release reads version 1"):
        CoordinationStore(path, 0)


def test_1_2_what_is_no_database_is_refused(path: str) -> None:
    Path(path).write_bytes(b"no database at all" * 100)
    with pytest.raises(Corrupt, match="not a readable SQLite file"):
        CoordinationStore(path, 0)


def test_a_flipped_bit_in_the_log_is_not_taken_for_its_end(path: str) -> None:
    """Else keys are gone, and nodes delete the queues that these were."""
    store = CoordinationStore(path, 0)
    lease = store.grant(TTL_MS, 0)
    for number in range(20):
        assert store.transact(lease, [], [put(f"k{number}")]) != REFUSED
        store.commit()
    log = bytearray(Path(f"{path}-wal").read_bytes())
    killed = f"{path}.killed"
    shutil.copy(path, killed)
    store.close()
    log[len(log) // 2] ^= 1
    Path(f"{killed}-wal").write_bytes(log)
    with pytest.raises(Corrupt, match=r"killed-wal: damaged at offset \d+"):
        CoordinationStore(killed, 0)


def test_2_1_a_file_without_its_counters_is_refused(path: str) -> None:
    CoordinationStore(path, 0).close()
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM counters WHERE name = 'forgotten'")
    db.close()
    with pytest.raises(Corrupt, match="counters are missing"):
        CoordinationStore(path, 0)


def test_2_1_a_lease_number_never_comes_again(path: str) -> None:
    store = CoordinationStore(path, 0)
    first = store.grant(TTL_MS, 0)
    store.end_lease(first)
    store.commit()
    store.close()
    store = CoordinationStore(path, 0)
    assert store.grant(TTL_MS, 0) > first
    store.close()


def test_2_4_history_is_forgotten_and_says_so(path: str) -> None:
    store = CoordinationStore(path, 0, history_kept=5)
    lease = store.grant(TTL_MS, 0)
    for number in range(12):
        store.transact(lease, [], [put(f"k{number % 3}", str(number))])
    assert store.forgotten == 7
    assert [row[0] for row in store.history(7)] == [8, 9, 10, 11, 12]
    with pytest.raises(HistoryForgotten, match="above revision 7, 6 was asked for"):
        store.history(6)
    store.check()
    store.close()


def test_2_5_an_opened_store_gives_every_lease_its_time_anew(path: str) -> None:
    store = CoordinationStore(path, 0)
    lease = store.grant(TTL_MS, 0)
    store.transact(lease, [], [put("k", leased=True)])
    store.commit()
    store.close()
    store = CoordinationStore(path, 50_000)
    for now_ms in range(50_000, 50_000 + TTL_MS, 500):
        assert store.end_overdue(now_ms) == 0
    assert store.end_overdue(50_000 + TTL_MS) == 1
    assert store.entries() == []
    assert store.transact(lease, [], []) == NO_LEASE
    store.close()


def test_a_store_that_stood_still_ends_no_lease_for_it(path: str) -> None:
    store = CoordinationStore(path, 0)
    lease = store.grant(TTL_MS, 0)
    assert store.end_overdue(500) == 0
    assert store.end_overdue(60_000) == 0
    assert store.keep_alive(lease, 60_000)
    store.close()


def test_after_an_error_of_the_disk_the_store_says_nothing_else(path: str) -> None:
    store = CoordinationStore(path, 0)
    lease = store.grant(TTL_MS, 0)
    store.commit()
    store._db.execute("PRAGMA query_only = ON")
    for _ in range(2):
        with pytest.raises(OSError, match="Read-only"):
            store.transact(lease, [], [put("k")])
    with pytest.raises(OSError, match="Read-only"):
        store.entries()
    store.close()


def use_everything(store: CoordinationStore) -> None:
    lease = store.grant(TTL_MS, 0)
    assert store.transact(lease, [], [put("a/1"), put("a/2", leased=True)]) > 0
    assert store.transact(lease, [("a/1", store.revision)], [("a/", None, False, True)]) > 0
    store.transact(lease, [], [put("b", leased=True)])
    assert store.entries()
    assert store.value("b") == "1"
    assert store.history(0)
    store.end_lease(lease)
    store.commit()


@pytest.mark.parametrize("once", [True, False], ids=["once", "for ever"])
def test_each_statement_fails_and_is_told(path: str, once: bool) -> None:
    """With the path and the cause, and for all that is asked afterwards."""
    failed = 0
    while True:
        store = CoordinationStore(path, 0)
        rows = FailingRows(store._db)
        store._db = rows  # type: ignore[assignment]
        rows.fail(failed, once=once)
        heard: OSError | None = None
        try:
            use_everything(store)
        except OSError as error:
            heard = error
        assert rows.failed == (heard is not None), failed
        if heard is not None:
            assert "disk I/O error" in str(heard)
            assert heard.filename == path
            with pytest.raises(OSError, match="disk I/O error"):
                store.entries()
        store.close()
        if not rows.failed:
            break
        failed += 1
        again = CoordinationStore(path, 0)
        assert again.entries() == []
        again.close()
    assert failed > 20


def test_damage_that_a_read_meets_is_told_with_the_path(path: str) -> None:
    store = CoordinationStore(path, 0)
    lease = store.grant(TTL_MS, 0)
    store.transact(lease, [], [put(f"{number:05}" * 40) for number in range(400)])
    store.commit()
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.seek(size // 3)
        file.write(b"\xff" * (size // 3))
    store = CoordinationStore(path, 0)
    with pytest.raises(OSError, match="malformed") as error:
        store.entries()
    assert error.value.filename == path
    store.close()


class StoreAgainstDictionary(RuleBasedStateMachine):
    """Kill: what was committed is there, nothing else is."""

    def __init__(self) -> None:
        super().__init__()
        # Only processes are killed here, so nothing need be synced to a disk.
        memory = "/dev/shm"
        self.directory = tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None)
        self.path = f"{self.directory}/coordination.db"
        self.now_ms = 0
        self.store = CoordinationStore(self.path, 0, history_kept=12)
        self.model = ModelCoordination()
        self.leases: dict[int, int] = {}
        """The model's number of each lease to the store's."""
        self.ends_ms: dict[int, int] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)

    @rule()
    def join(self) -> None:
        if len(self.leases) < 3:
            ours = self.model.grant()
            self.leases[ours] = self.store.grant(TTL_MS, self.now_ms)
            self.ends_ms[ours] = self.now_ms + TTL_MS
            self.store.commit()

    @rule(number=st.integers(0, 2))
    def leave(self, number: int) -> None:
        if self.leases:
            ours = sorted(self.leases)[number % len(self.leases)]
            self.store.end_lease(self.leases.pop(ours))
            self.model.end(ours)
            self.store.commit()

    @rule(number=st.integers(0, 2))
    def keep_alive(self, number: int) -> None:
        if self.leases:
            ours = sorted(self.leases)[number % len(self.leases)]
            assert self.store.keep_alive(self.leases[ours], self.now_ms)
            self.ends_ms[ours] = self.now_ms + TTL_MS

    @rule(after_ms=st.integers(0, 1000))
    def pass_time(self, after_ms: int) -> None:
        self.now_ms += after_ms
        self.store.end_overdue(self.now_ms)
        self.store.commit()
        for ours in [one for one in self.leases if self.ends_ms[one] <= self.now_ms]:
            ended = self.leases.pop(ours)
            self.model.end(ours)
            assert not self.store.keep_alive(ended, self.now_ms)

    @rule(
        number=st.integers(0, 2),
        asked=st.lists(st.tuples(KEYS, st.booleans()), max_size=2),
        changed=st.dictionaries(KEYS, st.tuples(st.sampled_from(["1", "2"]), st.booleans())),
        below=st.sampled_from(["", "a", "a/", "b/"]) | st.none(),
        committed=st.booleans(),
    )
    def transact(
        self,
        number: int,
        asked: list[tuple[str, bool]],
        changed: dict[str, tuple[str, bool]],
        below: str | None,
        committed: bool,
    ) -> None:
        """Not committed: killed instead."""
        if not self.leases:
            assert self.store.transact(1 << 40, [], [put("k")]) == NO_LEASE
            return
        ours = sorted(self.leases)[number % len(self.leases)]
        conditions = [
            Condition(key, self.model.revision_of(key) + (0 if right else 1))
            for key, right in asked
        ]
        changes = [] if below is None else [Change(below, None, below=True)]
        for key, (value, leased) in changed.items():
            if below is None or not key.startswith(below):
                changes.append(Change(key, None if value == "2" else value, leased=leased))
        revision = self.store.transact(
            self.leases[ours],
            [(one.key, one.revision) for one in conditions],
            [(one.key, one.value, one.leased, one.below) for one in changes],
        )
        assert (revision == REFUSED) == (not self.model.holds(conditions))
        if not committed:
            self.kill()
            return
        self.store.commit()
        if revision != REFUSED:
            assert revision == self.model.change(ours, changes)

    @rule()
    def kill(self) -> None:
        self.store.close()
        self.store = CoordinationStore(self.path, self.now_ms, history_kept=12)
        for ours in self.leases:
            self.ends_ms[ours] = self.now_ms + TTL_MS

    @invariant()
    def is_as_the_model(self) -> None:
        store, model = self.store, self.model
        store.check()
        assert store.revision == model.revision
        assert store.forgotten == max(0, model.revision - 12)
        held = [(one.key, one.value, one.revision, one.made) for one in model.entries()]
        assert store.entries() == held
        heard = [
            (one.revision, one.key, one.value, one.created)
            for one in model.events_between(store.forgotten, model.revision)
        ]
        assert store.history(store.forgotten) == heard


TestStoreAgainstDictionary = StoreAgainstDictionary.TestCase
