"""The documentation site is built, and axe finds nothing wrong: light and dark, desk and phone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.helpers.live_broker import REPOSITORY
from tests.ui.visit import violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES = ("index", "guide/ui", "tutorials/python/index", "guide/queues", "comparison")
DRAWN = "() => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))"
"""The page has been laid out."""
IS_WIDE = "() => document.documentElement.scrollWidth > innerWidth"


@pytest.fixture(scope="module")
def site() -> Path:
    """As ``make docs`` builds it, in the same place."""
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("sphinx is not installed: make docs")
    out = REPOSITORY / "build/site"
    options = ["-q", "-W", "--keep-going", "-c", "docs", "-d", "build/doctrees"]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(out)]
    built = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return out


WHERE = [
    ("light", 1360),
    ("dark", 390),
    pytest.param("light", 390, marks=pytest.mark.long),
    pytest.param("dark", 1360, marks=pytest.mark.long),
]
"""Each theme and each width once; ``make test`` has all."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("theme, width", WHERE)
def test_axe_finds_nothing_wrong(
    browser: Browser, site: Path, theme: Literal["light", "dark"], width: int
) -> None:
    wrong = []
    page = browser.new_page(color_scheme=theme, viewport={"width": width, "height": 900})
    for name in PAGES:
        page.goto((site / f"docs/{name}.html").as_uri())
        page.evaluate(DRAWN)
        found = violations(page) + page.evaluate(IS_WIDE) * ["wider than the window"]
        wrong += [f"{name}: {text}" for text in found]
    page.close()
    assert wrong == []
