"""Users of an HTTP backend and of tokens on all protocols: let in, refused, without a right."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Self
from urllib.parse import quote

import pytest

from penstock_ranges import frames as rf
from penstock_ranges import ranges
from tests.helpers.auth_server import Answer, Asked, AuthServer
from tests.helpers.live_broker import LiveBroker, free_port
from tests.helpers.oauth_issuer import claims, public_jwk, signed
from tests.helpers.range_line import RangeLine, Refused
from tests.helpers.raw_amqp import RawClient
from tests.helpers.raw_nsq import MAGIC, auth, identify, pub, split_frames

pytestmark = pytest.mark.slow

PASSWORD = "pass word&ä"


class Rules:
    """What the server answers: users are ``ann`` (all), and ``limited`` (what ``may`` has)."""

    def __init__(self) -> None:
        self.answer_all: str | Answer | None = None
        self.delay_s = 0.0
        self.may: set[tuple[str, str, str]] = set()  # resource, name, permission
        self.vhosts = {"/"}

    def __call__(self, asked: Asked) -> str | Answer:
        time.sleep(self.delay_s)
        if self.answer_all is not None:
            return self.answer_all
        fields = asked.fields
        if asked.path == "user":
            if fields["username"] not in ("ann", "limited") or fields["password"] != PASSWORD:
                return "deny wrong name or password"
            return "allow administrator" if fields["username"] == "ann" else "allow management"
        if asked.path == "vhost":
            return "allow" if fields["vhost"] in self.vhosts else "deny"
        if fields["username"] == "ann":
            return "allow"
        place = fields["resource"], fields["name"], fields["permission"]
        return "allow" if place in self.may else "deny not yours"


class World:
    """A broker, the server it asks, and a client of each protocol."""

    def __init__(self, rules: Rules, server: AuthServer, broker: LiveBroker, nsq: int) -> None:
        self.rules = rules
        self.server = server
        self.broker = broker
        self.nsq_port = nsq
        self.by_token = False

    def number(self) -> str:
        """Behind names of topics and channels: each way makes its own."""
        return "2" if self.by_token else ""

    def secret(self) -> str:
        """Of ``limited``, who may do what the rules say: a password, or a token with scopes."""
        if not self.by_token:
            return PASSWORD
        return token(*(right for right in self.rules.may))

    # Each raises PermissionError with what the client was told.

    def amqp(self, name: str, password: str = PASSWORD) -> AmqpLine:
        return AmqpLine(self.broker.amqp_port, name, password)

    def nsq(self, name: str, password: str = PASSWORD) -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self.nsq_port), 10)
        try:
            line.sendall(MAGIC + identify() + auth(f"{name}:{password}"))
            assert nsq_frame(line).startswith((b"OK", b"{"))
            self.nsq_answer(line)
        except PermissionError:
            line.close()
            raise
        return line

    def nsq_answer(self, line: socket.socket) -> bytes:
        answer = nsq_frame(line)
        if answer.startswith(b"E_"):
            line.close()
            raise PermissionError(answer.decode())
        return answer

    def ranges(self, name: str, password: str = PASSWORD) -> RangeLine:
        line = RangeLine(self.broker.amqp_port)
        try:
            line.ask(rf.encode_login(name, password, "/"))
        except Refused as error:
            line.close()
            raise PermissionError(str(error)) from error
        return line

    def http(
        self,
        name: str,
        password: str = PASSWORD,
        method: str = "GET",
        path: str = "/api/whoami",
        body: object = None,
    ) -> Any:
        line = http.client.HTTPConnection("127.0.0.1", self.broker.http_port, timeout=20)
        key = base64.b64encode(f"{name}:{password}".encode()).decode()
        text = None if body is None else json.dumps(body)
        line.request(method, path, text, {"Authorization": f"Basic {key}"})
        answer = line.getresponse()
        data = answer.read()
        line.close()
        if answer.status >= 400:
            raise PermissionError(f"{answer.status} {data.decode()}")
        return json.loads(data) if data else None


def token(*rights: tuple[str, str, str]) -> str:
    """The one scope that is always there lets its client enter the virtual host."""
    scopes = [f"rabbitmq.{permission}:%2F/{quote(name)}" for _, name, permission in rights]
    always = ("rabbitmq.tag:management", "rabbitmq.read:%2F/nothing")
    return signed(claims(*scopes, *always, exp=time.time() + 60), "ES256")


class AmqpLine:
    """A connection with channel 1; a context."""

    def __init__(self, port: int, name: str, password: str) -> None:
        self._line = RawClient("127.0.0.1", port)
        able = {"authentication_failure_close": True, "consumer_cancel_notify": True}
        try:
            self._line.open(user=name, password=password, capabilities=able)
            self._line.open_channel(1)
        except Exception as error:
            self.close()
            raise PermissionError(str(error)) from error

    def call(self, method: str, **fields: Any) -> None:
        answer = self._line.call(1, method, **fields)
        if answer.name not in (f"{method}-ok", f"{method}-empty"):
            raise PermissionError(str(answer))

    def publish(self) -> None:
        self.call("confirm.select")
        self._line.publish(1, "", "nowhere")
        self.hears("basic.ack")

    def renew(self, secret: str) -> list[str]:
        """The next two methods that come when a new token was sent."""
        fields = {"new_secret": secret, "reason": "fewer rights"}
        first = self._line.call(0, "connection.update-secret", **fields)
        return [first.name, self._line.receive().name]

    def hears(self, name: str) -> None:
        answer = self._line.receive()
        if answer.name != name:
            raise PermissionError(str(answer))

    def close(self) -> None:
        self._line.close_socket()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def nsq_frame(line: socket.socket) -> bytes:
    data = b""
    while True:
        frames, data = split_frames(data)
        if frames:
            assert not data
            return frames[0].data
        more = line.recv(65_536)
        if not more:
            raise PermissionError("hung up")
        data += more


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    rules, nsq = Rules(), free_port()
    with AuthServer(rules) as server:
        settings = server.settings() | {
            "PENSTOCK_AUTH_HTTP_METHOD": "post",
            "PENSTOCK_AUTH_HTTP_DISCLOSURE": "true",
            "PENSTOCK_AUTH_HTTP_RECHECK_S": "1",
            "PENSTOCK_AUTH_HTTP_REQUEST_TIMEOUT_MS": "1000",
            "PENSTOCK_NSQ_PORT": str(nsq),
            "PENSTOCK_NSQ_AUTH_REQUIRED": "true",
            "PENSTOCK_AUTH_BACKENDS": "http,oauth2",
            "PENSTOCK_AUTH_OAUTH2": json.dumps(
                {"resource_server_id": "rabbitmq", "signing_keys": {"k": public_jwk("ES256")}}
            ),
        }
        directory = tmp_path_factory.mktemp("auth")
        with LiveBroker(directory, environment=settings) as broker:
            made = World(rules, server, broker, nsq)
            with made.amqp("ann") as line:
                line.call("queue.declare", queue="q", durable=True)
                line.call("queue.declare", queue="calm", durable=True)
            with made.nsq("ann") as topic:
                topic.sendall(pub("there", b"m"))
                made.nsq_answer(topic)
            yield made


@pytest.fixture(autouse=True)
def _as_at_first(world: World) -> Iterator[None]:
    yield
    world.rules.__init__()  # type: ignore[misc]
    world.by_token = False


@pytest.fixture(autouse=True)
def _from_an_address_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one address only some wrong passwords of a minute are answered at once."""
    connect = socket.create_connection
    source = f"127.0.0.{next(ADDRESSES)}", 0
    monkeypatch.setattr(
        socket, "create_connection", lambda to, timeout=None, *_: connect(to, timeout, source)
    )


