"""The tables of staged sets and of the decisions about their batches.

    staged_sets        a set's messages are in the hidden queue of its name; ``place`` is where it
                       stands in the batch that was committed, -1 = nothing was decided
    staged_producers   a user's producers of batches: the run that may commit, those that may not
                       any more, and the last batch that was committed

A row is written in the turn in which a promise depends on it and is on disk before that promise
leaves, as with everything in ``definitions``.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from penstock.core.clock_types import WallMs
from penstock.storage.definitions.values import put_statement, read_rows

STAGING: Final = """
CREATE TABLE staged_sets (
    vhost TEXT, name TEXT, producer TEXT NOT NULL, run TEXT NOT NULL, batch INTEGER NOT NULL,
    user TEXT NOT NULL, messages INTEGER NOT NULL, bytes INTEGER NOT NULL,
    finished INTEGER NOT NULL, place INTEGER NOT NULL,
    began_at_ms INTEGER NOT NULL, PRIMARY KEY (vhost, name)) WITHOUT ROWID;
CREATE TABLE staged_producers (
    vhost TEXT, producer TEXT, user TEXT NOT NULL, run TEXT NOT NULL, fenced TEXT NOT NULL,
    batch INTEGER NOT NULL, seen_at_ms INTEGER NOT NULL,
    PRIMARY KEY (vhost, user, producer)) WITHOUT ROWID;
"""
PRODUCERS_OF_USERS: Final = """
ALTER TABLE staged_producers RENAME TO producers_by_name;
CREATE TABLE staged_producers (
    vhost TEXT, producer TEXT, user TEXT NOT NULL, run TEXT NOT NULL, fenced TEXT NOT NULL,
    batch INTEGER NOT NULL, seen_at_ms INTEGER NOT NULL,
    PRIMARY KEY (vhost, user, producer)) WITHOUT ROWID;
INSERT INTO staged_producers SELECT * FROM producers_by_name;
DROP TABLE producers_by_name;
"""

UNDECIDED: Final = -1
NO_BATCH: Final = -1

Change = Callable[..., int]
"""(statement, values...): part of the turn's transaction."""


@final
@dataclass(slots=True, eq=False)
class StagedSetRecord:
    """``finished``: all of it was on disk when this was written."""

    vhost: str
    name: str
    producer: str
    run: str
    batch: int
    user: str
    began_at_ms: WallMs
    messages: int = 0
    size_bytes: int = 0
    place: int = UNDECIDED
    finished: bool = False

    def add(self, messages: int, size_bytes: int) -> None:
        self.messages += messages
        self.size_bytes += size_bytes

    def finish(self) -> None:
        self.finished = True

    def decide(self, place: int) -> None:
        """It is the one of that place in its batch."""
        self.place = place


class ProducerRecord(NamedTuple):
    """``fenced``: runs that came before ``run``, the newest last."""

    vhost: str
    producer: str
    user: str
    run: str
    fenced: list[str]
    batch: int
    seen_at_ms: WallMs


@final
class StagingTables:
    """The two tables; ``change`` is how the definitions change a row."""

    def __init__(self, database: sqlite3.Connection, change: Change) -> None:
        self._db = database
        self._change = change

    def put_set(self, one: StagedSetRecord) -> None:
        names = (one.vhost, one.name, one.producer, one.run)
        sizes = (one.messages, one.size_bytes, one.finished)
        cells = (*names, one.batch, one.user, *sizes, one.place, one.began_at_ms)
        self._change(put_statement("staged_sets", len(cells)), *cells)

    def delete_set(self, record: StagedSetRecord) -> None:
        which = "vhost = ? AND name = ?"
        self._change(f"DELETE FROM staged_sets WHERE {which}", record.vhost, record.name)  # noqa: S608

    def put_producer(self, record: ProducerRecord) -> None:
        self._change(put_statement("staged_producers", len(record)), *record)

    def delete_producer(self, record: ProducerRecord) -> None:
        which = "vhost = ? AND user = ? AND producer = ?"
        names = (record.vhost, record.user, record.producer)
        self._change(f"DELETE FROM staged_producers WHERE {which}", *names)  # noqa: S608

    def load_sets(self) -> list[StagedSetRecord]:
        columns = "vhost, name, producer, run, batch, user, began_at_ms, messages, bytes, place"
        order = "vhost, producer, batch, place"
        rows = f"{columns}, finished FROM staged_sets ORDER BY {order}"
        return [StagedSetRecord(*row) for row in read_rows(self._db, rows, "ttttitiiiib")]

    def load_producers(self) -> list[ProducerRecord]:
        rows = "* FROM staged_producers ORDER BY seen_at_ms"
        return [ProducerRecord(*row) for row in read_rows(self._db, rows, "ttttlii")]
