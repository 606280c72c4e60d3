"""The page of the audit trail: filters, older records, and what it says without any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ui.life import Life
from tests.ui.visit import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Locator

RECORDS = 130


@pytest.fixture(scope="module", autouse=True)
def _logged_in(visit: Visit, life: Life) -> None:
    for number in range(RECORDS):
        life.channel.exchange_declare(f"traced-{number:03}", "fanout")
    visit.log_in()
    visit.heading("Overview")
    visit.menu("Audit trail")
    visit.heading("Audit trail")


def rows(visit: Visit) -> Locator:
    return visit.page.get_by_role("table", name="Audit trail").get_by_role("row")


def filter_by(visit: Visit, **fields: str) -> None:
    for label in ("User", "Action", "Object", "Address", "Answer", "Since", "Until"):
        visit.page.get_by_label(label, exact=True).fill(fields.get(label, ""))
    visit.page.get_by_role("button", name="Filter").click()


def test_filters_are_those_of_the_api(visit: Visit) -> None:
    from playwright.sync_api import expect

    filter_by(visit, User="guest", Action="exchange_declared", Object="traced-007", Answer="ok")
    expect(rows(visit)).to_have_count(2)
    row = rows(visit).nth(1)
    for text in ("guest", "exchange_declared", "exchange=traced-007", "ok", "127.0.0.1 amqp091"):
        expect(row).to_contain_text(text)
    assert "action=exchange_declared" in visit.page.url
    visit.page.reload()
    expect(rows(visit)).to_have_count(2)
    assert visit.page.get_by_label("Action", exact=True).input_value() == "exchange_declared"
    visit.check()


def test_times_bound_the_records(visit: Visit) -> None:
    filter_by(visit, Action="exchange_declared", Until="2020-01-01T00:00")
    visit.page.get_by_text("No record fits.").wait_for()
    filter_by(visit, Action="exchange_declared", Since="2020-01-01T00:00")
    visit.page.get_by_text("traced-129").wait_for()


def test_older_records_follow_without_a_gap(visit: Visit, life: Life) -> None:
    from playwright.sync_api import expect

    filter_by(visit, Action="exchange_declared", Object="traced-")
    expect(rows(visit)).to_have_count(101)
    life.channel.exchange_declare("traced-newer", "fanout")
    rows(visit).get_by_text("traced-newer").wait_for()
    visit.page.get_by_role("button", name="Older records").click()
    expect(rows(visit)).to_have_count(1 + RECORDS + 1)
    visit.page.get_by_text("newer ones are not shown").wait_for()
    visit.page.get_by_role("button", name="Back to the newest").click()
    expect(rows(visit)).to_have_count(101)
    visit.check()


def test_it_is_for_administrators(visit: Visit, life: Life) -> None:
    life.api("/api/users/looks", "PUT", {"password": "looks", "tags": "monitoring"})
    other = visit.another()
    try:
        other.log_in("looks", "looks")
        other.heading("Overview")
        menu = other.page.get_by_role("navigation")
        assert menu.get_by_role("link", name="Audit trail").count() == 0
        other.go("/audit")
        other.page.get_by_text("Only users with the tag administrator see this page.").wait_for()
        other.check()
    finally:
        other.close()
        life.api("/api/users/looks", "DELETE")
