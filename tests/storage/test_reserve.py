"""Space that is held for what must not fail on a full disk, and changes that find none."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.storage.common.reserve import Reserve, wanted_bytes
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import VhostRecord
from penstock.storage.definitions.transaction import DefinitionsTransaction
from tests.helpers.sim_files import SimFileSystem

FILE_BYTES = 1 << 20


def test_it_has_room_for_the_journal_a_new_file_and_definitions() -> None:
    for journal_bytes in (0, 1, FILE_BYTES - 1, FILE_BYTES, 7 * FILE_BYTES + 5):
        wanted = wanted_bytes(journal_bytes, FILE_BYTES)
        spare = wanted - journal_bytes - FILE_BYTES
        assert FILE_BYTES // 4 <= spare <= FILE_BYTES // 2


def test_it_takes_space_from_the_disk_and_gives_it_back() -> None:
    files = SimFileSystem()
    files.makedirs("data")
    files.space_left = 1000
    reserve = Reserve(files, "data")
    assert reserve.grow(600)
    assert files.space_left == 400
    assert not reserve.grow(1100)
    assert (reserve.held_bytes, files.space_left) == (600, 400)
    assert Reserve(files, "data").held_bytes == 600
    assert reserve.shrink(500)
    assert (reserve.held_bytes, files.space_left) == (500, 500)
    assert reserve.shrink(0)
    assert not reserve.shrink(0)
    assert files.space_left == 1000
    assert files.listdir("data") == []


def test_an_error_other_than_a_full_disk_is_raised() -> None:
    files = SimFileSystem()
    files.makedirs("data")
    files.fail("allocate", errno.EIO)
    with pytest.raises(OSError, match=r"."):
        Reserve(files, "data").grow(10)


class SmallDatabase:
    """Definitions whose file has a largest size, which ``make_room`` raises a step at a time."""

    def __init__(self, path: Path, steps: int) -> None:
        self.steps = steps
        self.asked = 0
        self.definitions = Definitions(str(path), self.make_room)
        self.database: sqlite3.Connection = self.definitions._db
        self.limit(0)

    def limit(self, more: int) -> None:
        (pages,) = self.database.execute("PRAGMA page_count").fetchone()
        self.database.execute(f"PRAGMA max_page_count = {pages + more}")

    def make_room(self) -> bool:
        self.asked += 1
        if self.asked > self.steps:
            return False
        if self.database.in_transaction:
            self.database.execute("ROLLBACK")
        self.limit(40 * self.asked)
        return True


def put(definitions: Definitions, count: int) -> None:
    for number in range(count):
        definitions.put_vhost(VhostRecord(f"{number}" + "x" * 200))


def test_a_change_that_finds_no_room_is_kept_with_all_before_it(tmp_path: Path) -> None:
    small = SmallDatabase(tmp_path / "definitions.db", 10)
    put(small.definitions, 500)
    assert small.asked > 1
    small.definitions.commit()
    small.definitions.close()
    again = Definitions(str(tmp_path / "definitions.db"))
    assert len(again.load().vhosts) == 500
    again.close()


def test_without_any_room_the_change_is_an_error_for_good(tmp_path: Path) -> None:
    small = SmallDatabase(tmp_path / "definitions.db", 1)
    with pytest.raises(OSError, match="full"):
        put(small.definitions, 500)
    small.limit(1000)
    with pytest.raises(OSError, match="full"):
        small.definitions.commit()
    small.definitions.close()
    again = Definitions(str(tmp_path / "definitions.db"))
    assert again.load().vhosts == []
    again.close()


class FullAtCommit:
    """A connection whose commits find no space so many times; SQLite then takes them back."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.execute("CREATE TABLE t (a)")

    @property
    def in_transaction(self) -> bool:
        return self.database.in_transaction

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        if statement == "COMMIT" and self.times > 0:
            self.times -= 1
            self.database.execute("ROLLBACK")
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return self.database.execute(statement, values)


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_commit_that_finds_no_room_is_repeated_whole(times: int) -> None:
    database: Any = FullAtCommit(times)
    calls: list[int] = []
    make_room: Callable[[], bool] = lambda: calls.append(1) is None  # noqa: E731
    transaction = DefinitionsTransaction(database, "t", make_room)
    for number in range(5):
        assert transaction.change("INSERT INTO t VALUES (?)", (number,)) == 1
    assert transaction.change("DELETE FROM t WHERE a < ?", (2,)) == 2
    transaction.commit()
    assert not transaction.open
    assert len(calls) == times
    assert database.execute("SELECT a FROM t").fetchall() == [(2,), (3,), (4,)]
