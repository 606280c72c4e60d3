"""Federation between Penstock and RabbitMQ, either of them the upstream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.live_broker import LiveBroker
from tests.helpers.rabbit import ManagedRabbit, missing_reason
from tests.links.links_tools import Side, until

DEFINITION = {"federation-upstream": "far"}


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    reason = missing_reason()
    if reason:
        pytest.skip(reason)
    server = ManagedRabbit(tmp_path_factory.mktemp("rabbit"), ("rabbitmq_federation",))
    server.start()
    yield Side(server, server.http_url)
    server.kill()


@pytest.fixture(scope="module")
def penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with LiveBroker(tmp_path_factory.mktemp("penstock")) as broker:
        yield Side(broker, broker.http_url)


def federate(downstream: Side, upstream: Side, pattern: str) -> None:
    value = {"uri": upstream.url, "reconnect-delay": 1}
    downstream.api.put("/api/parameters/federation-upstream/%2F/far", {"value": value})
    policy = {"pattern": pattern, "definition": DEFINITION}
    downstream.api.put("/api/policies/%2F/federate", policy)


@pytest.mark.parametrize("is_upstream", [True, False], ids=["from RabbitMQ", "to RabbitMQ"])
def test_an_exchange(penstock: Side, rabbit: Side, is_upstream: bool) -> None:
    upstream, downstream = (rabbit, penstock) if is_upstream else (penstock, rabbit)
    name = f"fed.{'in' if is_upstream else 'out'}"
    downstream.bound("news", name, "a.#")
    federate(downstream, upstream, f"^{name}$")
    queues: list[str] = []

    def has_a_link() -> bool:
        queues[:] = [row["name"] for row in upstream.api.get("/api/queues")]
        exchanges = [row["name"] for row in upstream.api.get("/api/exchanges/%2F")]
        links = [one for one in exchanges if one.startswith(f"federation: {name} -> ")]
        bound = upstream.api.get(f"/api/exchanges/%2F/{name}/bindings/source") if links else []
        return bool(bound)

    until(has_a_link)
    assert any(queue.startswith(f"federation: {name} -> ") for queue in queues)
    upstream.publish(name, "b.1", b"not wanted")
    upstream.publish(name, "a.1", b"wanted")
    until(lambda: downstream.depth("news") == 1)
    [(properties, body)] = downstream.take_all("news")
    assert body == b"wanted"
    [mark] = properties.headers["x-received-from"]
    assert mark["exchange"] == name
    assert "guest:guest" not in str(mark)
    downstream.api.delete("/api/policies/%2F/federate")


@pytest.mark.parametrize("is_upstream", [True, False], ids=["from RabbitMQ", "to RabbitMQ"])
def test_a_queue(penstock: Side, rabbit: Side, is_upstream: bool) -> None:
    upstream, downstream = (rabbit, penstock) if is_upstream else (penstock, rabbit)
    name = f"fedq.{'in' if is_upstream else 'out'}"
    upstream.fill(name, 20)
    downstream.fill(name, 0)
    federate(downstream, upstream, f"^{name}$")
    channel = downstream.channel()
    found: list[bytes] = []
    for method, _, body in channel.consume(name, inactivity_timeout=20.0):
        assert method is not None, f"{len(found)} came"
        found.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(found) == 20:
            break
    channel.connection.close()
    assert sorted(found, key=int) == [b"%d" % number for number in range(20)]
    downstream.api.delete("/api/policies/%2F/federate")
