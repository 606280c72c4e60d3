"""A worker's part of writing a table, without Spark: partitions, file sizes, memory, claims."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

from penstock.cli.pipelines import archive
from pyspark_penstock import table_files
from pyspark_penstock.columns import arrow_schema
from pyspark_penstock.table_files import Draft, DraftWriter, Layout, directory_of

COLUMNS = ("seq_id", "body", "queue", "routing_key", "enqueued_at")
EVE = datetime(2026, 11, 20, 23, 59, 59, tzinfo=UTC)
MORNING = datetime(2026, 11, 21, 0, 0, 1, tzinfo=UTC)


def messages(
    seq_ids: list[int], *, times: list[datetime] | None = None, keys: list[Any] | None = None,
    body: bytes = b"x",
) -> Any:  # fmt: skip
    count = len(seq_ids)
    columns = {
        "seq_id": seq_ids,
        "body": [body] * count,
        "queue": ["orders"] * count,
        "routing_key": keys or ["k"] * count,
        "enqueued_at": times or [MORNING] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=arrow_schema(COLUMNS))


def written(tmp_path: Path, layout: Layout, *batches: Any) -> list[Draft]:
    writer = DraftWriter(layout, str(tmp_path / "drafts"), 7)
    for batch in batches:
        writer.add(batch)
    return writer.close()


def seq_ids(draft: Draft) -> list[int]:
    found: list[int] = parquet.read_table(draft.path)["seq_id"].to_pylist()
    return found


def test_a_file_has_the_columns_and_the_batch(tmp_path: Path) -> None:
    (draft,) = written(tmp_path, Layout(COLUMNS), messages([1, 2]), messages([5]))
    assert seq_ids(draft) == [1, 2, 5]
    assert (draft.directory, draft.messages, draft.seq_id_min, draft.seq_id_max) == ("", 3, 1, 5)
    assert parquet.read_schema(draft.path).names == [*COLUMNS, "ingest_batch"]
    assert set(parquet.read_table(draft.path)["ingest_batch"].to_pylist()) == {7}
    assert draft.file_bytes == Path(draft.path).stat().st_size


def test_partitions_are_directories_and_their_columns_leave_the_file(tmp_path: Path) -> None:
    times = [EVE, MORNING, MORNING, EVE]
    layout = Layout(COLUMNS, ("day", "routing_key"))
    rows = messages([1, 2, 3, 4], times=times, keys=["a", "b", "a", None])
    drafts = {draft.directory: draft for draft in written(tmp_path, layout, rows)}
    assert {place: seq_ids(draft) for place, draft in drafts.items()} == {
        "day=2026-11-20/routing_key=a": [1],
        "day=2026-11-21/routing_key=b": [2],
        "day=2026-11-21/routing_key=a": [3],
        "day=2026-11-20/routing_key=__HIVE_DEFAULT_PARTITION__": [4],
    }
    draft = drafts["day=2026-11-21/routing_key=b"]
    assert json.loads(draft.values) == ["2026-11-21", "b"]
    assert "routing_key" not in parquet.read_schema(draft.path).names


def test_readers_find_the_values_again(tmp_path: Path) -> None:
    keys = ["a/b", "ü %", "x=y", ".."]
    layout = Layout(COLUMNS, ("routing_key",))
    for draft in written(tmp_path, layout, messages([1, 2, 3, 4], keys=keys)):
        place = tmp_path / "t" / draft.directory
        place.mkdir(parents=True)
        Path(draft.path).rename(place / "f.parquet")
    found = dataset.dataset(tmp_path / "t", partitioning="hive").to_table()
    pairs = zip(found["seq_id"].to_pylist(), found["routing_key"].to_pylist(), strict=True)
    assert [key for _, key in sorted(pairs)] == keys


@pytest.mark.parametrize("name, values", [("hour", ["23", "00"]), ("day", None)])
def test_times_are_those_of_the_broker_in_utc(
    tmp_path: Path, name: str, values: list[str] | None
) -> None:
    drafts = written(tmp_path, Layout(COLUMNS, (name,)), messages([1, 2], times=[EVE, MORNING]))
    wanted = values or ["2026-11-20", "2026-11-21"]
    assert [json.loads(draft.values)[0] for draft in drafts] == wanted


def test_a_value_no_directory_can_have_is_said() -> None:
    with pytest.raises(ValueError, match="too long"):
        directory_of(("routing_key",), ("x" * 250,))


def test_another_file_begins_when_one_is_large_enough(tmp_path: Path) -> None:
    layout = Layout(COLUMNS, file_bytes_max=100_000, compression="none")
    batches = [messages([n], body=os.urandom(30_000)) for n in range(12)]
    drafts = written(tmp_path, layout, *batches)
    assert [seq for draft in drafts for seq in seq_ids(draft)] == list(range(12))
    assert len(drafts) == 3
    assert max(draft.file_bytes for draft in drafts) < 200_000


def test_open_files_and_waiting_messages_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "OPEN_FILES_MAX", 3)
    monkeypatch.setattr(table_files, "BUFFER_BYTES_MAX", 50_000)
    writer = DraftWriter(Layout(COLUMNS, ("routing_key",)), str(tmp_path), 0)
    most_open = most_waiting = 0
    for n in range(40):
        writer.add(messages([n], keys=[f"k{n % 8}"], body=b"b" * 10_000))
        most_open = max(most_open, len(writer._open))
        most_waiting = max(most_waiting, sum(f.buffered for f in writer._open.values()))
    found = sorted(seq for draft in writer.close() for seq in seq_ids(draft))
    assert found == list(range(40))
    assert most_open == 3
    assert most_waiting <= 50_000


def test_the_command_knows_the_columns_a_table_can_be_cut_by() -> None:
    assert archive.PARTITION_COLUMNS == table_files.PARTITION_COLUMNS
