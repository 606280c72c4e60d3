"""Several tables of one archive: a crash between any two of them neither loses nor doubles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.tables.landing import LakeTable, Landing
from penstock.spark.tables.parts import SortedOtherwise, SortedTables, Sorting
from penstock.spark.tables.table import DELTA, ICEBERG, PARQUET, Table
from pyspark_penstock.body_columns import BodyDecoding, parse_body_columns
from pyspark_penstock.columns import arrow_schema
from pyspark_penstock.options import DEFAULT_COLUMNS
from pyspark_penstock.sorting import Sorter
from pyspark_penstock.table_files import Draft, Layout
from tests.spark.tables.iceberg_tools import table_in

QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"
DECODED = parse_body_columns("n long not null", ())
ROWS = 30


class PowerCut(BaseException):
    """Nothing behind it runs."""


class Archive:
    """One run of a pipeline, without Spark and broker."""

    def __init__(self, place: Path, format_: str, where: str = "n < 15") -> None:
        self.place = place
        if format_ == ICEBERG:
            main = table_in(place)
            beside = [replace_name(main, name) for name in ("lake.rest", "lake.bad")]
        else:
            main, *beside = (Table(place / name, format_) for name in ("t", "rest", "bad"))
        self.tables: dict[str, LakeTable] = {"": main, "rest": beside[0], "quarantine": beside[1]}
        self.sorting = Sorting(BodyDecoding(DECODED), where, *beside)
        self.layout = Layout(DEFAULT_COLUMNS, decoded=DECODED, with_fault=True)

    def run(self, *, dying_in: str | None = None) -> dict[str, int]:
        """Batch 0, as often as it is called; dies when it is about to land in that table."""

        def landing_in(table: LakeTable) -> Landing:
            return Landing(table, "/", "q", None)

        targets = self.sorting.targets(self.layout, self.tables[""], landing_in)
        meant = SortedTables(targets, self.sorting.note())
        planned(meant.main.landing)
        with meant.begun() as tables:
            landed = tables.main.publisher.landed(QUERY, 0)
            if landed is not None:
                return {}
            with tables.batch(QUERY, 0) as places:
                sorter = Sorter(self.sorting.decoding, places.parts, 0)
                sorter.add(messages())
                drafts = sorter.close()
                for one in tables.targets:
                    if one.name == dying_in:
                        one.publisher.publish = cut  # type: ignore[method-assign]
                _, elsewhere = places.publish(drafts)
            return dict(elsewhere)

    def rows(self) -> dict[str, list[int]]:
        return {name: numbers(table) for name, table in self.tables.items()}


def replace_name(table: Any, name: str) -> Any:
    from dataclasses import replace

    return replace(table, name=name)


def cut(*_: Any) -> Any:
    raise PowerCut


def planned(landing: Landing) -> None:
    notes = landing.checkpoint / "offsets"
    notes.mkdir(parents=True, exist_ok=True)
    (landing.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    offset = {"v": 1, "q": {"q": {"inc": "i", "seq": ROWS}}}
    (notes / "0").write_text("\n".join(["v1", "{}", json.dumps(offset)]))


def messages() -> pa.RecordBatch:
    bodies = [b'{"n": %d}' % n if n % 3 else b"bad" for n in range(ROWS)]
    rows = [{"seq_id": n, "body": body} for n, body in enumerate(bodies)]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(DEFAULT_COLUMNS))


def numbers(table: LakeTable) -> list[int]:
    from pyarrow import parquet

    found = [parquet.read_table(file, columns=["seq_id"])["seq_id"] for file in table.files()]
    return sorted(n for column in found for n in column.to_pylist())


EXPECTED = {
    "": [n for n in range(15) if n % 3],
    "rest": [n for n in range(15, ROWS) if n % 3],
    "quarantine": [n for n in range(ROWS) if not n % 3],
}


@pytest.fixture(params=[PARQUET, DELTA, ICEBERG])
def archive(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> Archive:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Archive(tmp_path, request.param)


@pytest.mark.parametrize("dying_in", ["quarantine", "rest", ""])
def test_a_batch_is_in_every_table_once_whatever_dies(archive: Archive, dying_in: str) -> None:
    with pytest.raises(PowerCut):
        archive.run(dying_in=dying_in)
    assert archive.rows()[""] == []
    assert archive.run() == {"left_out": 0, "rest": 10, "quarantine": 10}
    assert archive.rows() == EXPECTED
    assert archive.run() == {}
    assert archive.rows() == EXPECTED


def test_a_batch_that_may_be_half_landed_is_sorted_as_it_was(tmp_path: Path) -> None:
    archive = Archive(tmp_path, PARQUET)
    with pytest.raises(PowerCut):
        archive.run(dying_in="")
    with pytest.raises(SortedOtherwise) as refused:
        Archive(tmp_path, PARQUET, where="n < 20").run()
    assert "batch 0 of" in str(refused.value)
    assert "--where n < 15" in str(refused.value)
    archive.run()
    assert archive.rows() == EXPECTED
    Archive(tmp_path, PARQUET, where="n < 20").run()
    assert archive.rows() == EXPECTED


def test_what_a_task_counts_is_no_file() -> None:
    assert Draft.figures(holes=3, left_out=4)[7:] == (3, 0, "", 4, "")
