"""Publishing without Spark: what a crash between any two steps leaves, and what it becomes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

from penstock.spark.tables import publishing
from penstock.spark.tables.publishing import FileGone, NotShared, ParquetPublisher
from penstock.spark.tables.table import OtherTable, Table
from pyspark_penstock.options import COLUMNS
from pyspark_penstock.table_files import Draft, Layout, directory_of, table_schema

QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"


class PowerCut(BaseException):
    """Nothing behind it runs."""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "t")


def publisher_of(table: Table) -> ParquetPublisher:
    return ParquetPublisher(table, "q")


def drafts_of(table: Table, *files: list[int], directory: str = "") -> list[Draft]:
    """As workers leave them; each call makes new ones."""
    place = table.home / "q" / "staging" / "run"
    place.mkdir(parents=True, exist_ok=True)
    drafts = [Draft("", "", "[]", 0, 0, 0, 0, 1)]
    for seq_ids in files:
        path = place / f"{os.urandom(4).hex()}.parquet"
        parquet.write_table(pa.table({"seq_id": seq_ids}), path)
        size = path.stat().st_size
        low, high = min(seq_ids), max(seq_ids)
        drafts.append(Draft(str(path), directory, "[]", len(seq_ids), size, low, high, 0))
    return drafts


def rows(table: Table) -> list[int]:
    if not list(table.directory.rglob("*.parquet")):
        return []
    found = dataset.dataset(table.directory, partitioning="hive").to_table(columns=["seq_id"])
    return sorted(found["seq_id"].to_pylist())


def test_a_batch_becomes_files_named_by_query_batch_and_place(table: Table) -> None:
    drafts = drafts_of(table, [5, 6], [3, 4], directory="day=2026-11-21")
    landed = publisher_of(table).publish(QUERY, 12, drafts)
    names = [str(p.relative_to(table.directory)) for p in table.directory.glob("day=*/*")]
    assert sorted(names) == [f"day=2026-11-21/q-{QUERY}-00000012-00{n}.parquet" for n in (0, 1)]
    assert landed._replace(file_bytes=0) == (12, 4, 0, 1, False, 2, 0)
    first = parquet.read_table(table.directory / min(names))
    assert first["seq_id"].to_pylist() == [3, 4], "files are numbered in the queue's order"


def test_a_batch_that_has_landed_is_known_with_its_figures(table: Table) -> None:
    publisher_of(table).publish(QUERY, 0, drafts_of(table, [1, 2]))
    publisher = publisher_of(table)
    landed = publisher.landed(QUERY, 0)
    assert landed is not None
    assert (landed.messages, landed.before, landed.files) == (2, True, 1)
    assert publisher.landed(QUERY, 1) is None
    assert publisher.landed("another-query", 0) is None


def test_of_two_drivers_one_decides(table: Table) -> None:
    """The second was believed dead, and has written the same messages."""
    mine, theirs = publisher_of(table), publisher_of(table)
    assert not mine.publish(QUERY, 0, drafts_of(table, [1, 2])).before
    assert theirs.publish(QUERY, 0, drafts_of(table, [1], [2])).before
    assert rows(table) == [1, 2]


def test_what_a_worker_wrote_elsewhere_is_not_taken_for_landed(table: Table) -> None:
    """A cluster whose workers do not share the table's directory: their drafts are not here."""
    here, elsewhere = drafts_of(table, [1])[1:], drafts_of(table, [2])[1:]
    Path(elsewhere[0].path).unlink()
    with pytest.raises(NotShared, match="that this machine and all workers share"):
        publisher_of(table).publish(QUERY, 0, [*here, *elsewhere])
    assert publisher_of(table).landed(QUERY, 0) is None, "so nothing is acknowledged"
    assert not list(table.directory.glob("*.parquet"))
    publisher_of(table).publish(QUERY, 0, drafts_of(table, [1], [2]))
    assert rows(table) == [1, 2]


STEPS: dict[str, tuple[Any, str]] = {
    "before the note is written": (Path, "write_text"),
    "before the note is linked": (os, "link"),
    "before the first rename": (Path, "rename"),
    "before the second rename": (Path, "rename"),
    "before the directories are synced": (publishing, "sync"),
    "before all are noted as placed": (publishing, "write_synced"),
    "before old notes are forgotten": (ParquetPublisher, "_forget"),
}
UNDECIDED = {"before the note is written", "before the note is linked"}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("repair", ["recover", "call again"])
def test_a_crash_at_any_step_is_made_good(
    table: Table, monkeypatch: pytest.MonkeyPatch, step: str, repair: str
) -> None:
    publisher_of(table).publish(QUERY, 0, drafts_of(table, [0]))
    _crash(monkeypatch, step, lambda: publisher_of(table).publish(QUERY, 1, _two(table)))
    publisher = publisher_of(table)  # the next start
    if repair == "recover":
        publisher.recover()
        assert rows(table) == ([0] if step in UNDECIDED else [0, 1, 2, 3])
    before = publisher.landed(QUERY, 1)
    assert (before is None) == (step in UNDECIDED)
    if before is None:
        publisher.publish(QUERY, 1, _two(table))
    assert rows(table) == [0, 1, 2, 3]
    publisher.recover()
    assert rows(table) == [0, 1, 2, 3]


def _two(table: Table) -> list[Draft]:
    return drafts_of(table, [1, 2], [3])


