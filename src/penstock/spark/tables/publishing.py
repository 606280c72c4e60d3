"""Commits a batch's draft files to a table: all of them, once, atomically.

Workers have written drafts (``pyspark_penstock.table_files``); this is the driver's part.  A
plain table has no log, and a rename moves one name, so what decides is a note::

    orders-5f0c…-00000012-003.parquet              the fourth file of batch 12
    _penstock/orders/staging/<run>/<random>        drafts
    _penstock/orders/landed/5f0c…-00000012.json    batch 12 has landed, and in which files

Landing batch n, and what a crash leaves:

    1  note of n there?  go on at 6, done      a crash came between 5 and Spark's commit log
    2  workers write drafts and sync them      rubbish, swept at the next start; those that are
                                               not here are on another machine: nothing is decided
    3  sync Spark's own note of n              so that n means the same after a power failure
    4  write the note as a draft, sync it      rubbish
    5  link it to its name, sync               *n has landed*; the name exists once, so of two
                                               drivers (one believed dead) one decides
    6  rename each draft to its final name     a draft that is gone was renamed before if its
                                               file is there, of the noted size
    7  sync the files' directories             the names outlive a power failure
    8  write into the note that all are placed  6 is never done again: files may be compacted

A run that dies behind 5 leaves files that are not all in place; the next start does 6 to 8
before it does anything else (``recover``), and so do a second call with the same batch and a
compaction.  A draft that is gone without its file stops the pipeline: the messages are still in the
queue.  Names in a note are relative to the table, which may be moved.

A reader of the directory sees each file whole or not at all, each message once; the files of
one batch appear one after the other, within milliseconds of each other.  ``compaction`` must
not exchange a directory in between: both hold ``publish.lock``.

The last two notes are kept; Spark never calls with an older batch.
"""

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.core.errors import PenstockError
from penstock.spark.tables.table import Table
from pyspark_penstock.durable import sync, sync_one, write_synced
from pyspark_penstock.table_files import Draft, Layout, table_schema

if TYPE_CHECKING:
    import pyarrow as pa

NOTES_KEPT = 2
STAGING = "staging"
DRAFT_STEPS = 5
PUT_AT_ONCE = 8


class NotShared(PenstockError):
    """Workers have written where this machine does not see it."""


class FileGone(PenstockError):
    """A batch was decided, and one of its files is neither in its place nor a draft."""

    fix = "bring the file back; if the table is to do without it, delete the note"


class Landed(NamedTuple):
    batch: int
    messages: int
    file_bytes: int
    holes: int  # sequence ids of the range that hold no message
    before: bool  # an earlier run had landed it already
    files: int = 0
    faults: int = 0  # messages whose body does not fit the table's columns


class Places(Protocol):
    """Where files of a table and drafts of a pipeline are; names are relative to the table.

    ``store``: as ``Layout`` has it.
    """

    @property
    def store(self) -> Mapping[str, str]: ...

    def drafts_dir(self, _query: str, _batch: int) -> AbstractContextManager[str]:
        """A new place for the drafts of one call; what is left there is rubbish.

        Not after an error, though: what was decided before it may still have to be put in place.
        """

    def sweep(self) -> None: ...

    def check(self, drafts: list[Draft]) -> None: ...

    def noted(self, draft: Draft) -> str: ...

    def final(self, draft: Draft, name: str) -> str:
        """The draft's name in the table; ``name``, if it may have that one."""

    def put(self, noted: str, name: str, size: int | None) -> bool: ...

    def settle(self, names: list[str]) -> None: ...

    def footer(self, name: str) -> Any: ...

    def read(self, drafts: list[Draft]) -> "pa.Table": ...


class Directory:
    """Files of this machine, or of a file system that it shares with others."""

    store: Mapping[str, str] = {}

    def __init__(self, root: Path, home: Path) -> None:
        self._root = root
        self._home = home

    @contextmanager
    def drafts_dir(self, _query: str, _batch: int) -> Iterator[str]:
        place = self._home / STAGING / uuid.uuid4().hex
        yield str(place)
        shutil.rmtree(place, ignore_errors=True)

    def sweep(self) -> None:
        """What an earlier run was writing when it died.

        Its workers, in their last moments, have a directory of their own.
        """
        shutil.rmtree(self._home / STAGING, ignore_errors=True)

    def check(self, drafts: list[Draft]) -> None:
        """All are here; later a draft that is gone counts as renamed before."""
        check_drafts(drafts)

    def noted(self, draft: Draft) -> str:
        return os.path.relpath(draft.path, self._root)

    def final(self, _draft: Draft, name: str) -> str:
        return name

    def put(self, noted: str, name: str, size: int | None) -> bool:
        """By a rename; False = the file is neither a draft nor in its place."""
        if os.path.isabs(
            noted
        ):  # so in release 0.1.0, which noted no size: _penstock/q/staging/x/y
            noted = os.path.join(*Path(noted).parts[-DRAFT_STEPS:])
        draft, final = self._root / noted, self._root / name
        if not draft.exists():
            return _is_there(final, size)
        final.parent.mkdir(parents=True, exist_ok=True)
        draft.rename(final)
        return True

    def settle(self, names: list[str]) -> None:
        """The names outlive a power failure."""
        sync(*{(self._root / name).parent for name in names})

    def footer(self, name: str) -> Any:
        from pyarrow import parquet

        return parquet.read_metadata(self._root / name)

    def read(self, drafts: list[Draft]) -> "pa.Table":
        from pyarrow import parquet

        return parquet.read_table([draft.path for draft in drafts], partitioning=None)


