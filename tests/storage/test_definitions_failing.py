"""Statements and reads of definitions.db that fail: the caller hears, all or nothing is done."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import Corrupt
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.parameters import (
    ParameterRecord,
    delete_parameter,
    put_parameter,
)
from penstock.storage.definitions.range_readers import RangeReaders
from penstock.storage.definitions.records import (
    BindingRecord,
    QueueRecord,
    UserRecord,
    VhostMetadata,
    VhostRecord,
)
from tests.helpers.failing_rows import FailingRows
from tests.storage.filled_definitions import HEX, everything, fill


def test_an_error_of_the_disk_is_no_damage(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    definitions = Definitions(path)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("penstock.storage.definitions.definitions.load_topology", fail)
    with pytest.raises(OSError, match=r"disk I/O error.*definitions\.db") as raised:
        definitions.load()
    assert raised.value.errno == errno.EIO
    definitions.close()


def change_everything(definitions: Definitions) -> None:
    """Each verb that writes, in one transaction but for the first."""
    queue_id = definitions.next_queue_id()
    definitions.put_vhost(VhostRecord("two", metadata=VhostMetadata(default_queue_type="quorum")))
    protected = VhostMetadata(protected_from_deletion=True)
    definitions.put_vhost(VhostRecord("four", metadata=protected))
    definitions.put_vhost(VhostRecord("three"))
    definitions.vhost_leaves("three")
    definitions.vhost_stays("three")
    definitions.put_user(UserRecord("guest", "another", "sha256", []))
    definitions.put_user(UserRecord("other", "hash", "sha256", []))
    definitions.delete_user("other")
    definitions.delete_permission("guest", "/")
    definitions.delete_topic_permissions("guest", "/")
    definitions.delete_policy("/", "policy", "p")
    definitions.put_limits("user", "guest", {"max-channels": 2})
    for component in ("shovel", "federation-upstream"):
        record = ParameterRecord("s", {"src-queue": "q"}, "/", component, "guest")
        put_parameter(definitions.change, record)
    delete_parameter(definitions.change, ParameterRecord("g", None))
    arguments: dict[str, object] = {"x-queue-type": "quorum", "x-delivery-limit": 3}
    definitions.put_queue(QueueRecord(queue_id, HEX, "/", "quorum", False, arguments))
    definitions.put_binding(BindingRecord("/", "e", "quorum", "queue", "#", {}))
    definitions.delete_binding(BindingRecord("/", "e", "quorum", "queue", "#", {}))
    definitions.pause_queue("/", "quorum", True)
    definitions.rename_queue("/", "quorum", "other")
    definitions.delete_queue("/", "q")
    definitions.delete_exchange("/", "e")
    definitions.delete_vhost("two")
    definitions.delete_unknown_queues([999])
    definitions.forget_deleted_queues()


@pytest.mark.parametrize("once", [True, False], ids=["once", "for ever"])
def test_no_statement_that_fails_is_nothing_to_do(path: str, tmp_path: Path, once: bool) -> None:
    """Whichever of a transaction it is: the caller hears of it, and nothing of it is on disk."""
    definitions = Definitions(path)
    fill(definitions)
    definitions.commit()
    definitions.checkpoint()
    before = everything(definitions)
    definitions.close()
    failed = 0
    while True:
        place = str(shutil.copy(path, tmp_path / "copy.db"))
        definitions = Definitions(place)
        rows = FailingRows(definitions._db)
        definitions._db = definitions._transaction._db = rows  # type: ignore[assignment]
        rows.fail(failed, once=once)
        heard = ""
        try:
            change_everything(definitions)
            definitions.commit()
        except OSError as error:
            heard = str(error)
        definitions.close()
        assert rows.failed == ("disk I/O error" in heard), failed
        if not rows.failed:
            break
        failed += 1
        again = Definitions(place)
        assert everything(again) == before, failed
        again.close()
    assert failed > 30


@pytest.mark.parametrize("changing", [False, True], ids=["alone", "in a transaction"])
def test_a_read_that_fails_is_told_with_the_path(definitions: Definitions, changing: bool) -> None:
    """Alone, the caller may read again; in a transaction, definitions take no change any more."""
    readers = RangeReaders(definitions)
    readers.put_start("/", "q", "life1", "latest", 7)
    definitions.commit()
    rows = FailingRows(definitions._db)
    definitions._db = definitions._transaction._db = rows  # type: ignore[assignment]
    if changing:
        definitions.put_vhost(VhostRecord("other"))
    for read in (readers.tokens, lambda: readers.start("/", "q", "life1")):
        rows.fail(0, once=True)
        with pytest.raises(OSError, match="disk I/O error") as error:
            read()
        assert error.value.filename == definitions.path
    if changing:
        with pytest.raises(OSError, match="disk I/O error"):
            definitions.commit()
        return
    assert readers.start("/", "q", "life1") == ("latest", 7)
    definitions.put_vhost(VhostRecord("other"))
    definitions.commit()


def test_damage_that_a_read_meets_is_no_error_of_sqlite(definitions: Definitions) -> None:
    definitions._db.execute("DROP TABLE range_starts")
    with pytest.raises(Corrupt, match=f"{definitions.path}: unreadable definitions: no such table"):
        RangeReaders(definitions).start("/", "q", "life1")


def test_damage_that_a_change_meets_ends_the_transaction(definitions: Definitions) -> None:
    """Else one session would end, and the rest of its turn be committed without the change."""

    class Damaged(FailingRows):
        def execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
            if statement.startswith("INSERT OR REPLACE INTO queues"):
                error = sqlite3.DatabaseError("database disk image is malformed")
                error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise error
            return super().execute(statement, values)

    definitions._transaction._db = Damaged(definitions._db)  # type: ignore[assignment]
    definitions.put_vhost(VhostRecord("other"))
    with pytest.raises(Corrupt, match="malformed"):
        definitions.put_queue(QueueRecord(7, HEX, "/", "q", False, {}))
    with pytest.raises(Corrupt, match="malformed"):
        definitions.commit()
