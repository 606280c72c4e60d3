"""All that a broker has of a golden directory, as its clients see it: plain data, for JSON.

``read`` gives back what it gets, so that two openings can be compared; ``again`` says what may be
different then.  What nobody may consume while it looks, because a queue is paused or a reader of
ranges has it, is looked at where it lies.  ``use_up`` goes on with what is there until nothing is
left but what is due in ten years.

A message is one line of text: who it is, and a checksum of all of it.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

from penstock.client.amqp import Channel, ChannelClosed, Delivery
from penstock.protocols.amqp.codec.properties import Properties, body_of
from penstock_ranges import ranges, staging, subscriptions
from tests.golden.lines import GoldenBroker, spelt
from tests.helpers.nsq_live import RawClient
from tests.helpers.range_blocks import Rows
from tests.helpers.range_line import RangeLine
from tests.helpers.raw_nsq import NsqMessage, fin

Data = dict[str, Any]

PRODUCER = "golden writer"
"""Of staged batches: 0 is published, 1 is staged and waits for its commit."""
RUN = "run 1"
PAUSED, TABLE = "paused", "table"
"""Queues nobody may consume from: of a single node."""
OF_THE_RELEASE = ("rabbit_version", "rabbitmq_version", "product_name", "product_version")
SETTLING_S = 60.0


# -- looking ---------------------------------------------------------------------------------


def read(broker: GoldenBroker) -> Data:
    """See the head of this file."""
    definitions = broker.manage("GET", "/api/definitions")
    definitions = {key: definitions[key] for key in definitions if key not in OF_THE_RELEASE}
    for section, rows in definitions.items():
        if isinstance(rows, list):
            definitions[section] = sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
    found: Data = {
        "definitions": definitions,
        "paused": sorted(paused_queues(broker)),
        "counts": counts(broker),
        "queues": {},
        "channels": {},
        "deferred": {},
        "batch 0 is published": is_published(broker),
    }
    here = broker.manage("GET", "/api/overview")["node"]
    for row in broker.manage("GET", "/api/queues?columns=vhost,name,node"):
        vhost, name = row["vhost"], row["name"]
        if is_channel(name):
            count = 0 if name in found["paused"] else found["counts"][f"/ {name}"]
            found["channels"][name] = handed_out(broker, name, count)
            if row["node"] == here:  # others are not asked
                found["deferred"][name] = deferred(broker, name)
        elif name in (PAUSED, TABLE):
            found["queues"][f"{vhost} {name}"] = browsed(broker, name)
        else:
            with broker.amqp(vhost) as connection:
                found["queues"][f"{vhost} {name}"] = taken(connection.channel(), name)
    if f"/ {TABLE}" in found["queues"]:
        found["refused"] = refusal(broker, TABLE)
    return found


def again(found: Data) -> Data:
    """What another reading finds, when everything was handed out by the first."""
    expected = copy.deepcopy(found)
    for queue in expected["queues"].values():
        if "redelivered" in queue:
            queue["redelivered"] = "r" * len(queue["messages"])
    for channel in expected["channels"].values():
        channel["attempts"] = [attempts + 1 for attempts in channel["attempts"]]
    return expected


def queues_of(broker: GoldenBroker) -> Iterator[tuple[str, str]]:
    for row in broker.manage("GET", "/api/queues?columns=vhost,name"):
        yield row["vhost"], row["name"]


def is_channel(name: str) -> bool:
    """Of NSQ."""
    return name.startswith("nsq.") and ":" in name


def paused_queues(broker: GoldenBroker) -> list[str]:
    rows = broker.manage("GET", "/api/queues?columns=name,paused")
    return [row["name"] for row in rows if row["paused"]]


def counts(broker: GoldenBroker) -> dict[str, int]:
    """What is ready, and what waits for its time where that can be asked."""
    found = {}
    for vhost, name in queues_of(broker):
        with broker.amqp(vhost) as connection:
            answer = connection.channel().queue_declare(name, passive=True)
            found[f"{vhost} {name}"] = answer.number("message_count")
    for row in broker.manage("GET", "/api/exchanges?columns=name,type"):
        if row["type"] == "x-delayed-message":
            one = broker.manage("GET", f"/api/exchanges/%2F/{spelt(row['name'])}")
            found[f"delayed by {row['name']}"] = one["messages_delayed"]
    for topic in broker.stats()["topics"]:
        found[f"backlog of {topic['topic_name']}"] = topic["depth"]
    staged = broker.manage("GET", "/api/penstock/storage")["staged"]
    found |= {f"staged {key}": staged[key] for key in ("sets", "messages")}
    return found | {
        f"mirrors of {name}": len(nodes) for name, nodes in synchronised(broker).items()
    }


def counts_by_now(broker: GoldenBroker) -> dict[str, int]:
    """None at all while another node, which has a queue, is not there yet."""
    try:
        return counts(broker)
    except ChannelClosed as closed:
        return {str(closed): -1}


def await_counts(broker: GoldenBroker, expected: Mapping[str, int]) -> None:
    """What is over, or due, is where it goes only some moments after a start."""
    until = time.monotonic() + SETTLING_S
    while (found := counts_by_now(broker)) != expected and time.monotonic() < until:
        time.sleep(0.2)
    what = sorted(set(found) | set(expected))
    wrong = {one: (found.get(one), expected.get(one)) for one in what}
    wrong = {one: pair for one, pair in wrong.items() if pair[0] != pair[1]}
    assert not wrong, f"found, expected: {wrong}"


# -- messages --------------------------------------------------------------------------------


def taken(channel: Channel, queue: str) -> Data:
    """By ``basic.get``, in order; the end of the connection gives them back."""
    found: list[Delivery] = []
    while (delivery := channel.get(queue)) is not None:
        found.append(delivery)
    return {
        "messages": [line_of(one) for one in found],
        "redelivered": "".join("r" if one.redelivered else "." for one in found),
    }


def browsed(broker: GoldenBroker, queue: str) -> Data:
    """Where they lie, with the name of this life of the queue."""
    request = ranges.OpenRequest("guest", "guest", "/", queue, ranges.BROWSE)
    messages: list[str] = []
    with RangeLine(broker.amqp_port) as line:
        opened = line.ask(ranges.encode_open(request))
        incarnation, head, _ = ranges.decode_opened(opened)
        start = head.floor
        while start < head.next_seq:
            asked = ranges.encode_range(start, head.next_seq, 1 << 24, True)
            block = Rows(line.ask(asked))
            start = block.next_start
            rows = zip(block.seq_ids, block.addresses, block.contents, strict=True)
            messages += [
                f"{seq_id} {told(body_of(content), address, content)}"
                for seq_id, address, content in rows
            ]
    return {"messages": messages, "incarnation": incarnation}


def handed_out(broker: GoldenBroker, queue: str, count: int) -> Data:
    """By NSQ; its policy says that the end of the connection gives them back."""
    messages = consumed(broker, *topic_and_channel(queue), count)
    return {
        "messages": [f"{one.id.decode()} {one.timestamp_ns} {told(one.body)}" for one in messages],
        "attempts": [one.attempts for one in messages],
    }


def deferred(broker: GoldenBroker, queue: str) -> list[str]:
    topic, name = topic_and_channel(queue)
    rows = broker.ask("GET", f"/channel/deferred?topic={topic}&channel={name}").data["deferred"]
    return [f"{row['id']} ({row['bytes']} bytes)" for row in rows]


def topic_and_channel(queue: str) -> tuple[str, str]:
    topic, channel = queue.removeprefix("nsq.").split(":")
    return topic, channel


def consumed(
    broker: GoldenBroker, topic: str, name: str, count: int, *, finish: bool = False
) -> list[NsqMessage]:
    with RawClient(broker) as client:
        assert client.ask(b"SUB %s %s\n" % (topic.encode(), name.encode())) == b"OK"
        client.send(b"RDY %d\n" % max(1, count))
        messages = client.read(count, 10.0)
        assert len(messages) == count, f"{topic}/{name}: {len(messages)} of {count} messages"
        if finish:
            client.send(b"".join(fin(one.id) for one in messages) + b"CLS\n")
            assert client.read(1) == [b"CLOSE_WAIT"]
    return messages


def line_of(delivery: Delivery) -> str:
    address = f"{delivery.exchange} {delivery.routing_key}".encode(errors="surrogateescape")
    headers = delivery.properties.headers or {}
    written = delivery.written
    if "x-death" in headers:  # when it died is another time at every opening
        written = repr(sorted(without_times(headers).items())).encode()
    return told(delivery.body, address, written)


def told(body: bytes, *rest: bytes) -> str:
    begin = body[:24].decode(errors="replace")
    return f"{begin} ({len(body)} bytes, {crc32(b'|'.join([body, *rest])):08x})"


def without_times(headers: Mapping[str, object]) -> dict[str, object]:
    deaths = headers["x-death"]
    assert isinstance(deaths, list)
    told_of = [sorted((key, one[key]) for key in one if key != "time") for one in deaths]
    return dict(headers) | {"x-death": told_of}


# -- readers of ranges, staged sets, mirrors -------------------------------------------------


def refusal(broker: GoldenBroker, queue: str) -> int:
    """The code with which a consumer is refused; 0 = it is not."""
    with broker.amqp() as connection:
        try:
            connection.channel().get(queue)
        except ChannelClosed as error:
            return error.code
    return 0


def is_published(broker: GoldenBroker) -> bool:
    """Who begins a batch that is published is told that it is not needed."""
    with RangeLine(broker.amqp_port, login=True) as line:
        return begun(line, 0) == ""


def begun(line: RangeLine, batch: int, producer: str = PRODUCER) -> str:
    request = staging.BeginRequest(producer, RUN, batch, 1 << 20, must_route=True)
    return staging.decode_begun(line.ask(staging.encode_begin(request)))


def synchronised(broker: GoldenBroker) -> dict[str, list[str]]:
    """The nodes with a copy of each mirrored queue that has everything, besides the master's."""
    rows = broker.manage("GET", "/api/penstock/mirrors")
    return {row["name"]: row["synchronised_slave_nodes"] for row in rows}


