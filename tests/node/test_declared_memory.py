"""What clients declare counts as memory: far over the limit nothing new is kept (M4)."""

from __future__ import annotations

import sys
from typing import Any, Final

import pytest

from penstock.broker.rules.alarms import FAR_BYTES
from penstock.broker.rules.declared_bytes import EACH_BYTES
from penstock.broker.topology.changes import FREE_CHANNELS, FREE_CONSUMERS
from penstock.core.capacity import MemoryLimit
from penstock.routing.headers import arguments_key
from tests.helpers.connection_pair import ClientEnd, QuietBroker

MIB: Final = 1024 * 1024
LIMIT_BYTES: Final = 100 * MIB
LONG: Final = {"x": "v" * 10_000}
SMALL_BYTES: Final = 8 * MIB


@pytest.fixture
def node() -> QuietBroker:
    made = QuietBroker()
    alarms = made.broker.admission.alarms
    alarms.set_memory_limit(MemoryLimit(0.0, LIMIT_BYTES))
    return made


@pytest.fixture
def client(node: QuietBroker) -> ClientEnd:
    made = node.client()
    made.call("queue.declare", queue="q")
    return made


def fill(node: QuietBroker) -> None:
    """The process takes so much from now on."""
    alarms = node.broker.admission.alarms
    alarms.measure_with(lambda: LIMIT_BYTES + FAR_BYTES)
    alarms.look_at_resident(LIMIT_BYTES + FAR_BYTES)


DECLARATIONS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "queue": ("queue.declare", {"queue": "new", "arguments": LONG}),
    "queue of one connection": ("queue.declare", {"queue": "new", "exclusive": True}),
    "exchange": ("exchange.declare", {"exchange": "new", "type": "direct"}),
    "binding": ("queue.bind", {"queue": "q", "exchange": "amq.headers", "arguments": LONG}),
    "binding of exchanges": (
        "exchange.bind",
        {"destination": "amq.fanout", "source": "amq.headers", "arguments": LONG},
    ),
    "consumer": ("basic.consume", {"queue": "q", "arguments": LONG}),
}


