"""Fail points: they count, they cost nothing unarmed, and their registry is true."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import SettingInvalid
from penstock.runtime.disk.failpoint import arm_from
from penstock.storage.common import failpoints
from penstock.storage.common.failpoints import NAMES, arm, reach

SOURCE = Path(__file__).resolve().parents[2] / "src" / "penstock"
FIRST, SECOND = list(NAMES)[:2]


@pytest.fixture
def ended() -> Iterator[list[str]]:
    """Where the process would have died."""
    yield []
    failpoints.disarm()


def places(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if ast.unparse(node.func) in ("reach", "failpoints.reach"):
                yield node
        elif (
            isinstance(node, ast.ImportFrom) and node.module == "penstock.storage.common.failpoints"
        ):
            renamed = [alias.asname for alias in node.names if alias.asname]
            assert not renamed, "under another name it would not be found here"


def placed() -> dict[str, list[str]]:
    """Names that the sources reach, and where; a name must stand there in letters."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        where = path.relative_to(SOURCE).as_posix()
        text = path.read_text()
        if "reach(" not in text and "failpoints" not in text:
            continue
        for call in places(ast.parse(text)):
            assert len(call.args) == 1, f"{where}:{call.lineno}"
            name = call.args[0]
            assert isinstance(name, ast.Constant), f"{where}:{call.lineno}: the name in letters"
            found.setdefault(str(name.value), []).append(f"{where}:{call.lineno}")
    return found


def test_every_place_is_registered() -> None:
    unknown = {name: where for name, where in placed().items() if name not in NAMES}
    assert not unknown, "fail points that storage/common/failpoints.py does not know"


def test_unarmed_nothing_happens() -> None:
    assert not failpoints.armed
    for name in NAMES:
        reach(name)
    assert not failpoints.armed


def test_the_first_time(ended: list[str]) -> None:
    arm(FIRST, ended.append)
    reach(SECOND)
    assert ended == []
    reach(FIRST)
    reach(FIRST)
    assert ended == [FIRST]


def test_the_third_time(ended: list[str]) -> None:
    arm(f"{FIRST}:3", ended.append)
    for _ in range(2):
        reach(FIRST)
        reach(SECOND)
    assert ended == []
    reach(FIRST)
    assert ended == [FIRST]


def test_arming_again_forgets_what_was_armed(ended: list[str]) -> None:
    arm(FIRST, lambda name: ended.append("old " + name))
    arm(SECOND, ended.append)
    reach(FIRST)
    reach(SECOND)
    assert ended == [SECOND]


def test_an_exception_is_an_end_too(ended: list[str]) -> None:
    def end(name: str) -> None:
        raise InterruptedError(name)

    arm(FIRST, end)
    with pytest.raises(InterruptedError, match=FIRST):
        reach(FIRST)
    reach(FIRST)


@pytest.mark.parametrize(
    "text", ["", "journal", "journal.synced:", "journal.synced:0", "journal.synced:-1", ":1",
             "journal.synced:x", "journal.synced:1:2", "journal.synced:²", " journal.synced"]
)  # fmt: skip
def test_what_cannot_be_armed_is_refused(ended: list[str], text: str) -> None:
    with pytest.raises(SettingInvalid):
        arm(text, ended.append)
    assert not failpoints.armed


def test_the_environment_arms(ended: list[str]) -> None:
    arm_from({})
    arm_from({"PENSTOCK_FAILPOINT": ""})
    assert not failpoints.armed
    arm_from({"PENSTOCK_FAILPOINT": f"{FIRST}:7"})
    assert failpoints.armed == {FIRST: 7}
    with pytest.raises(SettingInvalid, match=r"^environment: PENSTOCK_FAILPOINT: there is no"):
        arm_from({"PENSTOCK_FAILPOINT": "jounal.synced"})


def test_an_armed_process_kills_itself() -> None:
    program = (
        "import atexit, os, sys\n"
        "from penstock.runtime.disk.failpoint import arm_from\n"
        "from penstock.storage.common.failpoints import reach\n"
        "atexit.register(print, 'tidied up')\n"
        "arm_from(os.environ)\n"
        "try:\n"
        "    for number in (1, 2, 3):\n"
        "        sys.stdout.write(f'{number}\\n')\n"
        "        sys.stdout.flush()\n"
        f"        reach({FIRST!r})\n"
        "finally:\n"
        "    print('tidied up')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PENSTOCK_FAILPOINT": f"{FIRST}:2", "PYTHONPATH": str(SOURCE.parent)},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == "1\n2\n"
