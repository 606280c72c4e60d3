"""What is done to a broker so that its data directory has everything a release can leave there.

``fill_single`` is for a node that stands alone, ``fill_nodes`` for two that are one broker.  Both
return while clients still hold messages; who calls them ends the broker, and then their clients.
Whatever becomes due does so some ``SOON_MS`` after it was made, so both have to be through by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from decimal import Decimal
from typing import Any

from penstock.client.amqp import Channel
from penstock.protocols.amqp.codec.properties import Properties
from penstock.protocols.amqp.codec.tables import Timestamp
from penstock_ranges import ranges, staging, subscriptions
from tests.golden.lines import GoldenBroker
from tests.golden.reading import PRODUCER, RUN, TABLE, Data, begun, synchronised
from tests.helpers.nsq_broker import eventually
from tests.helpers.nsq_live import RawClient
from tests.helpers.range_line import RangeLine
from tests.helpers.range_pair import publishes
from tests.helpers.raw_nsq import dpub, fin, identify, mpub, pub

SOON_MS = 20_000
YEARS_MS = 10 * 365 * 86_400_000
"""The longest time to live and the longest delay there are."""
LARGE = 6_000
"""Bytes; from 4,096 on a content is in the message store."""
SEGMENT = 64
JOURNAL_FILE = 1 << 20

COMMON = {
    "queue_index_segment_entries": str(SEGMENT),
    "msg_store_file_size_limit_bytes": "65536",
    "journal_file_size_bytes": str(JOURNAL_FILE),
    "journal_size_limit_bytes": str(2 * JOURNAL_FILE),
    "node_name": "penstock@golden",
    "log_file": "penstock.log",
    "log_file_size_bytes": "2000",
    "log_file_count": "2",
    "log_console": "false",
    "event_log_file_size_bytes": "65536",
    "nsq_node_id": "7",
    "nsq_msg_timeout_ms": str(SOON_MS),
    "nsq_max_req_timeout_ms": str(YEARS_MS),
}
SINGLE = COMMON
NODES = COMMON | {"nodes": "2"}

DURABLE = {"vhost": "/", "durable": True, "auto_delete": False}


def queue(name: str, **arguments: object) -> dict[str, Any]:
    spelt_out = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    return {"name": name, **DURABLE, "arguments": spelt_out}


def exchange(name: str, kind: str, internal: bool = False, **arguments: object) -> dict[str, Any]:
    row = {"name": name, "type": kind, "internal": internal, **DURABLE}
    return row | {"arguments": {key.replace("_", "-"): arguments[key] for key in arguments}}


def binding(
    source: str, destination: str, key: str = "", kind: str = "queue", **arguments: object
) -> dict[str, Any]:
    ends = {"vhost": "/", "source": source, "destination": destination, "destination_type": kind}
    spelt_out = {name.replace("_", "-"): value for name, value in arguments.items()}
    return {**ends, "routing_key": key, "arguments": spelt_out}


def policy(name: str, pattern: str, kind: str = "queues", **definition: object) -> dict[str, Any]:
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    row = {"vhost": "/", "name": name, "pattern": pattern, "apply-to": kind, "priority": 3}
    return row | {"definition": keys}


DEAD = {"dead_letter_exchange": ""}

DEFINITIONS: dict[str, Any] = {
    "vhosts": [{"name": "second", "description": "Another one", "tags": ["golden", "staging"]}],
    "users": [
        {"name": "ann", "password": "ann's", "tags": ["monitoring", "policymaker"]},
        {"name": "bob", "password": "bob's", "tags": []},
        {"name": "nobody", "password_hash": "", "tags": []},
    ],
    "permissions": [
        {"user": "guest", "vhost": "second", "configure": ".*", "write": ".*", "read": ".*"},
        {"user": "ann", "vhost": "/", "configure": "^ann", "write": ".*", "read": "plain|lazy"},
        {"user": "bob", "vhost": "second", "configure": "", "write": "", "read": ".*"},
    ],
    "topic_permissions": [
        {"user": "ann", "vhost": "/", "exchange": "topic", "write": "^a\\.", "read": ".*"}
    ],
    "global_parameters": [{"name": "golden", "value": {"made": "for tests", "numbers": [1, 2.5]}}],
    "policies": [
        policy("short", "^bounded$", max_length=5, overflow="drop-head"),
        policy("alternates", "^topic$", "exchanges", alternate_exchange="unrouted"),
        policy("requeue", "^nsq\\.", nsq_on_disconnect="requeue"),
    ],
    "queues": [
        queue("plain"),
        queue("lazy", queue_mode="lazy"),
        queue("priorities", max_priority=3),
        queue("kept for years", message_ttl=YEARS_MS, expires=YEARS_MS),
        queue("expired", message_ttl=SOON_MS, dead_letter_routing_key="expired.dead", **DEAD),
        queue("expired.dead"),
        queue("bounded", dead_letter_routing_key="bounded.dead", **DEAD),
        queue("bounded.dead"),
        queue("full", max_length_bytes=400, overflow="reject-publish"),
        queue("rejected", dead_letter_routing_key="rejected.dead", **DEAD),
        queue("rejected.dead"),
        queue("tried", delivery_limit=4, dead_letter_routing_key="tried.dead", **DEAD),
        queue("tried.dead"),
        queue("once", message_deduplication=True),
        queue("later.soon"),
        queue("later.years"),
        queue("one consumer", single_active_consumer=True, consumer_timeout=7_200_000),
        queue("paused"),
        queue("table"),
        queue("poured"),
        queue("staged"),
        queue("gone"),
        queue("traffic"),
        queue("empty ☃ naïve"),
        {"name": "here", "vhost": "second", "durable": True, "auto_delete": True, "arguments": {}},
    ],
    "exchanges": [
        exchange("direct", "direct"),
        exchange("fanout", "fanout"),
        exchange("topic", "topic"),
        exchange("headers", "headers"),
        exchange("hash", "x-consistent-hash", hash_header="who"),
        exchange("unrouted", "fanout", internal=True),
        exchange("later", "x-delayed-message", x_delayed_type="topic"),
        exchange("known", "x-message-deduplication", x_cache_size=10),
        {**exchange("here too", "direct"), "vhost": "second", "auto_delete": True},
    ],
    "bindings": [
        binding("direct", "plain", "key"),
        binding("direct", "topic", "a.b", "exchange"),
        binding("fanout", "plain"),
        binding("fanout", "lazy"),
        binding("fanout", "kept for years"),
        binding("topic", "lazy", "a.#"),
        binding("headers", "plain", x_match="all", colour="red", number=5),
        binding("hash", "plain", "1"),
        binding("hash", "lazy", "2"),
        binding("later", "later.soon", "soon"),
        binding("later", "later.years", "years"),
        binding("known", "once"),
        {**binding("here too", "here", "x"), "vhost": "second"},
    ],
}

EVERY_KIND: dict[str, object] = {
    "text": "naïve",
    "bytes": b"\xff\x00",
    "number": 1 << 40,
    "small": -3,
    "double": 0.1,
    "decimal": Decimal("1.50"),
    "time": Timestamp(1_700_000_000),
    "true": True,
    "void": None,
    "array": [1, "two", [3.0]],
    "table": {"$odd": "name", "in": {"deep": 1}},
}


class Client:
    """A channel that waits for its confirms; ``rest`` are properties and headers."""

    def __init__(self, broker: GoldenBroker, clients: ExitStack, vhost: str = "/") -> None:
        self.channel: Channel = clients.enter_context(broker.amqp(vhost)).channel()
        self.channel.confirm_select()

    def publish(
        self,
        bodies: Iterable[bytes],
        key: str,
        to: str = "",
        headers: dict[str, object] | None = None,
        **rest: Any,
    ) -> None:
        properties = Properties(**{"delivery_mode": 2, "headers": headers} | rest)
        for body in bodies:
            self.channel.publish(body, to, key, properties)
        self.channel.wait_for_confirms()

    def take(self, queue: str, count: int) -> list[int]:
        """The tags of so many, which are held."""
        found = [self.channel.get(queue) for _ in range(count)]
        return [one.delivery_tag for one in found if one is not None]


def bodies(name: str, count: int, size: int = 0) -> list[bytes]:
    return [f"{name} {number}".encode().ljust(size, b".") for number in range(count)]


# -- a node that stands alone ----------------------------------------------------------------


def fill_single(broker: GoldenBroker, clients: ExitStack) -> Data:
    """Notes for who reads it; ``clients`` still hold something."""
    notes: Data = {}
    broker.manage("POST", "/api/definitions", DEFINITIONS)
    _rules(broker)
    client = Client(broker, clients)
    _queues(client)
    _transient_queue(broker, client)
    _retire_journal(broker, client)
    _deaths(client)
    _later(client)
    tags = client.take("plain", 12)  # which rest in segments by now
    for tag in tags[::2]:
        client.channel.ack(tag)
    client.channel.nack(tags[-1], multiple=True)
    _retire_journal(broker, client)
    _second(Client(broker, clients, "second"))
    _topics(broker, clients)
    _pass_through(client, 4)  # what was published last is in an older file of the journal then
    _table(broker, client, clients, notes)
    client.publish(bodies("in the journal only", 10), "plain")
    client.take("plain", 5)  # delivered, and not acknowledged
    broker.manage("POST", "/api/queues/%2F/paused/actions", {"action": "pause"})
    client.channel.queue_delete("gone")
    _staged(broker, clients, notes)
    return notes


def _rules(broker: GoldenBroker) -> None:
    """What definitions in RabbitMQ's JSON have no place for, or not this way."""
    for kind, owner, limit in (
        ("vhost-limits", "second", "max-queues"),
        ("user-limits", "ann", "max-channels"),
    ):
        broker.manage("PUT", f"/api/{kind}/{owner}/{limit}", {"value": 50})
    operator = policy("at most", "^plain$", max_length=100_000)
    broker.manage("PUT", "/api/operator-policies/%2F/at%20most", operator)
    broker.manage("PUT", "/api/cluster-name", {"name": "golden"})


