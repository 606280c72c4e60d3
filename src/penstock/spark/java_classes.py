"""Java's classes, noted once, so that every later Spark of this machine starts sooner.

Most of what a Spark needs to start goes into finding, checking and linking many thousand classes.
Java can write down those it has (class data sharing), and map that file the next time.
``prepare`` lets a Spark do a little of all that pipelines do (``rehearsal``), whose Java writes the
file; ``sharing_options`` is what Java is told from then on::

    <cache>/penstock/spark-3f0c….jsa    for this Java and this Spark, where they are installed
    <cache>/penstock/base-3f0c….jsa     Java's own classes, where its maker left them out

Java sees by itself whether a file fits (its own build, the sizes and times of Spark's jars), and
does without one that does not.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.core.errors import PenstockError
from penstock.spark.java import Java, NoCache, cache_dir, find_java
from penstock.spark.table import sync

TIMEOUT_S = 300.0
TOLD_MAX = 2000
QUIET = "-Xlog:cds*=error"
"""Nobody asked which classes are left out, nor whether the file still fits."""


class NotPrepared(PenstockError):
    """This Java wrote no such file; nothing else is wrong with it."""

    fix = "pipelines run without it; another Java may do: set JAVA_HOME"


class Prepared(NamedTuple):
    """What ``prepare`` made."""

    file: Path
    file_bytes: int
    java: Path
    seconds: float


class ClassFiles(NamedTuple):
    """Where the files of one Java and one Spark are, if they are."""

    classes: Path
    base: Path


def files_of(java: Java, environment: Mapping[str, str]) -> ClassFiles:
    import pyspark

    release = java.home / "release"
    told = release.read_text() if release.is_file() else ""
    words = (str(java.home.resolve()), told, pyspark.__file__, pyspark.__version__)
    key = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    place = cache_dir(environment)
    return ClassFiles(place / f"spark-{key}.jsa", place / f"base-{key}.jsa")


def sharing_options(java: Java, environment: Mapping[str, str]) -> str:
    """For a Java that runs a Spark; none where nothing is prepared."""
    try:
        files = files_of(java, environment)
    except NoCache:
        return ""
    if not files.classes.is_file():
        return ""
    return f"{_sharing(files.base, files.classes)} {QUIET}"


def noting_options(base: Path, draft: Path) -> str:
    """For a Java that is to write ``draft`` when it ends."""
    shared = f"{_sharing(base)} " if base.is_file() else ""
    return f'{shared}"-XX:ArchiveClassesAtExit={draft}" {QUIET}'


def _sharing(*files: Path) -> str:
    there = ":".join(str(file) for file in files if file.is_file())
    return f'"-XX:SharedArchiveFile={there}"'


def prepare(environment: Mapping[str, str]) -> Prepared:
    """Half a minute's work; replaces what is there.  Raises JavaMissing, NoCache, NotPrepared."""
    began_s = time.monotonic()
    java = find_java(environment)
    files = files_of(java, environment)
    files.classes.parent.mkdir(parents=True, exist_ok=True)
    if not _has_own_classes(java, environment):
        _write(files.base, _dump_command(java), environment)
    _write(files.classes, _rehearsal_command(files.base), environment)
    size = files.classes.stat().st_size
    return Prepared(files.classes, size, java.home, round(time.monotonic() - began_s, 1))


def _has_own_classes(java: Java, environment: Mapping[str, str]) -> bool:
    """Most come with a file of their own classes, to which Spark's are added."""
    code, _ = _run([str(java.home / "bin" / "java"), "-Xshare:on", "-version"], environment)
    return code == 0


def _dump_command(java: Java) -> list[str]:
    return [str(java.home / "bin" / "java"), "-Xshare:dump", "-XX:SharedArchiveFile={}"]


def _rehearsal_command(base: Path) -> list[str]:
    return [sys.executable, "-m", "penstock.spark.rehearsal", str(base), "{}"]


def _write(target: Path, command: list[str], environment: Mapping[str, str]) -> None:
    """``command`` with the name of a draft for ``{}``; whole, or not there."""
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        code, told = _run([word.replace("{}", str(draft)) for word in command], environment)
        if code or not draft.is_file():
            raise NotPrepared(f"Java wrote no file of its classes: {told[-TOLD_MAX:].strip()}")
        sync(draft)  # half a file would kill each Java that maps it
        draft.replace(target)
        sync(target.parent)
    finally:
        draft.unlink(missing_ok=True)


def _run(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit code, and what it said."""
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"it was not done after {TIMEOUT_S:.0f} s"
    return done.returncode, done.stdout