@contextmanager
def publish_lock(table: Table, *, alone: bool) -> Iterator[None]:
    """Shared while files are added, alone while directories are exchanged."""
    table.home.mkdir(parents=True, exist_ok=True)
    with (table.home / "publish.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


class ParquetPublisher:
    """Notes and renames, for one pipeline's files in a table."""

    def __init__(self, table: Table, name: str) -> None:
        self._table = table
        self._name = name
        self._notes = table.home / name / "landed"
        self._places = table.places(name)

    def begin(self, layout: Layout) -> Layout:
        self._table.describe(table_schema(layout))
        return replace(layout, store=self._places.store)

    def drafts_dir(self, query_id: str, batch: int) -> AbstractContextManager[str]:
        return self._places.drafts_dir(query_id, batch)

    def recover(self) -> None:
        """Before anything is swept: finish what was decided."""
        with publish_lock(self._table, alone=False):
            place_decided(self._table, self._notes)
        self._places.sweep()

    def landed(self, query_id: str, batch: int) -> Landed | None:
        """Step 1."""
        note = self._note_of(query_id, batch)
        if not note.exists():
            return None
        return _as_landed(self._placed(note), before=True)

    def publish(self, query_id: str, batch: int, drafts: list[Draft]) -> Landed:
        """Steps 4 to 8."""
        self._places.check(drafts)
        mine = self._decide(query_id, batch, self._decision(query_id, batch, drafts))
        decided = self._placed(self._note_of(query_id, batch))
        if mine:
            self._forget(query_id, batch)
        return _as_landed(decided, before=not mine)

    def _decision(self, query_id: str, batch: int, drafts: list[Draft]) -> dict[str, Any]:
        total = landed_from(batch, drafts)
        return {
            "batch": batch,
            "messages": total.messages,
            "file_bytes": total.file_bytes,
            "holes": total.holes,
            "faults": total.faults,
            "files": [
                [self._places.noted(draft), self._places.final(draft, name), draft.file_bytes]
                for draft, name in named(drafts, f"{self._name}-{query_id}-{batch:08d}")
            ],
        }

    def _decide(self, query_id: str, batch: int, decided: dict[str, Any]) -> bool:
        """Steps 4 and 5; False = another run has decided this batch."""
        self._notes.mkdir(parents=True, exist_ok=True)
        note = self._note_of(query_id, batch)
        draft = note.with_suffix(f".{os.getpid()}.draft")
        draft.write_text(json.dumps(decided))
        sync_one(draft)
        try:
            os.link(draft, note)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        sync(self._notes)
        return True

    def _placed(self, note: Path) -> dict[str, Any]:
        with publish_lock(self._table, alone=False):
            return _place(self._table, note)

    def _forget(self, query_id: str, batch: int) -> None:
        kept = {self._note_of(query_id, batch - age).name for age in range(NOTES_KEPT)}
        with publish_lock(self._table, alone=False):  # a compaction reads all of them
            for note in self._notes.iterdir():
                if note.name not in kept:
                    note.unlink()

    def _note_of(self, query_id: str, batch: int) -> Path:
        return self._notes / f"{query_id}-{batch:08d}.json"


def place_decided(table: Table, notes: Path) -> None:
    """Steps 6 to 8 of all batches with a note; needs ``publish_lock``.  Raises FileGone."""
    for note in sorted(notes.glob("*.json")):
        _place(table, note)


def _place(table: Table, note: Path) -> dict[str, Any]:
    """Steps 6 to 8 of one batch, any number of times; returns the note."""
    decided: dict[str, Any] = json.loads(note.read_text())
    if decided.get("placed"):
        return decided
    places = table.places("")

    def put(file: list[Any]) -> None:
        noted, name, *size = file
        if not places.put(noted, name, size[0] if size else None):
            raise FileGone(
                f"{table} lacks {name}, which {note} names as landed, and its draft is gone;"
                " nothing more is acknowledged"
            )

    with ThreadPoolExecutor(PUT_AT_ONCE) as pool:  # a store copies each in its own time
        for _ in pool.map(put, decided["files"]):
            pass
    places.settle([name for _, name, *_ in decided["files"]])
    decided["placed"] = True
    write_synced(note, json.dumps(decided))
    return decided


def _is_there(final: Path, size: int | None) -> bool:
    if size is None:
        return final.exists() or any(final.parent.glob("*-compact-*.parquet"))
    return final.exists() and final.stat().st_size == size


def named(drafts: list[Draft], stem: str) -> list[tuple[Draft, str]]:
    """Each file of a batch with its name in the table, always the same one."""
    files = [draft for draft in drafts if draft.path]
    files.sort(key=lambda draft: (draft.directory, draft.seq_id_min))
    return [
        (draft, os.path.join(draft.directory, f"{stem}-{place:03d}.parquet"))
        for place, draft in enumerate(files)
    ]


def landed_from(batch: int, drafts: list[Draft]) -> Landed:
    return Landed(
        batch,
        sum(draft.messages for draft in drafts),
        sum(draft.file_bytes for draft in drafts),
        sum(draft.holes for draft in drafts),
        before=False,
        files=sum(1 for draft in drafts if draft.path),
        faults=sum(draft.faults for draft in drafts),
    )


def check_drafts(drafts: list[Draft]) -> None:
    missing = next((one.path for one in drafts if one.path and not Path(one.path).exists()), None)
    if missing is not None:
        raise NotShared(
            f"a worker has written {missing}, which is not there on this machine: the table must be"
            " in a directory that this machine and all workers share, at the same path; nothing of"
            " the batch was acknowledged"
        )


def _as_landed(decided: dict[str, Any], *, before: bool) -> Landed:
    return Landed(
        decided["batch"],
        decided["messages"],
        decided["file_bytes"],
        decided["holes"],
        before,
        len(decided["files"]),
        decided.get("faults", 0),
    )
