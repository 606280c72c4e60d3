"""Counters of a node: totals that outlive what they were counted for."""

from __future__ import annotations

from penstock.core.counting.traffic import (
    AMQP,
    NSQ,
    TRAFFIC_FIELDS,
    Traffic,
    TrafficBook,
)


def shown(counts: tuple[int, ...]) -> dict[str, int]:
    named = dict(zip(TRAFFIC_FIELDS, counts, strict=True))
    return {name: count for name, count in named.items() if count}


def test_what_a_channel_counts_its_virtual_host_counts() -> None:
    total = Traffic(None)
    channel = Traffic(total)
    channel.publish(5, True)
    channel.publish(2, False)
    channel.route(14)
    channel.unroutable(1, True)
    channel.unroutable(2, False)
    channel.confirm(5)
    channel.deliver(4, 1, False)
    channel.deliver(3, 0, True)
    channel.get(1, 1, False)
    channel.get(1, 0, True)
    channel.get(0, 0, True)
    channel.ack(4)
    channel.receive(100)
    channel.send(200)
    expected = {
        "publish": 7,
        "publish_confirm": 5,
        "routed": 14,
        "return_unroutable": 1,
        "drop_unroutable": 2,
        "confirm": 5,
        "deliver": 4,
        "deliver_no_ack": 3,
        "get": 1,
        "get_no_ack": 1,
        "get_empty": 1,
        "redeliver": 2,
        "ack": 4,
        "recv_oct": 100,
        "send_oct": 200,
    }
    assert shown(channel.counts()) == shown(total.counts()) == expected


def test_totals_keep_what_virtual_hosts_had_that_are_gone() -> None:
    book = TrafficBook()
    book.of("/", AMQP).publish(3, False)
    book.of("/", NSQ).publish(4, False)
    book.of("gone", AMQP).publish(5, False)
    assert shown(book.counts_of("/")) == {"publish": 7}
    for _ in range(2):
        assert shown(book.total(AMQP)) == {"publish": 8}
        assert shown(book.total(NSQ)) == {"publish": 4}
        book.retire({"/"})
    assert shown(book.counts_of("gone")) == {}
    book.of("gone", AMQP).publish(1, False)  # one of the same name, made later
    book.retire({"/"})
    assert shown(book.total(AMQP)) == {"publish": 9}
