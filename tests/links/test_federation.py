"""Federated exchanges and queues between two brokers, as RabbitMQ's policies and upstreams say."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from penstock.ctl.main import run
from tests.helpers.live_broker import LiveBroker
from tests.links.links_tools import Side, until

HERE, THERE = "penstock@here", "penstock@there"


def live(tmp_path_factory: pytest.TempPathFactory, name: str) -> LiveBroker:
    return LiveBroker(tmp_path_factory.mktemp("side"), ("--node-name", name))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with live(tmp_path_factory, HERE) as broker:
        yield Side(broker, broker.http_url)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with live(tmp_path_factory, THERE) as broker:
        yield Side(broker, broker.http_url)


def upstream(side: Side, name: str, uri: str, **value: Any) -> None:
    spelt = {key.replace("_", "-"): one for key, one in value.items()}
    path = f"/api/parameters/federation-upstream/%2F/{name}"
    side.api.put(path, {"value": {"uri": uri, "reconnect-delay": 1} | spelt})


def policy(side: Side, name: str, pattern: str, **definition: Any) -> None:
    spelt = {key.replace("_", "-"): one for key, one in definition.items()}
    side.api.put(f"/api/policies/%2F/{name}", {"pattern": pattern, "definition": spelt})


def links(side: Side) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = side.api.get("/api/federation-links")
    return found


def until_running(side: Side, count: int = 1) -> None:
    until(lambda: [row["status"] for row in links(side)] == ["running"] * count)


def end(side: Side, *policies: str) -> None:
    for name in policies:
        side.api.delete(f"/api/policies/%2F/{name}")
    until(lambda: links(side) == [])


def test_an_exchange_gets_what_its_bindings_want(here: Side, there: Side) -> None:
    here.bound("news", "fed.news", "a.#")
    upstream(here, "far", there.url)
    policy(here, "fed", "^fed\\.", federation_upstream="far")
    until_running(here)
    there.publish("fed.news", "a.1", b"one")
    there.publish("fed.news", "b.1", b"not wanted")
    until(lambda: here.depth("news") == 1)
    [(properties, body)] = here.take_all("news")
    assert body == b"one"
    [mark] = properties.headers["x-received-from"]
    assert (mark["cluster-name"], mark["vhost"], mark["exchange"]) == (THERE, "/", "fed.news")
    assert "guest" not in str(mark)
    here.bound("news", "fed.news", "b.*")
    until(lambda: _arrives(there, here, "b.2"))
    channel = here.channel()
    channel.queue_unbind("news", "fed.news", "b.*")
    channel.connection.close()
    until(lambda: not _arrives(there, here, "b.3"))
    assert 'rabbitmq_federation_links{status="running"} 1' in here.metrics()
    [row] = links(here)
    assert (row["type"], row["exchange"], row["upstream_exchange"]) == (
        "exchange",
        "fed.news",
        "fed.news",
    )
    assert row["upstream"] == "far"
    assert "guest" not in str(row)
    here.api.delete(f"/api/federation-links/vhost/%2F/{row['id']}/{HERE}/restart")
    queue = quote(f"federation: fed.news -> {HERE}", safe="")
    assert there.api.get(f"/api/queues/%2F/{queue}")["durable"] is True
    until_running(here)
    assert row["id"] in say(here, "federation_status")
    assert say(here, "restart_federation_link", row["id"]).startswith("0 ")
    assert "not found" in say(here, "restart_federation_link", "12345678")
    until_running(here)
    end(here, "fed")
    until(lambda: there.api.get(f"/api/queues/%2F/{queue}", absent=(404,)) is None)
    names = [row["name"] for row in there.api.get("/api/exchanges/%2F")]
    assert not [name for name in names if name.startswith("federation:")]


def say(side: Side, *words: str) -> str:
    out = io.StringIO()
    who = ["--url", side.api.url, "--user", "guest", "--password", "guest"]
    return f"{run([*who, *words], out, out, {})} {out.getvalue()}"


def _arrives(there: Side, here: Side, key: str) -> bool:
    """Within a moment; in RabbitMQ, too, a binding is at the upstream a little later."""
    there.publish("fed.news", key, b"x")
    marker = f"a.{key}"
    there.publish("fed.news", marker, b"marker")
    seen: list[bytes] = []
    until(lambda: bool(seen.extend(body for _, body in here.take_all("news")) or b"marker" in seen))
    return b"x" in seen


def _bodies(side: Side, queue: str) -> list[bytes]:
    return [body for _, body in side.take_all(queue)]


def test_messages_wait_at_the_upstream_while_the_link_is_away(here: Side, there: Side) -> None:
    here.bound("kept", "fed.kept", "#")
    upstream(here, "far", there.url)
    policy(here, "fed", "^fed\\.kept", federation_upstream_pattern="^fa")
    until_running(here)
    here.broker.kill()
    there.publish("fed.kept", "k", *[b"%d" % number for number in range(50)])
    here.broker.start()
    until(lambda: here.depth("kept") >= 50)
    there.broker.kill()
    until(lambda: links(here)[0]["status"] in ("error", "starting"))
    assert here.api.get("/api/federation-links/state/down")
    there.broker.start()
    until_running(here)
    there.publish("fed.kept", "k", b"again")
    bodies: list[bytes] = []
    until(lambda: b"again" in bodies or bool(bodies.extend(_bodies(here, "kept"))))
    # What the killed upstream did not know to be acknowledged has come twice.
    assert list(dict.fromkeys(bodies)) == [b"%d" % number for number in range(50)] + [b"again"]
    end(here, "fed")


def test_messages_do_not_go_round(here: Side, there: Side) -> None:
    for side, other in ((here, there), (there, here)):
        side.bound("round", "ring.x", "#")
        upstream(side, "other", other.url, max_hops=5)
        side.api.put(
            "/api/parameters/federation-upstream-set/%2F/both",
            {"value": [{"upstream": "other", "prefetch-count": 10}]},
        )
        policy(side, "ring", "^ring\\.", federation_upstream_set="both")
    until_running(here)
    until_running(there)
    there.publish("ring.x", "k", b"there")
    here.publish("ring.x", "k", b"here")
    until(lambda: here.depth("round") == there.depth("round") == 2)
    end(here, "ring")
    end(there, "ring")
    for side in (here, there):
        assert sorted(body for _, body in side.take_all("round")) == [b"here", b"there"]


def test_a_queue_fetches_for_consumers_that_wait(here: Side, there: Side) -> None:
    there.fill("fedq.work", 30)
    here.fill("fedq.work", 0)
    upstream(here, "far", there.url, prefetch_count=5)
    policy(here, "fedq", "^fedq\\.", federation_upstream_set="all")
    # ``other`` of the test before is an upstream as well: it has no messages.
    until(lambda: {row["status"] for row in links(here)} == {"running"})
    assert there.depth("fedq.work") == 30
    assert here.depth("fedq.work") == 0
    got: list[tuple[bytes, Any]] = []
    channel = here.channel()
    channel.basic_qos(prefetch_count=1)

    def take(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
        got.append((body, properties.headers))
        channel.basic_ack(method.delivery_tag)
        if len(got) == 30:
            channel.stop_consuming()

    channel.basic_consume("fedq.work", take)
    timer = threading.Timer(30.0, lambda: channel.connection.add_callback_threadsafe(channel.close))
    timer.start()
    channel.start_consuming()
    timer.cancel()
    channel.connection.close()
    assert sorted(body for body, _ in got) == sorted(b"%d" % number for number in range(30))
    headers = got[0][1]
    assert headers["x-received-from"][0]["queue"] == "fedq.work"
    assert headers["x-original-routing-key"] == "fedq.work"
    until(lambda: not any(row["consumer_tag"] for row in links(here)))
    there.fill("fedq.work", 5)
    until(lambda: there.depth("fedq.work") == 5)
    end(here, "fedq")
    assert there.depth("fedq.work") == 5


def test_what_is_wrong_is_refused(here: Side) -> None:
    with pytest.raises(Exception, match="cannot specify federation-upstream"):
        policy(here, "both", "x", federation_upstream="a", federation_upstream_set="b")
    with pytest.raises(Exception, match="federation upstream set name"):
        policy(here, "five", "x", federation_upstream_set=5)
    with pytest.raises(Exception, match="max-hops should be a number"):
        upstream(here, "wrong", "amqp://", max_hops="many")
    with pytest.raises(Exception, match='Key "upstream" not found'):
        here.api.put("/api/parameters/federation-upstream-set/%2F/s", {"value": [{"max-hops": 1}]})


def test_an_upstream_of_the_same_name_is_refused(here: Side, there: Side) -> None:
    there.api.put("/api/cluster-name", {"name": HERE})
    here.bound("same", "same.x", "#")
    upstream(here, "twin", there.url)
    policy(here, "same", "^same\\.x", federation_upstream="twin")
    until(lambda: any("set_cluster_name" in row.get("error", "") for row in links(here)))
    there.api.put("/api/cluster-name", {"name": THERE})
    until_running(here)
    end(here, "same")
