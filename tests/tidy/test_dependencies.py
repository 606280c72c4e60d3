"""docs/dependencies.md names every dependency with the range that pip reads, and no other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+(?:\[[a-z-]+\])?)(.*)")
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