def _queues(client: Client) -> None:
    channel = client.channel
    for number in range(2):
        channel.queue_bind("plain", "headers", f"{number}", EVERY_KIND)
    # Three segments and a bit, with holes, and with what is handed out and back.
    client.publish(bodies("plain", 3 * SEGMENT + 10, 40), "plain")
    tags = client.take("plain", SEGMENT + 20)
    for tag in tags[: SEGMENT + 20 : 2]:
        channel.ack(tag)
    channel.nack(tags[-1], multiple=True)
    client.publish(bodies("large", 12, LARGE), "key", "direct")
    client.publish(bodies("everywhere", 2, LARGE), "", "fanout")
    client.publish([b"everything"], "plain", "", EVERY_KIND, **ALL_PROPERTIES)
    client.publish(bodies("transient", 5), "plain", delivery_mode=1)
    client.publish(bodies("lazy", 2 * SEGMENT, 40), "lazy")
    client.publish(bodies("lazy and transient", 80, 4000), "lazy", delivery_mode=1)
    client.publish(bodies("by topic", 2), "a.b", "topic")
    for priority in (0, 3, 1, 2, 9):
        client.publish(bodies(f"priority {priority}", 3), "priorities", priority=priority)
    client.publish(bodies("large of priority", 1, LARGE), "priorities", priority=2)
    client.publish(bodies("for years", 3), "kept for years", expiration=str(YEARS_MS))
    client.publish(bodies("gone", 3), "gone")
    client.publish(bodies("paused", 3), "paused")
    client.publish(bodies("one consumer", 3), "one consumer")
    for key in ("a", "b", "a", "c"):
        client.publish([f"once {key}".encode()], "", "known", {"x-deduplication-header": key})


