"""Plans that cannot work are refused by the name of their option; the others mean what they say."""

from __future__ import annotations

import pytest

from penstock.client.endpoint import Endpoint
from penstock.client.plan import LoadPlan, PlanInvalid


def plan(**fields: object) -> LoadPlan:
    defaults = {"uri": "amqp://127.0.0.1/", "duration_s": 1.0}
    return LoadPlan(**(defaults | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"uri": "http://127.0.0.1/"}, "--uri"),
        ({"uri": "amqps://127.0.0.1/"}, "no TLS"),
        ({"publishers": -1}, "--publishers"),
        ({"publishers": 0, "consumers": 0}, "nothing to do"),
        ({"queues": 0}, "--queues"),
        ({"queue": ""}, "--queue"),
        ({"keys": 0}, "--keys"),
        ({"keys": 5}, "%d"),
        ({"prefetch": 65_536, "ack_every": 1}, "16 bits"),
        ({"size_min_bytes": 10, "size_max_bytes": 9}, "--size-range"),
        ({"exchange_type": "topic"}, "--exchange-type needs --exchange"),
        ({"exchange": "x", "exchange_type": "turnstile"}, "turnstile"),
        ({"exchange": "x", "exchange_type": "headers"}, "headers"),
        ({"routing_key": "key"}, "--routing-key needs --exchange"),
        ({"bindings": ("key",)}, "--binding needs --exchange"),
        ({"duration_s": 0.0}, "either --count or --duration"),
        ({"count": 10}, "either --count or --duration"),
        ({"duration_s": 0.0, "count": 10, "warmup_s": 1.0}, "--warmup needs --duration"),
        ({"duration_s": 0.0, "count": 1, "publishers": 2}, "--count"),
        ({"warmup_s": 1.0, "deadline_s": 1.5}, "--deadline"),
        ({"prefetch": 10}, "--ack-every"),
        ({"prefetch": 10, "ack_every": 11}, "wait for ever"),
        ({"publishers": 0, "rate": 5}, "need publishers"),
        ({"consumers": 0, "ack_every": 5}, "need consumers"),
        ({"consumers": 0, "in_flight": 5}, "--in-flight needs consumers"),
        ({"publishers": 3, "in_flight": 2}, "--in-flight must give every publisher"),
        ({"exchange": "x", "queues": 2, "in_flight": 5}, "one queue only"),
        ({"varied": True}, "--varied"),
        ({"varied": True, "queues": 2, "stamped": False}, "--varied needs stamps"),
    ],
)
def test_what_cannot_work_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(PlanInvalid) as caught:
        plan(**fields).check()
    assert words in str(caught.value)


def test_a_plan_survives_the_way_to_another_process() -> None:
    original = plan(exchange="x", bindings=("a", "b"), queue_arguments={"x-max-length": 5})
    assert LoadPlan.from_json(original.to_json()) == original


@pytest.mark.parametrize(
    "consumers, queues, wanted",
    [
        (1, 1, [["q"]]),
        (3, 2, [["q-1"], ["q-2"], ["q-1"]]),
        (2, 5, [["q-1", "q-3", "q-5"], ["q-2", "q-4"]]),
    ],
)
def test_every_queue_has_a_consumer(consumers: int, queues: int, wanted: list[list[str]]) -> None:
    shared = plan(consumers=consumers, queues=queues, queue="q")
    assert [shared.queues_of_consumer(number) for number in range(consumers)] == wanted
    mirrored = plan(publishers=consumers, queues=queues, queue="q")
    assert [mirrored.publish_keys(number) for number in range(consumers)] == wanted


def test_counted_bindings_are_dealt_out_and_others_go_to_every_queue() -> None:
    counted = plan(queue="q", queues=2, exchange="x", routing_key="k.%d", keys=3)
    assert counted.queue_bindings() == [("q-1", "k.0"), ("q-2", "k.1"), ("q-1", "k.2")]
    assert counted.publish_keys(0) == ["k.0", "k.1", "k.2"]
    every = plan(queue="q", queues=2, exchange="x", bindings=("k.#",))
    assert every.queue_bindings() == [("q-1", "k.#"), ("q-2", "k.#")]


def test_shares_add_up_to_the_whole() -> None:
    shared = plan(publishers=3, duration_s=0.0, count=11, in_flight=7)
    assert [shared.quota(number) for number in range(3)] == [4, 4, 3]
    assert [shared.credit(number) for number in range(3)] == [3, 2, 2]


@pytest.mark.parametrize(
    "uri, wanted",
    [
        ("amqp://localhost", ("localhost", 5672, "guest", "guest", "/")),
        ("amqp://a%40b:s%3Ap@h:1/%2f", ("h", 1, "a@b", "s:p", "/")),
        ("amqp://u:p@[::1]:9/v%20h", ("::1", 9, "u", "p", "v h")),
        ("amqp://h/orders", ("h", 5672, "guest", "guest", "orders")),
    ],
)
def test_endpoints_are_read_from_uris(uri: str, wanted: tuple[object, ...]) -> None:
    end = Endpoint.parse(uri)
    assert (end.host, end.port, end.user, end.password, end.vhost) == wanted


@pytest.mark.parametrize(
    "uri", ["", "localhost:5672", "amqp://", "amqp://h/a/b", "amqp://h/?x=1", "amqps://"]
)
def test_uris_that_say_something_else_are_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"amqp|host|slash|option"):
        Endpoint.parse(uri)
