"""A topology run: its messages match one binding each, its page judges, and small rows work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.compare import is_compiled
from benchmarks.storage_brokers import StoredPenstock
from benchmarks.tables import machine
from benchmarks.topology_page import page
from benchmarks.topology_rows import ROWS, Amounts, Connections, chosen_rows
from benchmarks.topology_wire import RUN, Frames, Messages, binding
from penstock.broker.topology import vhost as broker_file
from penstock.protocols.amqp.codec.methods import decode_method

AMOUNTS = Amounts(
    bindings=60,
    few_bindings=40,
    header_bindings=40,
    queues=20,
    connections=30,
    keys=500,
    size=100,
    in_flight=1000,
    window=20,
    seconds=0.3,
    warmup_s=0.1,
    settle_s=0.1,
    quiet_s=0.2,
    favoured=False,
)


def report(peer_bindings: int = 100_000) -> dict[str, Any]:
    return {
        "date": "2000-01-01",
        "machine": machine(),
        "file_system": "ext4",
        "command": "python benchmarks/topology.py",
        "rounds": 1,
        "amounts": {
            "size": 100,
            "keys": 10_000,
            "in_flight": 5000,
            "bindings": 100_000,
            "peer_bindings": peer_bindings,
        },
        "penstock": {"version": "1", "build": "compiled", "commit": "abc", "cores": "cores 0"},
        "rabbitmq": {"version": "3", "platform": "Erlang", "cores": "all cores"},
        "generator": {"build": "compiled", "priority": "like other work"},
    }


def load(rate: float, **fields: Any) -> dict[str, Any]:
    return {
        "consume_rate": rate,
        "publish_rate": rate,
        "published": 1000,
        "consumed": 1000,
        "broker": {"cpu_us_per_message": 2.0, "cpu_cores": 1.0},
        "generator": {"cpu_cores": 0.5, "cores": 1},
    } | fields


def routed(rate: float, bindings: int = 100_000) -> dict[str, Any]:
    return {"bindings": bindings, "turn": load(rate), "fresh": load(rate / 2)}


# -- what is sent -----------------------------------------------------------------------------


def topic_keys(messages: Messages) -> list[str]:
    methods = [decode_method(payload) for payload in Frames(messages.run() + b"\0" * 7)]
    return [method.text("routing_key") for method in methods]


def matches(pattern: str, key: str) -> bool:
    """Enough of a topic exchange for patterns whose # comes last."""
    wanted, words = pattern.split("."), key.split(".")
    if wanted[-1] == "#":
        wanted, words = wanted[:-1], words[: len(wanted) - 1]
    pairs = zip(wanted, words, strict=False)
    return len(wanted) == len(words) and all(want in {"*", word} for want, word in pairs)


def test_every_message_matches_exactly_one_binding() -> None:
    patterns = [binding("topic", subject)[0] for subject in range(40)]
    keys = topic_keys(Messages("topic", "e", 40, 0, 100))
    assert len(keys) == RUN
    assert {sum(matches(pattern, key) for pattern in patterns) for key in keys} == {1}
    assert len({key.split(".")[1] for key in keys}) == 40


def test_keys_in_turn_come_again_and_new_ones_never_do() -> None:
    turn, fresh = (Messages("topic", "e", 40, keys, 100) for keys in (2 * RUN, 0))
    in_turn = [topic_keys(turn) for _ in range(3)]
    assert in_turn[0] == in_turn[2]
    assert len({*in_turn[0], *in_turn[1]}) == 2 * RUN
    assert len({key for _ in range(3) for key in topic_keys(fresh)}) == 3 * RUN


def test_headers_name_subject_and_number() -> None:
    blob = Messages("headers", "e", 40, 0, 100).run()
    for number in (0, 1, RUN - 1):
        assert blob.count(f"{number * 7919 % 40:06d}".encode()) >= 1
        assert blob.count(f"d{number:09d}".encode()) == 1


# -- the page -----------------------------------------------------------------------------------


