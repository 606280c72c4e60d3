"""Every page of the web UI with a living broker behind it, in Chromium.

No page may make the console complain or break the policy, light or dark; numbers follow what
happens in the broker.
"""

from __future__ import annotations

import re
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tests.helpers.live_broker import LiveBroker
from tests.ui.addresses import PAGES, QUEUE
from tests.ui.life import Life
from tests.ui.visit import Visit, violations


@pytest.fixture(scope="module", autouse=True)
def _logged_in(visit: Visit, life: Life) -> None:
    life.publish(30)
    visit.page.goto(visit.url)
    visit.page.get_by_label("User name").wait_for()
    visit.shoot_now("login")
    visit.log_in()
    visit.heading("Overview")


@pytest.mark.parametrize("name, address, heading", PAGES)
def test_every_page(visit: Visit, life: Life, name: str, address: str, heading: str) -> None:
    life.keep_alive()
    visit.go(address)
    visit.heading(heading)
    visit.settle()
    assert visit.page.title().endswith(" · Penstock")
    visit.check()
    visit.shoot(name)
    visit.check()


def test_the_audit_finds_what_is_wrong(visit: Visit) -> None:
    visit.go("/")
    visit.heading("Overview")
    visit.dark(dark=False)
    visit.page.evaluate(
        """() => {
          const wrong = document.createElement("div");
          wrong.innerHTML = '<button></button><input><h1>pale</h1><nav></nav><nav></nav>';
          wrong.querySelector("h1").style.color = "silver";
          document.body.append(wrong);
        }"""
    )
    found = {text.partition(":")[0] for text in violations(visit.page)}
    assert found >= {"button-name", "label", "color-contrast", "landmark-unique"}
    visit.page.reload()
    visit.heading("Overview")


@pytest.mark.parametrize("name", ["connections", "channels"])
def test_a_client_in_detail(visit: Visit, life: Life, name: str) -> None:
    client = life.api(f"/api/{name}")[0]["name"]
    visit.go(f"/{name}")
    visit.page.get_by_role("table").get_by_role("link").first.click()
    visit.page.get_by_text("Virtual host", exact=True).wait_for()
    assert quote(client, safe="")[:20] in visit.page.url
    visit.settle()
    visit.check()
    visit.shoot(name.removesuffix("s"))


def test_the_overview_begins_with_what_needs_a_person(visit: Visit, life: Life) -> None:
    life.publish(15)  # after the first sample
    visit.go("/")
    first = visit.page.locator("main section").first
    grown = first.get_by_role("link", name="Queue 'orders.audit' has no consumer and grew by")
    grown.wait_for()
    texts = {one["sentence"] for one in life.api("/api/penstock/attention")["findings"]}
    assert texts.issuperset(first.get_by_role("link").all_text_contents())
    grown.click()
    visit.heading("orders.audit")
    visit.check()


