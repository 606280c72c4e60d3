"""The tables of staged sets and of the decisions about their batches.

    staged_sets        a set's messages are in the hidden queue of its name; ``place`` is where it
                       stands in the batch that was committed, -1 = nothing was decided
    staged_producers   who commits batches: the run that may, those that may not any more, and
                       the last batch that was committed

A row is written in the turn in which a promise depends on it and is on disk before that promise
leaves, as with everything in ``definitions``.
"""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from penstock.core.clock_types import WallMs
from penstock.storage.definitions.values import name_in_cell, name_to_cell

STAGING: Final = """
CREATE TABLE staged_sets (
    vhost TEXT, name TEXT, producer TEXT NOT NULL, run TEXT NOT NULL, batch INTEGER NOT NULL,
    user TEXT NOT NULL, messages INTEGER NOT NULL, bytes INTEGER NOT NULL,
    finished INTEGER NOT NULL, place INTEGER NOT NULL,
    began_at_ms INTEGER NOT NULL, PRIMARY KEY (vhost, name)) WITHOUT ROWID;
CREATE TABLE staged_producers (
    vhost TEXT, producer TEXT, user TEXT NOT NULL, run TEXT NOT NULL, fenced TEXT NOT NULL,
    batch INTEGER NOT NULL, seen_at_ms INTEGER NOT NULL,
    PRIMARY KEY (vhost, producer)) WITHOUT ROWID;
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

    def put_set(self, record: StagedSetRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO staged_sets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            name_to_cell(record.vhost),
            record.name,
            name_to_cell(record.producer),
            name_to_cell(record.run),
            record.batch,
            name_to_cell(record.user),
            record.messages,
            record.size_bytes,
            int(record.finished),
            record.place,
            record.began_at_ms,
        )

    def delete_set(self, record: StagedSetRecord) -> None:
        self._change(
            "DELETE FROM staged_sets WHERE vhost = ? AND name = ?",
            name_to_cell(record.vhost),
            record.name,
        )

    def put_producer(self, record: ProducerRecord) -> None:
        self._change(
            "INSERT OR REPLACE INTO staged_producers VALUES (?, ?, ?, ?, ?, ?, ?)",
            name_to_cell(record.vhost),
            name_to_cell(record.producer),
            name_to_cell(record.user),
            name_to_cell(record.run),
            json.dumps(record.fenced),
            record.batch,
            record.seen_at_ms,
        )

    def delete_producer(self, record: ProducerRecord) -> None:
        self._change(
            "DELETE FROM staged_producers WHERE vhost = ? AND producer = ?",
            name_to_cell(record.vhost),
            name_to_cell(record.producer),
        )

    def load_sets(self) -> list[StagedSetRecord]:
        found: list[StagedSetRecord] = []
        order = "vhost, producer, batch, place"
        for row in self._db.execute(f"SELECT * FROM staged_sets ORDER BY {order}"):  # noqa: S608
            vhost, producer, run, user = [name_in_cell(row[place]) for place in (0, 2, 3, 5)]
            batch, messages, size, place, began_at_ms = [int(row[i]) for i in (4, 6, 7, 9, 10)]
            found.append(
                StagedSetRecord(
                    vhost,
                    str(row[1]),
                    producer,
                    run,
                    batch,
                    user,
                    WallMs(began_at_ms),
                    messages,
                    size,
                    place,
                    finished=bool(row[8]),
                )
            )
        return found

    def load_producers(self) -> list[ProducerRecord]:
        found: list[ProducerRecord] = []
        for row in self._db.execute("SELECT * FROM staged_producers ORDER BY seen_at_ms"):
            vhost, producer, user, run = [name_in_cell(cell) for cell in row[:4]]
            fenced = [str(one) for one in json.loads(row[4])]
            found.append(
                ProducerRecord(vhost, producer, user, run, fenced, int(row[5]), WallMs(int(row[6])))
            )
        return found
