"""A node that listens on all addresses, as a container's: what a client of another machine that
shows no credentials may do on each of its ports, and what the log says of it.

The client's address is one of a private network, so the node cannot take it for its own machine.
"""

from __future__ import annotations

import http.client
import json
import socket
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from penstock.broker.rules.bounded_events import TOLD_MAX
from penstock.settings.listener_table import LISTENERS, ListenerKind, listener_at
from penstock_ranges import frames as rf
from penstock_ranges import ranges as rr
from tests.helpers import raw_codec as codec
from tests.helpers import raw_nsq
from tests.helpers.broker_process import free_port
from tests.helpers.certificates import Authority
from tests.helpers.live_broker import LiveBroker
from tests.helpers.namespaces import PrivateNetwork, missing_reason
from tests.helpers.nsq_broker import eventually

TOLD = ("refused", "access denied", "before it is open")
"""Words of the log about a client that is not served."""

pytestmark = pytest.mark.namespaces

ANN: Final = f"Basic {b64encode(b'ann:secret').decode()}"
SECRET: Final = "a-name-that-is-nobodys-business"
HERE_ONLY: Final = {
    *("nsqlookupd_tcp_port", "nsqlookupd_http_port"),
    *("nsqlookupd_tls_port", "nsqlookupd_https_port"),
}
"""Bound to this machine unless a setting says otherwise."""
NOT_ASKED: Final = {
    *("unix_socket", "nsq_unix_socket", "nsq_http_unix_socket"),
    *("cluster_unix_socket", "cluster_port"),
}
"""Files, and what only a node of a cluster has (``tests/protocols/peers/test_peers.py``)."""
HTTP_NSQ: Final = {
    *(("POST", f"/{verb}?topic=t") for verb in ("pub", "mpub")),
    *(("POST", f"/topic/{verb}?topic=t") for verb in ("create", "delete", "empty", "pause")),
    *(("POST", f"/channel/{verb}?topic=t&channel=c") for verb in ("create", "delete", "empty")),
    ("GET", "/channel/deferred?topic=t&channel=c"),
    ("POST", "/channel/deferred/cancel?topic=t&channel=c&id=1"),
    ("GET", "/stats?format=json"),
    ("GET", "/info"),
    ("GET", "/config/data_path"),
    ("GET", "/config/nsqlookupd_tcp_addresses"),
    ("PUT", "/config/log_level"),
    ("PUT", "/config/nsqlookupd_tcp_addresses"),
}


