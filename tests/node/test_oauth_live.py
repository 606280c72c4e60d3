"""Tokens on the ports of a broker: they log in, are refused, expire, are renewed, keys rotate.

One broker with an issuer of our own; its key set is over real HTTP.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock_ranges import frames as range_frames
from tests.helpers import raw_nsq
from tests.helpers.live_broker import LiveBroker
from tests.helpers.nsq_broker import NsqBroker, eventually
from tests.helpers.oauth_issuer import claims, public_jwk, signed
from tests.helpers.oauth_server import Issuer
from tests.helpers.raw_amqp import RawClient, connect

pytestmark = pytest.mark.slow

ALL = ("rabbitmq.read:*/*/*", "rabbitmq.write:*/*/*", "rabbitmq.configure:*/*/*")
CAN_CLOSE = {"authentication_failure_close": True}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    issuer.keys = [public_jwk("RS256", "k"), public_jwk("ES256", "e")]
    yield issuer
    issuer.close()


@pytest.fixture(scope="module")
def live(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqBroker]:
    setting = {"resource_server_id": "rabbitmq", "issuer": issuer.url}
    environment = {
        "PENSTOCK_AUTH_BACKENDS": "oauth2,internal",
        "PENSTOCK_AUTH_OAUTH2": json.dumps(setting),
        "PENSTOCK_NSQ_AUTH_REQUIRED": "true",
    }
    running = NsqBroker(tmp_path_factory.mktemp("oauth") / "broker", environment)
    running.may_wait_for_processor = True
    with running:
        yield running


@pytest.fixture
def dial(live: NsqBroker) -> Iterator[Callable[[], RawClient]]:
    """Connections of AMQP that end with the test."""
    made: list[RawClient] = []

    def connected() -> RawClient:
        made.append(connect(live.url))
        return made[-1]

    yield connected
    for one in made:
        one.close_socket()


def token(issuer: Issuer, *scopes: str, seconds: float = 60, key: str = "k", **more: Any) -> str:
    content = claims(*scopes, **{"iss": issuer.url, "exp": time.time() + seconds, **more})
    return signed(content, "ES256" if key == "e" else "RS256", key)


def http_status(live: LiveBroker, path: str, header: str, port: int = 0) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port or live.http_port, timeout=10)
    try:
        connection.request("GET", path, headers={"Authorization": header} if header else {})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text[:1] in b"{[" else text
    finally:
        connection.close()


def nsq(live: NsqBroker, *commands: bytes) -> list[raw_nsq.Frame]:
    """What is answered to each."""
    with socket.create_connection(("127.0.0.1", live.tcp_port), 10) as sock:
        sock.sendall(raw_nsq.MAGIC + b"".join(commands))
        data, frames = b"", list[raw_nsq.Frame]()
        while len(frames) < len(commands) and (more := sock.recv(1 << 16)):
            found, data = raw_nsq.split_frames(data + more)
            frames += found
        return frames


def test_all_protocols_take_a_token(
    live: NsqBroker, issuer: Issuer, dial: Callable[[], RawClient]
) -> None:
    text = token(issuer, *ALL, "rabbitmq.tag:management", key="e")
    amqp = dial().open(user="", password=text)
    amqp.open_channel()
    assert amqp.call(1, "queue.declare", queue="q").name == "queue.declare-ok"
    assert amqp.call(1, "queue.bind", queue="q", exchange="amq.topic").name == "queue.bind-ok"
    for header in (f"Bearer {text}", f"Basic {b64encode(f'x:{text}'.encode()).decode()}"):
        assert http_status(live, "/api/whoami", header)[1]["name"] == "ann"
        status, rows = http_status(live, "/api/queues", header)
        assert (status, [row["name"] for row in rows]) == (200, ["q"])
        assert http_status(live, "/api/nodes", header)[0] == 401
    pong = nsq(live, raw_nsq.auth(text), raw_nsq.pub("t", b"x"))
    assert json.loads(pong[0].data)["identity"] == "ann"
    assert pong[1].data == b"OK"
    assert http_status(live, "/stats?format=json", f"Bearer {text}", live.api_port)[0] == 200
    assert ranges(live, text)[4] == range_frames.WELCOME


def test_the_audit_trail_names_the_issuer_of_an_accepted_token(
    live: NsqBroker, issuer: Issuer, dial: Callable[[], RawClient]
) -> None:
    dial().open(user="", password=token(issuer, *ALL, sub="trailed"))
    admin = f"Bearer {token(issuer, 'rabbitmq.tag:administrator')}"
    path = "/api/penstock/audit?action=login_accepted&user=trailed"

    def records() -> list[Any]:
        return list(http_status(live, path, admin)[1]["records"])

    assert eventually(lambda: records() != [])
    assert records()[0]["object"]["issuer"] == issuer.url


def ranges(live: LiveBroker, text: str) -> bytes:
    port = urlsplit(live.url).port
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(range_frames.MAGIC + range_frames.encode_login("", text, "/"))
        return sock.recv(1 << 16)


def test_all_protocols_refuse_a_token_and_the_log_says_why(
    live: NsqBroker, issuer: Issuer, dial: Callable[[], RawClient]
) -> None:
    old = token(issuer, *ALL, seconds=-1)
    answer = dial().login("", old, CAN_CLOSE)
    assert answer.args["text"].startswith("ACCESS_REFUSED - Login was refused")
    status, refusal = http_status(live, "/api/whoami", f"Bearer {old}")
    assert (status, refusal["reason"][:34]) == (401, "Login failed: the token expired at")
    basic = f"Basic {b64encode(f'x:{old}'.encode()).decode()}"
    assert http_status(live, "/api/whoami", basic)[1]["reason"] == "Login failed"
    assert nsq(live, raw_nsq.auth(old))[0].data.startswith(b"E_AUTH_FAILED")
    assert b"Login was refused" in ranges(live, old)
    assert eventually(lambda: "the token expired at" in live.output())
    assert old.split(".")[2] not in live.output()


def test_scopes_are_rights(live: NsqBroker, issuer: Issuer, dial: Callable[[], RawClient]) -> None:
    amqp = dial().open(
        user="", password=token(issuer, "rabbitmq.configure:*/mine*", "rabbitmq.write:*/mine*")
    )
    amqp.open_channel()
    assert amqp.call(1, "queue.declare", queue="mine-1").name == "queue.declare-ok"
    refused = amqp.call(1, "queue.declare", queue="yours")
    assert (refused.name, refused.args["code"]) == ("channel.close", 403)
    assert "access to queue 'yours' in vhost '/' refused for user 'ann'" in refused.args["text"]
    with pytest.raises(AssertionError, match=r"530|NOT_ALLOWED"):
        dial().open(user="", password=token(issuer, "rabbitmq.read:other/*"))
    header = f"Bearer {token(issuer, *ALL)}"
    assert http_status(live, "/api/overview", header)[0] == 401, "no tag, no management"


def test_internal_users_come_after_tokens(
    live: NsqBroker, issuer: Issuer, dial: Callable[[], RawClient]
) -> None:
    """And a token whose user has an internal one's name has not that one's rights."""
    dial().open()
    header = f"Bearer {token(issuer, 'rabbitmq.tag:management', sub='guest')}"
    status, rows = http_status(live, "/api/vhosts", header)
    assert (status, rows) == (200, [])
    status, _ = http_status(live, "/api/queues/%2F", header)
    assert status == 401


def renew(amqp: RawClient, text: str) -> str:
    return str(amqp.call(0, "connection.update-secret", new_secret=text, reason="expires"))


def test_a_token_that_expires_ends_its_connections(
    live: NsqBroker, issuer: Issuer, dial: Callable[[], RawClient]
) -> None:
    short = token(issuer, *ALL, "rabbitmq.tag:management", seconds=3)
    amqp, kept = (dial().open(user="", password=short) for _ in range(2))
    assert "update-secret-ok" in renew(kept, token(issuer, *ALL))
    header = f"Bearer {short}"
    assert http_status(live, "/api/whoami", header)[0] == 200
    port = urlsplit(live.url).port
    stream = http.client.HTTPConnection("127.0.0.1", live.http_port, timeout=10)
    stream.request("GET", "/api/penstock/live?path=/api/whoami", headers={"Authorization": header})
    with (
        socket.create_connection(("127.0.0.1", live.tcp_port), 10) as nsqd,
        socket.create_connection(("127.0.0.1", port), 10) as spark,
        closing(stream),
    ):
        nsqd.sendall(raw_nsq.MAGIC + raw_nsq.auth(short))
        spark.sendall(range_frames.MAGIC + range_frames.encode_login("", short, "/"))
        assert spark.recv(1 << 16)[4] == range_frames.WELCOME
        for sock in (nsqd, spark):
            while sock.recv(1 << 16):
                pass  # until it hangs up
        told = stream.getresponse().read()  # likewise
    assert b'"name":"ann"' in told
    assert b"event: 0.error" in told
    assert b"the token expired at" in told
    status, refusal = http_status(live, "/api/whoami", header)
    assert (status, refusal["reason"][:34]) == (401, "Login failed: the token expired at")
    closed = amqp.receive(timeout_s=8)
    assert closed.name == "connection.close"
    assert closed.args["code"] == 320
    assert "credential expired" in closed.args["text"]
    kept.open_channel()
    assert kept.call(1, "queue.declare", queue="later").name == "queue.declare-ok"


def test_a_new_token_is_of_the_same_user(issuer: Issuer, dial: Callable[[], RawClient]) -> None:
    amqp = dial().open(user="", password=token(issuer, *ALL))
    answer = renew(amqp, token(issuer, *ALL, sub="bob"))
    assert "connection.close" in answer
    assert "New secret was refused" in answer


def test_a_new_token_may_take_rights(issuer: Issuer, dial: Callable[[], RawClient]) -> None:
    amqp = dial().open(user="", password=token(issuer, *ALL))
    amqp.open_channel()
    assert amqp.call(1, "queue.declare", queue="first").name == "queue.declare-ok"
    assert "update-secret-ok" in renew(amqp, token(issuer, "rabbitmq.read:*/*"))
    refused = amqp.call(1, "queue.declare", queue="second")
    assert refused.args["code"] == 403


def test_a_long_token_fits_into_the_first_frame(
    issuer: Issuer, dial: Callable[[], RawClient]
) -> None:
    many = [f"rabbitmq.read:{'v' * 80}-{number}/*" for number in range(200)]
    text = token(issuer, *ALL, *many)
    assert len(text) > 20_000
    dial().open(user="", password=text)


def test_a_node_says_what_is_wrong_with_its_configuration(tmp_path: Path) -> None:
    broken = {
        "PENSTOCK_AUTH_BACKENDS": "oauth2",
        "PENSTOCK_AUTH_OAUTH2": json.dumps({"resource_server_id": "r", "issuer": "http://x"}),
    }
    with pytest.raises(AssertionError, match=r"auth_oauth2\.issuer is no https:// address"):
        LiveBroker(tmp_path / "broker", environment=broken).start()