def test_the_log_is_read_and_filtered(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/log")
    lines = page.get_by_role("list", name="Lines of the log").get_by_role("listitem")
    lines.filter(has_text="connection accepting AMQP connection").first.wait_for()
    page.get_by_label("Filter lines").fill("no such line")
    page.get_by_text("No line fits.").wait_for()
    page.get_by_label("Filter lines").fill("")
    page.get_by_label("From level").select_option("critical")
    page.get_by_text("No line fits.").wait_for()
    page.get_by_label("Of the category").fill("queue")
    page.get_by_label("Level", exact=True).select_option("debug")
    page.get_by_role("button", name="Set level").click()
    page.get_by_text(re.compile("; queue from debug on")).wait_for()
    life.api("/api/penstock/log-level", "PUT", {"level": "", "category": "queue"})
    visit.check()


def test_a_week_the_pointer_and_two_queues_in_one_chart(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/nodes")
    visit.heading("Nodes")
    page.get_by_label("Charts").select_option("604800")
    chart = page.locator("figure.chart").first
    chart.locator(".u-over").hover()
    chart.get_by_text("UTC").first.wait_for()
    page.get_by_label("Charts").select_option("300")
    visit.go("/queues/%2F/orders.new")
    page.get_by_label("Queue of this virtual host").fill("orders.audit")
    page.get_by_role("button", name="Compare").click()
    compared = page.locator("figure.chart").filter(has_text="Queued messages, compared")
    for name in ("orders.new", "orders.audit"):
        compared.locator(".legend").get_by_text(name).wait_for()
    visit.shoot("queues-compared")
    visit.check()


def test_numbers_follow_a_publish(visit: Visit, life: Life) -> None:
    visit.go("/queues")
    ready = visit.row("Queues", "orders.audit").get_by_role("cell").nth(4)
    before = life.api("/api/queues/%2F/orders.audit")["messages_ready"]
    visit.wait_for_text(ready, str(before))
    life.publish(7)
    visit.wait_for_text(ready, str(before + 7))
    visit.go(QUEUE)
    visit.wait_for_text(visit.figure("ready"), str(before + 7))
    life.publish(5)
    visit.wait_for_text(visit.figure("ready"), str(before + 12))
    visit.go("/")
    total = life.api("/api/overview")["queue_totals"]["messages_ready"]
    visit.wait_for_text(visit.figure("ready"), str(total))
    visit.check()


def test_the_node_says_how_long_its_disk_takes(visit: Visit, life: Life) -> None:
    visit.go("/nodes")
    visit.heading("Nodes")
    (node,) = life.api("/api/nodes?columns=io_sync_count,io_sync_avg_time")
    assert node["io_sync_count"] > 0
    assert node["io_sync_avg_time"] > 0
    shown = re.compile(r"Syncs\s*[\d.,]+, [\d.]+ ms each")
    visit.page.locator("dl > div", has_text=shown).wait_for()


def test_the_chart_says_in_words_what_it_draws(visit: Visit, life: Life) -> None:
    visit.go(QUEUE)
    ready = life.api("/api/queues/%2F/orders.audit")["messages_ready"]
    words = re.compile(rf"Queued messages: total {ready}, unacknowledged 0, ready {ready}")
    chart = visit.page.get_by_role("img", name=words)
    chart.wait_for()
    assert chart.locator("canvas").count() == 1


def test_lists_sort_filter_and_choose_columns_on_the_server(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/queues")
    names = page.get_by_role("table", name="Queues").locator("tbody td:first-child")
    page.get_by_role("button", name="Total", exact=True).click()
    # Numbers begin with the largest.
    head = page.get_by_role("columnheader", name="Total")
    assert head.get_attribute("aria-sort") == "descending"
    page.wait_for_function("() => location.hash.includes('sort=messages&reverse=1')")
    visit.wait_for_text(names.first, "orders.audit")
    page.get_by_label("Filter Queues by name").fill("^D.*d$")
    page.get_by_text("Nothing of that name.").wait_for()
    page.get_by_label("regex").check()
    visit.wait_for_text(names, "dead")
    assert "regex=1" in page.url
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Message bytes").check()
    page.get_by_role("columnheader", name="Message bytes").wait_for()
    page.reload()
    page.get_by_role("columnheader", name="Message bytes").wait_for()
    visit.wait_for_text(names, "dead")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Message bytes").uncheck()
    visit.check()


def test_pages_of_a_long_list(visit: Visit, life: Life) -> None:
    for number in range(30):
        life.channel.queue_declare(f"many.{number:02d}", auto_delete=True)
    visit.go("/queues?name=many&size=25")
    page = visit.page
    page.get_by_text("page 1 of 2").wait_for()
    page.get_by_role("button", name="Next →").click()
    page.get_by_text("page 2 of 2").wait_for()
    page.get_by_role("link", name="many.29").wait_for()
    # A filter that leaves fewer pages than one stands on leads back to the first.
    page.get_by_label("Filter Queues by name").fill("many.0")
    page.get_by_role("link", name="many.00").wait_for()
    for number in range(30):
        life.channel.queue_delete(f"many.{number:02d}")
    visit.check()


def test_what_is_bound_is_drawn(visit: Visit) -> None:
    visit.go("/exchanges/%2F/orders?tab=bindings")
    words = "orders: bound to 0 sources and 2 destinations, as the tables say"
    picture = visit.page.get_by_role("group", name=words)
    picture.wait_for()
    names = picture.locator("a title").all_text_contents()
    assert sorted(names) == ["orders.audit", "orders.new"]
    picture.locator("a").filter(has_text="orders.audit").click()
    visit.heading("orders.audit")
    visit.check()


def test_where_would_it_go(visit: Visit) -> None:
    page = visit.page
    visit.go("/exchanges/%2F/orders?tab=route")
    page.get_by_label("Routing key").fill("order.new")
    page.get_by_role("button", name="Ask").click()
    picture = page.get_by_role("group", name="The way from orders")
    picture.wait_for()
    boxes = picture.locator("a").all_text_contents()
    assert [box.strip() for box in boxes if "orders.audit" in box or "orders.new" in box]
    holds = visit.row("Queues reached", "orders.audit")
    holds.get_by_text("The queue has no consumer.").wait_for()
    visit.row("Hops", "order.#").wait_for()
    visit.shoot("exchange-route")
    holds.get_by_role("link", name="dead", exact=True).click()
    visit.heading("dead")
    visit.go("/exchanges/%2F/orders?tab=route")
    page.get_by_label("Routing key").fill("nowhere")
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("To no queue: it would be dropped").wait_for()
    visit.check()


def test_a_policy_shows_what_it_would_reach(visit: Visit) -> None:
    page = visit.page
    visit.go("/policies")
    page.get_by_label("Pattern").fill("^orders")
    page.get_by_text("2 of 4 queues in /").wait_for()
    page.get_by_label("Pattern").fill("(")
    page.get_by_text("pattern: missing )").wait_for()
    page.get_by_label("Pattern").fill("audit$")
    page.get_by_text("1 of 4 queues in /").wait_for()
    visit.shoot("policy-preview")
    visit.faults.clear()  # the refused pattern is a 400, and browsers say so


def test_pause_purge_and_questions(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/queues/%2F/dead?tab=settings")
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("dead: paused.").wait_for()
    page.get_by_role("button", name="Resume").wait_for()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Pause").wait_for()
    life.channel.basic_publish("dead", "", b"gone soon")
    visit.wait_for_text(visit.figure("ready"), "1")
    page.get_by_role("button", name="Purge…").click()
    page.get_by_role("dialog").get_by_text("1 ready message will be dropped").wait_for()
    page.keyboard.press("Escape")
    assert life.api("/api/queues/%2F/dead")["messages"] == 1
    page.get_by_role("button", name="Purge…").click()
    visit.shoot("question")
    page.get_by_role("dialog").get_by_role("button", name="Purge", exact=True).click()
    visit.wait_for_text(visit.figure("ready"), "0")
    visit.check()


def test_a_queue_with_blanks_in_its_name_is_deleted_by_hand(visit: Visit, life: Life) -> None:
    name = "  two  blanks\tand a tab "
    life.channel.queue_declare(name)
    visit.go(f"/queues/%2F/{quote(name, safe='')}?tab=settings")
    visit.page.get_by_role("button", name="Delete…").click()
    spelt = "␣␣two␣␣blanks\\u{9}and a tab␣"
    visit.page.get_by_label(f"Type {spelt} to go on").fill(spelt)
    visit.page.get_by_role("dialog").get_by_role("button", name="Delete queue").click()
    visit.heading("Queues")
    visit.check()


def test_a_page_that_could_not_be_loaded_is_forgotten_with_the_next(visit: Visit) -> None:
    other = visit.another()
    other.page.route("**/pages/exchanges.js", lambda route: route.abort())
    other.log_in()
    other.heading("Overview")
    other.go("/exchanges")
    problem = other.page.get_by_text("The page could not be loaded from the broker.")
    problem.wait_for()
    other.page.unroute("**/pages/exchanges.js")
    other.go("/")
    other.heading("Overview")
    problem.wait_for(state="detached")
    other.go("/exchanges")
    other.heading("Exchanges")
    other.close()


def test_pages_of_the_menu_open_while_the_broker_is_away(visit: Visit) -> None:
    other = visit.another()
    other.log_in()
    other.heading("Overview")
    other.page.wait_for_function(
        "() => performance.getEntriesByName(new URL('/ui/pages/users.js', location).href).length"
    )
    other.page.context.set_offline(True)
    other.go("/users")
    other.page.get_by_text("The broker cannot be reached").first.wait_for()
    other.close()


def test_nothing_is_said_to_be_empty_before_it_was_heard(visit: Visit) -> None:
    other = visit.another()
    other.page.route("**/api/penstock/live?**", lambda route: None)  # it is never answered
    other.log_in()
    other.heading("Overview")
    for text in ("All queues are empty.", "None.", "Nothing was published or delivered yet."):
        assert other.page.get_by_text(text, exact=True).count() == 0
    other.close()


def test_by_keyboard_alone(visit: Visit) -> None:
    page = visit.page
    page.goto(visit.url)
    visit.heading("Overview")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.get_by_role("navigation").get_by_role("link", name="Queues").focus()
    page.keyboard.press("Enter")
    visit.heading("Queues")
    assert page.evaluate("document.activeElement.id") == "main"
    page.get_by_role("link", name="orders.audit").focus()
    page.keyboard.press("Enter")
    tab = page.get_by_role("tab", name="Overview")
    tab.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    assert "tab=" in page.url
    # What has the focus shows it.
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    visit.check()


def test_a_narrow_window_has_a_menu_behind_a_button(visit: Visit) -> None:
    page = visit.page
    size = page.viewport_size
    page.set_viewport_size({"width": 420, "height": 800})
    visit.go("/")
    visit.heading("Overview")
    assert not page.get_by_role("navigation").is_visible()
    page.get_by_role("button", name="Menu").click()
    visit.menu("Queues")
    visit.heading("Queues")
    visit.settle()
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    visit.shoot_now("narrow")
    assert size is not None
    page.set_viewport_size(size)
    visit.check()


def test_every_page_is_right_on_a_phone(visit: Visit, life: Life) -> None:
    page = visit.page
    size = page.viewport_size
    body = {"pattern": "^orders", "definition": {"max-length": 100_000}, "apply-to": "queues"}
    life.api("/api/policies/%2F/narrow", "PUT", body)
    page.get_by_label("Refresh").select_option("0")  # each page opened a stream of its own
    page.set_viewport_size({"width": 390, "height": 844})
    wrong: dict[str, list[str]] = {}
    messages = ("queue-messages", f"{QUEUE}?tab=messages", "orders.audit")
    for name, address, heading in [*PAGES, messages]:
        visit.go(address)
        visit.heading(heading)
        visit.settle()
        if (found := page.evaluate("document.documentElement.scrollWidth")) > 390:
            wrong[name] = [f"{found} wide"]
        for theme in ("light", "dark"):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
            wrong[name] = wrong.get(name, []) + violations(page)
    assert {name: texts for name, texts in wrong.items() if texts} == {}
    assert size is not None
    page.set_viewport_size(size)
    page.get_by_label("Refresh").select_option("1000")
    life.api("/api/policies/%2F/narrow", "DELETE")
    visit.check()


def test_charts_show_the_time_that_is_chosen(visit: Visit) -> None:
    page = visit.page
    day = "node_stats_age=86400&node_stats_incr=1800"
    visit.go("/nodes")
    visit.heading("Nodes")
    with page.expect_request(lambda request: quote(day, safe="") in request.url):
        page.get_by_label("Charts").select_option("86400")
    visit.settle()
    with page.expect_request(lambda request: "msg_rates_age%3D3600" in request.url):
        visit.go(QUEUE)  # of which there is an hour
    page.reload()
    visit.heading("orders.audit")
    assert page.get_by_label("Charts").input_value() == "86400"
    page.get_by_label("Charts").select_option("300")
    visit.settle()
    visit.check()


def test_ticks_of_sizes_are_round(visit: Visit) -> None:
    """Powers of two, and not 47.7 MiB (B80 of the review)."""
    visit.go("/nodes")
    visit.heading("Nodes")
    visit.page.evaluate(
        """() => {
          window.written = [];
          CanvasRenderingContext2D.prototype.fillText = (text) => window.written.push(text);
        }"""
    )
    visit.dark(dark=True)  # draws the charts again
    visit.page.wait_for_function("() => window.written.some((text) => /[KMG]iB/.test(text))")
    written = visit.page.evaluate("window.written")
    visit.page.reload()
    assert [text for text in written if re.search(r"\.(?!5 ).*iB", text)] == []


def test_memory_by_use_is_in_words(visit: Visit) -> None:
    visit.go("/nodes")
    table = visit.page.get_by_role("table", name="Memory by use")
    table.get_by_text("program and definitions at the start").wait_for()
    assert "other system" not in table.inner_text()


def test_times_have_their_zone(visit: Visit) -> None:
    script = """async () => {
      const { when, zone } = await import("/ui/lib/format.js");
      const at = Date.UTC(2026, 0, 2, 3, 4, 5);
      return [when(at), zone(at)];
    }"""
    browser = visit.page.context.browser
    assert browser is not None
    for name, wanted in [
        ("UTC", ["2026-01-02 03:04:05 UTC", "UTC"]),
        ("Asia/Kolkata", ["2026-01-02 08:34:05 UTC+5:30", "UTC+5:30"]),
        ("America/Lima", ["2026-01-01 22:04:05 UTC-5", "UTC-5"]),
    ]:
        context = browser.new_context(timezone_id=name)
        page = context.new_page()
        page.goto(visit.url)
        assert page.evaluate(script) == wanted
        context.close()


def test_paused_means_nobody_asks(visit: Visit, life: Life) -> None:
    page = visit.page
    asked: list[str] = []
    visit.go(QUEUE)
    ready = life.api("/api/queues/%2F/orders.audit")["messages_ready"]
    visit.wait_for_text(visit.figure("ready"), str(ready))
    page.get_by_label("Refresh").select_option("0")
    page.get_by_text("paused", exact=True).first.wait_for()
    page.on("request", lambda request: asked.append(request.url))
    life.publish(4)
    page.wait_for_timeout(1200)
    assert asked == []
    visit.wait_for_text(visit.figure("ready"), str(ready))
    page.get_by_role("button", name="Look now").click()
    visit.wait_for_text(visit.figure("ready"), str(ready + 4))
    assert not any("/api/penstock/live" in url for url in asked)
    visit.shoot("paused")
    # Another page is shown once, too.
    visit.menu("Consumers")
    page.get_by_text("packer").wait_for()
    page.get_by_label("Refresh").select_option("1000")
    page.get_by_text("live", exact=True).wait_for()
    visit.check()


def test_the_line_comes_back(visit: Visit, life: Life) -> None:
    """The browser is cut off and let in again: it says so, and numbers go on."""
    page = visit.page
    visit.go(QUEUE)
    visit.figure("ready").wait_for()
    page.context.set_offline(True)
    page.get_by_label("Refresh").select_option("2000")
    page.get_by_text("connection lost, trying again").wait_for()
    page.context.set_offline(False)
    page.get_by_text("live", exact=True).wait_for()
    life.publish(3)
    ready = life.api("/api/queues/%2F/orders.audit")["messages_ready"]
    visit.wait_for_text(visit.figure("ready"), str(ready))
    page.get_by_label("Refresh").select_option("1000")
    visit.faults.clear()  # "net::ERR_INTERNET_DISCONNECTED" is meant


def test_log_in_and_out(visit: Visit, node: LiveBroker) -> None:
    page = visit.page
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Password").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    page.get_by_label("User name").fill("guest")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("alert").filter(has_text="Login failed").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    visit.faults.clear()  # the refused login is a 401, and browsers say so
    page.get_by_label("Password").fill("guest")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Log out").wait_for()
    page.reload()
    page.get_by_role("button", name="Log out").wait_for()
    assert "guest" not in page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert page.evaluate("document.cookie") == ""
    (cookie,) = page.context.cookies(f"{visit.url}/api/")
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    visit.check()


def test_another_tab_has_the_session_until_one_logs_out(visit: Visit) -> None:
    other = visit.another()
    try:
        other.log_in()
        other.heading("Overview")
        (cookie,) = other.page.context.cookies(f"{visit.url}/api/")
        second = other.page.context.new_page()
        second.goto(visit.url)
        second.get_by_role("button", name="Log out").click()
        second.get_by_label("Password").wait_for()
        other.page.get_by_text("You are logged out").wait_for()
        assert other.page.context.cookies(f"{visit.url}/api/") == []
        shown = f"{cookie['name']}={cookie['value']}"
        headers = {"Cookie": shown, "X-Requested-With": "XMLHttpRequest"}
        with pytest.raises(HTTPError, match="401"):
            urlopen(Request(f"{visit.url}/api/whoami", headers=headers))
    finally:
        other.close()


def test_a_log_in_that_ends_meanwhile_says_so(visit: Visit, life: Life) -> None:
    """The password is changed by another administrator (B69 of the review)."""
    user = {"password": "first", "tags": "administrator"}
    life.api("/api/users/passing", "PUT", user)
    life.api(
        "/api/permissions/%2F/passing", "PUT", dict.fromkeys(("configure", "write", "read"), "")
    )
    other = visit.another()
    try:
        other.log_in("passing", "first")
        other.heading("Overview")
        life.api("/api/users/passing", "PUT", user | {"password": "second"})
        other.page.get_by_text("You are logged out").wait_for()
        other.page.get_by_label("Password").wait_for()
    finally:
        other.close()
        life.api("/api/users/passing", "DELETE")


def test_without_javascript(visit: Visit) -> None:
    context = visit.plain()
    page = context.new_page()
    page.goto(visit.url)
    page.get_by_role("link", name="status page").click()
    page.get_by_role("cell", name="orders.audit").wait_for()
    context.close()