class OpenBroker:
    """The node, and an administrator and an anonymous client of another machine."""

    def __init__(self, directory: Path, network: PrivateNetwork) -> None:
        self.host = network.address(0)
        self.network = network
        self.own_address = (
            ""  # of the client; each kind has its own, as one has few lines in the log
        )
        self.authority = Authority(directory)
        certificate, key = self.authority.sign("broker", "/CN=localhost", f"IP:{self.host}")
        asked = [kind for kind in LISTENERS if kind.place_key not in NOT_ASKED]
        self.ports = {kind.place_key: free_port() for kind in asked}
        given: dict[str, object] = {
            **self.ports,
            "default_user": "ann",
            "default_pass": "secret",
            "ssl_certfile": certificate,
            "ssl_keyfile": key,
        }
        environment = {f"PENSTOCK_{key.upper()}": str(given[key]) for key in given}
        self.broker = LiveBroker(
            directory / "broker", ("--bind", "0.0.0.0"), environment, place=network.place(0)
        )
        self.ports["amqp_port"] = self.broker.amqp_port
        self.ports["http_port"] = self.broker.http_port

    def connect(self, kind: ListenerKind) -> socket.socket:
        place = self.host, self.ports[kind.place_key]
        sock = socket.create_connection(place, 10, (self.own_address, 0))
        if kind.url.startswith(("https", "amqps")):
            return self.authority.client_context().wrap_socket(sock, server_hostname=self.host)
        return sock

    def said(self, kind: ListenerKind, data: bytes) -> bytes:
        """All that the node says until it hangs up, or falls silent."""
        with self.connect(kind) as sock:
            sock.settimeout(5.0)  # a busy machine may take long for its first word
            heard = b""
            try:
                sock.sendall(data)
                while part := sock.recv(1 << 16):
                    heard += part
                    sock.settimeout(1.0)
            except (TimeoutError, ConnectionResetError):
                pass
            return heard

    def asked(self, kind: ListenerKind, method: str, path: str, login: str = "") -> tuple[int, str]:
        line = http.client.HTTPConnection(self.host, self.ports[kind.place_key])
        line.sock = self.connect(kind)
        headers = {"Authorization": login} if login else {}
        body = b"{}" if method in ("POST", "PUT") else None
        try:
            line.request(method, path, body, headers)
            answer = line.getresponse()
            return answer.status, answer.read().decode()
        finally:
            line.close()

    def refusals(self) -> int:
        """Lines of the log that name the client's address and say that it was refused."""
        return sum(
            self.own_address in line and any(word in line for word in TOLD)
            for line in self.broker.output().splitlines()
        )

    def state(self) -> object:
        """What an administrator sees of it."""
        management = listener_at("http_port")
        definitions = json.loads(self.asked(management, "GET", "/api/definitions", ANN)[1])
        queues = json.loads(self.asked(management, "GET", f"/api/queues/%2F/{SECRET}", ANN)[1])
        return definitions, queues["messages"], queues["consumers"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBroker]:
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    with PrivateNetwork(1) as network:
        opened = OpenBroker(tmp_path_factory.mktemp("open"), network)
        with opened.broker:
            management = listener_at("http_port")
            status, _ = opened.asked(management, "PUT", f"/api/queues/%2F/{SECRET}", ANN)
            assert status == 201
            yield opened


# -- what an anonymous client tries ------------------------------------------------------------


def start_ok(mechanism: str, response: str) -> bytes:
    return codec.method_frame(
        0,
        "connection.start-ok",
        client_properties={"capabilities": {"authentication_failure_close": True}},
        mechanism=mechanism,
        response=response,
        locale="en_US",
    )


OPENED: Final = codec.method_frame(
    0, "connection.tune-ok", channel_max=10, frame_max=131072
) + codec.method_frame(0, "connection.open", virtual_host="/")
WORK: Final = (
    codec.method_frame(1, "channel.open")
    + codec.method_frame(1, "queue.delete", queue=SECRET)
    + codec.method_frame(1, "basic.get", queue=SECRET, no_ack=True)
)


def try_amqp(node: OpenBroker, kind: ListenerKind) -> int:
    """Returns how many attempts there were; all of this kind do."""
    log_ins = [
        start_ok("PLAIN", "\0\0"),
        start_ok("PLAIN", "\0ann\0"),
        start_ok("PLAIN", ""),
        start_ok("ANONYMOUS", ""),
        start_ok("EXTERNAL", ""),
    ]
    for said in (b"", *log_ins):
        heard = node.said(kind, codec.PROTOCOL_HEADER + said + OPENED + WORK)
        frames, _ = codec.split_frames(heard)
        methods = [codec.decode_method(frame.payload)[0] for frame in frames if frame.type == 1]
        assert set(methods) <= {"connection.start", "connection.close"}, methods
    request = rr.OpenRequest("", "", "/", SECRET, 1, 7, False)
    readings = [
        rf.encode_login("", "", "/"),
        rr.encode_open(request),
        rr.encode_wait(5, 0),
        rr.encode_plan(0, 2**62, 10, 1 << 20),
    ]
    for one in readings:
        replies = rf.FrameSplitter(rf.REPLY_MAX_BYTES).feed(node.said(kind, rf.MAGIC + one))
        assert [kind for kind, _ in replies] == [rf.ERROR], (one, replies)
    return 1 + len(log_ins) + len(readings)