def test_routing_is_compared_judged_and_set_against_fewer_bindings() -> None:
    rounds = {
        "topic-few": [{"penstock": routed(200_000.0, 1000), "rabbitmq": routed(40_000.0, 1000)}],
        "topic-many": [{"penstock": routed(100_000.0), "rabbitmq": routed(40_000.0)}],
    }
    text = page(report(), chosen_rows("topic"), rounds)
    assert "| topic | keys in turn | 1,000 / 1,000 | 200,000 | 40,000 | **5.00** |" in text
    assert "1,000 bindings, keys in turn: at least 3 times RabbitMQ's rate: 5.00, kept\n" in text
    assert "100,000 bindings, ever-new keys: at least 3 times RabbitMQ's rate: 2.50, **BRO" in text
    assert "at least 0.7 of the rate with 1,000: 0.50, **BROKEN**" in text
    assert "Not as it should be" not in text
    assert "not the same counts" not in text


def test_what_is_little_is_compared_the_other_way_round() -> None:
    ours = {"count": 5000, "kb_each": 5.0, "seconds": 4.0, "rate": 1250.0, "other_cores": 0.0}
    pair = {"penstock": ours, "rabbitmq": ours | {"kb_each": 60.0, "seconds": 8.0}}
    text = page(report(), chosen_rows("connections"), {"connections": [pair]})
    assert "| no channel | 5,000 / 5,000 | 5.0 | 60.0 | **12.00** |" in text
    assert "at least 3 times the memory: 12.00, kept" in text
    assert "opened at least 3 times as fast: 2.00, **BROKEN**" in text


def test_a_stall_is_judged_by_the_longest_answer() -> None:
    def seen(longest_ms: float) -> dict[str, Any]:
        figures = {"p99": 1.0, "max": longest_ms}
        return {"pings": 100, "answer_ms": figures, "latency_ms": figures | {"max": 99.0}}

    def result(longest_ms: float, before_ms: float = 0.5) -> dict[str, Any]:
        return {
            "bindings": 100_000,
            "before": seen(before_ms),
            "during": seen(longest_ms),
            "seconds": 1.0,
        }

    rounds = {"stall-delete": [{"penstock": result(20.5), "rabbitmq": result(4000.0)}]}
    text = page(report(), chosen_rows("stall-delete"), rounds)
    assert "no confirm takes more than 20 ms: 20.50, **BROKEN**" in text
    rounds = {"stall-delete": [{"penstock": result(19.5), "rabbitmq": result(4000.0)}]}
    text = page(report(), chosen_rows("stall-delete"), rounds)
    assert "no confirm takes more than 20 ms: 19.50, kept\n" in text
    rounds = {"stall-delete": [{"penstock": result(30.0, before_ms=25.0)}]}
    text = page(report(), chosen_rows("stall-delete"), rounds)
    assert "30.00, **BROKEN** (the machine is not quiet: 25.00 ms with nothing going on)" in text


def test_unequal_counts_and_faults_are_said() -> None:
    lost = {"bindings": 100, "turn": load(9.0, consumed=999), "fresh": load(9.0)}
    lost["fresh"]["generator"]["cpu_cores"] = 0.95
    rounds = {"topic-many": [{"penstock": lost, "rabbitmq": {"error": "it fell"}}]}
    text = page(report(peer_bindings=10_000), chosen_rows("topic-many"), rounds)
    assert "Penstock has 100,000 bindings where RabbitMQ has 10,000" in text
    assert "keys in turn: 999 of 1,000 were delivered" in text
    assert "ever-new keys: the generator had no time left" in text
    assert "RabbitMQ failed: it fell" in text
    assert "at least 3 times RabbitMQ's rate: not measured" in text


# -- small rows on a real broker ------------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[StoredPenstock]:
    core = str(min(os.sched_getaffinity(0)))
    with StoredPenstock(core, core, not is_compiled(broker_file.__file__), 0) as running:
        yield running


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_a_small_row_finds_everything_its_page_shows(name: str, broker: StoredPenstock) -> None:
    (row,) = (row for row in ROWS if row.name == name)
    result = row.measure(broker, AMOUNTS)
    for phase in ("turn", "fresh"):
        if phase in result:
            assert result[phase]["consumed"] == result[phase]["published"] > 0
    text = page(report(), [row], {name: [{"penstock": result, "rabbitmq": result}]})
    assert "– / –" not in text
    assert "| – | – |" not in text


def test_connections_want_descriptors() -> None:
    row = Connections("connections", "no channel")
    assert row.lacking(AMOUNTS) == ""
    assert "descriptors are needed" in row.lacking(replace(AMOUNTS, connections=1 << 40))
