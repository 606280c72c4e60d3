"""Iceberg tables in an object store: workers write objects, and a batch is there once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.spark.tables.iceberg import IcebergTable
from tests.helpers.object_store import ACCESS_KEY, SECRET_KEY, ObjectStore
from tests.spark.tables.iceberg_tools import (
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
