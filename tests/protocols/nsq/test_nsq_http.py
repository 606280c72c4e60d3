"""nsqd's HTTP API on a broker that runs: what is behind the answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from penstock.client.amqp import Connection, Endpoint
from tests.helpers.broker_process import BrokerFailed, free_port
from tests.helpers.certificates import Authority
from tests.helpers.nsq_broker import NsqBroker, ask, eventually


@pytest.fixture(scope="module")
def broker() -> Iterator[NsqBroker]:
    with NsqBroker() as running:
        yield running


def manage(broker: NsqBroker, method: str, path: str, body: Any = None) -> Any:
    """A request to the management API as guest."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/json"}
    request = Request(broker.http_url + path, data, headers, method=method)
    with urlopen(request, timeout=10) as response:
        text = response.read()
    return json.loads(text) if text else None


def make(broker: NsqBroker, topic: str, channel: str = "c") -> None:
    assert broker.post(f"/topic/create?topic={topic}").status == 200
    assert broker.post(f"/channel/create?topic={topic}&channel={channel}").status == 200


def channel_of(broker: NsqBroker, topic: str) -> Any:
    return broker.stats(f"topic={topic}")["topics"][0]["channels"][0]


def test_a_publish_that_was_answered_survives_a_kill(broker: NsqBroker) -> None:
    make(broker, "kept")
    assert broker.post("/mpub?topic=kept", b"one\ntwo").body == "OK"
    assert broker.post("/pub?topic=kept&defer=3600000", b"later").body == "OK"
    broker.kill()
    broker.start()
    found = channel_of(broker, "kept")
    assert (found["depth"], found["deferred_count"]) == (2, 1)


def test_a_fast_publish_is_answered_without_the_disk() -> None:
    with NsqBroker(environment={"PENSTOCK_NSQ_PUBLISH_MODE": "fast"}) as fast:
        make(fast, "t")
        began = time.monotonic()
        for _ in range(20):
            assert fast.post("/pub?topic=t", b"x").status == 200
        assert time.monotonic() - began < 5
        assert channel_of(fast, "t")["depth"] == 20
        fast.restart()
        assert channel_of(fast, "t")["depth"] == 20


def test_pause_and_channels_survive_a_restart() -> None:
    with NsqBroker() as broker:
        make(broker, "t")
        broker.post("/channel/pause?topic=t&channel=c")
        broker.post("/topic/pause?topic=t")
        broker.post("/topic/create?topic=e%23ephemeral")
        broker.restart()
        topics = broker.stats()["topics"]
        assert [one["topic_name"] for one in topics] == ["t"]
        assert topics[0]["paused"]
        assert topics[0]["channels"][0]["paused"]


