"""A test whose kind of packages is not installed is skipped, with the word that installs them.

pyproject.toml has an extra per kind (``test-core``, ``test-clients``, …).  Tests import what they
need; conftest.py asks here whether a failed import is the lack of such a package.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
KINDS = ("lint", "clients", "spark", "ui")
# Where a package's module has another name than the package.
MODULES = {
    "import_linter": "importlinter",
    "python_snappy": "snappy",
    "pynsq": "nsq",
}


@cache
def kind_of_module() -> dict[str, str]:
    """Top-level module -> the kind of tests that needs it."""
    sys.path.insert(0, str(TOOLS))
    from requirements import requirements

    found = {}
    for kind in KINDS:
        for line in requirements(f"test-{kind}"):
            package = re.split(r"[^\w.-]", line, maxsplit=1)[0].replace("-", "_").lower()
            found.setdefault(MODULES.get(package, package), kind)
    return found


def lacking(error: BaseException | None) -> str | None:
    """Why to skip, if ``error`` comes of a package of a kind that is not installed."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError):
            module = str(error.name).partition(".")[0]
            kind = kind_of_module().get(module)
            if kind is not None:
                return f"{module} is not installed: make deps-{kind}"
        error = error.__cause__ or error.__context__
    return None
