"""Every state of a connection against every thing a peer may say.

The table is the whole truth: what is not written down there cannot happen.  The texts are
judged against RabbitMQ elsewhere; here it is whether a session goes on, answers, or ends, and
that nothing a peer says is taken for a fault of ours.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.protocols.amqp.closing import CLOSING_TIMEOUT_MS
from penstock.protocols.amqp.opening import OPENED
from penstock.protocols.amqp.session import OPENING
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker


def start_ok(password: str = "guest", *, tell: bool = True) -> bytes:
    capabilities = {"authentication_failure_close": tell}
    return codec.method_frame(
        0,
        "connection.start-ok",
        client_properties={"capabilities": capabilities},
        mechanism="PLAIN",
        response=f"\0guest\0{password}",
        locale="en_US",
    )


def tune_ok(frame_max: int = 131_072, channel_max: int = 2047) -> bytes:
    return codec.method_frame(
        0, "connection.tune-ok", channel_max=channel_max, frame_max=frame_max, heartbeat=0
    )


def open_vhost(name: str) -> bytes:
    return codec.method_frame(0, "connection.open", virtual_host=name)


INPUTS: dict[str, bytes] = {
    "header": codec.PROTOCOL_HEADER,
    "start-ok": start_ok(),
    "wrong password": start_ok("wrong"),
    "wrong password, silent": start_ok("wrong", tell=False),
    "tune-ok": tune_ok(),
    "frames too small": tune_ok(frame_max=100),
    "frames too large": tune_ok(frame_max=1 << 20),
    "too many channels": tune_ok(channel_max=5000),
    "open": open_vhost("/"),
    "open unknown": open_vhost("nowhere"),
    "open refused": open_vhost("closed"),
    "close": codec.method_frame(0, "connection.close", code=200, text="bye"),
    "close-ok": codec.method_frame(0, "connection.close-ok"),
    "heartbeat": codec.encode_frame(codec.HEARTBEAT, 0, b""),
    "heartbeat on 1": codec.encode_frame(codec.HEARTBEAT, 1, b""),
    "channel.open": codec.method_frame(1, "channel.open"),
    "publish unopened": codec.method_frame(3, "basic.publish") + codec.content_frames(3, b"", {}),
    "content on 0": codec.content_frames(0, b"m", {}),
    "connection.start": codec.method_frame(0, "connection.start"),
    "queue method on 0": codec.method_frame(0, "queue.declare", queue="q"),
    "unknown method": codec.encode_frame(codec.METHOD, 0, b"\x00\x0a\x00\x63"),
    "cut method": codec.encode_frame(codec.METHOD, 0, b"\x00\x0a\x00\x28\x05x"),
    "unknown frame": codec.encode_frame(5, 0, b"?"),
    "wrong end": codec.encode_frame(codec.HEARTBEAT, 0, b"")[:-1] + b"x",
    "oversized": b"\x01\x00\x00\x7f\xff\xff\xff" + b"x" * 20,
}
STEPS: list[bytes] = [codec.PROTOCOL_HEADER, start_ok(), tune_ok(), open_vhost("/")]
STATES: dict[str, Callable[[ClientEnd], None]] = {
    "new": lambda client: reach(client, 0),
    "started": lambda client: reach(client, 1),
    "tuned": lambda client: reach(client, 2),
    "ready": lambda client: reach(client, 3),
    "running": lambda client: reach(client, 4),
    "closing": lambda client: reach_end(client, "unknown method on 1"),
    "closed": lambda client: reach_end(client, "close"),
}

GOODBYE = "header and gone"
HANGS_UP = "hangs up"
# What follows in each state: a state, HANGS_UP (no word), GOODBYE (our header), a code of
# connection.close, "ok" (close-ok, then gone), or "-" (nothing happens).
# new, started, tuned, ready, running, closing, closed
TABLE: dict[str, tuple[str, str, str, str, str, str, str]] = {
    "header":                  ("started", HANGS_UP, HANGS_UP, "501", "501", "-", "-"),
    "start-ok":                (GOODBYE, "tuned", HANGS_UP, "504", "504", "-", "-"),
    "wrong password":          (GOODBYE, "403", HANGS_UP, "504", "504", "-", "-"),
    "wrong password, silent":  (GOODBYE, HANGS_UP, HANGS_UP, "504", "504", "-", "-"),
    "tune-ok":                 (GOODBYE, HANGS_UP, "ready", "504", "504", "-", "-"),
    "frames too small":        (GOODBYE, HANGS_UP, HANGS_UP, "504", "504", "-", "-"),
    "frames too large":        (GOODBYE, HANGS_UP, HANGS_UP, "504", "504", "-", "-"),
    "too many channels":       (GOODBYE, HANGS_UP, HANGS_UP, "504", "504", "-", "-"),
    "open":                    (GOODBYE, HANGS_UP, HANGS_UP, "running", "504", "-", "-"),
    "open unknown":            (GOODBYE, HANGS_UP, HANGS_UP, "530", "504", "-", "-"),
    "open refused":            (GOODBYE, HANGS_UP, HANGS_UP, "530", "504", "-", "-"),
    "close":                   (GOODBYE, HANGS_UP, HANGS_UP, HANGS_UP, "ok", "answers", "-"),
    "close-ok":                (GOODBYE, HANGS_UP, HANGS_UP, "504", "504", HANGS_UP, "-"),
    "heartbeat":               (GOODBYE, "-", "-", "-", "-", "-", "-"),
    "heartbeat on 1":          (GOODBYE, HANGS_UP, HANGS_UP, "505", "505", "-", "-"),
    "channel.open":            (GOODBYE, HANGS_UP, HANGS_UP, "505", "-", "-", "-"),
    "publish unopened":        (GOODBYE, HANGS_UP, HANGS_UP, "505", "504", "-", "-"),
    "content on 0":            (GOODBYE, HANGS_UP, HANGS_UP, "505", "505", "-", "-"),
    "connection.start":        (GOODBYE, HANGS_UP, HANGS_UP, "504", "504", "-", "-"),
    "queue method on 0":       (GOODBYE, HANGS_UP, HANGS_UP, "504", "504", "-", "-"),
    "unknown method":          (GOODBYE, HANGS_UP, HANGS_UP, HANGS_UP, HANGS_UP, "-", "-"),
    "cut method":              (GOODBYE, HANGS_UP, HANGS_UP, "541", "541", "-", "-"),
    "unknown frame":           (GOODBYE, HANGS_UP, HANGS_UP, "501", "501", "-", "-"),
    "wrong end":               (GOODBYE, HANGS_UP, HANGS_UP, "501", "501", "-", "-"),
    "oversized":               (GOODBYE, HANGS_UP, HANGS_UP, "501", "501", "-", "-"),
}  # fmt: skip


def reach(client: ClientEnd, steps: int) -> None:
    for step in STEPS[:steps]:
        client.send(step)


def reach_end(client: ClientEnd, how: str) -> None:
    reach(client, 4)
    if how == "close":
        client.send(INPUTS["close"])
    else:
        client.send(codec.method_frame(1, "channel.open"))
        client.send(codec.method_frame(1, "channel.open"))


def outcome(client: ClientEnd, before: str) -> str:
    """What the session said and did, in the words of the table."""
    session = client.session
    raw = client.received
    names = client.methods()
    if raw.startswith(b"AMQP"):
        return GOODBYE
    closes = [str(fields["code"]) for name, fields in names if name == "connection.close"]
    if closes:
        return closes[0]
    if "connection.close-ok" in [name for name, _ in names]:
        return "ok" if session.closed else "answers"
    after = state_of(session)
    if session.closed and before != "closed":
        return HANGS_UP
    return "-" if after == before else after


def state_of(session: object) -> str:
    opening = session.opening.state  # as long as it lasts
    return list(STATES)[int(opening if session.state == OPENING else OPENED - 1 + session.state)]


@pytest.mark.parametrize("said", INPUTS)
def test_what_a_peer_says_in_each_state(said: str) -> None:
    found = []
    for state, arrive in STATES.items():
        node = QuietBroker()
        client = node.connect()
        arrive(client)
        assert state_of(client.session) == state
        client.received = b""
        client.send(INPUTS[said])
        found.append(outcome(client, state))
        assert not node.reports, f"in state {state}: {node.reports}"
    assert tuple(found) == TABLE[said]


@pytest.mark.parametrize("said", INPUTS)
def test_a_closed_session_has_nothing_to_say(said: str) -> None:
    node = QuietBroker()
    client = node.connect()
    STATES["closed"](client)
    client.received = b""
    client.send(INPUTS[said] * 3)
    node.tick(60_000)
    assert client.received == b""


def test_the_table_is_complete() -> None:
    assert set(TABLE) == set(INPUTS)
    assert {len(row) for row in TABLE.values()} == {len(STATES)}


@pytest.mark.parametrize("state", ["new", "started", "tuned", "ready"])
def test_a_handshake_that_does_not_go_on_is_ended(state: str) -> None:
    node = QuietBroker()
    client = node.connect()
    STATES[state](client)
    client.received = b""
    node.tick(node.limits.handshake_timeout_ms)
    assert not client.session.closed
    node.tick(2)
    assert client.session.closed
    assert client.received == b""


@pytest.mark.parametrize("state", ["new", "started", "tuned", "ready"])
@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_set_moves_no_end_of_a_handshake(state: str, hours: int) -> None:
    node = QuietBroker()
    client = node.connect()
    STATES[state](client)
    node.now_ms += hours * 3_600_000
    node.tick(node.limits.handshake_timeout_ms)
    assert not client.session.closed
    node.tick(1)
    assert client.session.closed


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_set_moves_no_end_of_a_close(hours: int) -> None:
    """Neither of one that the client has to answer, nor of one that it asked for."""
    node = QuietBroker()
    told, asked = node.client(), node.client()
    told.session.force_close("for a test")
    asked.send(INPUTS["close"])
    assert asked.session.close_after_ms == node.mono_ms + CLOSING_TIMEOUT_MS
    node.now_ms += hours * 3_600_000
    node.tick(CLOSING_TIMEOUT_MS)
    assert not told.session.abandoned
    node.tick(1)
    assert told.session.abandoned


@pytest.mark.parametrize(
    "sent, reason",
    [
        (b"GET / HTTP/1.1\r\n", "bad header b'GET / HT'"),
        (b"\x16\x03\x01\x02", r"bad header b'\x16\x03\x01\x02'"),
        (b"", "handshake timeout in state starting"),
        (b"".join(STEPS[:1]), "handshake timeout in state starting"),
        (b"".join(STEPS[:2]), "handshake timeout in state tuning"),
        (b"AMQP\0\0\x09\x01" + b"\x01\0\0\0\0\0\0\x01", "FRAME_ERROR"),
    ],
)
def test_a_handshake_that_fails_is_an_event(sent: bytes, reason: str) -> None:
    node = QuietBroker()
    node.broker.events.on = True
    client = node.connect()
    client.send(sent)
    node.tick(node.limits.handshake_timeout_ms + 1)
    told = [event for event in node.broker.events.take() if event[1] != "login_accepted"]
    ((_, kind, values, _),) = told
    assert (kind, values[1]) == ("opening_failed", "amqp091")
    assert str(values[2]).startswith(reason)


def test_a_broker_that_stops_says_nothing_of_half_open_connections() -> None:
    node = QuietBroker()
    node.broker.events.on = True
    client = node.connect()
    client.send(b"".join(STEPS[:1]))
    client.session.shut_down()
    assert node.broker.events.take() == []


def test_a_handshake_in_one_packet() -> None:
    node = QuietBroker()
    client = node.connect()
    client.send(b"".join([*STEPS, codec.method_frame(1, "channel.open")]))
    assert [name for name, _ in client.methods()] == [
        *("connection.start", "connection.tune", "connection.open-ok", "channel.open-ok")
    ]


def test_a_handshake_byte_by_byte() -> None:
    node = QuietBroker()
    client = node.connect()
    for octet in b"".join(STEPS):
        client.send(bytes([octet]))
    assert [name for name, _ in client.methods()][-1] == "connection.open-ok"


def test_a_peer_that_does_not_answer_our_close_is_not_waited_for_long() -> None:
    node = QuietBroker()
    client = node.connect()
    STATES["closing"](client)
    node.tick(120_000)
    assert client.session.closed