ALL_PROPERTIES: dict[str, object] = {
    "content_type": "text/plain",
    "content_encoding": "identity",
    "priority": 4,
    "correlation_id": "c-1",
    "reply_to": "nobody",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "golden",
    "user_id": "guest",
    "app_id": "make",
}


def _transient_queue(broker: GoldenBroker, client: Client) -> None:
    """So much that it is written, and gone at the next start."""
    client.channel.queue_declare("transient", arguments={"x-queue-mode": "lazy"})
    client.publish(bodies("large of a transient queue", 12, LARGE), "transient")
    client.publish(bodies("of a transient queue", 100, 4000), "transient", delivery_mode=1)
    for pattern in ("transient/*/*.idx", "store/transient/*.rdq"):
        eventually(lambda pattern=pattern: list(broker.data_dir.glob(pattern)))


def _retire_journal(broker: GoldenBroker, client: Client) -> None:
    """So much that the oldest files go, and what they had of others goes into segments."""
    _pass_through(client, 24)
    journal = broker.data_dir / "journal"
    eventually(lambda: list(journal.glob("*.spare")) and len(list(journal.glob("*.jif"))) <= 3)


def _pass_through(client: Client, times: int) -> None:
    for _ in range(times):
        client.publish(bodies("passes through", 50, 4000), "traffic")
        client.channel.queue_purge("traffic")


