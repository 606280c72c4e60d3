"""What the pictures of the web UI are drawn from, over HTTP, beside clients that work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pika
import pytest

from penstock.management.rows.forecast_view import forecast_row
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from penstock.queues.scan_loop import ScanLoop
from tests.management.conftest import Served

V = "/api/penstock/queues/%2F/"
BODY = b"x" * 1000


@pytest.fixture
def channel(served: Served) -> Iterator[Any]:
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", served.amqp_port, heartbeat=0)
    )
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True)
    yield channel
    channel.queue_delete("q")
    connection.close()


def eventually(ask: Callable[[], Any], seconds: float = 5) -> Any:
    until = time.monotonic() + seconds
    while not (found := ask()):
        assert time.monotonic() < until, f"still {found!r}"
        time.sleep(0.02)
    return found


def publish(channel: Any, count: int, body: bytes = BODY, **properties: Any) -> None:
    with_them = pika.BasicProperties(delivery_mode=2, **properties)
    for _ in range(count):
        channel.basic_publish("", "q", body, with_them)


# -- flow ------------------------------------------------------------------------------------------


def test_the_flow_of_a_queue_under_paging(served: Served, channel: Any) -> None:
    alarms = served.node.broker.admission.alarms
    before = alarms.paging_ratio
    served.on_loop(lambda: alarms.set_machine(alarms.total_bytes, 0.00001))
    try:
        publish(channel, 1000)
        flow = eventually(lambda: _in_delta(served.get(V + "q/flow")))
        row = served.get("/api/queues/%2F/q")
    finally:
        served.on_loop(lambda: alarms.set_machine(alarms.total_bytes, before))
    assert (flow["vhost"], flow["name"], flow["messages"]) == ("/", "q", 1000)
    states = {name: state["messages"] for name, state in flow["states"].items()}
    assert sum(states.values()) == 1000
    status = row["backing_queue_status"]
    assert states == {name: status[name] for name in ("q1", "q2", "q3", "q4")} | {
        "delta": status["delta"][2]
    }
    assert flow["memory"]["target_ram_bytes"] > 0
    assert flow["memory"]["permitted_beta_count"] >= 0
    assert flow["moves"]["q3_to_delta"]["count"] + flow["moves"]["q2_to_delta"]["count"] > 0
    assert flow["next_seq_id"] == 1000
    assert f"RAM target {flow['memory']['target_ram_count']:,} messages" in flow["sentence"]
    segments = served.get(V + "q/storage")
    (part,) = segments["parts"]
    assert sum(one["messages"] for one in part["segments"]) >= states["delta"]
    assert segments["segment_entries"] == 16_384
    assert segments["embed_below_bytes"] == 4096


def _in_delta(flow: Any) -> Any:
    """Paging has come to rest."""
    return flow if flow["states"]["delta"]["messages"] > 500 else None


def test_a_queue_that_is_not_there_has_no_flow(served: Served) -> None:
    for what in ("flow", "storage", "heaps"):
        assert served.ask(V + "nobody/" + what).status == 404
        assert served.ask(f"/api/penstock/queues/nowhere/q/{what}").status == 404
    served.add_user("none", "m", ["management"])
    assert served.ask(V + "nobody/flow", "none").status == 401


# -- heaps -----------------------------------------------------------------------------------------


def test_what_an_amqp_consumer_holds_is_due_when_its_channel_would_be_closed(
    served: Served, channel: Any
) -> None:
    publish(channel, 20)
    channel.basic_qos(prefetch_count=12)
    timeout = {"x-consumer-timeout": 60_000}
    channel.basic_consume("q", lambda *_: None, consumer_tag="slow", arguments=timeout)
    heaps = eventually(lambda: _with_count(served.get(V + "q/heaps"), 12))
    flying = heaps["in_flight"]
    assert flying["kind"] == "consumer timeouts"
    assert flying["sampled"] == 12
    within = {one["within_ms"]: one["count"] for one in flying["due"]}
    assert within == dict.fromkeys(within, 0) | {60_000: 12}
    assert [one["seq_id"] for one in flying["soonest"]] == list(range(10))
    assert {one["consumer_tag"] for one in flying["soonest"]} == {"slow"}
    assert all(50_000 < one["due_in_ms"] <= 60_000 for one in flying["soonest"])
    assert heaps["deferred"]["count"] == 0
    assert heaps["scan"] is None


def _with_count(heaps: Any, count: int) -> Any:
    return heaps if heaps["in_flight"]["count"] == count else None


@pytest.fixture
def clicks(served: Served) -> Any:
    """The queue of the channel ``archive`` of the topic ``clicks``."""

    def make() -> Any:
        topics = served.node.broker.vhosts["/"].topics
        return topics.channel(topics.topic("clicks"), "archive").queue

    return served.on_loop(make)


def test_the_heaps_of_an_nsq_channel(served: Served, channel: Any, clicks: Any) -> None:
    """A consumer holds messages until their deadlines; some were put off."""
    for _ in range(30):
        channel.basic_publish("nsq.clicks", "", b"click", pika.BasicProperties(delivery_mode=2))
    now_ms = time.time_ns() // 1_000_000

    def hold() -> None:
        backing = clicks.backing
        leases = clicks.leases
        consumer = Consumer("c", None, OutputWindow(), SharedWindow(), False, 0, False, {})
        owner = leases.join(consumer)
        for place, one in enumerate(backing.fetch(25, 1 << 20)):
            clicks._count_attempts([one])
            leases.grant(owner, one, b"%016x" % place, now_ms, 300 * (place + 2))
            clicks.unacked_count += 1
            consumer.outstanding += 1
        backing.delay(backing.fetch(5, 1 << 20), now_ms + 120_000)
        clicks.wake()

    eventually(lambda: served.on_loop(clicks.backing.ready_count) == 30)
    served.on_loop(hold)
    heaps = served.get("/api/penstock/heaps/clicks/archive")
    assert (heaps["topic"], heaps["channel"], heaps["vhost"]) == ("clicks", "archive", "/")
    flying = heaps["in_flight"]
    assert (flying["kind"], flying["count"], flying["sampled"]) == ("leases", 25, 25)
    assert sum(one["count"] for one in flying["due"]) == 25
    assert flying["attempts"][0] == {"at_most": 1, "count": 25}
    due = [one["due_in_ms"] for one in flying["soonest"]]
    assert due == sorted(due)
    assert [later - due[0] for later in due] == [300 * place for place in range(10)]
    deferred = heaps["deferred"]
    assert deferred["count"] == 5
    (row,) = [one for one in served.get("/api/queues") if one["name"] == "nsq.clicks:archive"]
    assert (row["messages"], row["messages_deferred"]) == (25, 5)
    top = served.get("/api/queues?sort=messages_deferred&sort_reverse=true&columns=name")[0]
    assert top["name"] == "nsq.clicks:archive"
    assert {one["within_ms"]: one["count"] for one in deferred["due"]}[300_000] == 5
    assert heaps["rates"] == {"requeued": None, "timed_out": None}
    eventually(lambda: served.get("/api/penstock/heaps/clicks/archive")["timed_out"] >= 1)
    assert served.get(V + quote("nsq.clicks:archive") + "/heaps")["rates"]["timed_out"] > 0
    assert served.ask("/api/penstock/heaps/clicks/nobody").status == 404
    assert served.ask("/api/penstock/heaps/clicks/archive?vhost=nowhere").status == 404


def test_the_numbers_of_the_scan_loop_where_there_is_one(served: Served, clicks: Any) -> None:
    broker = served.node.broker
    scan = ScanLoop(lambda below, count: list(range(count)))

    def switch_on() -> None:
        scan.refresh([clicks], time.time_ns() // 1_000_000)
        broker.queue_turns.scan = scan
        clicks.scanned = True

    def switch_off() -> None:
        broker.queue_turns.scan = None
        clicks.scanned = False

    served.on_loop(switch_on)
    try:
        row = served.get("/api/penstock/heaps/clicks/archive")["scan"]
    finally:
        served.on_loop(switch_off)
    assert (row["scanned"], row["channels"], row["workers"], row["workers_max"]) == (True, 1, 1, 4)
    assert (row["selection_count"], row["interval_ms"], row["dirty_share"]) == (20, 100, 0.25)


# -- the node --------------------------------------------------------------------------------------


def test_the_chain_has_the_links_of_a_publisher(served: Served, channel: Any) -> None:
    publish(channel, 3)
    chain = served.get("/api/penstock/flow/chain")
    assert chain["sentence"] == served.get("/api/penstock/flow")["sentence"]
    nodes = {node["id"]: node for node in chain["nodes"]}
    assert nodes["message store"]["kind"] == "message store"
    links = [(nodes[one["from"]]["kind"], nodes[one["to"]]["kind"]) for one in chain["links"]]
    assert ("connection", "channel") in links
    link = chain["links"][links.index(("connection", "channel"))]
    assert link["left"] == link["of"] == 400
    assert link["blocks"] is False
    assert nodes[link["to"]]["name"].endswith("(1)")


def test_a_connection_has_the_name_its_client_gave_it(served: Served, channel: Any) -> None:
    """In the picture, where others have their port (B53 of the review)."""
    publish(channel, 1)
    named = pika.ConnectionParameters(
        "127.0.0.1", served.amqp_port, client_properties={"connection_name": "till 3"}
    )
    with pika.BlockingConnection(named) as connection:
        publish(connection.channel(), 1)
        nodes = served.get("/api/penstock/flow/chain")["nodes"]
    given = {(node["kind"], node["label"]) for node in nodes if "till 3" in node["label"]}
    assert given == {("connection", "till 3"), ("channel", "till 3 (1)")}
    (other,) = [
        node for node in nodes if node["kind"] == "connection" and node["label"] != "till 3"
    ]
    assert other["label"] == other["name"]


def test_large_messages_link_their_queue_to_the_store(served: Served, channel: Any) -> None:
    publish(channel, 2, b"x" * 200_000)
    chain = served.get("/api/penstock/flow/chain")
    nodes = {node["id"]: node for node in chain["nodes"]}
    stored = [one for one in chain["links"] if nodes[one["to"]]["kind"] == "message store"]
    assert [nodes[one["from"]]["queue"] for one in stored] == ["q"]
    assert [nodes[one["from"]]["label"] for one in stored] == ["q"]
    assert stored[0]["of"] == 4000


def test_a_publisher_without_credit_is_the_first_of_the_chain(served: Served, channel: Any) -> None:
    """A queue waits for the store: what it waits for is drawn, and named."""
    publish(channel, 1, b"x" * 200_000)
    flow = served.node.loop.turn.flow
    queue = served.node.broker.vhosts["/"].queues["q"]

    def use_up(cost: int) -> None:
        assert queue.flow is not None
        assert queue.flow.down is not None
        if cost > 0:
            queue.flow.down.send(cost)
        else:
            queue.flow.down.ack(-cost)

    served.on_loop(lambda: use_up(4000))
    try:
        chain = served.get("/api/penstock/flow/chain")
    finally:
        served.on_loop(lambda: use_up(-4000))
    nodes = {node["id"]: node for node in chain["nodes"]}
    (link,) = [one for one in chain["links"] if one["blocks"]]
    assert (nodes[link["from"]]["queue"], nodes[link["to"]]["kind"]) == ("q", "message store")
    assert link["left"] <= 0
    assert nodes[link["from"]]["in_flow"] is True
    assert flow.book.blocked_queues == 0


def test_the_forecast_has_the_bars_of_memory_and_disk(served: Served) -> None:
    row = served.get("/api/penstock/forecast")
    memory, disk = row["memory"], row["disk"]
    assert memory["base_bytes"] <= memory["used_bytes"] < memory["paging_bytes"]
    assert memory["paging_bytes"] < memory["limit_bytes"] < memory["total_bytes"]
    assert (memory["alarm"], memory["paging"], disk["alarm"]) == (False, False, False)
    assert disk["limit_bytes"] < disk["total_bytes"]
    assert row["sentence"]
    alarms = served.node.broker.admission.alarms

    def grow() -> None:
        """A megabyte a second for a quarter of an hour, seen by the forecast at two times."""
        forecast = alarms.memory_forecast
        forecast._watched_ms = -1
        used = int(alarms.used_bytes())
        forecast.note(1000, -used + 1_000_000_000)
        forecast.note(1_001_000, -used)

    def look() -> Any:
        """In the same breath: the node looks once a second itself."""
        grow()
        return forecast_row(alarms, served.node.broker.engine.ram)

    told: Any = served.on_loop(look)["memory"]
    assert told["grows_by_bytes_per_s"] == 1_000_000
    to_alarm = (told["limit_bytes"] - told["used_bytes"]) / 1_000_000
    assert told["seconds_to_alarm"] == pytest.approx(to_alarm, abs=1)
    assert told["seconds_to_paging"] < told["seconds_to_alarm"]


def test_only_who_may_monitor_sees_the_node(served: Served) -> None:
    served.add_user("mon", "m", ["management"], "/")
    for path in ("flow/chain", "forecast"):
        assert served.ask("/api/penstock/" + path, "mon").status == 401


# -- searching -------------------------------------------------------------------------------------


def search(served: Served, **query: Any) -> Any:
    return served.get("/api/queues/%2F/q/messages/search?" + urlencode(query))


def test_a_message_is_found_by_body_address_property_or_header(
    served: Served, channel: Any
) -> None:
    publish(channel, 1, b'{"order": "Poison-17"}')
    publish(channel, 1, b"plain", headers={"tenant": "ACME"})
    publish(channel, 1, b"plain", correlation_id="job-4")
    for text, seq_id, place in (
        ("poison", 0, "body"),
        ("acme", 1, "headers"),
        ("tenant", 1, "headers"),
        ("JOB-4", 2, "correlation_id"),
    ):
        found = search(served, text=text)
        assert [(one["seq_id"], one["matched"]) for one in found["messages"]] == [(seq_id, place)]
        assert (found["looked_at"], found["next"], found["end"]) == (3, None, 3)
    assert search(served, text="q")["messages"][0]["matched"] == "address"
    assert search(served, text="absent")["messages"] == []
    row = served.get("/api/queues/%2F/q")
    assert (row["messages_ready"], row["messages_unacknowledged"]) == (3, 0)


def test_a_search_says_where_to_go_on(served: Served, channel: Any) -> None:
    for number in range(250):
        channel.basic_publish("", "q", b"%s %d" % (b"odd" if number % 2 else b"even", number))
    first = search(served, text="odd", count=100)
    assert [one["seq_id"] for one in first["messages"]] == list(range(1, 200, 2))
    assert first["next"] == 200
    rest = search(served, text="odd", count=100, **{"from": first["next"]})
    assert [one["seq_id"] for one in rest["messages"]] == list(range(201, 250, 2))
    assert (rest["next"], rest["looked_at"]) == (None, 50)


def test_a_call_looks_at_so_many_messages_only(
    served: Served, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.management.api.queues.queue_actions.LOOKED_MAX", 100)
    publish(channel, 150, b"nothing")
    found = search(served, text="something")
    assert (found["looked_at"], found["next"], found["messages"]) == (100, 100, [])


def test_a_search_stays_with_the_priority_it_began_with(served: Served, channel: Any) -> None:
    """Each is numbered for itself; what says where to go on says of which."""
    channel.queue_delete("q")
    channel.queue_declare("q", durable=True, arguments={"x-max-priority": 5})
    publish(channel, 3, b"urgent", priority=4)
    publish(channel, 2, b"in no hurry", priority=0)
    found = search(served, text="urgent", count=2)
    assert (found["priority"], found["next"], len(found["messages"])) == (4, 2, 2)
    rest = search(served, text="urgent", priority=4, **{"from": 2})
    assert [one["seq_id"] for one in rest["messages"]] == [2]
    assert search(served, text="hurry")["messages"] == []
    low = search(served, text="hurry", priority=0)
    assert [one["seq_id"] for one in low["messages"]] == [0, 1]


@pytest.mark.parametrize(
    "query, reason",
    [
        ("", "text: 1 to 1000 characters"),
        ("text=a&from=x", "from: a number from 0 to"),
        ("text=a&count=201", "count: a number from 0 to 200"),
        ("text=a&from=" + "9" * 5000, "from: a number from 0 to"),
        ("text=a&encoding=hex", "encoding: one of auto, base64"),
        ("text=a&priority=3", "the queue's priorities end at 0"),
    ],
)
def test_nonsense_is_refused(served: Served, channel: Any, query: str, reason: str) -> None:
    answer = served.ask("/api/queues/%2F/q/messages/search?" + query)
    assert answer.status == 400
    assert json.loads(answer.body)["reason"].startswith(reason)


def test_searching_wants_the_right_to_read(served: Served, channel: Any) -> None:
    served.add_user("none", "m", ["management"])
    assert served.ask("/api/queues/%2F/q/messages/search?text=a", "none").status == 404