def hand_over(broker: GoldenBroker) -> None:
    """What was a mirror's is read from then on."""
    waiting = {name: nodes[0] for name, nodes in synchronised(broker).items() if nodes}
    for name, node in waiting.items():
        asked = {"action": "hand_over", "node": node}
        broker.manage("POST", f"/api/queues/%2F/{spelt(name)}/actions", asked)
    until = time.monotonic() + SETTLING_S
    while waiting and time.monotonic() < until:
        for row in broker.manage("GET", "/api/penstock/mirrors"):
            if row["master"] == waiting.get(row["name"]):
                del waiting[row["name"]]
        time.sleep(0.1)
    assert not waiting


# -- using it up -----------------------------------------------------------------------------


def use_up(broker: GoldenBroker, notes: Mapping[str, Any]) -> None:
    """After it was read twice, on a single node; ``notes`` are the maker's."""
    broker.manage("POST", f"/api/queues/%2F/{PAUSED}/actions", {"action": "resume"})
    for path in ("channel/unpause?topic=work&channel=idle", "topic/unpause?topic=stopped"):
        assert broker.post(f"/{path}").status == 200
    with broker.amqp() as connection:
        channel = connection.channel()
        _publish_once_more(channel)
        _try_once_more(channel)
    _end_reading(broker, notes)
    _commit_staged(broker, notes)
    assert len(consumed(broker, "waits", "new", 4, finish=True)) == 4
    use_up_queues(broker)


