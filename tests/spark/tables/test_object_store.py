"""Iceberg tables in an object store: workers write objects, and a batch is there once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import parquet

from penstock.spark.jobs.replay import CannotReplay, ReplayJob, _readable
from penstock.spark.tables.copies import ROOM_LEFT_BYTES, copy_table
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.table import data_files as data_files_of
from tests.helpers.object_store import ACCESS_KEY, SECRET_KEY, ObjectStore
from tests.spark.tables.iceberg_tools import (
    BEGAN,
    QUERY,
    Pipeline,
    data_files,
    messages,
    seq_ids,
    table_in,
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path / "store") as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        yield store


@pytest.fixture
def table(store: ObjectStore, tmp_path: Path) -> IcebergTable:
    table = table_in(tmp_path, "day", warehouse="s3://lake/w")
    return replace(table, given=(*table.given, *store.properties.items()))


def test_batches_are_objects_and_land_once(
    table: IcebergTable, store: ObjectStore, capfd: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline(table)
    landed = pipeline.land(0, messages(0, 1, 2, 3))
    assert (landed.messages, landed.files) == (4, 2)
    pipeline.land(1, messages(4))
    assert Pipeline(table).publisher.landed(QUERY, 1)
    assert seq_ids(table) == [0, 1, 2, 3, 4]
    assert all(file.startswith("s3://lake/w/lake/orders/data/") for file in table.files())
    assert len(data_files(store.objects)) == 3 == len(table.files())
    told = "".join((*capfd.readouterr(), repr(pipeline.layout), str(table), repr(table)))
    assert ACCESS_KEY not in told
    assert SECRET_KEY not in told


def test_its_files_are_copied_for_a_replay(table: IcebergTable, tmp_path: Path) -> None:
    """Those of other times stay there, but for the first."""
    pipeline = Pipeline(table)
    for batch in range(3):  # of an hour each
        pipeline.land(batch, messages(batch))
    place = tmp_path / "files"
    lines: list[str] = []
    copy_table(table, place, None, None, lines.append)
    assert re.fullmatch(r"3 of 3 files copied: [0-9.,]+ MB", lines.pop())
    found = [parquet.read_table(file) for file in data_files_of(place)]
    assert sorted(n for one in found for n in one["seq_id"].to_pylist()) == [0, 1, 2]
    copy_table(table, place, BEGAN + timedelta(hours=1, minutes=30), None, lines.append)
    assert len(list(data_files_of(place))) == 2
    assert lines.pop().startswith("2 of 3 files copied")


def test_a_copy_that_would_fill_the_disk_is_not_begun(
    table: IcebergTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pipeline(table).land(0, messages(0))
    room = SimpleNamespace(free=ROOM_LEFT_BYTES + 100)
    monkeypatch.setattr("penstock.spark.tables.copies.disk_usage", lambda _: room)
    job = ReplayJob("amqp://x", "local[1]", table, "r", {"queue": "q"})
    with pytest.raises(CannotReplay, match="would leave less than 1 GiB") as refused:
        _readable(job, "files", anew=True)
    assert "has room" in refused.value.fix
    assert not list(job.home.rglob("*.parquet"))


def test_a_store_that_dies_before_the_commit_costs_nothing(
    table: IcebergTable, store: ObjectStore
) -> None:
    pipeline = Pipeline(table)
    pipeline.land(0, messages(1))
    drafts = pipeline.drafts(1, messages(2, 3))
    store.kill()
    with pytest.raises(OSError):
        pipeline.publisher.publish(QUERY, 1, drafts)
    store.start()
    assert pipeline.publisher.landed(QUERY, 1) is None
    pipeline.land(1, messages(2, 3))
    assert seq_ids(table) == [1, 2, 3]
    assert len(data_files(store.objects)) == 2, "those of the first try are gone"


def test_wrong_keys_are_told_by_their_cause(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pipeline(table).land(0, messages(1))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(OSError, match=r"(?i)signature|access.denied") as refused:
        table.opened()
    assert "wrong" not in str(refused.value)
