"""The real nsqadmin 1.3.0 in front of this broker: its pages' data, and everything it can do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.helpers.broker_process import free_port
from tests.helpers.nsq_broker import Answer, NsqBroker, Real, ask, eventually

pytestmark = pytest.mark.nsqd


class Admin(NamedTuple):
    broker: NsqBroker
    port: int

    def get(self, path: str) -> Any:
        answer = ask(self.port, "GET", "/api" + path)
        assert answer.status == 200, answer
        return answer.data

    def act(self, method: str, path: str, body: dict[str, str] | None = None) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        answer = ask(self.port, method, "/api" + path, data)
        assert answer.status == 200, answer
        assert answer.data["message"] == "", answer
        return answer

    @property
    def node(self) -> str:
        return f"127.0.0.1:{self.broker.api_port}"


@pytest.fixture(scope="module", params=["lookupd", "nsqd"])
def admin(request: pytest.FixtureRequest) -> Iterator[Admin]:
    """It finds the node by our nsqlookupd, or is told it."""
    settings = {"PENSTOCK_NSQ_E2E_PROCESSING_LATENCY_PERCENTILES": "0.99,0.5"}
    with NsqBroker(environment=settings) as broker:
        port = free_port()
        if request.param == "lookupd":
            where = f"-lookupd-http-address=127.0.0.1:{broker.lookup_port}"
        else:
            where = f"-nsqd-http-address=127.0.0.1:{broker.api_port}"
        process = Real("nsqadmin", port, f"-http-address=127.0.0.1:{port}", where)
        try:
            yield Admin(broker, port)
        finally:
            process.stop()


def test_its_pages_are_served(admin: Admin) -> None:
    assert ask(admin.port, "GET", "/").status == 200
    assert ask(admin.port, "GET", "/ping").body == "OK"


def test_a_topic_and_a_channel_are_made_filled_paused_emptied_and_deleted(admin: Admin) -> None:
    broker = admin.broker
    broker.post("/topic/create?topic=made")
    broker.post("/channel/create?topic=made&channel=c")
    broker.post("/mpub?topic=made", b"one\ntwo\nthree")
    eventually(lambda: "made" in admin.get("/topics")["topics"])

    topic = eventually(lambda: _settled(admin.get("/topics/made")))
    assert topic["message_count"] == 3
    assert topic["depth"] == 0
    assert [one["channel_name"] for one in topic["channels"]] == ["c"]
    channel = admin.get("/topics/made/c")
    assert channel["depth"] == channel["message_count"] == 3
    assert channel["memory_depth"] + channel["backend_depth"] == 3
    assert channel["e2e_processing_latency"]["count"] == 0

    admin.act("POST", "/topics/made/c", {"action": "pause"})
    assert admin.get("/topics/made/c")["paused"] is True
    admin.act("POST", "/topics/made/c", {"action": "unpause"})
    admin.act("POST", "/topics/made", {"action": "pause"})
    assert admin.get("/topics/made")["paused"] is True
    broker.post("/pub?topic=made", b"four")
    assert admin.get("/topics/made")["depth"] == 1
    admin.act("POST", "/topics/made", {"action": "empty"})
    assert admin.get("/topics/made")["depth"] == 0
    admin.act("POST", "/topics/made", {"action": "unpause"})
    admin.act("POST", "/topics/made/c", {"action": "empty"})
    assert admin.get("/topics/made/c")["depth"] == 0

    admin.act("DELETE", "/topics/made/c")
    assert broker.stats("topic=made")["topics"][0]["channels"] == []
    admin.act("DELETE", "/topics/made")
    assert broker.stats("topic=made")["topics"] is None
    eventually(lambda: "made" not in (admin.get("/topics")["topics"] or []))


def _settled(topic: Any) -> Any:
    return topic if topic["channels"] and topic["depth"] == 0 else None


def test_nodes(admin: Admin) -> None:
    admin.broker.post("/pub?topic=shown", b"x")
    node = eventually(lambda: admin.get("/nodes")["nodes"])[0]
    assert node["version"] == "1.3.0"
    assert node["tcp_port"] == admin.broker.tcp_port
    assert node["http_port"] == admin.broker.api_port
    found = admin.get(f"/nodes/{admin.node}")
    assert "shown" in [one["topic_name"] for one in found["topics"]]
    assert found["total_messages"] >= 1


def test_the_counter(admin: Admin) -> None:
    broker = admin.broker
    broker.post("/topic/create?topic=counted")
    broker.post("/channel/create?topic=counted&channel=c")
    broker.post("/mpub?topic=counted", b"a\nb")

    def counted() -> int:
        rows = admin.get("/counter")["stats"]
        return sum(one["message_count"] for one in rows.values() if one["topic_name"] == "counted")

    eventually(lambda: counted() == 2)


@pytest.mark.parametrize("admin", ["lookupd"], indirect=True)
def test_a_topic_is_made_before_any_node_has_it(admin: Admin) -> None:
    admin.act("POST", "/topics", {"topic": "planned", "channel": "c"})
    assert admin.get("/topics?inactive=true")["topics"]["planned"] == ["c"]
    admin.broker.post("/pub?topic=planned", b"x")
    topic = eventually(lambda: _settled(admin.get("/topics/planned")))
    assert topic["channels"][0]["depth"] == 1


@pytest.mark.parametrize("admin", ["lookupd"], indirect=True)
def test_a_node_is_tombstoned_for_a_topic(admin: Admin) -> None:
    admin.broker.post("/pub?topic=buried", b"x")
    eventually(lambda: "buried" in admin.get("/topics")["topics"])
    admin.act("DELETE", f"/nodes/{admin.node}", {"topic": "buried"})
    assert admin.broker.stats("topic=buried")["topics"] is None
    assert admin.broker.look("/lookup?topic=buried").data["producers"] == []
