"""How long each page of the web UI takes beside many queues and connections.

    python -m benchmarks.ui_pages        prints the table; needs Chromium and Playwright

A page is ready when its heading stands there, every path that it asks for was answered, and
nothing of it waits for the broker any more.  Each is opened from another page of the same tab,
once after the log-in and once after the broker was stopped and started again.
"""

from __future__ import annotations

import shutil
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from playwright.sync_api import sync_playwright

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / place) for place in ("", "src")]

from benchmarks.topology_wire import (  # noqa: E402
    Dialogue,
    bind_frames,
    close_connections,
    declare_frames,
    open_connections,
)
from benchmarks.ui_tasks import WAIT_MS, log_in_here  # noqa: E402
from penstock.protocols.amqp.codec import methods as m  # noqa: E402
from tests.helpers.live_broker import LiveBroker  # noqa: E402
from tests.helpers.management_api import manage  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

QUEUES: Final = 10_000
CONNECTIONS: Final = 2_000
WINDOW: Final = 200
SETTLING_S: Final = 20
"""The broker has several samples of all of them then."""
QUEUE: Final = "/queues/%2F/shop.05000"
PAGES: Final = (
    "/",
    "/connections",
    "/connections?page=20",
    "/channels",
    "/exchanges",
    "/exchanges/%2F/orders",
    "/exchanges/%2F/orders?tab=bindings",
    "/queues",
    "/queues?page=99",
    "/queues?name=shop.0500",
    QUEUE,
    f"{QUEUE}?tab=flow",
    f"{QUEUE}?tab=messages",
    f"{QUEUE}?tab=storage",
    "/consumers",
    "/topics",
    "/flow",
    "/mirrors",
    "/storage",
    "/forecast",
    "/pipelines",
    "/links",
    "/policies",
    "/users",
    "/users/guest",
    "/vhosts",
    "/vhosts/%2F",
    "/limits",
    "/nodes",
    "/certificates",
    "/log",
    "/audit",
    "/definitions",
    "/api",
)
TOTALS: Final = {
    "/connections": f"{CONNECTIONS:,} in all",
    "/channels": f"{CONNECTIONS:,} in all",
    "/queues": f"{QUEUES:,} in all",
}
"""What a page must show to count as ready."""
READY: Final = """async ([address, total]) => {
  const frame = () => new Promise(requestAnimationFrame);
  const text = () => document.querySelector("main").innerText;
  const began = performance.now();
  location.hash = address;
  for (let calm = 0; calm < 3; await frame()) {
    const waits = /No such page|Asking the broker|is being loaded/.test(text());
    const whole = !waits && text().includes(total);
    calm = whole && document.documentElement.dataset.heard === "all" ? calm + 1 : 0;
    if (performance.now() - began > 60000) throw new Error(`${address} is not ready: ${text()}`);
  }
  return performance.now() - began;
}"""


def fill(broker: LiveBroker) -> None:
    names = [f"shop.{number:05}" for number in range(QUEUES)]
    manage(f"{broker.http_url}/api/exchanges/%2F/orders", {"type": "topic"})
    dialogue = Dialogue(broker.url)
    dialogue.ask(declare_frames(names), m.QUEUE_DECLARE_OK, WINDOW)
    binds = bind_frames(m.QUEUE_BIND, "topic", "orders", names, QUEUES)
    dialogue.ask(binds, m.QUEUE_BIND_OK, WINDOW)
    dialogue.close()


def times(page: Page, broker: LiveBroker) -> list[float]:
    """Milliseconds of each page, beside all connections."""
    connections: list[socket.socket] = open_connections(broker.url, CONNECTIONS, 1, 100)
    time.sleep(SETTLING_S)
    page.goto("about:blank")
    page.goto(broker.http_url)
    log_in_here(page)
    page.get_by_role("heading", name="Overview").wait_for()
    found = []
    for address in PAGES:
        page.evaluate("location.hash = '/elsewhere'")
        page.get_by_role("heading", name="No such page").wait_for()
        page.wait_for_timeout(200)
        found.append(float(page.evaluate(READY, [address, TOTALS.get(address, "")])))
    close_connections(connections)
    return found


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium is not None, "Debian: apt-get install chromium"
    with LiveBroker(ready_timeout_s=90) as broker, sync_playwright() as running:
        fill(broker)
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1360, "height": 900}, reduced_motion="reduce")
        page.set_default_timeout(WAIT_MS)
        first = times(page, broker)
        broker.stop()
        broker.start()
        again = times(page, broker)
        browser.close()
    print("| page | ms | after the broker was away, ms |\n|---|---:|---:|")
    for address, left, right in zip(PAGES, first, again, strict=True):
        print(f"| `{address}` | {left:.0f} | {right:.0f} |")


if __name__ == "__main__":
    main()
