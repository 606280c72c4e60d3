"""What ``penstock pipeline doctor`` finds, and what it says mends it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyspark  # noqa: F401
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from penstock.cli.main import cli
from penstock.spark.reports import doctor
from penstock.spark.reports.doctor import (
    ERROR,
    NOTED,
    WARNING,
    Finding,
    examine_place,
    examine_table,
    worst,
)
from penstock.spark.state.places import alone
from penstock.spark.tables.table import Table
from penstock_ranges import frames
from penstock_ranges.ranges import Head, Opened
from pyspark_penstock.client import ConnectionLost, Refused
from tests.spark.tables.iceberg_tools import table_in

SCHEMA = pa.schema([("body", pa.binary())])


def place_in(table: Path, end: int = 100, *, committed: bool = True) -> Path:
    """What an archive of queue ``q`` has left after its batch 0, which ends before ``end``."""
    home = table / "_penstock" / "q"
    for kind in ("offsets", "commits"):
        (home / "checkpoint" / kind).mkdir(parents=True)
    (home / "checkpoint" / "metadata").write_text(json.dumps({"id": "5f0c"}))
    position = json.dumps({"v": 1, "q": {"q": {"inc": "life", "seq": end, "holes": 0}}})
    (home / "checkpoint" / "offsets" / "0").write_text(f"v1\n{{}}\n{position}")
    if committed:
        (home / "checkpoint" / "commits" / "0").write_text("v1\n{}")
    return home


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "t", partition_by=("day",))
    table.home.mkdir(parents=True)
    table.describe(SCHEMA)
    (table.directory / "day=1").mkdir()
    parquet.write_table(SCHEMA.empty_table(), table.directory / "day=1" / "a.parquet")
    return table


def queue(floor: int, next_seq: int, incarnation: str = "life") -> Callable[[str], Opened]:
    return lambda _: Opened(incarnation, Head(floor, floor, next_seq, next_seq - floor), 0)


def refusing(error: Exception) -> Callable[[str], Opened]:
    def look(_: str) -> Opened:
        raise error

    return look


def found(table: Table, look: Callable[[str], Opened] | None = None) -> list[Finding]:
    return list(examine_table(table, look))


def test_a_healthy_table_has_no_findings(table: Table) -> None:
    place_in(table.directory)
    assert found(table, queue(100, 120)) == []
    assert worst([]) == ""


@pytest.mark.parametrize(
    "look, level, text, cure",
    [
        (queue(100, 120, "other"), ERROR, "deleted and declared again", "--accept-data-loss"),
        (queue(10, 20), ERROR, "its broker is older than the table", "--accept-data-loss"),
        (queue(110, 120), WARNING, "between 100 and 110", "run the pipeline's command again"),
        (
            refusing(Refused(frames.NOT_FOUND, "no queue 'q' in vhost '/'")),
            ERROR,
            "no queue 'q'",
            "declare it, then",
        ),
        (
            refusing(Refused(frames.ACCESS_REFUSED, "access to queue 'q' refused")),
            ERROR,
            "access to queue",
            "have an administrator grant it",
        ),
        (refusing(ConnectionLost("cannot connect")), ERROR, "cannot connect", "start the broker"),
    ],
)
def test_a_queue_that_does_not_fit_its_checkpoint(
    table: Table, look: Callable[[str], Opened], level: str, text: str, cure: str
) -> None:
    place_in(table.directory)
    (one,) = found(table, look)
    assert one.level == level
    assert text in one.text
    assert cure in one.cure


def test_numbers_of_the_next_master_are_not_taken_by_others(table: Table) -> None:
    place_in(table.directory)
    assert found(table, queue(1 << 40, 2 << 40)) == []


def test_what_a_kill_has_left_is_told_unless_a_pipeline_runs(table: Table) -> None:
    home = place_in(table.directory, committed=False)
    (home / "checkpoint" / "offsets" / ".1.uuid.tmp").touch()
    (home / "staging" / "x").mkdir(parents=True)
    (home / "staging" / "x" / "draft.parquet").write_bytes(b"12345")
    texts = {one.text: one.level for one in found(table)}
    assert texts == {
        "a kill has left 1 drafts of Spark's notes": WARNING,
        "batch 0 was planned, and Spark does not know that it is done": NOTED,
        "a killed run has left 1 drafts of 5 bytes": WARNING,
    }
    with alone(home / "lock", "held"):
        assert [one.text for one in found(table)] == ["a pipeline runs here"]


def test_notes_that_cannot_be_read_are_errors(table: Table) -> None:
    home = place_in(table.directory)
    (home / "landed").mkdir()
    (home / "landed" / "5f0c-00000000.json").write_text('{"batch"')
    (home / "checkpoint" / "offsets" / "0").write_text("v1\n{}\n")
    assert [one.level for one in found(table)] == [ERROR, ERROR]
    (home / "checkpoint" / "offsets" / "0").unlink()
    (home / "landed" / "5f0c-00000000.json").unlink()
    assert found(table) == []


def test_files_that_no_reader_can_open_are_named(table: Table) -> None:
    empty, cut = (table.directory / "day=1" / name for name in ("b.parquet", "c.parquet"))
    empty.touch()
    cut.write_bytes(b"PAR1 and then the power was cut")
    assert [Path(one.subject) for one in found(table)] == [empty, cut]
    assert all(one.level == ERROR and "no whole Parquet" in one.text for one in found(table))


def test_small_files_lead_to_compact_where_it_works(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "SMALL_FILES", 1)
    shutil.copy(table.directory / "day=1" / "a.parquet", table.directory / "day=1" / "b.parquet")
    (one,) = found(table)
    assert one.cure == f"penstock pipeline compact --table {table.directory}"
    for file in (table.directory / "day=1").iterdir():
        file.rename(table.directory / file.name)
    (one,) = found(table)
    assert "has no partitions" in one.cure


def test_a_place_without_a_table_and_a_table_that_is_not_there(tmp_path: Path) -> None:
    home = place_in(tmp_path)
    assert list(examine_place(home, queue(100, 100))) == []
    assert [one.text for one in found(Table(tmp_path / "nothing"))] == ["there is no table"]
    (one,) = examine_table(table_in(tmp_path), None)
    assert (one.level, one.text) == (ERROR, "the catalog has no such table")


def test_a_log_of_delta_that_a_power_cut_has_emptied(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "00000000000000000000.json").touch()
    (one,) = found(Table.at(tmp_path))
    assert one.text.startswith("the log of Delta cannot be read")


def test_the_command_ends_with_1_for_errors_only(table: Table) -> None:
    command = ["pipeline", "doctor", "--offline", "--table", str(table.directory)]
    done = CliRunner().invoke(cli, command)
    assert (done.exit_code, json.loads(done.output)["worst"]) == (0, "nothing")
    (table.directory / "day=1" / "b.parquet").touch()
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1
    assert "fix: restore it" in done.output
    done = CliRunner().invoke(cli, [*command, "-o", "json"])
    assert json.loads(done.output)["worst"] == "error"
