"""Mirrored queues in a browser: the page of all rings, the ring of a queue, what a click does.

The node believes to be one of three; its mirrors are what the test makes up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest

from penstock.broker.mirrors import MASTER, MIRROR, MasterMove, RingFacts, SyncProgress
from penstock.node.inspection.session_inspector import NodeSessionInspector
from tests.helpers.mirrored import A, B, C, FakeMirrors, copy, down, facts, in_a_cluster
from tests.management.conftest import Served
from tests.ui.conftest import SHOTS
from tests.ui.visit import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OLD = f"{B}/0#1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = Served(tmp_path_factory.mktemp("node"))
    in_a_cluster(cast(NodeSessionInspector, running.view.watch))
    running.declare("plain", "orders", "behind", "gone")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def visit(browser: Browser, cluster: Served) -> Iterator[Visit]:
    visit = Visit(browser, f"http://127.0.0.1:{cluster.port}", SHOTS)
    visit.log_in()
    visit.heading("Overview")
    yield visit
    visit.close()


@pytest.fixture(autouse=True)
def _no_complaints(visit: Visit) -> Iterator[None]:
    yield
    visit.check()


@pytest.fixture
def mirrors(cluster: Served) -> FakeMirrors:
    fake = FakeMirrors()
    fake.known["/", "orders"] = facts(
        copy(A, MASTER, True), copy(B, MIRROR, True), copy("penstock@four", MIRROR, True)
    )
    fake.known["/", "behind"] = behind = facts(
        copy(A, MASTER, True),
        copy(B, MIRROR, False, SyncProgress(1200, 5000, 99_000, 400, 9500)),
        recoverable={C: "partial"},
        state="syncing",
        why=f"{B}: fetching what they lack",
    )
    behind.ring = RingFacts(7, [f"{A}/1#1", OLD, f"{B}/1#1"], [OLD])
    behind.ring.left = behind.ring.right = f"{B}/1#1"
    behind.ring.kept_bytes = 2048
    fake.known["/", "gone"] = down("no mirror is there", {C: "synced"})
    cluster.node.broker.mirrors = fake
    return fake


def ring_of(visit: Visit, queue: str) -> None:
    visit.go(f"/queues/%2F/{queue}?tab=mirrors")
    visit.page.get_by_role("group", name=f"Mirror ring of queue {queue}").wait_for()


def members(visit: Visit) -> dict[str, str]:
    """Who is drawn, and how."""
    found = visit.page.locator(".drawing.ring .member").all()
    return {
        str(one.get_attribute("data-member")): str(one.get_attribute("class")).split()[-1]
        for one in found
    }


def test_all_rings_and_what_each_node_has(visit: Visit, mirrors: FakeMirrors) -> None:
    mirrors.out = [B]
    visit.menu("Mirrors")
    visit.heading("Mirrors")
    row = visit.row("Mirrored queues", "behind")
    row.get_by_text("1,200 of 5,000 messages, 400/s, 9 s left").wait_for()
    assert "syncing" in row.inner_text()
    assert "1 of 2" in row.inner_text()
    assert "3 of 3" in visit.row("Mirrored queues", "orders").inner_text()
    assert "no mirror is there" in visit.row("Mirrored queues", "gone").inner_text()
    node = visit.row("Nodes of the cluster", B).inner_text().split()
    assert node[:3] == [B, "running", "drained"]
    assert node[-6:-2] == ["0", "2", "1", "up"]
    visit.shoot("mirrors")
    visit.page.get_by_role("link", name="behind", exact=True).click()
    visit.heading("behind")
    visit.page.get_by_role("group", name="Mirror ring of queue behind").wait_for()


def test_masters_are_spread_by_a_click(visit: Visit, mirrors: FakeMirrors) -> None:
    mirrors.moves = [MasterMove("/", "orders", A, B)]
    visit.go("/mirrors")
    visit.page.get_by_role("button", name="Spread masters").click()
    visit.page.get_by_text("1 master will move.").wait_for()
    assert mirrors.asked == [("rebalance", ".*", ".*", "all")]


def test_the_ring_shows_who_is_dead_and_who_is_away(visit: Visit, mirrors: FakeMirrors) -> None:
    ring_of(visit, "behind")
    assert members(visit) == {
        f"{A}/1#1": "master",
        OLD: "dead",
        f"{B}/1#1": "behind",
        C: "partial",
    }
    assert visit.page.locator(".ring .term").text_content() == "term 3"
    table = visit.page.get_by_role("table", name="Copies of the queue")
    cells = table.get_by_role("row", name=f"{B} not synchronised").get_by_role("cell")
    assert cells.all_inner_texts()[2:5] == ["60", "60", "10"]
    assert "1,200 of 5,000" in visit.page.locator(".meter").inner_text()
    sentence = visit.page.locator(".sentence").inner_text()
    assert "Its only mirror is not synchronised" in sentence
    visit.shoot("queue-mirrors-syncing")


def test_a_queue_that_is_down_says_why(visit: Visit, mirrors: FakeMirrors) -> None:
    ring_of(visit, "gone")
    sentence = visit.page.locator(".sentence").inner_text()
    assert "no master and cannot be used: no mirror is there." in sentence
    assert members(visit) == {C: "synced"}
    assert "has everything" in visit.row("Copies of the queue", C).inner_text()
    assert visit.page.get_by_role("button", name="Synchronise", exact=True).is_disabled()


def test_synchronising_cancelling_and_handing_over(visit: Visit, mirrors: FakeMirrors) -> None:
    page = visit.page
    ring_of(visit, "behind")
    assert page.get_by_role("button", name="Synchronise", exact=True).is_disabled()
    page.get_by_role("button", name="Cancel synchronisation").click()
    page.get_by_text("The mirrors stop").wait_for()
    mirrors.known["/", "behind"].state = "running"
    page.get_by_role("button", name="Synchronise", exact=True).click()
    page.get_by_text("The mirrors fetch what they lack.").wait_for()
    ring_of(visit, "orders")
    visit.shoot("queue-mirrors-ring")
    page.get_by_role("button", name=f"Make {B} the master").click()
    page.get_by_role("dialog").get_by_role("button", name="Hand over").click()
    page.get_by_text(f"{B} becomes master.").wait_for()
    assert mirrors.asked == [
        ("cancel_sync", "behind"),
        ("sync", "behind"),
        ("hand_over", "orders", B),
    ]


def test_mirrors_are_marked_in_the_list_of_queues(visit: Visit, mirrors: FakeMirrors) -> None:
    visit.go("/queues")
    row = visit.row("Queues", "behind")
    row.get_by_title(f"Unsynchronised mirrors: {B}").wait_for()
    assert row.get_by_title("There are no synchronised mirrors").inner_text() == "+0"
    found = visit.row("Queues", "orders").get_by_title("Synchronised mirrors:")
    assert found.inner_text() == "+2"
    assert "+" not in visit.row("Queues", "plain").inner_text()
    visit.go("/queues/%2F/orders")
    visit.page.get_by_role("link", name="2 of 2 synchronised").click()
    visit.page.get_by_role("group", name="Mirror ring of queue orders").wait_for()


def test_the_nodes_of_the_cluster_and_its_mirrors(visit: Visit, mirrors: FakeMirrors) -> None:
    visit.go("/nodes")
    visit.row("Nodes of the cluster", C).wait_for()
    visit.page.get_by_role("link", name="3 mirrored queues").click()
    visit.heading("Mirrors")


def test_the_overview_says_of_the_others_whether_they_run(
    visit: Visit, mirrors: FakeMirrors
) -> None:
    visit.go("/")
    assert "down" in visit.row("Nodes", C).inner_text()
    assert "running" in visit.row("Nodes", B).inner_text()
    assert "of" in visit.row("Nodes", A).inner_text()
