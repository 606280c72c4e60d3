"""docs/dependencies.md names every dependency with the range that pip reads, and no other."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parents[2]
REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+(?:\[[a-z-]+\])?)(.*)")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PARTS = ["program", "build", *PROJECT["optional-dependencies"]]
tool = runpy.run_path(str(REPOSITORY / "tools" / "requirements.py"))
ROW = re.compile(r"^\| ([^ |]+) \| `([^`]+)` \| (.+) \|$", re.MULTILINE)


def declared() -> set[tuple[str, str]]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    lines = [
        *project["project"]["dependencies"],
        *project["build-system"]["requires"],
        *(line for extra in project["project"]["optional-dependencies"].values() for line in extra),
    ]
    found = set()
    for line in lines:
        match = REQUIREMENT.fullmatch(line)
        assert match is not None, line
        if match[1].partition("[")[0] != project["project"]["name"]:
            found.add((match[1], match[2]))
    return found


def test_the_page_and_pip_agree() -> None:
    page = (REPOSITORY / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = ROW.findall(page)
    assert {(name, bounds) for name, bounds, _ in rows} == declared()
    for name, _, reason in rows:
        assert len(reason) > 15, f"{name}: why?"


@pytest.mark.parametrize("part", PARTS)
def test_what_a_part_needs_is_locked_with_checksums(part: str) -> None:
    found = {entry.lines[0].split("==")[0]: entry.lines for entry in tool["closure"]([part])}
    for line in tool["requirements"](part):
        wanted = Requirement(line)
        version = found[tool["plain"](wanted.name)][0].split("==")[1].split()[0]
        assert wanted.specifier.contains(version), f"{line} is locked at {version}: make lock"
    unchecked = [name for name, lines in found.items() if "--hash=sha256:" not in lines[-1]]
    assert not unchecked