def _deaths(client: Client) -> None:
    client.publish(bodies("expires", 3), "expired")
    client.publish(bodies("expires", 1, LARGE), "expired")
    client.publish(bodies("bounded", 8), "bounded")
    for body in bodies("full", 9, 100):
        client.publish([body], "full")
    client.publish(bodies("rejected", 2), "rejected")
    for tag in client.take("rejected", 2):
        client.channel.reject(tag, requeue=False)
    client.publish([b"tried twice", b"never tried"], "tried")
    for _ in range(2):
        for tag in client.take("tried", 1):
            client.channel.nack(tag)


def _later(client: Client) -> None:
    client.publish(bodies("soon", 3), "soon", "later", {"x-delay": SOON_MS})
    client.publish(bodies("large, soon", 1, LARGE), "soon", "later", {"x-delay": SOON_MS})
    client.publish(bodies("in ten years", 2), "years", "later", {"x-delay": YEARS_MS})


def _second(client: Client) -> None:
    client.publish(bodies("second", 3), "x", "here too")


def _topics(broker: GoldenBroker, clients: ExitStack) -> None:
    """Of ``work``: finished, in flight, requeued, deferred, of two attempts; ``idle`` is paused."""
    _post(broker, "/topic/create?topic=work")
    _post(broker, "/channel/create?topic=work&channel=done")
    _post(broker, "/channel/create?topic=work&channel=idle")
    writer = clients.enter_context(RawClient(broker))
    assert writer.ask(mpub("work", bodies("work", 12))) == b"OK"
    assert writer.ask(pub("work", b"large work".ljust(LARGE, b"."))) == b"OK"
    assert writer.ask(dpub("work", SOON_MS, b"deferred for a while")) == b"OK"
    assert writer.ask(dpub("work", YEARS_MS, b"deferred for years")) == b"OK"
    assert writer.ask(mpub("waits", bodies("backlog", 4))) == b"OK"
    _post(broker, "/channel/pause?topic=work&channel=idle")
    _post(broker, "/topic/create?topic=stopped")
    _post(broker, "/channel/create?topic=stopped&channel=c")
    _post(broker, "/topic/pause?topic=stopped")
    assert writer.ask(pub("stopped", b"held by a paused topic")) == b"OK"
    reader = clients.enter_context(RawClient(broker))
    assert reader.ask(identify(msg_timeout=SOON_MS)) == b"OK"
    assert reader.ask(b"SUB work done\n") == b"OK"
    reader.send(b"RDY 6\n")
    first = reader.read(6)
    reader.send(b"RDY 0\n")
    reader.send(fin(first[0].id) + fin(first[1].id))
    reader.send(b"REQ %s %d\n" % (first[2].id, YEARS_MS))
    reader.send(b"REQ %s 0\n" % first[3].id)
    reader.send(b"RDY 5\n")
    again = reader.read(3)  # beside the two of before, which are in flight still
    assert len(again) == 3
    client = Client(broker, clients)
    client.publish(bodies("by AMQP", 2), "", "nsq.work", {"by": "AMQP"})


