"""The guide's table of wrong uses: each command, run in this process, says what stands there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from penstock.cli.main import cli
from tests.helpers.live_broker import REPOSITORY

pytest.importorskip("deltalake", reason="no deltalake: make deps-spark")
PAGE = REPOSITORY / "docs" / "guide" / "wrong-uses.md"
ROW = re.compile(r"\| `(?P<words>.+?)` \| (?P<says>.+?) \| (?P<cure>.+?) \|")
WITH_SPARK = ("archive", "replay", "validate", "dlq")


def rows() -> Iterator[tuple[str, str]]:
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        found = ROW.fullmatch(line)
        if found is not None and found["words"] != "penstock pipeline …":
            yield found["words"], found["says"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wrong")
    (place / "lake" / "foreign").mkdir(parents=True)
    parquet.write_table(pa.table({"a": [1]}), place / "lake" / "foreign" / "x.parquet")
    (place / "lake" / "delta" / "_delta_log").mkdir(parents=True)
    (place / "bad.avsc").write_text("{")
    (place / "empty.toml").write_text("")
    (place / "bad.toml").write_text(
        '[pipeline.a]\ncommand = "archive"\nqueue = "a"\nto_dir = "x"\n'
    )
    return place


def test_the_page_has_at_least_thirty() -> None:
    assert len(list(rows())) >= 30


@pytest.mark.parametrize("words, says", [*rows()])
def test_a_wrong_use_says_what_the_page_has(
    words: str, says: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    monkeypatch.setenv("PENSTOCK_URL", "amqp://127.0.0.1:1")
    for name in WITH_SPARK:  # whether Java is here is not the question
        module = import_module(f"penstock.cli.pipelines.{name}")
        if hasattr(module, "check_spark") and "--url" not in words:
            monkeypatch.setattr(module, "check_spark", lambda *_: None)
    done = CliRunner().invoke(cli, ["pipeline", *shlex.split(words)])
    told = " ".join(done.output.split())
    assert says in told
    assert done.exit_code in (1, 2)
    assert "fault of penstock" not in told
    assert "Traceback" not in told
