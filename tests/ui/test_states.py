"""What pages say before the broker has answered, and when it refuses, fails or is away.

The broker lives; between it and the page the test answers the live stream itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.ui.life import Life
from tests.ui.test_pages import PAGES
from tests.ui.visit import WAIT_MS, Visit

if TYPE_CHECKING:
    from playwright.sync_api import Route

LIVE = "**/api/penstock/live?*"
EMPTY = re.compile(
    r"\bNone[.:]|\bNo [a-z]+|\bNothing\b|\bThere (is|are) no |\bnowhere\b|queues are empty"
)
"""What a page may only say when the broker has."""
# Besides those of the broker's answers: pages whose text does not come from it.
STATIC = {"definitions", "api", "exchanges"}
SHORT = [page for page in PAGES if page[0] not in STATIC]
UNREACHED = "The broker cannot be reached; this is shown when it answers again."


@pytest.fixture(scope="module", autouse=True)
def _logged_in(visit: Visit, life: Life) -> None:
    life.publish(5)
    visit.log_in()
    visit.heading("Overview")


@pytest.fixture
def answers(visit: Visit) -> Iterator[Callable[[Callable[[Route], None]], None]]:
    """The live stream is answered by a function of the test."""

    def answer(how: Callable[[Route], None]) -> None:
        visit.page.unroute(LIVE)
        visit.page.route(LIVE, how)
        visit.go("/elsewhere")
        visit.heading("No such page")

    yield answer
    visit.page.unroute(LIVE)
    visit.faults.clear()


def refused(status: int, error: str, reason: str) -> Callable[[Route], None]:
    def answer(route: Route) -> None:
        paths = parse_qs(urlsplit(route.request.url).query)["path"]
        fault = json.dumps({"status": status, "answer": {"error": error, "reason": reason}})
        body = "".join(f"event: {at}.error\ndata: {fault}\n\n" for at in range(len(paths)))
        route.fulfill(body=body, content_type="text/event-stream")

    return answer


def must_say(visit: Visit, page: str, text: str) -> None:
    """That, and nothing that would have to come from the broker."""
    try:
        visit.page.locator("main").get_by_text(text).first.wait_for(timeout=5000)
    except Exception:
        pytest.fail(f"{page} does not say {text!r}: {visit.page.locator('main').inner_text()}")
    found = EMPTY.search(visit.page.locator("main").inner_text())
    assert found is None, f"{page}: {found}"


def test_no_page_says_that_nothing_is_there_before_it_knows(
    visit: Visit, answers: Callable[[Callable[[Route], None]], None]
) -> None:
    answers(lambda route: None)  # the broker takes its time
    for name, address, heading in SHORT:
        visit.go(address)
        visit.heading(heading)
        must_say(visit, name, "Asking the broker …")


@pytest.mark.parametrize(
    "status, error, text",
    [
        (401, "not_authorised", "Your user may not see this: because"),
        (503, "unavailable", "The broker did not answer: because"),
        (400, "bad_request", "The broker answered with an error: because"),
    ],
)
def test_every_page_says_what_became_of_its_question(
    visit: Visit,
    answers: Callable[[Callable[[Route], None]], None],
    status: int,
    error: str,
    text: str,
) -> None:
    answers(refused(status, error, "because"))
    for name, address, heading in SHORT:
        visit.go(address)
        visit.heading(heading)
        must_say(visit, name, text)


def test_what_is_gone_is_not_a_failure(
    visit: Visit, answers: Callable[[Callable[[Route], None]], None]
) -> None:
    answers(refused(404, "Object Not Found", "Not Found"))
    for address, text in (
        ("/queues/%2F/gone", "There is no such queue (any more)."),
        ("/connections/gone", "This connection is closed."),
        ("/users/gone", "It is not there (any more)."),
    ):
        visit.go(address)
        visit.page.get_by_text(text).first.wait_for()


def test_a_line_that_is_lost_makes_what_is_shown_old(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/queues")
    name = page.get_by_role("link", name="orders.audit")
    name.wait_for()
    page.route(LIVE, lambda route: route.abort())
    page.get_by_label("Refresh").select_option("2000")
    lost = page.get_by_text(re.compile(r"The broker has not been heard of since \d{4}-.*UTC"))
    lost.wait_for()
    assert name.is_visible()  # what is known stays
    visit.go("/users")
    page.get_by_text(UNREACHED).first.wait_for()
    page.unroute(LIVE)
    lost.wait_for(state="detached", timeout=2 * WAIT_MS)
    page.get_by_role("cell", name="guest").first.wait_for()
    page.get_by_label("Refresh").select_option("1000")
    visit.faults.clear()


def test_an_answer_that_fails_later_says_how_old_the_last_one_is(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/queues/%2F/orders.audit")
    visit.wait_for_text(visit.figure("consumers"), "0")
    page.route(LIVE, refused(503, "unavailable", "busy"))
    page.get_by_label("Refresh").select_option("2000")
    old = re.compile(r"The broker did not answer: busy What is shown is of \d{4}-")
    page.get_by_text(old).first.wait_for()
    assert visit.figure("consumers").inner_text() == "0"
    page.unroute(LIVE)
    page.get_by_text(old).first.wait_for(state="detached", timeout=2 * WAIT_MS)
    page.get_by_label("Refresh").select_option("1000")
    visit.faults.clear()
