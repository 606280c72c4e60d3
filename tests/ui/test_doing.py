"""What people do in the web UI, from declaring to deleting; every step ends in the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import pika
import pytest

from tests.helpers.nsq_live import NsqLiveBroker, RawClient
from tests.helpers.raw_nsq import mpub
from tests.ui.life import Life
from tests.ui.visit import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Route


@pytest.fixture(scope="module")
def node() -> Iterator[NsqLiveBroker]:
    with NsqLiveBroker(login_lockout="address", login_lockout_failures=2) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def _logged_in(visit: Visit, life: Life) -> None:
    visit.log_in()
    visit.heading("Overview")


@pytest.fixture(autouse=True)
def _no_complaints(visit: Visit, life: Life) -> None:
    life.keep_alive()
    visit.faults.clear()


def is_gone(life: Life, path: str) -> bool:
    try:
        life.api(path)
    except HTTPError as error:
        with error:
            return error.code == 404
    return False


def test_a_message_is_followed(visit: Visit, life: Life) -> None:
    page = visit.page
    life.channel.queue_declare("followed", durable=True)
    visit.go("/queues/%2F/followed?tab=publish")
    page.get_by_label("Follow it").check()
    page.get_by_role("button", name="Publish message").click()
    steps = page.get_by_role("table", name="Steps")
    steps.get_by_text("waits in").wait_for()
    method, _, _ = life.channel.basic_get("followed")
    steps.get_by_text("is at a consumer of").wait_for()
    visit.shoot("message-followed")
    assert method is not None
    life.channel.basic_ack(method.delivery_tag)
    steps.get_by_text("acknowledged").wait_for()
    assert steps.get_by_role("row").count() == 4
    visit.check()
    life.channel.queue_delete("followed")


def test_a_queue_whose_name_is_a_step_of_paths_is_no_other_queue(visit: Visit, life: Life) -> None:
    """A purge of "." would be a DELETE of the queue that is called contents."""
    page = visit.page
    for name in (".", "contents"):
        life.channel.queue_declare(name, durable=True)
    visit.go("/queues/%2F/.?tab=settings")
    visit.heading(".")
    page.get_by_role("button", name="Purge…").click()
    page.get_by_role("dialog").get_by_role("button", name="Purge").click()
    page.get_by_text("cannot ask about the names").first.wait_for()
    assert not is_gone(life, "/api/queues/%2F/contents")
    visit.faults.clear()
    for name in (".", "contents"):
        life.channel.queue_delete(name)


def test_from_declaring_to_deleting(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/exchanges")
    page.get_by_text("Declare an exchange").click()
    page.get_by_label("Name", exact=True).fill("by.hand")
    page.locator("select[name=type]").select_option("topic")
    page.get_by_role("button", name="Declare exchange").click()
    visit.heading("by.hand")

    visit.go("/queues")
    page.get_by_text("Declare a queue").click()
    page.get_by_label("Name", exact=True).fill("hand made")
    page.get_by_role("button", name="x-max-length", exact=True).click()
    page.get_by_role("button", name="x-dead-letter-exchange", exact=True).click()
    page.get_by_role("button", name="Declare queue").click()
    visit.heading("hand made")
    queue = life.api("/api/queues/%2F/hand%20made")
    assert queue["arguments"] == {"x-max-length": 10_000, "x-dead-letter-exchange": "dlx"}

    visit.tab("Bindings")
    page.get_by_label("From exchange").fill("by.hand")
    page.get_by_label("Routing key").fill("a.#")
    page.get_by_role("button", name="Bind", exact=True).click()
    visit.row("Bindings", "by.hand").wait_for()
    visit.shoot("doing-bindings")

    visit.go("/exchanges/%2F/by.hand?tab=publish")
    page.get_by_label("Routing key").fill("a.b")
    page.get_by_label("Payload", exact=True).fill('{"by": "hand"}')
    page.get_by_label("Headers").fill("colour = red\nnumber = 7")
    page.get_by_role("button", name="content_type").click()
    page.get_by_role("button", name="Publish message").click()
    page.get_by_text("Published.").first.wait_for()
    page.get_by_label("Routing key").fill("b")
    page.get_by_role("button", name="Publish message").click()
    page.get_by_text("Published, but routed nowhere").wait_for()

    visit.go("/queues/%2F/hand%20made?tab=publish")
    visit.wait_for_text(visit.figure("ready"), "1")
    page.get_by_role("button", name="Get messages").click()
    got = page.locator("article.message")
    visit.wait_for_text(got.locator("pre"), '{\n  "by": "hand"\n}')
    for text in ("colour", "red", "application/json", "a.b"):
        got.get_by_text(text, exact=True).wait_for()
    visit.wait_for_text(visit.figure("ready"), "1")
    visit.shoot("doing-get")
    page.get_by_label("What happens to them").select_option("ack_requeue_false")
    page.get_by_role("button", name="Get messages").click()
    page.get_by_role("dialog").get_by_role("button", name="Take out").click()
    visit.wait_for_text(visit.figure("ready"), "0")

    visit.tab("Bindings")
    page.get_by_role("button", name="Unbind a.# of by.hand").click()
    page.get_by_role("dialog").get_by_role("button", name="Unbind").click()
    visit.row("Bindings", "by.hand").wait_for(state="detached")

    visit.tab("Settings")
    page.get_by_role("button", name="Delete…").click()
    remove = page.get_by_role("dialog").get_by_role("button", name="Delete queue")
    assert remove.is_disabled()
    page.get_by_label("Type hand made to go on").fill("hand made")
    remove.click()
    visit.heading("Queues")
    assert is_gone(life, "/api/queues/%2F/hand%20made")
    visit.go("/exchanges/%2F/by.hand")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_label("Type by.hand to go on").fill("by.hand")
    page.get_by_role("dialog").get_by_role("button", name="Delete exchange").click()
    visit.heading("Exchanges")
    assert is_gone(life, "/api/exchanges/%2F/by.hand")
    visit.check()


def test_a_form_waits_for_the_names_one_chooses_from(visit: Visit, life: Life) -> None:
    """Sent without a virtual host, it would be refused for no fault of who filled it in."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    other = visit.another()
    other.log_in()
    other.heading("Overview")
    page = other.page
    page.route("**/api/penstock/live?*vhosts*", hold)
    other.go("/queues")
    page.get_by_text("Declare a queue").click()
    page.get_by_label("Name", exact=True).fill("too early")
    declare = page.get_by_role("button", name="Declare queue")
    assert declare.is_disabled()
    for route in held:
        route.continue_()
    page.unroute("**/api/penstock/live?*vhosts*")
    declare.click()
    other.heading("too early")
    other.close()
    life.channel.queue_delete("too early")


