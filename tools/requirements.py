"""Prints what pip has to install for parts of pyproject.toml: entries of requirements.lock.

python tools/requirements.py program build        what runs a broker, and what builds it
python tools/requirements.py test-core spark      extras; one that names others has theirs, too

The output is a requirements file for ``pip install --require-hashes --no-deps``: the packages that
the parts name and all that these need, each with its version and checksums.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"[A-Za-z0-9_.-]+")


class Locked(NamedTuple):
    """``lines``: version and checksums, as pip reads them."""

    lines: list[str]
    needed_by: set[str]


def plain(requirement: str) -> str:
    """The name of a package in the one spelling that all others mean."""
    name = NAME.match(requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def requirements(part: str) -> list[str]:
    """Raises ``KeyError`` for an extra that is not declared."""
    read = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = read["project"]
    if part == "build":
        return list(read["build-system"]["requires"])
    if part == "program":
        return list(project["dependencies"])
    found: list[str] = []
    for line in project["optional-dependencies"][part]:
        own = re.fullmatch(re.escape(project["name"]) + r"\[(.+)\]", line)
        found += (
            [more for extra in own[1].split(",") for more in requirements(extra)] if own else [line]
        )
    return found


def locked() -> dict[str, Locked]:
    found: dict[str, Locked] = {}
    last = ""
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if line.startswith("    #"):
            parent = line.strip("# ").removeprefix("via").strip()
            if parent:
                found[last].needed_by.add(plain(parent))
        elif line.startswith("    "):
            found[last].lines.append(line)
        elif not line.startswith("#"):
            last = plain(line)  # comes again where Pythons need different versions of it
            found.setdefault(last, Locked([], set())).lines.append(line)
    return found


def closure(parts: list[str]) -> list[Locked]:
    """What the parts name and all they need; raises ``KeyError`` for a name that is not locked."""
    lock = locked()
    wanted: set[str] = set()
    more = {plain(line) for part in parts for line in requirements(part)}
    while more:
        wanted |= more
        more = {name for name in lock if lock[name].needed_by & wanted} - wanted
    return [lock[name] for name in sorted(wanted)]


if __name__ == "__main__":
    for entry in closure(sys.argv[1:]):
        print("\n".join(entry.lines))