def test_many_publishers_at_once(broker: NsqBroker) -> None:
    make(broker, "many")
    answers: list[int] = []

    def publish() -> None:
        answers.extend(broker.post("/pub?topic=many", b"x").status for _ in range(10))

    threads = [threading.Thread(target=publish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 80
    assert channel_of(broker, "many")["depth"] == 80


def test_the_first_channel_gets_the_backlog_the_second_what_comes(broker: NsqBroker) -> None:
    broker.post("/mpub?topic=backlog", b"a\nb")
    assert broker.stats("topic=backlog")["topics"][0]["depth"] == 2
    broker.post("/channel/create?topic=backlog&channel=c")
    eventually(lambda: channel_of(broker, "backlog")["depth"] == 2)
    broker.post("/channel/create?topic=backlog&channel=d")
    broker.post("/pub?topic=backlog", b"c")
    depths = [one["depth"] for one in broker.stats("topic=backlog")["topics"][0]["channels"]]
    assert depths == [3, 1]


def test_what_waits_for_its_time_is_listed_and_cancelled(broker: NsqBroker) -> None:
    make(broker, "waits")
    for defer_ms in (3_000_000, 1_000_000, 2_000_000):
        broker.post(f"/pub?topic=waits&defer={defer_ms}", b"x" * 10)
    where = "topic=waits&channel=c"
    first = broker.ask("GET", f"/channel/deferred?{where}&limit=2").data
    assert len(first["deferred"]) == 2
    rest = broker.ask("GET", f"/channel/deferred?{where}&limit=2&after={first['next']}").data
    assert rest["next"] == ""
    dues = [one["due_ms"] for one in first["deferred"] + rest["deferred"]]
    assert dues == sorted(dues)
    assert len(set(dues)) == 3
    one = first["deferred"][1]["id"]
    cancel = f"/channel/deferred/cancel?{where}&id={one}"
    assert broker.post(cancel).status == 200
    assert broker.post(cancel).data == {"message": "DEFERRED_NOT_FOUND"}
    assert channel_of(broker, "waits")["deferred_count"] == 2
    left = broker.ask("GET", f"/channel/deferred?{where}").data["deferred"]
    assert one not in [row["id"] for row in left]
    for wrong in ("limit=0", "limit=x", "after=x", "after=1-x"):
        name = wrong.partition("=")[0].upper()
        answer = broker.ask("GET", f"/channel/deferred?{where}&{wrong}")
        assert (answer.status, answer.data["message"]) == (400, f"INVALID_ARG_{name}")


def test_an_alarm_refuses_publishes_and_nothing_else(broker: NsqBroker) -> None:
    path = "/api/penstock/vm-memory-high-watermark"
    manage(broker, "PUT", path, {"fraction": 0})
    try:
        refused = eventually(lambda: _refused(broker.post("/pub?topic=alarmed", b"x")))
        assert refused == {"message": "BLOCKED low on memory"}
        assert broker.post("/mpub?topic=alarmed", b"x").status == 503
        assert broker.post("/topic/create?topic=alarmed").status == 200
        assert broker.ask("GET", "/ping").body == "OK"
    finally:
        manage(broker, "PUT", path, {"fraction": 0.4})
    eventually(lambda: broker.post("/pub?topic=alarmed", b"x").status == 200)


def _refused(answer: Any) -> Any:
    return answer.data if answer.status == 503 else None


def test_the_audit_trail_tells_who_emptied_and_paused(broker: NsqBroker) -> None:
    make(broker, "traced")
    paths = [
        *("/topic/pause?topic=traced", "/topic/unpause?topic=traced", "/topic/empty?topic=traced"),
        *(f"/channel/{verb}?topic=traced&channel=c" for verb in ("pause", "unpause", "empty")),
    ]
    for path in paths:
        assert broker.post(path).status == 200

    def recorded() -> list[dict[str, Any]]:
        found = manage(broker, "GET", "/api/penstock/audit?protocol=nsq&object=traced")["records"]
        return [one for one in found if one["action"] == "request_answered"]

    eventually(lambda: len(recorded()) == len(paths))
    assert [one["object"]["path"] for one in reversed(recorded())] == paths
    assert {(one["user"], one["address"], one["answer"]) for one in recorded()} == {
        ("guest", "127.0.0.1", "200")
    }


@pytest.mark.parametrize(
    "path", ["/topic/delete?topic=guarded", "/channel/create?topic=guarded&channel=other"]
)
def test_the_audit_trail_tells_what_was_refused(broker: NsqBroker, path: str) -> None:
    make(broker, "guarded")
    manage(broker, "PUT", "/api/users/reader", {"password": "reader", "tags": ""})
    rights = {"configure": "^$", "write": "^$", "read": ".*"}
    manage(broker, "PUT", "/api/permissions/%2f/reader", rights)
    assert ask(broker.api_port, "POST", path, login="reader:reader").status == 403

    def is_recorded() -> bool:
        found = manage(broker, "GET", "/api/penstock/audit?user=reader&answer=403")["records"]
        return any(one["object"]["path"] == path for one in found if one["protocol"] == "nsq")

    eventually(is_recorded)


def test_the_budget_of_the_virtual_host_holds(broker: NsqBroker) -> None:
    manage(broker, "PUT", "/api/vhost-limits/%2f/max-publish-rate", {"value": 5})
    try:
        refused = eventually(lambda: _refused(broker.post("/mpub?topic=rated", b"x\n" * 20)))
        assert refused == {"message": "BLOCKED publish rate of virtual host '/'"}
    finally:
        manage(broker, "DELETE", "/api/vhost-limits/%2f/max-publish-rate")
    eventually(lambda: broker.post("/pub?topic=rated", b"x").status == 200)


def _answer_before_the_body(broker: NsqBroker, path: str) -> bytes:
    with closing(socket.create_connection(("127.0.0.1", broker.api_port), 5)) as sock:
        sock.settimeout(5)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
        sock.sendall(head.encode())
        return sock.recv(12)


def test_the_rights_of_the_user_hold() -> None:
    with NsqBroker(environment={"PENSTOCK_NSQ_USER": "nobody"}) as broker:
        answer = broker.post("/pub?topic=t", b"x")
        assert (answer.status, answer.data["message"][:14]) == (403, "ACCESS_REFUSED")
        assert broker.ask("GET", "/stats").status == 403
        assert _answer_before_the_body(broker, "/pub?topic=t") == b"HTTP/1.1 403"
        assert _answer_before_the_body(broker, "/mpub?topic=t") == b"HTTP/1.1 403"
        answer = broker.ask("PUT", "/config/nsqlookupd_tcp_addresses", b'["127.0.0.1:1"]')
        assert (answer.status, answer.data["message"][:14]) == (403, "ACCESS_REFUSED")
        assert broker.ask("GET", "/config/nsqlookupd_tcp_addresses").status == 403
        assert broker.ask("GET", "/info").status == 403
        assert broker.ask("GET", "/ping").status == 200
    with NsqBroker(environment={"PENSTOCK_NSQ_VHOST": "gone"}) as broker:
        answer = broker.post("/pub?topic=t", b"x")
        assert (answer.status, answer.data["message"][:15]) == (503, "VHOST_NOT_FOUND")


def test_numbers_that_are_too_large_are_refused(broker: NsqBroker) -> None:
    make(broker, "numbered")
    path = "/channel/deferred?topic=numbered&channel=c"
    for query in (f"&after={1 << 63}-0", f"&after=0-{1 << 63}", f"&limit={1 << 63}"):
        assert broker.ask("GET", path + query).status == 400, query
    cancel = f"/channel/deferred/cancel?topic=numbered&channel=c&id={1 << 63}"
    assert broker.post(cancel).data == {"message": "INVALID_ARG_ID"}


def test_nsqlookupds_are_few_and_each_is_there_once(broker: NsqBroker) -> None:
    path = "/config/nsqlookupd_tcp_addresses"
    many = json.dumps([f"127.0.0.1:{port}" for port in range(1, 66)]).encode()
    assert broker.ask("PUT", path, many).status == 400
    twice = json.dumps(["127.0.0.1:1", "127.0.0.1:1"]).encode()
    assert broker.ask("PUT", path, twice).data == ["127.0.0.1:1"]
    assert broker.ask("PUT", path, b"[]").data == []


@pytest.mark.parametrize(
    "words",
    [
        b"  V2IDENTIFY\n\0\0\0\2{}\r\n\r\n",
        b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    ],
)
def test_garbage_is_answered_with_400(broker: NsqBroker, words: bytes) -> None:
    with closing(socket.create_connection(("127.0.0.1", broker.api_port), 5)) as sock:
        sock.sendall(words)
        sock.settimeout(5)
        answer = sock.recv(4096)
    assert answer.startswith(b"HTTP/1.")
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert "Traceback" not in broker.output()


def test_who_leaves_in_the_middle_of_a_body_is_no_fault(broker: NsqBroker) -> None:
    head = b"POST /pub?topic=left HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc"
    with closing(socket.create_connection(("127.0.0.1", broker.api_port), 5)) as sock:
        sock.sendall(head)
        time.sleep(0.1)
    time.sleep(0.1)
    assert broker.stats("topic=left")["topics"] is None
    assert "Traceback" not in broker.output()


def test_a_chunked_body_is_bounded_too(broker: NsqBroker) -> None:
    with closing(socket.create_connection(("127.0.0.1", broker.api_port), 5)) as sock:
        sock.settimeout(5)
        head = b"POST /pub?topic=chunked HTTP/1.1\r\nHost: localhost\r\n"
        head += b"Transfer-Encoding: chunked\r\n\r\n"
        sock.sendall(head + b"100001\r\n" + b"x" * 0x100001 + b"\r\n")
        assert b" 413 " in sock.recv(4096).split(b"\r\n")[0]
    assert broker.stats("topic=chunked")["topics"] is None


def test_an_amqp_consumer_of_a_channel_is_a_client_and_its_times_count() -> None:
    settings = {"PENSTOCK_NSQ_E2E_PROCESSING_LATENCY_PERCENTILES": "1.0,0.5"}
    with NsqBroker(environment=settings) as broker:
        make(broker, "t")
        assert channel_of(broker, "t")["e2e_processing_latency"]["count"] == 0
        broker.post("/pub?topic=t", b"hello")
        time.sleep(0.2)
        with Connection(Endpoint.parse(broker.url)) as connection:
            channel = connection.channel()
            channel.qos(7)
            channel.consume("nsq.t:c")
            message = channel.next_delivery()
            assert message is not None
            found = channel_of(broker, "t")
            assert found["in_flight_count"] == found["client_count"] == 1
            assert found["clients"][0]["version"] == "AMQP 0-9-1"
            assert found["clients"][0]["ready_count"] == 7
            channel.ack(message.delivery_tag)
            latency = eventually(lambda: _measured(broker))
        assert [one["quantile"] for one in latency["percentiles"]] == [1, 0.5]
        assert all(2e8 <= one["value"] < 1e10 for one in latency["percentiles"])
        topic = broker.stats("topic=t")["topics"][0]
        assert topic["e2e_processing_latency"] == latency
        assert "e2e%: " in broker.ask("GET", "/stats").body


def _measured(broker: NsqBroker) -> Any:
    latency = channel_of(broker, "t")["e2e_processing_latency"]
    return latency if latency["count"] else None


def test_ports_that_are_off_are_not_open() -> None:
    off = {f"PENSTOCK_NSQ{name}_PORT": "0" for name in ("_HTTP", "LOOKUPD_TCP", "LOOKUPD_HTTP")}
    with NsqBroker(environment=off) as broker:
        for port in (broker.api_port, broker.lookup_port, broker.lookup_tcp_port):
            with pytest.raises(ConnectionRefusedError):
                ask(port, "GET", "/ping")


@pytest.mark.parametrize("required, status", [("yes", 403), ("tcp-https", 200)])
def test_tls(tmp_path: Path, required: str, status: int) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("broker", "/CN=localhost", "IP:127.0.0.1")
    port = free_port()
    settings = {
        "PENSTOCK_SSL_CERTFILE": certificate,
        "PENSTOCK_SSL_KEYFILE": key,
        "PENSTOCK_SSL_PORT": "0",
        "PENSTOCK_NSQ_HTTPS_PORT": str(port),
        "PENSTOCK_NSQ_TLS_REQUIRED": required,
    }
    with NsqBroker(environment=settings) as broker:
        context = authority.client_context()
        with closing(HTTPSConnection("127.0.0.1", port, context=context, timeout=10)) as secure:
            secure.request("GET", "/ping")
            assert secure.getresponse().read() == b"OK"
        plain = broker.ask("GET", "/ping")
        assert plain.status == status
        if status == 403:
            assert plain.body == f'{{"message": "TLS_REQUIRED", "https_port": {port}}}'


def test_a_port_that_is_taken_is_named() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        broker = NsqBroker(environment={"PENSTOCK_NSQ_HTTP_PORT": str(port)})
        with pytest.raises(BrokerFailed, match=f"cannot listen on 127.0.0.1:{port}"):
            broker.start()


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"PENSTOCK_NSQLOOKUPD_TCP_ADDRESSES": "nowhere"}, "allowed: host:port"),
        (
            {"PENSTOCK_NSQLOOKUPD_TCP_ADDRESSES": "a:1", "PENSTOCK_NSQ_PORT": "0"},
            "cannot register there",
        ),
    ],
)
def test_addresses_that_make_no_sense_stop_the_start(settings: dict[str, str], words: str) -> None:
    with pytest.raises(BrokerFailed, match=words):
        NsqBroker(environment=settings).start()
