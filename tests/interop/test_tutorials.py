"""The tutorials of docs/tutorials, as their pages show them: commands, and what these print.

The first command of a transcript waits for messages and goes on; each other one ends by itself.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.broker_process import BrokerProcess
from tests.helpers.live_broker import REPOSITORY
from tests.interop.programs import PROGRAMS, built, missing_reason, run

PAGES = REPOSITORY / "docs" / "tutorials"
LIMIT_S = 60
TRANSCRIPT = re.compile(r"^## (.+?)$.*?^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
LIBRARIES = {"javascript": "node", "java": "java", "go": "go", "ruby": "ruby", "php": "php"}
"""Where tests/interop has a program in the same language, with its libraries."""


class Step(NamedTuple):
    command: list[str]
    prints: list[str]


def transcripts(language: str) -> dict[str, list[Step]]:
    """Title of a tutorial -> its steps."""
    text = (PAGES / language / "index.md").read_text(encoding="utf-8")
    return {
        title: [
            Step(shlex.split(lines[0]), lines[1:])
            for step in block.removeprefix("$ ").split("\n$ ")
            for lines in [step.splitlines()]
        ]
        for title, block in TRANSCRIPT.findall(text)
    }


class Language(NamedTuple):
    """``argv`` makes the command of a page one of this machine."""

    name: str
    argv: Callable[[list[str]], list[str]]
    environment: dict[str, str]


def python(_scratch: Path, _libraries: Path) -> Language:
    return Language("python", lambda words: [sys.executable, *words[1:]], {"PYTHONUNBUFFERED": "1"})


def javascript(_scratch: Path, libraries: Path) -> Language:
    modules = {"NODE_PATH": str(libraries / "node_modules")}
    return Language("javascript", lambda words: words, modules)


def java(scratch: Path, libraries: Path) -> Language:
    files = [str(path) for path in sorted((PAGES / "java").glob("*.java"))]
    run(["javac", "-encoding", "UTF-8", "-cp", f"{libraries}/lib/*", "-d", ".", *files], scratch)
    quick = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]
    return Language("java", lambda words: [*quick, f"{scratch}:{libraries}/lib/*", *words[3:]], {})


def go(scratch: Path, libraries: Path) -> Language:
    for name in ("go.mod", "go.sum"):
        shutil.copy(libraries / name, scratch)
    for path in (PAGES / "go").glob("*.go"):
        (scratch / path.stem).mkdir()
        shutil.copy(path, scratch / path.stem)
    (scratch / "bin").mkdir()
    run(["go", "build", "-o", "bin/", "./..."], scratch)
    return Language("go", lambda words: [f"{scratch}/bin/{Path(words[2]).stem}", *words[3:]], {})


def ruby(scratch: Path, _libraries: Path) -> Language:
    (scratch / "unbuffered.rb").write_text("$stdout.sync = true\n")
    return Language("ruby", lambda words: words, {"RUBYOPT": f"-r{scratch}/unbuffered"})


def php(scratch: Path, _libraries: Path) -> Language:
    """Debian's package stands in for what Composer puts into ``vendor``."""
    (scratch / "vendor").mkdir()
    (scratch / "vendor" / "autoload.php").write_text("<?php require 'PhpAmqpLib/autoload.php';\n")
    path = f"include_path={scratch}:/usr/share/php"
    return Language("php", lambda words: ["php", "-d", path, *words[1:]], {})


LANGUAGES = (python, javascript, java, go, ruby, php)


def test_a_page_whose_programs_no_test_runs_says_so() -> None:
    tested = {language.__name__ for language in LANGUAGES}
    for page in PAGES.glob("*/index.md"):
        says_so = "**No test runs these programs**" in page.read_text(encoding="utf-8")
        assert says_so == (page.parent.name not in tested), page


@pytest.fixture(scope="module", params=LANGUAGES, ids=lambda language: language.__name__)
def language(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Language:
    make: Callable[[Path, Path], Language] = request.param
    name = request.param.__name__
    scratch = tmp_path_factory.mktemp(name)
    for program in PROGRAMS:
        if program.name == LIBRARIES.get(name):
            if reason := missing_reason(program):
                pytest.skip(reason)
            return make(scratch, built(program))
    return make(scratch, scratch)


@contextmanager
def waiting(command: list[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.timeout(400)  # the first test of a language may have to fetch its libraries
def test_each_tutorial_does_what_its_page_shows(
    language: Language, broker: BrokerProcess, channel: BlockingChannel
) -> None:
    channel.queue_delete(
        "tasks"
    )  # another language's worker was killed, perhaps before its last ack
    tutorials = transcripts(language.name)
    assert len(tutorials) == 6
    options = {
        "cwd": PAGES / language.name,
        "env": {**os.environ, **language.environment, "AMQP_URL": broker.url},
    }
    for title, (first, *others) in tutorials.items():
        with waiting(language.argv(first.command), **options) as process:
            assert process.stdout is not None
            heard = [process.stdout.readline()]
            for step in others:
                out = subprocess.run(
                    language.argv(step.command),
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                    timeout=LIMIT_S,
                    **options,
                ).stdout  # type: ignore[call-overload]
                assert out.splitlines() == step.prints, title
            heard += [process.stdout.readline() for _ in first.prints[1:]]
            assert [line.rstrip("\n") for line in heard] == first.prints, title
