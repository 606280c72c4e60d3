"""The commands of docs/guide/links.md; only the address of the other broker differs."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

from penstock.ctl.main import run
from tests.helpers.live_broker import REPOSITORY, LiveBroker
from tests.links.links_tools import Side, until

GUIDE = (REPOSITORY / "docs" / "guide" / "links.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"<!-- links: (\w+) -->\n```console\n(.*?)```", GUIDE, re.DOTALL))


def test_the_guide(tmp_path: Path) -> None:
    here = LiveBroker(tmp_path / "here", ("--node-name", "penstock@here"))
    there = LiveBroker(tmp_path / "there", ("--node-name", "penstock@there"))
    with here, there:
        near, far = Side(here, here.http_url), Side(there, there.http_url)
        near.fill("orders", 3)
        near.bound("news", "news.all", "#")
        who = ["--url", here.http_url, "--user", "guest", "--password", "guest"]

        def say(name: str) -> str:
            for line in (
                BLOCKS[name].replace("other:5672", f"127.0.0.1:{there.amqp_port}").split("\n")
            ):
                if line:
                    out = io.StringIO()
                    code = run([*who, *shlex.split(line)[1:]], out, out, {})
                    assert code == 0, out.getvalue()
            return out.getvalue()

        until(lambda: "running" in say("shovel"))
        until(lambda: far.depth("orders") == 3)
        until(lambda: "running" in say("federation"))
        far.publish("news.all", "k", b"x")
        until(lambda: near.depth("news") == 1)
