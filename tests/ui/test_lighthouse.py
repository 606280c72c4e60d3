"""Lighthouse gives every page of the web UI 100 for accessibility and for best practices.

    make test ARGS='-s tests/ui/test_lighthouse.py'     prints the table; -k queue: of those pages

Behind the log-in, in both themes, at the widths of Lighthouse's own desktop and phone.  The scores
for performance are printed only: they are of this machine and of what else it does.  The category
for search engines is left out, because none of them sees what is behind a log-in.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import pytest

from pyspark_penstock.report_client import Reporter
from tests.helpers.live_broker import REPOSITORY
from tests.helpers.nsq_live import NsqLiveBroker
from tests.interop.programs import Program, build_node, built, missing_reason
from tests.ui.addresses import PAGES, QUEUE
from tests.ui.conftest import chromium
from tests.ui.life import Life

STREAM = "/queues/%2F/log"
MORE: Final = [
    ("login", "login", "Penstock"),
    ("connection", "/connections/{connection}", "shop"),
    ("channel", "/channels/{connection}%20(1)", "{connection} (1)"),
    ("exchange-route", "/exchanges/%2F/orders?tab=route", "orders"),
    ("exchange-publish", "/exchanges/%2F/orders?tab=publish", "orders"),
    ("queue-flow", f"{QUEUE}?tab=flow", "orders.audit"),
    ("queue-messages", f"{QUEUE}?tab=messages", "orders.audit"),
    ("queue-deadlines", "/queues/%2F/orders.new?tab=heaps", "orders.new"),
    ("queue-storage", f"{QUEUE}?tab=storage", "orders.audit"),
    ("queue-mirrors", f"{QUEUE}?tab=mirrors", "orders.audit"),
    ("stream", f"{STREAM}?tab=stream", "log"),
    ("nsq-channel", "/topics/clicks/archive", "archive"),
    ("flow", "/flow", "Flow"),
    ("mirrors", "/mirrors", "Mirrors"),
    ("storage", "/storage", "Storage"),
    ("forecast", "/forecast", "Alarm forecast"),
    ("pipelines", "/pipelines", "Pipelines"),
    ("links", "/links", "Links to other brokers"),
    ("no-page", "/elsewhere", "No such page"),
]
"""Beside those of test_pages.py; ``{connection}`` is the name of a client's."""
JUDGED: Final = ("accessibility", "best-practices")
LIGHTHOUSE: Final = Program(
    "lighthouse",
    ("package.json", "package-lock.json", "judge.mjs"),
    ("node", "npm"),
    "apt-get install nodejs npm",
    build_node,
    lambda directory: ["node", str(directory / "judge.mjs")],
    folder=Path(__file__).parent,
)


class Lighthouse:
    """The program that judges, with its browser.  ``scores``: by page, of each theme and width."""

    def __init__(self, url: str, browser: str) -> None:
        command = [*LIGHTHOUSE.command(built(LIGHTHOUSE)), url, browser]
        self.scores: dict[str, list[dict[str, int]]] = defaultdict(list)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()

    def judge(self, name: str, address: str, theme: str, width: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"address": address, "theme": theme, "width": width}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "judge.mjs ended; its reason is among the output"
        answer: dict[str, Any] = json.loads(line)
        self.scores[name].append(answer["scores"])
        return answer

    def table(self) -> str:
        """The lowest scores of each page."""
        lines = ["", "| page | runs | accessibility | best practices | performance |"]
        lines += ["|---|---:|---:|---:|---:|"]
        for name, runs in self.scores.items():
            lowest = [min(scores[key] for scores in runs) for key in (*JUDGED, "performance")]
            lines.append(f"| {name} | {len(runs)} | " + " | ".join(map(str, lowest)) + " |")
        return "\n".join(lines)


@pytest.fixture(scope="module")
def node() -> Iterator[NsqLiveBroker]:
    with NsqLiveBroker() as running:
        yield running


@pytest.fixture(scope="module")
def life(node: NsqLiveBroker) -> Iterator[Life]:
    """Something to see on each page."""
    with Life(node) as life:
        life.publish(30)
        channel = life.connect("reader")
        channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
        channel.basic_publish("", "log", b"m")
        node.post("/topic/create?topic=clicks")
        node.post("/channel/create?topic=clicks&channel=archive")
        node.post("/pub?topic=clicks", b"click")
        policy = {"pattern": "^orders", "definition": {"max-length": 100_000}}
        life.api("/api/policies/%2F/narrow", "PUT", policy)
        value = {"src-uri": "amqp://", "src-queue": "moved", "reconnect-delay": 3600}
        value["dest-uri"] = "amqp://127.0.0.1:9"
        life.api("/api/parameters/shovel/%2F/nowhere", "PUT", {"value": value})
        url = f"amqp://guest:guest@127.0.0.1:{node.amqp_port}/%2f"
        reporter = Reporter(url, name="to the lake", kind="spark", queues=["orders.audit"])
        for number in range(5):
            reporter.tell(state="running", run="r", batch=number, rows=number, duration_ms=50)
        yield life
        reporter.close()


@pytest.fixture(scope="module")
def lighthouse(node: NsqLiveBroker, life: Life) -> Iterator[Lighthouse]:
    missing = missing_reason(LIGHTHOUSE)
    if missing is not None:
        pytest.skip(missing)
    with Lighthouse(node.http_url, chromium()) as running:
        yield running
        print(running.table())


@pytest.mark.long
@pytest.mark.parametrize("width", ["desktop", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name, address, heading", [*PAGES, *MORE])
def test_every_page_has_full_marks(
    lighthouse: Lighthouse,
    life: Life,
    name: str,
    address: str,
    heading: str,
    theme: str,
    width: str,
) -> None:
    life.keep_alive()
    clients = life.api("/api/connections?columns=name,user_provided_name")
    (shop,) = (one["name"] for one in clients if one.get("user_provided_name") == "shop")
    place = address.format(connection=quote(shop, safe=""))
    found = lighthouse.judge(name, place, theme, width)
    assert found["heading"] == heading.format(connection=shop)
    assert found["theme"] == theme
    assert found["warnings"] == []
    assert found["failed"] == []
    assert {key: found["scores"][key] for key in JUDGED} == dict.fromkeys(JUDGED, 100)


def test_every_page_is_judged() -> None:
    """Of the table of pages and of the panels of a queue."""
    index = REPOSITORY / "src/penstock/management/ui/pages/index.js"
    text = index.read_text(encoding="utf-8")
    addresses = [address.lstrip("/") for _, address, _ in [*PAGES, *MORE]]
    for path in re.findall(r'\{ path: "([^"]*)"', text):
        pattern = re.compile(re.sub(r":\w+", r"[^/]+", path) + r"(\?|$)")
        assert any(map(pattern.match, addresses)), path
    for panel in re.findall(r'\{ id: "(\w+)"', text):
        assert any(address.endswith(f"?tab={panel}") for address in addresses), panel
