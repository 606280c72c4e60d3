"""Prints what pip has to install, a line each, for parts of pyproject.toml.

python tools/requirements.py program build        what runs a broker, and what builds it
python tools/requirements.py test-core spark      extras; one that names others has theirs, too
"""

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def requirements(part: str) -> list[str]:
    """Raises ``KeyError`` for an extra that is not declared."""
    read = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
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


if __name__ == "__main__":
    print(*dict.fromkeys(line for part in sys.argv[1:] for line in requirements(part)), sep="\n")