def test_the_keyboard_goes_anywhere(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/")
    visit.heading("Overview")
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Go to a page")
    box.fill("audit tr")
    page.get_by_role("option", name="Audit trail page").wait_for()
    page.keyboard.press("Enter")
    visit.heading("Audit trail")
    page.keyboard.press("Control+k")
    box.fill("rders.n")
    page.get_by_role("option", name="orders.new queue on ").wait_for()
    visit.shoot_now("palette")
    page.keyboard.press("Enter")
    visit.heading("orders.new")
    page.keyboard.press("Control+k")
    box.fill("no such thing")
    page.get_by_text("Nothing of that name.").wait_for()
    page.keyboard.press("Escape")
    box.wait_for(state="detached")
    visit.go("/queues")
    page.get_by_role("link", name="orders.new").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("audit")
    page.get_by_role("link", name="orders.new").wait_for(state="detached")
    visit.check()


def test_one_choice_of_a_virtual_host_holds_for_all_lists(visit: Visit, life: Life) -> None:
    page = visit.page
    life.api("/api/vhosts/other", "PUT", {})
    life.api("/api/queues/other/elsewhere", "PUT", {"durable": True})
    page.reload()
    try:
        visit.go("/vhosts")
        visit.row("Virtual hosts", "other").get_by_role("link", name="its queues").click()
        page.get_by_role("link", name="elsewhere").wait_for()
        choice = page.get_by_role("navigation").get_by_label("Virtual host")
        assert choice.input_value() == "other"
        assert page.get_by_role("link", name="orders.new").count() == 0
        visit.go("/connections")
        page.get_by_text("No connections.").wait_for()
        visit.go("/")
        page.get_by_text("All queues are empty.").wait_for()
        choice.select_option("/")
        visit.go("/queues")
        page.get_by_role("link", name="orders.new").wait_for()
        assert page.get_by_role("link", name="elsewhere").count() == 0
        choice.select_option("")
        page.get_by_role("link", name="elsewhere").wait_for()
    finally:
        life.api("/api/vhosts/other", "DELETE")
    visit.check()


def test_several_queues_are_purged_and_deleted_at_once(visit: Visit, life: Life) -> None:
    page = visit.page
    for name in ("bulk.1", "bulk.2", "bulk.3"):
        life.channel.queue_declare(name)
        life.channel.basic_publish("", name, b"m")
    visit.go("/queues?name=bulk.")
    page.get_by_label("Choose bulk.1").check()
    page.get_by_label("Choose bulk.3").check()
    page.get_by_text("2 chosen").wait_for()
    visit.shoot("queues-chosen")
    page.get_by_role("button", name="Purge…").click()
    page.get_by_role("dialog").get_by_role("button", name="Purge").click()
    page.get_by_text("Purge: 2 queues.").wait_for()
    left = life.api("/api/queues?name=bulk.&page=1&columns=name,messages_ready")["items"]
    assert [one["messages_ready"] for one in left] == [0, 1, 0]
    page.get_by_label("all of this page").check()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_label("Type 3 to go on").fill("3")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_text("Nothing of that name.").wait_for()
    visit.check()


def test_what_the_broker_refuses_is_said(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/queues")
    page.get_by_text("Declare a queue").click()
    page.get_by_label("Name", exact=True).fill("orders.new")
    page.get_by_role("button", name="Declare queue").click()
    alert = page.get_by_role("alert").filter(has_text="inequivalent arg")
    alert.wait_for()
    assert "for queue 'orders.new' in vhost '/'" in (alert.text_content() or "")
    page.get_by_label("Arguments").fill("no sign of it")
    page.get_by_role("button", name="Declare queue").click()
    page.get_by_role("alert").filter(has_text="a line is a key, =, and a value").wait_for()


def test_closing_a_connection(visit: Visit, life: Life) -> None:
    page = visit.page
    channel = life.connect("to be closed")
    visit.go("/connections")
    page.get_by_role("link", name="to be closed").click()
    visit.heading("to be closed")
    page.get_by_role("table", name="Channels").get_by_role("link").first.wait_for()
    page.get_by_role("button", name="Close connection…").click()
    page.get_by_role("dialog").get_by_role("button", name="Close connection").click()
    visit.heading("Connections")
    life.forget(channel)  # it was told, and agrees
    page.get_by_role("link", name="to be closed").wait_for(state="detached")
    visit.check()


def test_the_overview_exports_and_leads_to_the_busiest(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export definitions").click()
    found = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert "orders.new" in [queue["name"] for queue in found["queues"]]
    page.locator(".figure").filter(has_text="connections").click()
    page.locator("th[aria-sort=descending]").get_by_text("From client").wait_for()
    visit.check()


def test_a_hundred_messages_move_at_once(visit: Visit, life: Life) -> None:
    page = visit.page
    for name in ("left", "taken"):
        life.channel.queue_declare(name, durable=True)
    for _ in range(130):
        life.channel.basic_publish("", "left", b"")
    visit.go("/queues/%2F/left?tab=messages")
    page.get_by_label("rows").select_option("100")
    page.get_by_text("positions 0 to 99;").wait_for()
    page.get_by_label("Select all of this page").check()
    page.get_by_role("button", name="Move…").click()
    page.get_by_label("To the queue").fill("taken")
    page.get_by_role("button", name="Move 100 messages").click()
    page.get_by_text("100 moved.").wait_for()
    assert life.api("/api/queues/%2F/taken")["messages"] == 100
    visit.check()
    for name in ("left", "taken"):
        life.channel.queue_delete(name)


def test_definitions_go_out_and_in(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/definitions")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    found = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert "orders.new" in [queue["name"] for queue in found["queues"]]
    found["queues"].append(dict(found["queues"][0], name="imported"))
    content = json.dumps(found).encode()
    file = {"name": "more.json", "mimeType": "application/json", "buffer": content}
    page.get_by_label("File", exact=True).set_input_files(file)  # type: ignore[arg-type]
    page.get_by_role("button", name="Import…").click()
    page.get_by_role("dialog").get_by_role("button", name="Import").click()
    page.get_by_text("more.json is imported.").wait_for()
    assert not is_gone(life, "/api/queues/%2F/imported")
    visit.check()


def test_forms_offer_the_options_of_the_broker(visit: Visit, life: Life) -> None:
    rows = life.api("/api/penstock/options")
    page = visit.page

    def offered() -> dict[str, str | None]:
        buttons = page.locator(".hints button").all()
        return {str(one.text_content()): one.get_attribute("title") for one in buttons}

    def options(name: str, **wanted: object) -> dict[str, str]:
        """Of the rows that have all these values: the name of each -> its tooltip."""
        return {
            row[name]: f"{row['doc']} ({', '.join(map(str, row['words'])) or row['kind']})"
            for row in rows
            if row[name] and wanted.items() <= row.items()
        }

    visit.go("/queues")
    page.get_by_text("Declare a queue", exact=True).click()
    page.get_by_role("button", name="x-queue-version").wait_for()
    assert offered() == options("argument", applies_to="queue")
    visit.go("/exchanges")
    page.get_by_text("Declare an exchange", exact=True).click()
    page.get_by_role("button", name="alternate-exchange").wait_for()
    assert offered() == options("argument", applies_to="exchange")
    visit.go("/policies")
    page.get_by_role("button", name="ha-mode").wait_for()
    assert offered() == options("name", policy=True)
    visit.tab("Operator policies")
    page.get_by_role("button", name="Set operator policy").wait_for()
    assert offered() == options("name", operator_policy=True)


def test_a_policy_is_set_changed_and_deleted(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/policies")
    page.get_by_label("Name", exact=True).fill("short")
    page.get_by_label("Pattern").fill("^orders")
    page.get_by_label("Priority").fill("3")
    page.get_by_role("button", name="message-ttl").click()
    page.get_by_role("button", name="Set policy").click()
    row = visit.row("policy", "short")
    row.get_by_text("message-ttl:").wait_for()
    row.get_by_text("2 queues").click()
    row.get_by_text("orders.new").wait_for()
    kept = life.api("/api/policies/%2F/short")
    assert (kept["pattern"], kept["priority"]) == ("^orders", 3)
    assert kept["definition"] == {"message-ttl": 60_000}
    visit.shoot("doing-policies")
    page.get_by_role("button", name="Edit short").click()
    page.get_by_label("Definition").fill("message-ttl = 5000\noverflow = reject-publish")
    page.get_by_role("button", name="Set policy").click()
    row.get_by_text("overflow:").wait_for()
    assert life.api("/api/queues/%2F/orders.new")["policy"] == "short"
    page.get_by_role("button", name="Delete short").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    row.wait_for(state="detached")
    visit.tab("Operator policies")
    page.get_by_label("Name", exact=True).fill("at most")
    page.get_by_label("Pattern").fill(".*")
    page.get_by_label("Definition").fill("max-length = 1000000")
    page.get_by_role("button", name="Set operator policy").click()
    visit.row("operator policy", "at most").wait_for()
    page.get_by_role("button", name="Delete at most").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    visit.row("operator policy", "at most").wait_for(state="detached")
    visit.check()


def test_a_user_a_virtual_host_and_what_the_one_may_in_the_other(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/vhosts")
    page.get_by_label("Name", exact=True).fill("a/b c")
    page.get_by_label("Description").fill("made by hand")
    page.get_by_role("button", name="Add virtual host").click()
    page.get_by_role("link", name="a/b c").wait_for()
    visit.go("/users")
    page.get_by_label("Name", exact=True).fill("ann")
    page.get_by_label("Password").fill("secret ü")
    page.get_by_label("Tags").fill("monitoring")
    page.get_by_role("button", name="Add user").click()
    visit.row("Users", "ann").get_by_text("nowhere").wait_for()
    page.get_by_role("link", name="ann", exact=True).click()
    page.get_by_role("button", name="Set permission").wait_for()
    form = page.locator("form").filter(has=page.get_by_role("button", name="Set permission"))
    form.get_by_label("Virtual host").select_option("a/b c")
    form.get_by_label("Write").fill("^orders")
    form.get_by_role("button").click()
    visit.row("Permissions", "a/b c").get_by_text("^orders").wait_for()
    page.get_by_role("button", name="Set topic permission").click()
    visit.row("Topic permissions", "amq.topic").wait_for()
    limit = page.locator("form").filter(has=page.get_by_role("button", name="Set limit"))
    limit.get_by_label("Value").fill("7")
    limit.get_by_role("button").click()
    visit.row("Limits", "max-connections").get_by_text("7", exact=True).wait_for()
    visit.shoot("doing-user")
    (kept,) = life.api("/api/users/ann/permissions")
    assert (kept["vhost"], kept["write"]) == ("a/b c", "^orders")

    # She may look, and not touch: her menu is shorter.
    other = visit.another()
    other.log_in("ann", "secret ü")
    other.heading("Overview")
    assert other.page.get_by_role("link", name="Users", exact=True).count() == 0
    other.go("/users")
    other.page.get_by_text("Only users with the tag administrator see this page.").wait_for()
    assert other.page.get_by_role("button", name="Add user").count() == 0
    other.go("/policies")
    other.page.get_by_text("There is no policy.").wait_for()
    assert other.page.get_by_role("button", name="Set policy").count() == 0
    life.api("/api/users/ann", "PUT", {"password": "another", "tags": "monitoring"})
    other.page.get_by_text("the user was changed").wait_for()
    other.close()

    page.get_by_role("button", name="Delete…").click()
    page.get_by_label("Type ann to go on").fill("ann")
    page.get_by_role("dialog").get_by_role("button", name="Delete user").click()
    visit.heading("Users")
    visit.row("Users", "ann").wait_for(state="detached")
    visit.go("/vhosts/a%2Fb%20c")
    page.get_by_role("button", name="Start the firehose").click()
    page.get_by_role("button", name="Stop the firehose").wait_for()
    page.get_by_role("button", name="Protect from deletion").click()
    page.get_by_role("button", name="Allow deletion").wait_for()
    assert page.get_by_role("button", name="Delete…").is_disabled()
    assert life.api("/api/vhosts/a%2Fb%20c")["protected_from_deletion"] is True
    visit.go("/vhosts")
    visit.row("Virtual hosts", "a/b c").get_by_text("protected").wait_for()
    visit.go("/vhosts/a%2Fb%20c")
    page.get_by_role("button", name="Allow deletion").click()
    page.get_by_role("button", name="Protect from deletion").wait_for()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_label("Type a/b c to go on").fill("a/b c")
    page.get_by_role("dialog").get_by_role("button", name="Delete virtual host").click()
    visit.heading("Virtual hosts")
    assert is_gone(life, "/api/vhosts/a%2Fb%20c")
    visit.check()


def test_a_password_is_rotated_and_a_lock_out_ended(
    visit: Visit, life: Life, node: NsqLiveBroker
) -> None:
    from playwright.sync_api import expect

    page = visit.page
    life.api("/api/users/billing", "PUT", {"password": "old", "tags": ""})
    try:
        visit.go("/users/billing")
        visit.heading("billing")
        page.get_by_label("Second password").fill("new")
        page.get_by_role("button", name="Add a second password").click()
        expect(page.get_by_role("table", name="Passwords").get_by_role("row")).to_have_count(3)
        page.get_by_role("button", name="Drop the older password").click()
        page.get_by_role("dialog").get_by_role("button", name="Drop password").click()
        page.get_by_text("the only one").wait_for()
        parameters = pika.URLParameters(node.url.replace("guest:guest", "billing:old"))
        for _ in range(2):
            with pytest.raises(pika.exceptions.ProbableAuthenticationError):
                pika.BlockingConnection(parameters)
        page.get_by_text("Locked out after wrong passwords, from 127.0.0.1 until").wait_for()
        page.get_by_role("button", name="Unlock").click()
        page.get_by_text("billing may log in again.").wait_for()
        visit.check()
    finally:
        life.api("/api/users/billing", "DELETE")


def test_limits_of_the_node(visit: Visit, life: Life) -> None:
    page = visit.page
    visit.go("/limits")
    page.get_by_label("Free space").fill("3GB")
    page.get_by_role("button", name="Set disk limit").click()
    page.get_by_text("free disk space below 2.79 GiB").wait_for()
    page.get_by_label("Share of the machine").fill("0.5")
    page.get_by_role("button", name="Set memory limit").click()
    page.get_by_text("The memory limit holds until the next start.").wait_for()
    visit.check()


def test_topics_and_channels(visit: Visit, node: NsqLiveBroker) -> None:
    page = visit.page
    visit.go("/topics")
    page.get_by_text("There are no topics.").wait_for()
    with RawClient(node) as client:
        client.send(b"SUB clicks archive\nRDY 2\n")
        client.send(mpub("clicks", [b"click"] * 12))
        client.read(4)
        visit.heading("clicks", level=2)
        row = visit.row("Channels of clicks", "archive")
        cells = row.get_by_role("cell")
        visit.wait_for_text(cells.nth(3), "2")  # in flight
        visit.wait_for_text(cells.nth(2), "10")
        visit.shoot("doing-topics")
        page.get_by_role("button", name="pause nsq.clicks:archive").click()
        row.get_by_text("paused", exact=True).wait_for()
        page.get_by_role("button", name="resume nsq.clicks:archive").click()
        row.get_by_text("paused", exact=True).wait_for(state="detached")
    page.get_by_role("button", name="Empty nsq.clicks:archive").click()
    page.get_by_role("dialog").get_by_role("button", name="Empty").click()
    visit.wait_for_text(cells.nth(2), "0")
    page.get_by_role("link", name="archive", exact=True).click()
    visit.heading("archive")
    visit.check()
