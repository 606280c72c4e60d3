"""Change events into a table with a row per key: as a dictionary would have it, whatever dies."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.tables.landing import LakeTable, Landing
from penstock.spark.tables.merging import CannotMerge, Merge, last_of_each_key
from penstock.spark.tables.parts import SortedTables, Sorting, Target
from penstock.spark.tables.store import StoreTable
from penstock.spark.tables.table import DELTA, ICEBERG, PARQUET, Table
from pyspark_penstock.body_columns import BodyDecoding, parse_body_columns
from pyspark_penstock.columns import arrow_schema
from pyspark_penstock.options import DEFAULT_COLUMNS
from pyspark_penstock.sorting import Sorter
from pyspark_penstock.store_file import path_in, system_of
from pyspark_penstock.table_files import Layout
from tests.helpers.object_store import ObjectStore
from tests.spark.tables.iceberg_tools import table_in

IN_STORE = "delta in an object store"
QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"
DECODED = parse_body_columns(
    "id long not null from after.id|before.id, name string from after.name, op string", ()
)


def event(op: str, key: int | None, name: str = "") -> bytes:
    row = None if key is None else {"id": key, "name": name}
    before, after = (row, None) if op == "d" else (None, row)
    return json.dumps({"op": op, "before": before, "after": after}).encode()


class Merging:
    """One pipeline, without Spark and broker."""

    def __init__(self, place: Path, format_: str) -> None:
        bad: LakeTable
        self.table: LakeTable
        if format_ == ICEBERG:
            self.table, bad = table_in(place), Table(place / "bad")
        elif format_ == IN_STORE:
            self.table, bad = (
                StoreTable.of(f"s3://lake/{place.name}/{name}", DELTA, ()) for name in ("t", "bad")
            )
        else:
            self.table, bad = Table(place / "t", format_), Table(place / "bad", format_)
        self.sorting = Sorting(
            BodyDecoding(DECODED), quarantine=bad, merge_on=("id",), delete_where="op = 'd'"
        )
        self.seq_id = 0

    def targets(self) -> tuple[Target, ...]:
        layout = Layout(DEFAULT_COLUMNS, decoded=DECODED, with_fault=True)
        return self.sorting.targets(layout, self.table, lambda one: Landing(one, "/", "q", None))

    def land(self, batch: int, bodies: list[bytes]) -> bool:
        """False = it had landed before."""
        with SortedTables(self.targets(), self.sorting.note()).begun() as tables:
            if tables.main.publisher.landed(QUERY, batch) is not None:
                return False
            with tables.batch(QUERY, batch) as places:
                sorter = Sorter(self.sorting.decoding, places.parts, batch)
                rows = [
                    {"seq_id": self.seq_id + n, "body": body, "headers": [("n", str(n))]}
                    for n, body in enumerate(bodies)
                ]
                sorter.add(pa.RecordBatch.from_pylist(rows, arrow_schema(DEFAULT_COLUMNS)))
                places.publish(sorter.close())
        self.seq_id += len(bodies)
        return True

    def rows(self) -> dict[int, str]:
        from pyarrow import parquet

        found: list[tuple[int, str]] = []
        for file in self.table.files():
            system = system_of(file) if "://" in file else None
            path = path_in(file) if system else file
            columns = parquet.read_table(
                path, columns=["id", "name"], filesystem=system, partitioning=None
            )
            found.extend(tuple(row.values()) for row in columns.to_pylist())
        assert len(dict(found)) == len(found), "a key has one row"
        return dict(found)


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture(params=[DELTA, ICEBERG, IN_STORE])
def merging(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> Merging:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if request.param == IN_STORE:
        store: ObjectStore = request.getfixturevalue("shared_store")
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
    return Merging(tmp_path, request.param)


def test_a_table_is_what_a_dictionary_would_be(merging: Merging) -> None:
    chance, model = random.Random(3), dict[int, str]()
    for batch in range(3):
        bodies = [b"no event", event("c", None)]
        for n in range(20):
            op, key, name = chance.choice("ccud"), chance.randrange(8), f"{batch}.{n}"
            bodies.append(event(op, key, name))
            if op == "d":
                model.pop(key, None)
            else:
                model[key] = name
        assert merging.land(batch, bodies)
        assert merging.rows() == model


def test_batches_that_change_nothing_have_landed_too(merging: Merging) -> None:
    for batch, bodies in enumerate([[event("d", 7)], [event("c", 1, "a")], []]):
        assert merging.land(batch, bodies)
        assert not merging.land(batch, bodies)
    assert merging.rows() == {1: "a"}


def test_drafts_in_a_store_are_taken_away(shared_store: ObjectStore, merging: Merging) -> None:
    merging.land(0, [event("c", 1, "a"), event("d", 2)])
    merging.land(1, [event("u", 1, "b")])
    left = [path for path in shared_store.objects.rglob("*.parquet") if "_penstock" in path.parts]
    assert left == []


def test_files_that_a_power_cut_took_are_merged_again(tmp_path: Path) -> None:
    """deltalake syncs nothing: its log may name files that never came to the disk."""
    merging = Merging(tmp_path, DELTA)
    merging.land(0, [event("c", 1, "a"), event("c", 2, "b")])
    note = next(tmp_path.rglob("merged.json"))
    before = note.read_text()
    merging.land(1, [event("u", 1, "new"), event("d", 2)])
    note.write_text(before)  # the cut came before what was to be acknowledged was synced
    (newest,) = merging.table.files()
    Path(newest).write_bytes(b"")
    assert merging.land(1, [event("u", 1, "new"), event("d", 2)])
    assert merging.rows() == {1: "new"}
    Path(merging.table.files()[0]).write_bytes(b"")
    assert not merging.land(1, []), "what was acknowledged is not taken away"


def test_the_last_message_of_a_key_counts_whatever_the_order_of_files() -> None:
    rows = pa.table({"seq_id": [5, 1, 4, 2], "a": [1, 1, 2, 2], "b": ["x", "x", "y", "z"]})
    found = last_of_each_key(rows, Merge(("a", "b"))).sort_by("seq_id")
    assert found["seq_id"].to_pylist() == [2, 4, 5]
    assert set(found["penstock_deleted"].to_pylist()) == {False}


@pytest.mark.parametrize(
    "change, told",
    [
        ({"table": Table(Path("/t"), PARQUET)}, "is of plain files"),
        ({"table": Table(Path("/t"), DELTA, ("day",))}, "has no partitions"),
        ({"merge_on": ("name",)}, "name may be null"),
        ({"merge_on": ("nix",)}, "nix may be null, or is no column"),
        ({"quarantine": None}, "id may be null"),
    ],
)
def test_what_cannot_be_merged_is_refused(tmp_path: Path, change: Any, told: str) -> None:
    given = {"quarantine": Table(tmp_path / "bad", DELTA), "merge_on": ("id",)} | change
    table = given.pop("table", Table(tmp_path / "t", DELTA))
    sorting = Sorting(BodyDecoding(DECODED), **given)
    layout = Layout(DEFAULT_COLUMNS, decoded=DECODED, with_fault=True)
    with pytest.raises(CannotMerge) as refused:
        sorting.targets(layout, table, lambda one: Landing(one, "/", "q", None))
    assert told in str(refused.value)
