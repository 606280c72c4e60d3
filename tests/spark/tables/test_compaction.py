"""Compaction of plain tables: the same messages in fewer files, at every moment."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from penstock.cli.pipelines.compact import compact as command
from penstock.spark.tables import compaction
from penstock.spark.tables.compaction import ForeignFiles, NotCompactable, compact
from penstock.spark.tables.publishing import ParquetPublisher
from penstock.spark.tables.table import Table
from pyspark_penstock.table_files import Draft

MB = 1 << 20
QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"


def silent(*_: object) -> None:
    pass


class Writer:
    """Lands batches of ten messages in two partitions, as an archive does."""

    def __init__(self, directory: Path) -> None:
        self.table = Table(directory, "parquet", ("day",))
        self.table.describe(pa.schema([("seq_id", pa.int64())]))
        self._publisher = ParquetPublisher(self.table, "q")
        self._place = self.table.home / "q" / "staging"
        self._place.mkdir(parents=True)
        self.batch = 0

    def land(self) -> None:
        first = self.batch * 10
        drafts = []
        for part, day in enumerate(("day=1", "day=2")):
            seq_ids = list(range(first + part * 5, first + part * 5 + 5))
            path = self._place / f"{self.batch}-{part}.parquet"
            parquet.write_table(pa.table({"seq_id": seq_ids}), path)
            drafts.append(Draft(str(path), day, "[]", 5, 1, seq_ids[0], seq_ids[-1], 0))
        self._publisher.publish(QUERY, self.batch, drafts)
        self.batch += 1


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    writer = Writer(tmp_path / "t")
    for _ in range(6):
        writer.land()
    return writer


def rows(directory: Path) -> list[int]:
    """List, then open: what a reader does; FileNotFoundError is the reader's to repeat."""
    found: list[int] = []
    for day in sorted(directory.glob("day=*")):
        for path in sorted(day.glob("*.parquet")):
            found += parquet.ParquetFile(path).read()["seq_id"].to_pylist()
    return sorted(found)


def test_few_files_hold_the_same_messages_in_order(writer: Writer) -> None:
    table = writer.table.directory
    done = compact(Table.at(table), MB, silent)
    assert (done.partitions, done.files_before, done.files_after, done.messages) == (2, 12, 2, 60)
    assert rows(table) == list(range(60))
    (file,) = (table / "day=2").glob("*.parquet")
    seq_ids = parquet.ParquetFile(file).read()["seq_id"].to_pylist()
    assert seq_ids == sorted(seq_ids)
    assert not list((table / "_penstock" / "compacting").iterdir())
    assert compact(Table.at(table), MB, silent).partitions == 0, "nothing is left to do"


def test_large_files_are_left_alone_and_new_ones_have_the_size(writer: Writer) -> None:
    import os

    big = writer.table.directory / "day=1" / "big.parquet"
    parquet.write_table(pa.table({"seq_id": [1000], "body": [os.urandom(90_000)]}), big)
    before = big.stat()
    done = compact(writer.table, 100_000, silent)
    assert done.files_before == 12
    assert big.stat().st_ino == before.st_ino
    assert 1000 in rows(writer.table.directory)


def test_files_of_another_schema_stay_apart(writer: Writer) -> None:
    day = writer.table.directory / "day=1"
    parquet.write_table(pa.table({"seq_id": [1000], "more": ["x"]}), day / "zz.parquet")
    compact(writer.table, MB, silent)
    names = sorted(len(parquet.read_schema(path).names) for path in day.glob("*.parquet"))
    assert names == [1, 2]
    assert rows(writer.table.directory) == [*range(60), 1000]


def test_a_writer_and_a_reader_beside_it_see_every_message_once(writer: Writer) -> None:
    """The writer lands all the while; whatever it has landed, a reader finds once."""
    table, wrong, looks = writer.table.directory, [], 0
    stopping = threading.Event()

    def write() -> None:
        while not stopping.is_set():
            writer.land()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(12):
            done = threading.Thread(target=lambda: compact(Table.at(table), MB, silent))
            done.start()
            while done.is_alive():
                known = range(writer.batch * 10)
                try:
                    found = rows(table)
                except FileNotFoundError:
                    continue  # it says so, and never answers wrongly
                looks += 1
                if len(set(found)) != len(found) or not set(known) <= set(found):
                    wrong.append((len(known), len(found)))
            done.join()
    finally:
        stopping.set()
        thread.join()
    assert not wrong
    assert looks > 0
    assert rows(table) == list(range(writer.batch * 10))


@pytest.mark.parametrize("step", ["_merged", "publish_lock", "exchange", "Compacted.partition"])
def test_a_crash_leaves_rubbish_at_most(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def crash(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"{compaction.__name__}.{step}", crash)
        with pytest.raises(KeyboardInterrupt):
            compact(writer.table, MB, silent)
    assert rows(writer.table.directory) == list(range(60))
    writer.land()
    compact(writer.table, MB, silent)
    assert rows(writer.table.directory) == list(range(70))
    assert not list((writer.table.home / "compacting").iterdir())


def test_a_table_without_partitions_is_refused_with_the_reason(tmp_path: Path) -> None:
    Table(tmp_path).describe(pa.schema([("seq_id", pa.int64())]))
    for name in "ab":  # with one small file, too
        parquet.write_table(pa.table({"seq_id": [1]}), tmp_path / f"{name}.parquet")
        with pytest.raises(NotCompactable, match=r"beside its notes.*--partition-by"):
            compact(Table.at(tmp_path), MB, silent)
    with pytest.raises(NotCompactable, match="holds no Parquet files"):
        compact(Table.at(tmp_path / "nothing"), MB, silent)


def test_a_table_of_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    """Whoever writes it does not hold our lock: a file that comes during the exchange is lost."""
    day = tmp_path / "day=1"
    day.mkdir()
    for name in "ab":
        parquet.write_table(pa.table({"seq_id": [1]}), day / f"{name}.parquet")
    for only_plan in (True, False):
        with pytest.raises(ForeignFiles, match="was not begun by"):
            compact(Table.at(tmp_path), MB, silent, only_plan=only_plan)
    assert [path.name for path in tmp_path.iterdir()] == ["day=1"]
    assert sorted(path.name for path in day.iterdir()) == ["a.parquet", "b.parquet"]


def test_the_command_plans_and_does(writer: Writer) -> None:
    table = writer.table.directory
    planned = CliRunner().invoke(command, ["--table", str(table), "--dry-run"])
    told = json.loads(planned.output.splitlines()[-1])
    assert (told["dry_run"], told["files_before"]) == (True, 12)
    assert len(list(table.glob("day=*/*"))) == 12
    done = CliRunner().invoke(command, ["--table", str(table)])
    assert done.output.splitlines()[:-1] == ["day=1: 6 files became 1", "day=2: 6 files became 1"]
    assert json.loads(done.output.splitlines()[-1])["messages"] == 60
