"""Which table the options of a pipeline mean."""

from __future__ import annotations

from pathlib import Path

import click
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from penstock.cli.pipelines.lake import CATALOG_WORDS, _partitions, meant_table
from penstock.spark.tables.table import DELTA, PARQUET, Table

NOTHING: dict[str, str | None] = dict.fromkeys(CATALOG_WORDS)


def test_a_directory_has_its_own_format_or_the_one_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    for name, kind in (("delta", DELTA), ("other", PARQUET)):
        assert meant_table(tmp_path / name, None, NOTHING, flag="--to").format == kind
    begun = meant_table(
        tmp_path, None, NOTHING, flag="--to", table_format=DELTA, partition_by=("day",)
    )
    assert begun == Table(tmp_path, DELTA, ("day",))


def test_paths_of_a_catalog_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = NOTHING | {"catalog_uri": "sqlite:///c.db", "warehouse": "w"}
    table = meant_table(None, "lake.orders", words, flag="--to")
    assert str(table) == "lake.orders of catalog default"
    assert dict(getattr(table, "given")) == {  # noqa: B009 - of Iceberg tables only
        "uri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": (tmp_path / "w").as_uri(),
    }


@pytest.mark.parametrize(
    "directory,name,words,told",
    [
        (None, None, {}, "say which table by one of --to and --table"),
        ("d", "lake.orders", {}, "say which table by one of --to and --table"),
        ("d", None, {"catalog_uri": "sqlite:///c.db"}, "--catalog-uri belongs to --table"),
        ("d", None, {"warehouse": "w"}, "--warehouse belongs to --table"),
        (None, "orders", {}, "'orders' is not a name such as lake.orders"),
        (None, "lake.", {}, "'lake.' is not a name such as lake.orders"),
        (None, "lake.orders", {"warehouse": "hdfs://h/x"}, "hdfs:// is none of a directory, s3"),
        (None, "lake.orders", {"catalog_uri": "postgresql://u:secret@h/d"}, "give --catalog NAME"),
    ],
)
def test_wrong_words_are_told(
    directory: str | None, name: str | None, words: dict[str, str], told: str
) -> None:
    place = None if directory is None else Path(directory)
    with pytest.raises(click.UsageError, match=told) as refused:
        meant_table(place, name, NOTHING | words, flag="--to")
    assert "secret" not in str(refused.value)


def test_partitions_that_are_not_said_are_those_of_the_table(tmp_path: Path) -> None:
    """A new plain table that gets a file each so often must be one that can be compacted."""
    begun = Table(tmp_path / "begun", PARQUET, ("type",))
    begun.home.mkdir(parents=True)
    begun.describe(pa.schema([("body", pa.binary())]))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "1.parquet").touch()
    for name, endless, expected in (
        ("begun", True, ("type",)),
        ("begun", False, ("type",)),
        ("new", True, ("day",)),
        ("new", False, ()),
        ("foreign", True, ()),
    ):
        assert _partitions(tmp_path / name, endless=endless) == expected, name
    assert _partitions(None, endless=True) == ()


def test_a_table_that_was_begun_without_a_column_stays_so(tmp_path: Path) -> None:
    assert not Table(tmp_path).lacks("life")
    pq.write_table(pa.table({"body": [b"x"]}), tmp_path / "1.parquet")
    assert Table(tmp_path).lacks("life")
    assert not Table(tmp_path).lacks("body")
    begun = Table(tmp_path, PARQUET, ("type",))
    begun.home.mkdir()
    begun.describe(pa.schema([("life", pa.string())]))
    assert not begun.lacks("life")
    assert not begun.lacks("type")
    assert begun.lacks("body")