def _post(broker: GoldenBroker, path: str) -> None:
    answer = broker.post(path)
    assert answer.status == 200, answer


def _table(broker: GoldenBroker, client: Client, clients: ExitStack, notes: Data) -> None:
    """A reader of ranges that has read a part, and holds the queue."""
    client.publish(bodies("row", 10), TABLE)
    line = clients.enter_context(RangeLine(broker.amqp_port))
    request = ranges.OpenRequest("guest", "guest", "/", TABLE, ranges.READ)
    _, head, _ = ranges.decode_opened(line.ask(ranges.encode_open(request)))
    line.ask(ranges.encode_ack(head.floor + 4))
    notes["start"] = head.floor + 6
    notes["start request"] = f"seq:{head.floor + 6}"
    line.ask(subscriptions.encode_start(notes["start request"], notes["start"]))


def _staged(broker: GoldenBroker, clients: ExitStack, notes: Data) -> None:
    """A batch that is published, one that is staged, one half staged, one decided.

    The last one is not published because the disk counts as full: so nothing can be after it.
    """
    line = clients.enter_context(RangeLine(broker.amqp_port, login=True))
    first = _stage(line, 0, "poured", bodies("published", 3))
    assert _commit(line, 0, first).outcome == staging.DONE
    notes["staged set"] = _stage(line, 1, "staged", bodies("staged", 3))
    decided = _stage(line, 5, "poured", bodies("decided", 4), "other writer")
    half = clients.enter_context(RangeLine(broker.amqp_port, login=True))
    begun(half, 2)
    half.ask(staging.encode_block(publishes("", "staged", bodies("half staged", 2))))
    broker.manage("PUT", "/api/penstock/disk-free-limit", {"absolute": "1000000GB"})
    assert _commit(line, 5, decided, "other writer").outcome == staging.UNDER_WAY


def _stage(
    line: RangeLine, batch: int, key: str, some: list[bytes], producer: str = PRODUCER
) -> str:
    name = begun(line, batch, producer)
    line.ask(staging.encode_block(publishes("", key, some)))
    line.ask(staging.encode_end(len(some)))
    return name


def _commit(line: RangeLine, batch: int, name: str, producer: str = PRODUCER) -> staging.Committed:
    request = staging.CommitRequest(producer, RUN, batch, True, 500, [name])
    return staging.decode_committed(line.ask(staging.encode_commit(request)))


SINGLE_HAS = {
    "/ plain": 179,
    "/ lazy": 132,
    "/ priorities": 16,
    "/ kept for years": 5,
    "/ expired": 0,
    "/ expired.dead": 4,
    "/ bounded": 5,
    "/ bounded.dead": 3,
    "/ full": 4,
    "/ rejected": 0,
    "/ rejected.dead": 2,
    "/ tried": 2,
    "/ tried.dead": 0,
    "/ once": 3,
    "/ later.soon": 4,
    "/ later.years": 0,
    "/ one consumer": 3,
    "/ paused": 3,
    "/ table": 6,
    "/ poured": 7,
    "/ staged": 0,
    "/ traffic": 0,
    "/ empty ☃ naïve": 0,
    "/ nsq.work:done": 13,
    "/ nsq.work:idle": 16,
    "/ nsq.stopped:c": 0,
    "second here": 3,
    "delayed by later": 2,
    "backlog of work": 0,
    "backlog of waits": 4,
    "backlog of stopped": 1,
    "staged sets": 1,
    "staged messages": 3,
}
"""What must be there when it was opened, and everything due had its time: counted by hand."""


# -- two nodes -------------------------------------------------------------------------------

COPIES = {"ha_mode": "all", "ha_sync_mode": "automatic"}

NODES_DEFINITIONS: dict[str, Any] = {
    key: DEFINITIONS[key] for key in ("vhosts", "users", "permissions", "global_parameters")
} | {
    "policies": [
        policy("copies", "^mirrored", **COPIES),
        policy("channels", "^nsq\\.", nsq_on_disconnect="requeue", **COPIES),
    ],
    "exchanges": [exchange("fanout", "fanout")],
}


