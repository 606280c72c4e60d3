"""docs/quickstart.md, block by block, as a newcomer would run it.

The blocks are taken from the page as they stand.  Only ports differ: the test's broker must
not meet one that is already running, so the environment names them for the commands, and the
one line of Python that connects is given the port.  Everything runs in an empty directory.
"""

import os
import re
import time
from pathlib import Path

import pytest

from tests.helpers.live_broker import REPOSITORY, LiveBroker
from tests.helpers.pages import blocks_of, pasted

PAGE = (REPOSITORY / "docs" / "quickstart.md").read_text(encoding="utf-8")
BLOCKS = blocks_of("docs/quickstart.md", "quick-start")
SHOWN = re.findall(r"^```text\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
LIMIT_S = 120.0
"""The page promises under two minutes on an idle machine."""


def test_the_blocks_are_there() -> None:
    assert list(BLOCKS) == ["publish", "look", "archive", "read"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quick_start(tmp_path: Path) -> None:
    is_idle = os.getloadavg()[0] < (os.cpu_count() or 1)
    begun = time.monotonic()
    with LiveBroker() as broker:
        place = {"PENSTOCK_HTTP_URL": broker.http_url, "PENSTOCK_URL": broker.url}
        port = f'"127.0.0.1", {broker.amqp_port})'
        publish = BLOCKS["publish"].replace('"127.0.0.1")', port)
        assert pasted(publish, tmp_path, place) == ""
        seen = pasted(BLOCKS["look"], tmp_path, place)
        assert re.search(r"orders\s+yes\s+100\s+0", seen), seen
        assert seen.splitlines()[0] == SHOWN[0].splitlines()[0]
        pasted(BLOCKS["archive"], tmp_path, place)
        assert pasted(BLOCKS["read"], tmp_path, place) == SHOWN[-1]
        seen = pasted(BLOCKS["look"], tmp_path, place)
        assert re.search(r"orders\s+yes\s+0\s+0", seen), seen
    assert not is_idle or time.monotonic() - begun < LIMIT_S
