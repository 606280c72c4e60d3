"""What a batch's number means is on disk before the broker knows the batch by it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Self

import pyspark  # noqa: F401
import pytest

from penstock.spark.jobs import validating
from penstock.spark.state import notes
from penstock_ranges.staging import Committed
from pyspark_penstock import sink
from pyspark_penstock.durable import local_checkpoint
from pyspark_penstock.sink_options import parse_sink_options


@pytest.mark.parametrize(
    "given, found",
    [
        ("/lake/_c", "/lake/_c"),
        ("file:/lake/_c", "/lake/_c"),
        ("FILE:///lake/_c", "/lake/_c"),
        ("file:/lake/a%20b", "/lake/a%20b"),
        ("file:///lake/a b#1?", "/lake/a b#1?"),
        ("/lake/a%20b#1?", "/lake/a%20b#1?"),
        ("/lake/at 12:00", "/lake/at 12:00"),
        ("file:/lake/[a", "/lake/[a"),
        ("hdfs://host/lake/_c", None),
        ("hdfs://[::1/lake/_c", None),
        ("file://host/lake/_c", None),
        ("//host/lake/_c", None),
        ("s3a://bucket/_c", None),
        ("", None),
    ],
)
def test_a_checkpoint_is_known_where_it_is_of_this_machine(given: str, found: str | None) -> None:
    assert local_checkpoint(given) == (None if found is None else Path(found))


@pytest.mark.parametrize("delivery, synced", [("exactly-once", True), ("at-least-once", False)])
def test_the_note_is_synced_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str, synced: bool
) -> None:
    notes = tmp_path / "offsets"
    notes.mkdir()
    for name in ("0", "1", ".1.crc"):
        (notes / name).write_text(name)
    (tmp_path / "metadata").write_text("{}")
    seen: list[str] = []

    def fsync(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_relative_to(tmp_path):
            seen.append(str(path.relative_to(tmp_path)))

    def commit(*_: object) -> Committed:
        seen.append("committed")
        return Committed(0, 1, 0, "")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(sink, "commit", commit)
    monkeypatch.setattr(sink, "check_target", lambda *_: None)
    given = {"url": "amqp://x", "queue": "q", "checkpointLocation": f"file:{tmp_path}"}
    settings = parse_sink_options(given | {"delivery": delivery})
    writer = sink.StreamWriter(settings, None)  # type: ignore[arg-type]
    writer.commit([sink.Staged("query", "run", 1, ["set"], 1)], 1)
    order = ["offsets/1", "offsets/.1.crc", "metadata", "offsets", ".", "committed"]
    assert seen == (order if synced else [])


class _Stager:
    """A broker that has some batches."""

    def __init__(self, _: object, known: int = 1) -> None:
        self._known = known

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, producer: str, _run: str, batch: int) -> str:
        assert producer == "the query"
        return "" if batch <= self._known else "a set"


def test_validate_knows_what_is_published_when_spark_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut the last commits are gone, and so are the messages."""
    monkeypatch.setattr(validating, "Stager", _Stager)
    assert validating.published_below(tmp_path, "amqp://x") == {}
    for kind in ("offsets", "commits"):
        (tmp_path / kind).mkdir()
    (tmp_path / "metadata").write_text('{"id": "the query"}')
    for batch in range(3):
        offset = json.dumps({"v": 1, "q": {"in": {"inc": "i", "seq": 10 * batch + 10}}})
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offset}")
    (tmp_path / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert validating.published_below(tmp_path, "amqp://x") == {}, "batch 2 is not published"
    (tmp_path / "offsets" / "2").write_text("v1\n{")
    (tmp_path / "commits" / "1").write_text("")
    notes.mend(tmp_path)
    assert validating.published_below(tmp_path, "amqp://x") == {"in": 20}
    (tmp_path / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert validating.published_below(tmp_path, "amqp://x") == {}, "Spark knows it"