def fill_nodes(broker: GoldenBroker, clients: ExitStack) -> Data:
    """As ``fill_single``.  ``late`` gets its mirror when it has messages that this never gets."""
    broker.manage("POST", "/api/definitions", NODES_DEFINITIONS)
    for name, node, arguments in (
        ("mirrored.1", 1, {}),
        ("mirrored.2", 2, {}),
        ("mirrored.lazy", 2, {"x-queue-mode": "lazy"}),
        ("mirrored.priorities", 1, {"x-max-priority": 2}),
        ("late", 1, {}),
        ("alone", 2, {}),
    ):
        where = {"node": f"penstock@golden-{node}", "arguments": arguments, "durable": True}
        broker.manage("PUT", f"/api/queues/%2F/{name}", where)
    client = Client(broker, clients)
    for name in ("mirrored.1", "mirrored.2", "alone"):
        client.channel.queue_bind(name, "fanout")
    client.publish(bodies("late", 5), "late")
    late = policy("late", "^late$", ha_mode="all", ha_sync_mode="manual")
    broker.manage("PUT", "/api/policies/%2F/late", late)
    eventually(lambda: _copies(broker, "late") == 2, 20)
    client.publish(bodies("late, with a mirror", 3), "late")
    for name in ("mirrored.1", "mirrored.2", "mirrored.lazy"):
        client.publish(bodies(name, SEGMENT + 10, 40), name)
        client.publish(bodies(f"large of {name}", 4, LARGE), name)
    client.publish(bodies("everywhere", 2, LARGE), "", "fanout")
    for priority in (0, 2, 1):
        client.publish(bodies(f"priority {priority}", 3), "mirrored.priorities", priority=priority)
    client.publish(bodies("transient", 3), "mirrored.1", delivery_mode=1)
    for tag in client.take("mirrored.1", 20)[::2]:
        client.channel.ack(tag)
    _mirrored_topic(broker, clients)
    with RangeLine(broker.amqp_port, login=True) as line:
        name = _stage(line, 0, "mirrored.1", bodies("published", 3))
        eventually(lambda: _commit(line, 0, name).outcome == staging.DONE)
    eventually(
        lambda: [name for name, nodes in synchronised(broker).items() if not nodes] == ["late"]
    )
    return {}


def _copies(broker: GoldenBroker, name: str) -> int:
    rows = broker.manage("GET", "/api/penstock/mirrors")
    return sum(len(row["copies"]) for row in rows if row["name"] == name)


def _mirrored_topic(broker: GoldenBroker, clients: ExitStack) -> None:
    _post(broker, "/topic/create?topic=work")
    _post(broker, "/channel/create?topic=work&channel=done")
    writer = clients.enter_context(RawClient(broker))
    assert writer.ask(mpub("work", bodies("work", 6))) == b"OK"
    assert writer.ask(dpub("work", YEARS_MS, b"deferred for years")) == b"OK"
    reader = clients.enter_context(RawClient(broker))
    assert reader.ask(b"SUB work done\n") == b"OK"
    reader.send(b"RDY 3\n")
    first = reader.read(3)
    reader.send(b"RDY 0\n" + fin(first[0].id) + b"REQ %s 0\n" % first[1].id)


NODES_HAVE = {
    "/ mirrored.1": SEGMENT + 10 + 4 + 2 - 10 + 3,
    "/ mirrored.2": SEGMENT + 10 + 4 + 2,
    "/ mirrored.lazy": SEGMENT + 10 + 4,
    "/ mirrored.priorities": 9,
    "/ late": 8,
    "/ alone": 2,
    "/ nsq.work:done": 5,
    "mirrors of mirrored.1": 1,
    "mirrors of mirrored.2": 1,
    "mirrors of mirrored.lazy": 1,
    "mirrors of mirrored.priorities": 1,
    "mirrors of nsq.work:done": 1,
    "mirrors of late": 0,
    "backlog of work": 0,
    "staged sets": 0,
    "staged messages": 0,
}