ADDRESSES = itertools.count(2)
PROTOCOLS = ("amqp", "nsq", "ranges", "http")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_user_of_the_server_logs_in(world: World, protocol: str) -> None:
    line = getattr(world, protocol)("ann")
    if protocol == "http":
        assert line == {"name": "ann", "tags": ["administrator"]}
    else:
        line.close()


REFUSALS: list[tuple[str, Callable[[Rules], None]]] = [
    ("wrong password", lambda rules: None),
    ("deny", lambda rules: setattr(rules, "answer_all", "deny go away")),
    ("nonsense", lambda rules: setattr(rules, "answer_all", "perhaps")),
    ("redirect", lambda rules: setattr(rules, "answer_all", Answer("allow", 302, "/auth/user"))),
    ("failure", lambda rules: setattr(rules, "answer_all", Answer("allow", 500))),
    ("slow", lambda rules: setattr(rules, "delay_s", 1.2)),
    ("virtual host", lambda rules: rules.vhosts.clear()),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("what, change", REFUSALS, ids=[what for what, _ in REFUSALS])
def test_a_log_in_that_is_not_allowed(
    world: World, protocol: str, what: str, change: Callable[[Rules], None]
) -> None:
    change(world.rules)
    password = "wrong" if what == "wrong password" else PASSWORD
    if protocol == "http" and what == "virtual host":  # it enters none
        assert world.http("limited", path="/api/vhosts") == []
        return
    with pytest.raises(PermissionError):
        getattr(world, protocol)("ann", password)


def test_no_password_is_in_the_log_and_each_refusal_is_said(world: World) -> None:
    with pytest.raises(PermissionError):
        world.amqp("ann", "canary-5501")
    world.rules.answer_all = "perhaps canary"
    with pytest.raises(PermissionError):
        world.amqp("ann")
    log = world.broker.output()
    assert "canary-5501" not in log
    assert PASSWORD not in log
    assert "wrong name or password" in log


# -- verb × right × protocol ---------------------------------------------------------------------

CONFIGURE, WRITE, READ = "configure", "write", "read"
Q = ("queue", "q")
MADE = ("queue", "made")
CHANNEL = ("queue", "nsq.there:c")
DIRECT = ("exchange", "amq.direct")
DEFAULT = ("exchange", "amq.default")


def amqp_verb(name: str, **fields: object) -> Callable[[World], None]:
    def do(world: World) -> None:
        with world.amqp("limited", world.secret()) as line:
            line.call(name, **fields)

    return do


def amqp_publish(world: World) -> None:
    with world.amqp("limited", world.secret()) as line:
        line.publish()


def http_verb(method: str, path: str, body: object = None) -> Callable[[World], None]:
    return lambda world: world.http("limited", world.secret(), method, path, body)


def http_delete(world: World) -> None:
    world.http("ann", PASSWORD, "PUT", "/api/queues/%2f/made", {})
    world.http("limited", world.secret(), "DELETE", "/api/queues/%2f/made")


def nsq_publish(world: World) -> None:
    with world.nsq("limited", world.secret()) as line:
        line.sendall(pub("t" + world.number(), b"m"))
        world.nsq_answer(line)


def nsq_subscribe(world: World) -> None:
    with world.nsq("limited", world.secret()) as line:
        line.sendall(f"SUB there c{world.number()}\n".encode())
        world.nsq_answer(line)


def open_q(world: World) -> bytes:
    asked = ranges.OpenRequest("limited", world.secret(), "/", "q", ranges.BROWSE)
    return ranges.encode_open(asked)


def range_open(world: World) -> None:
    with RangeLine(world.broker.amqp_port) as line:
        try:
            line.ask(open_q(world))
        except Refused as error:
            raise PermissionError(str(error)) from error


GOT = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
PUBLISHED = {"routing_key": "k", "properties": {}, "payload": "m", "payload_encoding": "string"}
TABLE: list[tuple[str, Callable[[World], None], list[tuple[str, str, str]]]] = [
    ("amqp declare", amqp_verb("queue.declare", queue="made"), [(*MADE, CONFIGURE)]),
    ("amqp delete", amqp_verb("queue.delete", queue="made"), [(*MADE, CONFIGURE)]),
    (
        "amqp bind",
        amqp_verb("queue.bind", queue="q", exchange="amq.direct", routing_key="k"),
        [(*Q, WRITE), (*DIRECT, READ)],
    ),
    ("amqp publish", amqp_publish, [(*DEFAULT, WRITE)]),
    ("amqp get", amqp_verb("basic.get", queue="q", no_ack=True), [(*Q, READ)]),
    ("amqp consume", amqp_verb("basic.consume", queue="q"), [(*Q, READ)]),
    ("amqp purge", amqp_verb("queue.purge", queue="q"), [(*Q, READ)]),
    (
        "nsq publish",
        nsq_publish,
        [("exchange", "nsq.t", CONFIGURE), ("exchange", "nsq.t", WRITE)],
    ),
    (
        "nsq subscribe",
        nsq_subscribe,
        [("queue", "nsq.there:c", CONFIGURE), ("queue", "nsq.there:c", READ)],
    ),
    ("ranges open", range_open, [(*Q, READ)]),
    ("http declare", http_verb("PUT", "/api/queues/%2f/made", {}), [(*MADE, CONFIGURE)]),
    ("http delete", http_delete, [(*MADE, CONFIGURE)]),
    ("http get", http_verb("POST", "/api/queues/%2f/q/get", GOT), [(*Q, READ)]),
    ("http peek", http_verb("GET", "/api/queues/%2f/q/messages"), [(*Q, READ)]),
    (
        "http publish",
        http_verb("POST", "/api/exchanges/%2f/amq.direct/publish", PUBLISHED),
        [(*DIRECT, WRITE)],
    ),
]


@pytest.mark.parametrize("by_token", [False, True], ids=["server", "token"])
@pytest.mark.parametrize("verb, do, needed", TABLE, ids=[verb for verb, _, _ in TABLE])
def test_each_verb_needs_its_rights(
    world: World,
    verb: str,
    do: Callable[[World], None],
    needed: list[tuple[str, str, str]],
    by_token: bool,
) -> None:
    """Without one of them, as a user of the broker without it; with all, it is done."""
    world.by_token = by_token
    needed = [
        (kind, name + (world.number() if name.startswith("nsq.") else ""), permission)
        for kind, name, permission in needed
    ]
    for missing in needed:
        world.rules.may = {right for right in needed if right != missing}
        with pytest.raises(PermissionError):
            do(world)
    world.rules.may = set(needed)
    do(world)


def test_the_reason_is_shown_if_that_is_wanted(world: World) -> None:
    with pytest.raises(PermissionError, match="backend rabbit_auth_backend_http: not yours"):
        amqp_verb("queue.purge", queue="q")(world)


def test_a_right_that_was_taken_ends_consumers_on_all_protocols(world: World) -> None:
    world.rules.may = {
        ("queue", "calm", READ),
        (*Q, READ),
        ("queue", "nsq.there:c", READ),
        ("queue", "nsq.there:c", CONFIGURE),
    }
    with (
        world.amqp("limited") as amqp,
        world.nsq("limited") as nsq,
        RangeLine(world.broker.amqp_port) as reader,
    ):
        amqp.call("basic.consume", queue="calm", consumer_tag="c")
        nsq.sendall(b"SUB there c\n")
        world.nsq_answer(nsq)
        reader.ask(open_q(world))
        world.rules.may = set()
        amqp.hears("basic.cancel")
        with pytest.raises(PermissionError, match="E_UNAUTHORIZED"):
            world.nsq_answer(nsq)
        with pytest.raises(Refused):  # said without a request
            reader.ask(b"")


def test_a_new_token_ends_what_rested_on_rights_that_it_lacks(world: World) -> None:
    """AMQP alone has a way to send one; elsewhere rights end with the token."""
    calm = ("queue", "calm", READ)
    with world.amqp("ann") as owner:
        owner.call("queue.declare", queue="kept")
    with world.amqp("", token(calm, ("queue", "kept", READ))) as line:
        for queue in ("kept", "calm"):
            line.call("basic.consume", queue=queue, consumer_tag=queue)
        began = time.monotonic()
        heard = line.renew(token(calm))
        assert sorted(heard) == ["basic.cancel", "connection.update-secret-ok"]
        assert time.monotonic() - began < 2, "within a second, and some for a busy machine"
        line.call("basic.cancel", consumer_tag="calm")
        with pytest.raises(PermissionError, match="ACCESS_REFUSED"):
            line.call("queue.purge", queue="kept")


def test_a_slow_server_holds_no_other_session_up(world: World) -> None:
    world.rules.delay_s = 0.3
    with world.amqp("ann") as line:
        world.rules.delay_s = 0.0
        line.call("basic.get", queue="q", no_ack=True)
        world.rules.delay_s = 0.3
        slow = socket.create_connection(("127.0.0.1", world.nsq_port), 10)
        slow.sendall(MAGIC + identify() + auth(f"ann:{PASSWORD}"))
        nsq_frame(slow)
        began = time.monotonic()
        line.call("basic.get", queue="q", no_ack=True)  # allowed before: nothing is asked
        assert time.monotonic() - began < 0.25
        assert nsq_frame(slow).startswith(b"{")
        slow.close()
