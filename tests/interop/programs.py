"""The foreign client programs: what they need, how they are built, how they are run.

A program is built once per version of its sources into the user's cache, outside the checkout;
a second build of the same sources is a look at a directory.  Two test processes may build at the
same time: each builds aside and renames, and the first one wins.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
BUILD_TIMEOUT_S = 300
RUN_TIMEOUT_S = 60


class Program(NamedTuple):
    """One client program of CONVERSATION.md."""

    name: str
    sources: tuple[str, ...]
    tools: tuple[str, ...]
    how_to_get: str
    build: Callable[[Path], None]
    command: Callable[[Path], list[str]]
    probe: tuple[str, ...] = ()
    """A command that fails where a library is missing that a package of the system brings."""
    folder: Path = HERE
    """Where the folder of its name is."""


def run(command: list[str], directory: Path) -> None:
    """A build step; its output is shown when it fails."""
    done = subprocess.run(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}"


def build_node(directory: Path) -> None:
    run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], directory)


def fetch_java(directory: Path) -> None:
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    run(["mvn", "-q", "-B", copy, "-DoutputDirectory=lib"], directory)


def build_java(directory: Path) -> None:
    fetch_java(directory)
    run(
        [
            "javac",
            "-encoding",
            "UTF-8",
            "-cp",
            "lib/*",
            "-d",
            "classes",
            "Client.java",
            "Survivor.java",
            "Held.java",
            "Load.java",
        ],
        directory,
    )


def build_spring(directory: Path) -> None:
    fetch_java(directory)
    run(["javac", "-cp", "lib/*", "-d", "classes", "App.java"], directory)


def build_python(directory: Path) -> None:
    run([sys.executable, "-m", "venv", "."], directory)
    run(["bin/python", "-m", "pip", "install", "-q", "-r", "requirements.txt"], directory)


def build_go(directory: Path) -> None:
    run(["go", "build", "-o", "client", "."], directory)


def nothing_to_build(_directory: Path) -> None:
    """A script, whose library a package of the system brings."""


def java_command(directory: Path) -> list[str]:
    # The small compiler is enough for a second of work, and starts faster.
    path = f"{directory}/classes:{directory}/lib/*"
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, "Client"]


PROGRAMS = (
    Program(
        "node",
        ("package.json", "package-lock.json", "client.js", "survive.js"),
        ("node", "npm"),
        "apt-get install nodejs npm",
        build_node,
        lambda directory: ["node", str(directory / "client.js")],
    ),
    Program(
        "java",
        ("pom.xml", "Client.java", "Survivor.java", "Held.java", "Load.java"),
        ("java", "javac", "mvn"),
        "apt-get install default-jdk-headless maven",
        build_java,
        java_command,
    ),
    Program(
        "go",
        ("go.mod", "go.sum", "client.go", "survive.go", "load.go"),
        ("go",),
        "apt-get install golang-go",
        build_go,
        lambda directory: [str(directory / "client")],
    ),
    Program(
        "ruby",
        ("client.rb",),
        ("ruby",),
        "apt-get install ruby-bunny",
        nothing_to_build,
        lambda directory: ["ruby", str(directory / "client.rb")],
        ("ruby", "-rbunny", "-e", "0"),
    ),
    Program(
        "php",
        ("client.php",),
        ("php",),
        "apt-get install php-cli php-amqplib",
        nothing_to_build,
        lambda directory: ["php", str(directory / "client.php")],
        ("php", "-r", "require 'PhpAmqpLib/autoload.php';"),
    ),
)

NSQ_PROGRAMS = (
    Program(
        "nsq_node",
        ("package.json", "package-lock.json", "client.js"),
        ("node", "npm"),
        "apt-get install nodejs npm",
        build_node,
        lambda directory: ["node", str(directory / "client.js")],
    ),
    Program(
        "nsq_go",
        ("go.mod", "go.sum", "client.go"),
        ("go",),
        "apt-get install golang-go",
        build_go,
        lambda directory: [str(directory / "client")],
    ),
)
"""Those of NSQ_CONVERSATION.md."""

OSLO = Program(
    "oslo",
    ("requirements.txt",),
    ("python3",),
    "apt-get install python3-venv",
    build_python,
    lambda directory: [str(directory / "bin/python"), str(HERE / "oslo" / "app.py")],
)
"""It brings some fifty packages: too many for the environment of all tests."""

SPRING = Program(
    "spring",
    ("pom.xml", "App.java"),
    ("java", "javac", "mvn"),
    "apt-get install default-jdk-headless maven",
    build_spring,
    lambda directory: ["java", "-cp", f"{directory}/classes:{directory}/lib/*", "App"],
)

PERF_TEST = Program(
    "perf_test",
    ("pom.xml",),
    ("java", "mvn"),
    "apt-get install default-jre-headless maven",
    fetch_java,
    lambda directory: ["java", "-cp", f"{directory}/lib/*", "com.rabbitmq.perf.PerfTest"],
)


def missing_reason(program: Program) -> str | None:
    lacking = [tool for tool in program.tools if shutil.which(tool) is None]
    if not lacking and program.probe and subprocess.run(program.probe, check=False).returncode:
        lacking = ["client library"]
    if not lacking:
        return None
    return f"{program.name}: {', '.join(lacking)} missing (Debian: {program.how_to_get})"


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "penstock-interop"


def built(program: Program) -> Path:
    """The directory of the built program, building it if nobody has."""
    digest = hashlib.sha256()
    for source in program.sources:
        digest.update((program.folder / program.name / source).read_bytes())
    for tool in program.tools:
        digest.update(os.path.realpath(shutil.which(tool) or "").encode())
    target = cache_directory() / f"{program.name}-{digest.hexdigest()[:16]}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f"{program.name}-", dir=target.parent))
    try:
        for source in program.sources:
            shutil.copy(program.folder / program.name / source, aside)
        program.build(aside)
        try:
            aside.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


class Started(subprocess.Popen[bytes]):
    """A program under way; what it complains of goes to a file, so that no pipe is ever full."""

    def __init__(self, words: Sequence[str], directory: Path, environment: dict[str, str]) -> None:
        self.complaints = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the program
        super().__init__(
            words,
            cwd=directory,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.complaints,
            bufsize=0,  # what ``hear`` read beyond its line, ``finish`` would miss
        )

    def said(self, out: bytes) -> str:
        self.complaints.seek(0)
        with self.complaints:
            return f"{out.decode()}\n{self.complaints.read().decode()}"


def start(program: Program, directory: Path, *arguments: object, **environment: str) -> Started:
    return Started([*program.command(directory), *map(str, arguments)], directory, environment)


def hear(process: Started, line: str) -> None:
    """The program says this next; if it does not, it is ended and everything shown."""
    assert process.stdout is not None
    heard = process.stdout.readline().decode()
    if heard != f"{line}\n":
        process.kill()
        out, _ = process.communicate()
        raise AssertionError(f"heard {heard!r}, not {line!r}:\n{process.said(out)}")


def finish(process: Started) -> dict[str, Any]:
    """What the program says in its last line; everything it wrote, if it failed."""
    try:
        out, _ = process.communicate(timeout=RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        raise AssertionError(f"still ran after {RUN_TIMEOUT_S} s:\n{process.said(out)}") from None
    said = process.said(out)
    assert process.returncode == 0, f"exit code {process.returncode}:\n{said}"
    return dict(json.loads(out.splitlines()[-1]))
