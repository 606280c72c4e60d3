"""The blocks of a page that a test runs as they stand, as pasted into an activated environment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.helpers.live_broker import REPOSITORY

PASTE_S = 500.0
"""For one that hangs: the start of Spark takes minutes where twenty programs share a core."""


def blocks_of(page: str, label: str) -> dict[str, str]:
    """By the names in the comments ``<!-- label: name -->`` before the blocks of ``page``."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    block = re.compile(rf"<!-- {label}: (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)
    return dict(block.findall(text))


def activated(environment: dict[str, str]) -> dict[str, str]:
    """The environment of this process and ``environment``, with this Python's programs first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, **environment}


def pasted(block: str, directory: Path, environment: dict[str, str]) -> str:
    """What the lines print; an error if one fails."""
    done = paste(block, directory, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def paste(
    block: str, directory: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-e", "-c", block],
        cwd=directory,
        env=activated(environment),
        capture_output=True,
        text=True,
        timeout=PASTE_S,
        check=False,
    )


def interrupted(block: str, directory: Path, lines: int) -> list[str]:
    """The first lines that the program of a block prints; then it is ended as by Ctrl-C."""
    program = block.partition("\n")[2].rpartition("END")[0]
    arguments = ["python", "-u", "-c", program]
    with subprocess.Popen(
        arguments, cwd=directory, env=activated({}), stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        heard = [running.stdout.readline() for _ in range(lines)]
        running.send_signal(signal.SIGINT)
        assert running.wait(10) == 0
    return heard
