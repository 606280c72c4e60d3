"""A broker with life in it, and a browser in front of it, one of each for a file.

``PENSTOCK_UI_SHOTS`` names a directory that gets a picture of each page.  Without Chromium or
Playwright the tests skip and say what to install.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.live_broker import LiveBroker
from tests.ui.life import Life
from tests.ui.visit import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_DIRECTORY = os.environ.get("PENSTOCK_UI_SHOTS")
SHOTS = Path(_DIRECTORY).resolve() if _DIRECTORY else None
# The guard runs as root, and in containers whose /dev/shm is small.
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium()
    import playwright.sync_api as playwright

    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def node() -> Iterator[LiveBroker]:
    with LiveBroker(arguments=("--nsq-port", "0")) as running:
        yield running


@pytest.fixture(scope="module")
def life(node: LiveBroker) -> Iterator[Life]:
    with Life(node) as life:
        yield life


@pytest.fixture(scope="module")
def visit(browser: Browser, node: LiveBroker) -> Iterator[Visit]:
    visit = Visit(browser, node.http_url, SHOTS)
    yield visit
    visit.close()