def _crash(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], object]) -> None:
    target, name = STEPS[step]
    real = getattr(target, name)
    calls = iter([True]) if "second" in step else iter(())

    def cut(*arguments: Any, **named: Any) -> Any:
        if next(calls, False):
            return real(*arguments, **named)
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(target, name, cut)
        with pytest.raises(PowerCut):
            act()


def _killed_between_renames(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    drafts = drafts_of(table, [1, 2], [3], directory="day=x")
    _crash(
        monkeypatch,
        "before the second rename",
        lambda: publisher_of(table).publish(QUERY, 0, drafts),
    )


def test_a_table_that_was_moved_is_completed(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill came between two renames, and the directory has another path at the next start."""
    _killed_between_renames(table, monkeypatch)
    moved = Table(table.directory.rename(tmp_path / "moved"))
    publisher = publisher_of(moved)
    publisher.recover()
    assert rows(moved) == [1, 2, 3]
    assert publisher.landed(QUERY, 0) is not None


def test_a_table_of_release_0_1_0_that_was_moved_is_completed(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its notes have absolute paths and no sizes."""
    _killed_between_renames(table, monkeypatch)
    (note,) = (table.home / "q" / "landed").glob("*.json")
    decided = json.loads(note.read_text())
    decided["files"] = [[str(table.directory / draft), name] for draft, name, _ in decided["files"]]
    note.write_text(json.dumps(decided))
    moved = Table(table.directory.rename(tmp_path / "moved"))
    publisher_of(moved).recover()
    assert rows(moved) == [1, 2, 3]


@pytest.mark.parametrize("lost", ["draft", "final"])
def test_a_file_that_is_gone_without_its_draft_is_an_error(
    table: Table, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Gone is no proof of renamed: the messages would be acknowledged and lost."""
    _killed_between_renames(table, monkeypatch)
    where = table.home.glob("q/staging/*/*") if lost == "draft" else table.directory.glob("day=x/*")
    for path in where:
        path.unlink()
    with pytest.raises(FileGone, match=r"which .*json names as landed"):
        publisher_of(table).recover()
    with pytest.raises(FileGone):
        publisher_of(table).landed(QUERY, 0)


def test_a_batch_that_was_placed_is_not_looked_for_again(table: Table) -> None:
    """Its files may have been compacted, or taken away with an old partition."""
    publisher_of(table).publish(QUERY, 0, drafts_of(table, [1], directory="day=x"))
    for path in table.directory.glob("day=x/*"):
        path.unlink()
    publisher = publisher_of(table)
    publisher.recover()
    assert publisher.landed(QUERY, 0) is not None


def test_notes_do_not_pile_up(table: Table) -> None:
    publisher = publisher_of(table)
    for batch in range(5):
        publisher.publish(QUERY, batch, drafts_of(table, [batch]))
    notes = sorted(path.name for path in (table.home / "q" / "landed").iterdir())
    assert notes == [f"{QUERY}-0000000{n}.json" for n in (3, 4)]


# -- is it the table that was meant? ---------------------------------------------------------

SCHEMA = pa.schema([("seq_id", pa.int64()), ("body", pa.binary())])


def test_a_new_table_is_described_and_then_held_to_it(tmp_path: Path) -> None:
    table = Table(tmp_path, "parquet", ("day",))
    table.check(SCHEMA)
    table.describe(SCHEMA)
    Table(tmp_path, "parquet", ("day",)).check(SCHEMA)
    with pytest.raises(OtherTable, match="other partition by: day, not none"):
        Table(tmp_path).check(SCHEMA)
    with pytest.raises(OtherTable, match="it lacks type"):
        table.check(SCHEMA.append(pa.field("type", pa.string())))
    with pytest.raises(OtherTable, match="of another type seq_id"):
        table.check(SCHEMA.set(0, pa.field("seq_id", pa.int32())))


@pytest.mark.parametrize("partition_by", [(), ("day", "routing_key")])
def test_a_table_without_its_notes_is_known_by_a_file_of_its_own(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    """Parquet gives other names back to the parts of a map."""
    schema = table_schema(Layout(COLUMNS, partition_by))
    place = tmp_path / directory_of(partition_by, ("x",) * len(partition_by))
    place.mkdir(parents=True, exist_ok=True)
    parquet.write_table(schema.empty_table(), place / "q-0.parquet")
    Table(tmp_path, "parquet", partition_by).check(schema)
    other = schema.set(
        schema.names.index("headers"), pa.field("headers", pa.map_("string", "int8"))
    )
    with pytest.raises(OtherTable, match="of another type headers"):
        Table(tmp_path, "parquet", partition_by).check(other)


def test_a_delta_table_may_have_files_before_its_first_transaction(tmp_path: Path) -> None:
    """A crash came between the first files and the commit."""
    table = Table(tmp_path, "delta")
    table.check(SCHEMA)
    table.describe(SCHEMA)
    parquet.write_table(pa.table({"seq_id": [1]}), tmp_path / "q-0.parquet")
    table.check(SCHEMA)


def test_somebody_elses_files_are_looked_at(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"name": ["x"]}), tmp_path / "people.parquet")
    with pytest.raises(OtherTable, match="it lacks body, seq_id; it has besides name"):
        Table(tmp_path).check(SCHEMA)
    with pytest.raises(OtherTable, match="holds plain Parquet files"):
        Table(tmp_path, "delta").check(SCHEMA)
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(OtherTable, match="is a Delta table"):
        Table(tmp_path).check(SCHEMA)
