"""What counts as landed is on the disk, in tables of all formats: no fsync, no acknowledgement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyarrow import dataset
from pyiceberg.table import Transaction

from penstock.spark.state import notes as spark_notes
from penstock.spark.tables.compaction import compact
from penstock.spark.tables.delta import DeltaPublisher
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.landing import LakeTable, Landing, Publisher
from penstock.spark.tables.parts import publisher_of
from penstock.spark.tables.publishing import ParquetPublisher
from penstock.spark.tables.table import DELTA, ICEBERG, PARQUET, Table
from pyspark_penstock.columns import arrow_schema
from pyspark_penstock.durable import sync_note
from pyspark_penstock.table_files import Draft, DraftWriter, Layout
from tests.spark.forgetful_disk import ForgetfulDisk
from tests.spark.tables.iceberg_tools import seq_ids, table_in

FORMATS = (PARQUET, DELTA, ICEBERG)
QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"
LAYOUT = Layout(("seq_id", "queue", "routing_key"), ("queue", "routing_key"))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgetfulDisk]:
    disk = ForgetfulDisk(tmp_path / "disk", monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(disk.root))
    yield disk
    disk.close()


class Archive:
    """What an archive does, without Spark: drafts by a worker, Spark's note, publishing."""

    def __init__(self, lake: Path, kind: str) -> None:
        lake.mkdir(parents=True, exist_ok=True)
        self.table: LakeTable = (
            table_in(lake, *LAYOUT.partition_by)
            if kind == ICEBERG
            else Table(lake, kind, LAYOUT.partition_by)
        )
        self.landing = Landing(self.table, "/", "q", None)

    def publisher(self) -> Publisher:
        return publisher_of(self.table, LAYOUT, "q")

    def land(self, *batches: int) -> None:
        for batch in batches:
            drafts = self.drafts(batch)
            self.plan(batch)
            self.publisher().publish(QUERY, batch, drafts)

    def drafts(self, batch: int) -> list[Draft]:
        publisher = self.publisher()
        layout = publisher.begin(LAYOUT)
        with publisher.drafts_dir(QUERY, batch) as drafts_dir:
            writer = DraftWriter(layout, f"{drafts_dir}-kept", batch)
        columns = {
            "seq_id": [batch * 2, batch * 2 + 1],
            "queue": ["q"] * 2,
            "routing_key": ["ab"] * 2,
        }
        schema = arrow_schema(LAYOUT.columns)
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
        writer.add(pa.RecordBatch.from_arrays(arrays, schema=schema))
        return writer.close()

    def plan(self, batch: int) -> None:
        """Spark makes the checkpoint with the directories above it, and syncs nothing."""
        notes = self.landing.checkpoint / "offsets"
        notes.mkdir(parents=True, exist_ok=True)
        (self.landing.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
        offset = {"v": 1, "q": {"q": {"inc": "i", "seq": batch * 2 + 2}}}
        (notes / str(batch)).write_text("\n".join(["v1", "{}", json.dumps(offset)]))
        sync_note(self.landing.checkpoint, batch)

    def rows(self) -> list[int]:
        if isinstance(self.table, IcebergTable):
            return seq_ids(self.table)
        assert isinstance(self.table, Table)
        if self.table.format == DELTA:
            found = deltalake.DeltaTable(self.table.directory).to_pyarrow_table()
        else:
            found = dataset.dataset(self.table.directory, partitioning="hive").to_table()
        return sorted(found["seq_id"].to_pylist())


@pytest.mark.parametrize("kind", FORMATS)
def test_a_landed_batch_is_there_after_a_power_cut(
    disk: ForgetfulDisk, tmp_path: Path, kind: str
) -> None:
    Archive(disk.root / "a" / "lake", kind).land(0, 1)
    disk.cut_in_place()
    after = Archive(disk.root / "a" / "lake", kind)
    assert after.rows() == [0, 1, 2, 3]
    publisher = after.publisher()
    publisher.recover()
    assert spark_notes.query_id(after.landing.checkpoint) == QUERY
    assert after.landing.landed_below(publisher) == {"q": 4}
    after.land(2)
    assert after.rows() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", FORMATS)
def test_what_a_killed_run_has_decided_is_synced_before_it_counts(
    disk: ForgetfulDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Killed behind the step that decides; the next start finds the batch, then comes the cut."""
    lake = disk.root / "lake"
    archive = Archive(lake, kind)
    archive.land(0)
    drafts = archive.drafts(1)
    archive.plan(1)
    decides: tuple[Any, str] = {
        PARQUET: (ParquetPublisher, "_decide"),
        DELTA: (DeltaPublisher, "_commit"),
        ICEBERG: (Transaction, "commit_transaction"),
    }[kind]
    real = getattr(*decides)

    def killed(*arguments: Any) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*decides, killed)
        with pytest.raises(KeyboardInterrupt):
            archive.publisher().publish(QUERY, 1, drafts)
    again = archive.publisher()
    again.recover()
    assert again.landed(QUERY, 1) is not None
    disk.cut_in_place()
    assert Archive(lake, kind).rows() == [0, 1, 2, 3]


def test_a_decided_batch_outlives_a_power_cut_before_its_files_have_their_names(
    disk: ForgetfulDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(disk.root / "lake", PARQUET)
    archive.land(0)
    drafts = archive.drafts(1)

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", cut)
    with pytest.raises(KeyboardInterrupt):
        archive.publisher().publish(QUERY, 1, drafts)
    monkeypatch.undo()
    after = Archive(disk.cut(tmp_path / "after") / "lake", PARQUET)
    after.publisher().recover()
    assert after.rows() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_compacted_table_is_there_after_a_power_cut(
    disk: ForgetfulDisk, tmp_path: Path, kind: str
) -> None:
    archive = Archive(disk.root / "lake", kind)
    archive.land(0, 1, 2)
    done = compact(archive.table, 1 << 20, lambda *_: None, vacuum_hours=168)
    assert (done.files_before, done.files_after) == (3, 1)
    disk.cut_in_place()
    after = Archive(disk.root / "lake", kind)
    assert after.rows() == [0, 1, 2, 3, 4, 5]
    after.publisher().recover()
    after.land(3)
    assert after.rows() == [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("left", [b"", b'{"add":{"pa'])
def test_an_entry_of_the_log_that_a_power_cut_left_half_written_is_taken_away(
    tmp_path: Path, batches: int, left: bytes
) -> None:
    """The cut came between the commit and its fsync: the batch was not acknowledged."""
    archive = Archive(tmp_path / "lake", DELTA)
    archive.land(*range(batches))
    last = max((tmp_path / "lake" / "_delta_log").glob("*.json"))
    last.write_bytes(left)
    publisher = archive.publisher()
    publisher.recover()
    assert publisher.landed(QUERY, batches - 1) is None
    archive.land(batches - 1)
    assert archive.rows() == list(range(batches * 2))