def use_up_queues(broker: GoldenBroker) -> None:
    """To the last message, whoever has it."""
    for vhost, name in queues_of(broker):
        if is_channel(name):
            ready = counts(broker)[f"/ {name}"]
            consumed(broker, *topic_and_channel(name), ready, finish=True)
        else:
            with broker.amqp(vhost) as connection:
                channel = connection.channel()
                while (delivery := channel.get(name)) is not None:
                    channel.ack(delivery.delivery_tag)
                channel.close()


def _publish_once_more(channel: Channel) -> None:
    """What is in the queue is not taken twice, though the directory does not say so anywhere."""
    properties = Properties(headers={"x-deduplication-header": "a"})
    before = channel.queue_declare("once", passive=True).number("message_count")
    channel.publish(b"once a, again", "known", "", properties)
    assert channel.queue_declare("once", passive=True).number("message_count") == before == 3


def _try_once_more(channel: Channel) -> None:
    """One was given back twice when it was made, both twice by reading; four times may be."""
    first, second = channel.get("tried"), channel.get("tried")
    assert first is not None
    assert second is not None
    channel.nack(second.delivery_tag, multiple=True)
    left = [line_of(one) for one in (channel.get("tried"), channel.get("tried")) if one]
    assert left == [line_of(second)]


def _end_reading(broker: GoldenBroker, notes: Mapping[str, Any]) -> None:
    """Its reader comes back: it begins where it had said, and lets go of everything."""
    request = ranges.OpenRequest("guest", "guest", "/", TABLE, ranges.READ)
    with RangeLine(broker.amqp_port) as line:
        _, head, _ = ranges.decode_opened(line.ask(ranges.encode_open(request)))
        asked = subscriptions.encode_start(notes["start request"], 0)
        assert subscriptions.decode_started(line.ask(asked)) == notes["start"]
        line.ask(ranges.encode_ack(head.next_seq))
        line.ask(ranges.encode_close())


def _commit_staged(broker: GoldenBroker, notes: Mapping[str, Any]) -> None:
    """The batch that was staged is published, once."""
    request = staging.CommitRequest(PRODUCER, RUN, 1, True, 10_000, [notes["staged set"]])
    with RangeLine(broker.amqp_port, login=True) as line:
        for outcome in (staging.DONE, staging.DUPLICATE):
            told_of = staging.decode_committed(line.ask(staging.encode_commit(request)))
            assert told_of.outcome == outcome
    with broker.amqp() as connection:
        found = taken(connection.channel(), "staged")["messages"]
    assert [text.split(" (")[0] for text in found] == ["staged 0", "staged 1", "staged 2"]