def ask(client: ClientEnd, method: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    """The answer, whether it is a refusal or not."""
    client.method(1, method, **fields)
    (answer,) = client.methods()
    return answer


@pytest.mark.parametrize("name", list(DECLARATIONS))
def test_far_over_the_limit_it_is_refused(node: QuietBroker, client: ClientEnd, name: str) -> None:
    fill(node)
    method, fields = DECLARATIONS[name]
    answer, said = ask(client, method, **fields)
    assert (answer, said["code"]) == ("channel.close", 406)
    assert "memory is far over its limit" in said["text"]
    node.check()


def test_what_is_there_and_consumers_that_drain_queues_are_let_in(
    node: QuietBroker, client: ClientEnd
) -> None:
    fill(node)
    client.call("queue.declare", queue="q")
    for _ in range(3):
        client.call("basic.consume", queue="q", arguments={"x-priority": 5})


def test_many_consumers_of_one_connection_are_not(node: QuietBroker, client: ClientEnd) -> None:
    fill(node)
    client.call("channel.open", 2)
    for number in range(FREE_CONSUMERS):
        client.method(1 + number % 2, "basic.consume", queue="q", consumer_tag=str(number))
        assert client.methods()[0][0] == "basic.consume-ok"
    client.call("basic.cancel", 2, consumer_tag="1")
    client.call("basic.consume", 1, queue="q")
    client.method(2, "basic.consume", queue="q")
    assert client.methods()[0][0] == "channel.close"
    client.method(2, "channel.close-ok")
    client.call("channel.close", 1)  # with all consumers of the connection
    client.call("channel.open", 1)
    client.call("basic.consume", queue="q")


def test_many_channels_of_one_connection_are_not(node: QuietBroker, client: ClientEnd) -> None:
    fill(node)
    for number in range(2, FREE_CHANNELS + 1):
        client.call("channel.open", number)
    client.call("channel.close", 2)
    client.call("channel.open", 2)
    client.method(FREE_CHANNELS + 1, "channel.open")
    ((answer, said),) = client.methods()
    assert (answer, said["code"]) == ("connection.close", 506)
    assert "memory is far over its limit" in said["text"]
    node.check()


def test_the_channels_and_consumers_of_one_client_are_within_the_limit() -> None:
    """Each takes 10 KiB here, consumers that may be let in and channels with none as well."""
    node = QuietBroker()
    client = node.client(channel_max=2047)
    client.call("queue.declare", queue="q")
    alarms = node.broker.admission.alarms

    def resident() -> int:
        channels = client.session.channels.values()
        return FAR_BYTES + EACH_BYTES * sum(1 + len(one.consumers) for one in channels)

    alarms.set_memory_limit(MemoryLimit(0.0, SMALL_BYTES))
    alarms.measure_with(resident)
    alarms.look_at_resident(FAR_BYTES)
    number, most, answers = 1, 0, ["channel.open-ok"]
    while "connection.close" not in answers:
        number += 1
        client.method(number, "channel.open")
        for _ in range(number % 4):
            client.method(number, "basic.consume", queue="q")
        most = max(most, resident() - FAR_BYTES)
        answers = [name for name, _ in client.methods()]
    assert SMALL_BYTES * 9 // 10 < most <= SMALL_BYTES * 11 // 10
    node.check()


def test_between_two_looks_at_the_process_what_is_declared_is_counted(
    node: QuietBroker, client: ClientEnd
) -> None:
    """The process is asked again before a refusal, and not each time."""
    alarms = node.broker.admission.alarms
    looks: list[int] = []

    def measure() -> int:
        looks.append(len(queue.consumers))
        return len(looks) * (LIMIT_BYTES + FAR_BYTES) // 2

    queue = node.broker.vhosts["/"].queues["q"]
    alarms.measure_with(measure)
    most = (LIMIT_BYTES + FAR_BYTES) // 10_000
    answer = ""
    while answer != "channel.close":
        answer = ask(client, "basic.consume", queue="q", arguments=LONG)[0]
    assert len(looks) == 2
    assert most // 20 < looks[0] < looks[1] < most


def test_a_limit_of_nothing_holds_publishers_only(node: QuietBroker, client: ClientEnd) -> None:
    node.broker.admission.alarms.set_memory_limit(MemoryLimit(0.0, 0))
    client.call("queue.declare", queue="new")


# -- one hostile client ------------------------------------------------------------------------

TABLES: Final[list[dict[str, Any]]] = [
    {"x": "v" * 19_000},
    {"x": "ü" * 9_000},
    {"x": [True] * 9_000},
    {"x": [[]] * 3_500},
    {"x": [{}] * 3_500},
    {f"{number}": None for number in range(3_000)},
    {"x": {"y": {"z": list(range(3_900))}}},
]


def deep_size(value: object) -> int:
    size = sys.getsizeof(value)
    if isinstance(value, list):
        return size + sum(deep_size(one) for one in value)
    if isinstance(value, dict):
        return size + sum(deep_size(key) + deep_size(value[key]) for key in value)
    return size


def kept_bytes(node: QuietBroker) -> int:
    """What the arguments of bindings and consumers take, with the texts they are found by."""
    vhost = node.broker.vhosts["/"]
    size = sum(deep_size(one.arguments) for one in vhost.queues["q"].consumers)
    for binding in vhost.exchanges["amq.headers"].bindings():
        size += deep_size(binding.arguments) + 2 * sys.getsizeof(arguments_key(binding.arguments))
    return size


@pytest.mark.parametrize("table", TABLES, ids=range(len(TABLES)))
def test_arguments_of_one_client_are_within_the_limit(table: dict[str, Any]) -> None:
    """Whatever they are made of; a tenth is for what the estimate of one declaration lacks."""
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q")
    alarms = node.broker.admission.alarms
    # The process alone takes what may be over the limit, so the clients have the limit itself.
    alarms.set_memory_limit(MemoryLimit(0.0, SMALL_BYTES))
    alarms.measure_with(lambda: FAR_BYTES + kept_bytes(node))
    alarms.look_at_resident(FAR_BYTES)
    number = 0
    for method in ("basic.consume", "queue.bind"):
        fields: dict[str, Any] = {"queue": "q"}
        if method == "queue.bind":
            fields |= {"exchange": "amq.headers", "routing_key": ""}
        answer, most = "", 0
        while answer != "channel.close":
            number += 1
            if number % 16 == 0:
                most = kept_bytes(node)
            answer = ask(client, method, arguments={**table, "n": number}, **fields)[0]
        assert SMALL_BYTES // 4 < most <= SMALL_BYTES * 11 // 10
        client.method(1, "channel.close-ok")
        client.call("channel.open")
    node.check()
