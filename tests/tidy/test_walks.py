"""The walk of a publish in ARCHITECTURE.md is that of the program, and does not get longer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "runtime/loop": "the traced broker has no sockets",
    "runtime/disk/worker": "nothing is paged",
    "protocols/amqp/publish_buffer": "nothing is held",
    "routing/exchanges": "the route is remembered in the address",
    "storage/store/message_store": "the content is small",
}
"""Files of the walk that a small publish on a broker without sockets does not reach, and why."""
CALLS_MAX = {
    "publish, to the journal's buffer": 35,
    "publish": 55,
    "turn of the publish": 119,
    "acknowledgement": 34,
    "turn of the acknowledgement": 38,
    "idle turn": 14,
}
"""A change that makes a walk shorter lowers its number; none may raise one."""
FILES_MAX = {"publish, to the journal's buffer": 17, "acknowledgement": 17}
"""As above, of the files that a walk passes."""


@pytest.fixture(scope="module")
def trace() -> str:
    """Interpreted: compiled functions are not seen."""
    program = [sys.executable, "tools/trace_walks.py", "--files"]
    given = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    environment = given | {"PENSTOCK_PURE": "1", "PYTHONPATH": "src:."}
    done = subprocess.run(
        program, cwd=REPOSITORY, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


def test_the_walk_of_the_map_is_the_walk_of_the_program(trace: str) -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walk = text.split("## How a publish walks")[1].split("Coming back")[0]
    told = re.findall(r"^ {3,7}[\d ]{2}  ((?:[a-z_]+/)+[a-z_]+) ", walk, re.MULTILINE)
    assert len(told) > 15
    gone = set(re.findall(r"^    (\S+)\.py: ", trace, re.MULTILINE))
    assert [path for path in told if path not in gone | ELSEWHERE.keys()] == []
    assert all((REPOSITORY / "src/penstock" / f"{path}.py").exists() for path in told)


def test_the_walks_do_not_get_longer(trace: str) -> None:
    counts = re.findall(r"^(\S.*?) +(\d+) +\d+ +(\d+)$", trace, re.MULTILINE)
    assert {name: int(calls) for name, calls, _ in counts} == CALLS_MAX
    files = {name: int(count) for name, _, count in counts if name in FILES_MAX}
    assert files == FILES_MAX
