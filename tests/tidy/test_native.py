"""What tools/native.py promises of the next build: a change compiles again what it touches."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))

import native  # noqa: E402

FIRST = """
from typing import Final

LIMIT: Final = 7


class Meter:
    def __init__(self) -> None:
        self.count = 0

    def add(self, more: int) -> str:
        self.count += more
        return "first"
"""
SECOND = """
from penstock.first import Meter


def used() -> str:
    meter = Meter()
    return meter.add(meter.count) + "second"
"""
THIRD = """
def alone() -> list[object]:
    return ["third", 3.5, b"bytes", 1 << 70]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A program of three modules, of which the second uses the first."""
    package = tmp_path / "src" / "penstock"
    package.mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    shutil.copy(REPOSITORY / "tools" / "native.py", tmp_path / "tools")
    (tmp_path / "mypy.ini").write_text("[mypy]\nmypy_path = src\n")
    for name, text in (("first", FIRST), ("second", SECOND), ("third", THIRD)):
        (package / f"{name}.py").write_text(text)
    (package / "__init__.py").touch()
    return tmp_path


def generated(project: Path) -> dict[str, str]:
    """Last name of the module -> its C file."""
    files = [f"src/penstock/{name}.py" for name in ("first", "second", "third")]
    command = [sys.executable, "tools/native.py", "--generate", *files]
    subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=60)
    found = project.glob("build/native/*/c/__native_penstock___*.c")
    return {path.stem.rpartition("___")[2]: path.read_text() for path in found}


def changed(project: Path, file: str, old: str, new: str) -> set[str]:
    """The C files that another line in ``file`` changes."""
    before = generated(project)
    path = project / "src" / "penstock" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    after = generated(project)
    assert before.keys() == after.keys() == {"first", "second", "third"}
    return {name for name in before if before[name] != after[name]}


def test_a_new_literal_changes_its_own_module_only(project: Path) -> None:
    assert changed(project, "first.py", '"first"', '"another text"') == {"first"}


def test_a_new_field_changes_the_modules_that_use_the_class(project: Path) -> None:
    line = "        self.count = 0\n"
    more = line + "        self.other = 1.5\n"
    assert changed(project, "first.py", line, more) == {"first", "second"}


def test_a_c_file_declares_only_what_it_uses(project: Path) -> None:
    files = generated(project)
    assert "MeterObject" in files["second"]
    assert "MeterObject" not in files["third"]


def test_compiled_files_that_no_longer_belong_there_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "penstock" / "core"
    folder.mkdir(parents=True)
    built = tmp_path / "built.so"
    built.write_text("new")
    for name in ("kept", "gone"):
        (folder / (name + native.SUFFIX)).write_text("old")
    native.place({f"penstock/core/kept{native.SUFFIX}": str(built)}, tmp_path)
    assert [path.name for path in folder.iterdir()] == ["kept" + native.SUFFIX]
    assert (folder / ("kept" + native.SUFFIX)).read_text() == "new"