def try_management(node: OpenBroker, kind: ListenerKind) -> int:
    document = json.loads(node.asked(kind, "GET", "/api/penstock/openapi.json")[1])
    tried = 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            asked = path.replace("{vhost}", "%2F").replace("{name}", SECRET)
            if "security" not in operation:
                continue
            tried += 1
            for login in ("", "Bearer ", "Bearer 0", "Basic Og=="):
                if login and tried > 3:
                    break  # more wrong log-ins are answered late
                status, body = node.asked(kind, method.upper(), asked, login)
                assert status == 401, (method, path, status)
                assert SECRET not in body
    assert tried > 100
    for path in ("/healthz/live", "/healthz/ready", "/", "/api/auth"):
        assert SECRET not in node.asked(kind, "GET", path)[1]
    return tried


def try_https(node: OpenBroker, kind: ListenerKind) -> int:
    """It is the same application as without TLS."""
    paths = ("/api/overview", f"/api/queues/%2F/{SECRET}", "/api/definitions")
    for path in paths:
        assert node.asked(kind, "GET", path)[0] == 401
    return len(paths)


def try_metrics(node: OpenBroker, kind: ListenerKind) -> int:
    pages = ("/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics")
    for page in pages:
        status, body = node.asked(kind, "GET", page)
        assert (status, SECRET in body) == (401, False)
    status, body = node.asked(kind, "GET", "/metrics")
    assert (status, SECRET in body) == (200, False)
    return len(pages)


def try_nsq(node: OpenBroker, kind: ListenerKind) -> int:
    hello = raw_nsq.MAGIC + raw_nsq.identify(heartbeat_interval=-1)
    tries = [
        raw_nsq.pub("t", b"x"),
        raw_nsq.mpub("t", [b"x"]),
        raw_nsq.dpub("t", 1000, b"x"),
        b"SUB t c\nRDY 1\n",
        raw_nsq.auth("ann:"),
    ]
    for one in tries:
        frames, _ = raw_nsq.split_frames(node.said(kind, hello + one))
        assert frames[-1].type == raw_nsq.ERROR, (one, frames)
        assert b"OK" not in [frame.data for frame in frames[1:]]
    return 1  # a connection is refused once, when it comes


def try_nsq_http(node: OpenBroker, kind: ListenerKind) -> int:
    for method, path in sorted(HTTP_NSQ):
        status, body = node.asked(kind, method, path)
        assert status in (401, 403), (method, path, status, body)
        assert "t" not in json.loads(body)
    assert node.asked(kind, "GET", "/ping") == (200, "OK")
    return len(HTTP_NSQ)


def try_what_stays_here(node: OpenBroker, kind: ListenerKind) -> int:
    with pytest.raises(ConnectionRefusedError):
        node.connect(kind)
    return 0


TRIES: Final[dict[str, Callable[[OpenBroker, ListenerKind], int]]] = {
    "amqp_port": try_amqp,
    "ssl_port": try_amqp,
    "http_port": try_management,
    "https_port": try_https,
    "prometheus_port": try_metrics,
    "prometheus_https_port": try_metrics,
    "nsq_port": try_nsq,
    "nsq_http_port": try_nsq_http,
    "nsq_https_port": try_nsq_http,
    **dict.fromkeys(HERE_ONLY, try_what_stays_here),
}


def test_every_door_is_tried() -> None:
    assert set(TRIES) | NOT_ASKED == {kind.place_key for kind in LISTENERS}


@pytest.mark.parametrize("place_key", sorted(TRIES))
def test_without_credentials_nothing_is_read_changed_or_stopped(
    node: OpenBroker, place_key: str
) -> None:
    node.own_address = node.network.another_address()
    before = node.state()
    tried = TRIES[place_key](node, listener_at(place_key))
    assert node.state() == before
    wanted = min(tried, TOLD_MAX)
    assert eventually(lambda: node.refusals() >= wanted), node.broker.output()
    assert node.refusals() <= 2 * TOLD_MAX  # log-ins, and what is no log-in
