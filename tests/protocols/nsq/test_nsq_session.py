"""NSQ sessions around a broker, without sockets: who gets what, in which order and words."""

from __future__ import annotations

import json

import pytest

from penstock.protocols.nsq.publishing import HELD_MESSAGE_BYTES
from tests.helpers.nsq_pair import NsqBroker, NsqEnd
from tests.helpers.raw_nsq import NsqMessage, auth, dpub, fin, identify, mpub, pub

NOBODY = b"0123456789abcdef"


@pytest.fixture
def node() -> NsqBroker:
    return NsqBroker()


def bodies(messages: list[NsqMessage]) -> list[bytes]:
    return [message.body for message in messages]


# -- publishing and consuming --------------------------------------------------------------------


def test_what_is_published_reaches_every_channel(node: NsqBroker) -> None:
    producer, one, two = node.nsq_client(), node.nsq_client(), node.nsq_client()
    one.subscribe("t", "a")
    two.subscribe("t", "b")
    answers = producer.ask(pub("t", b"x") + pub("t", b"y") + mpub("t", [b"z", b"w"]))
    assert answers == [b"OK"] * 3
    for consumer in (one, two):
        messages = consumer.messages()
        assert bodies(messages) == [b"x", b"y", b"z", b"w"]
        assert [message.attempts for message in messages] == [1] * 4
        assert consumer.ask(b"".join(fin(message.id) for message in messages)) == []
        assert consumer.session.consuming.in_flight_count == 0
    node.check()


def test_ready_is_a_window(node: NsqBroker) -> None:
    producer, consumer = node.nsq_client(), node.nsq_client()
    consumer.subscribe("t", "c", ready=2)
    producer.send(mpub("t", [b"%d" % number for number in range(5)]))
    first, second = consumer.messages()
    assert consumer.ask(fin(first.id))[0] == consumer_sees(consumer, b"2")
    assert consumer.ask(b"RDY 0\n") == []
    assert consumer.ask(fin(second.id)) == []
    assert bodies(consumer.ask(b"RDY 3\n")) == [b"3", b"4"]  # type: ignore[arg-type]


def consumer_sees(consumer: NsqEnd, body: bytes) -> object:
    class Body:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, NsqMessage) and other.body == body

        def __hash__(self) -> int:
            return 0

    return Body()


def test_the_answer_waits_for_the_disk_and_errors_for_their_turn(node: NsqBroker) -> None:
    producer = node.nsq_client()
    producer.send(pub("t", b"first"))
    node.committer.hold = True
    assert producer.ask(pub("t", b"m") + pub("u", b"m") + b"WHAT\n") == []
    assert not producer.lost
    node.committer.finish()
    node.run()
    assert producer.heard() == [b"OK", b"OK", b"E_INVALID invalid command WHAT"]
    assert producer.lost


def test_in_fast_mode_the_answer_does_not_wait() -> None:
    node = NsqBroker('nsq_publish_mode = "fast"')
    node.committer.hold = True
    assert node.nsq_client().ask(pub("t", b"m") + mpub("t", [b"m"])) == [b"OK", b"OK"]


def test_requeue_touch_and_timeout(node: NsqBroker) -> None:
    producer, consumer = node.nsq_client(), node.nsq_client()
    consumer.send(identify(msg_timeout=1000))
    consumer.subscribe("t", "c")
    producer.send(pub("t", b"m"))
    (message,) = consumer.messages()
    (again,) = consumer.ask(b"REQ %s 0\n" % message.id)
    assert isinstance(again, NsqMessage)
    assert (again.attempts, again.id, again.timestamp_ns) == (2, message.id, message.timestamp_ns)
    assert consumer.ask(b"REQ %s 500\n" % message.id) == []
    node.tick(400)
    assert consumer.messages() == []
    node.tick(200)
    (later,) = consumer.messages()
    assert later.attempts == 3
    node.tick(800)
    assert consumer.ask(b"TOUCH %s\n" % message.id) == []
    node.tick(800)
    assert consumer.messages() == []
    node.tick(300)
    (late,) = consumer.messages()
    assert late.attempts == 4
    row = consumer.session.client_row()
    assert (row["requeue_count"], row["message_count"], row["in_flight_count"]) == (2, 4, 1)
    node.check()


def test_a_requeue_waits_as_long_as_one_may_at_most(node: NsqBroker) -> None:
    """Also one that asks for more than an i64 holds."""
    producer, consumer = node.nsq_client(), node.nsq_client()
    consumer.subscribe("t", "c")
    producer.send(pub("t", b"m"))
    (message,) = consumer.messages()
    assert consumer.ask(b"REQ %s 9999999999999999999\n" % message.id) == []
    assert consumer.session.client_row()["in_flight_count"] == 0
    node.tick(3_599_000)
    assert consumer.messages() == []
    node.tick(2_000)
    (again,) = consumer.messages()
    assert again.attempts == 2
    node.check()


def test_who_is_too_late_is_told_and_stays(node: NsqBroker) -> None:
    consumer = node.nsq_client()
    consumer.subscribe("t", "c")
    assert consumer.ask(fin(NOBODY) + b"REQ %s 0\n" % NOBODY + b"TOUCH %s\n" % NOBODY) == [
        b"E_FIN_FAILED FIN %s failed ID not in flight" % NOBODY,
        b"E_REQ_FAILED REQ %s failed ID not in flight" % NOBODY,
        b"E_TOUCH_FAILED TOUCH %s failed ID not in flight" % NOBODY,
    ]
    assert not consumer.lost


def test_nobody_settles_what_another_has(node: NsqBroker) -> None:
    producer, one, two = node.nsq_client(), node.nsq_client(), node.nsq_client()
    one.subscribe("t", "c")
    two.subscribe("t", "c", ready=0)
    producer.send(pub("t", b"m"))
    (message,) = one.messages()
    assert two.ask(fin(message.id)) == [
        b"E_FIN_FAILED FIN %s failed client does not own message" % message.id
    ]


def test_a_deferred_publish_waits(node: NsqBroker) -> None:
    producer, consumer = node.nsq_client(), node.nsq_client()
    consumer.subscribe("t", "c")
    assert producer.ask(dpub("t", 1500, b"later") + pub("t", b"now")) == [b"OK", b"OK"]
    assert bodies(consumer.messages()) == [b"now"]
    node.tick(1000)
    assert consumer.messages() == []
    node.tick(600)
    assert bodies(consumer.messages()) == [b"later"]


def test_what_was_in_flight_waits_for_its_timeout(node: NsqBroker) -> None:
    producer, first, second = node.nsq_client(), node.nsq_client(), node.nsq_client()
    first.subscribe("t", "c")
    producer.send(pub("t", b"m"))
    first.drop()
    assert second.subscribe("t", "c") == []
    node.tick(59_000)
    for client in (producer, second):
        client.send(b"NOP\n")
    assert second.messages() == []
    node.tick(1_500)
    (message,) = second.messages()
    assert message.attempts == 2
    node.check()


def test_or_goes_back_at_once() -> None:
    node = NsqBroker("nsq_requeue_on_disconnect = true")
    producer, first, second = node.nsq_client(), node.nsq_client(), node.nsq_client()
    first.subscribe("t", "c")
    producer.send(pub("t", b"m"))
    first.drop()
    (message,) = second.subscribe("t", "c")
    assert message.attempts == 2
    node.check()


def test_after_cls_what_is_in_flight_may_be_finished(node: NsqBroker) -> None:
    producer, consumer = node.nsq_client(), node.nsq_client()
    consumer.subscribe("t", "c", ready=1)
    producer.send(mpub("t", [b"a", b"b"]))
    (message,) = consumer.messages()
    assert consumer.ask(b"CLS\n") == [b"CLOSE_WAIT"]
    assert consumer.ask(b"RDY 5\n" + fin(message.id) + pub("t", b"c")) == [b"OK"]
    assert consumer.ask(b"CLS\n") == [b"E_INVALID cannot CLS in current state"]


def test_an_ephemeral_channel_goes_with_its_last_consumer(node: NsqBroker) -> None:
    consumer = node.nsq_client()
    consumer.subscribe("t#ephemeral", "c#ephemeral")
    topics = node.broker.vhosts["/"].topics
    assert list(topics.topics) == ["t#ephemeral"]
    consumer.drop()
    assert not topics.topics


def test_consumers_of_a_deleted_channel_are_hung_up_on(node: NsqBroker) -> None:
    consumer = node.nsq_client()
    consumer.subscribe("t", "c")
    topics = node.broker.vhosts["/"].topics
    node.turn.cancelled(topics.delete(topics.topics["t"]))
    node.run()
    assert consumer.lost
    assert consumer.heard() == []


def test_amqp_and_nsq_share_messages(node: NsqBroker) -> None:
    consumer, client = node.nsq_client(), node.client()
    consumer.subscribe("t", "c")
    client.publish("nsq.t", "", b"from AMQP" * 20_000, content_type="text/plain")
    (message,) = consumer.messages()
    assert message.body == b"from AMQP" * 20_000
    assert message.timestamp_ns == node.now_ms * 1_000_000
    consumer.send(fin(message.id))
    assert consumer.session.consuming.finish_count == 1
    client.call("queue.declare", queue="mine")
    client.call("queue.bind", queue="mine", exchange="nsq.t")
    consumer.send(pub("t", b"from NSQ"))
    client.received = b""
    client.consume("mine")
    ((_, fields),) = [one for one in client.methods() if one[0] == "basic.deliver"]
    assert fields["body"] == b"from NSQ"
    assert fields["properties"]["headers"]["x-nsq-timestamp-ns"].value == node.now_ms * 1_000_000


def test_a_sample_finishes_the_rest_for_all(node: NsqBroker) -> None:
    throws = iter([0, 10, 11, 99, 5])
    node.nsq.percent = lambda: next(throws)
    producer, consumer = node.nsq_client(), node.nsq_client()
    consumer.send(identify(sample_rate=10))
    consumer.subscribe("t", "c")
    producer.send(mpub("t", [b"0", b"1", b"2", b"3", b"4"]))
    assert bodies(consumer.messages()) == [b"0", b"1", b"4"]
    assert consumer.session.consuming.in_flight_count == 3
    channel = node.broker.vhosts["/"].topics.topics["t"].channels["c"]
    assert channel.queue.statistics.acked_count == 2
    node.check()


def test_who_hangs_up_still_hears_its_answers(node: NsqBroker) -> None:
    client = node.nsq_client()
    client.send(pub("t", b"m"))
    node.committer.hold = True
    assert client.ask(pub("t", b"m") + b"PUB t\n\0\0\0\x05abc") == []
    assert client.session.hung_up(node.now_ms)
    assert not client.session.closed
    node.committer.finish()
    node.run()
    assert client.heard() == [b"OK", b"E_BAD_MESSAGE PUB failed to read message body"]
    assert client.lost


def test_who_hangs_up_with_nothing_to_hear_is_gone(node: NsqBroker) -> None:
    client = node.nsq_client()
    client.subscribe("t", "c")
    assert not client.session.hung_up(node.now_ms)


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, answer",
    [
        (b"\n", b"E_INVALID invalid command "),
        (b"pub t\n", b"E_INVALID invalid command pub"),
        (b"RDY 1\n", b"E_INVALID cannot RDY in current state"),
        (fin(NOBODY), b"E_INVALID cannot FIN in current state"),
        (b"REQ\n", b"E_INVALID cannot REQ in current state"),
        (b"TOUCH\n", b"E_INVALID cannot TOUCH in current state"),
        (b"CLS\n", b"E_INVALID cannot CLS in current state"),
        (b"SUB t\n", b"E_INVALID SUB insufficient number of parameters"),
        (b"SUB $ c\n", b'E_BAD_TOPIC SUB topic name "$" is not valid'),
        (b"SUB t \n", b'E_BAD_CHANNEL SUB channel name "" is not valid'),
        (auth("guest:guest"), b"E_AUTH_DISABLED AUTH disabled"),
        (b"AUTH x\n", b"E_INVALID AUTH invalid number of parameters"),
        (identify(msg_timeout=1), b"E_BAD_BODY IDENTIFY msg timeout (1) is invalid"),
    ],
)
def test_before_sub(node: NsqBroker, data: bytes, answer: bytes) -> None:
    client = node.nsq_client()
    assert client.ask(data) == [answer]
    assert client.lost
    node.check()


@pytest.mark.parametrize(
    "data, answer",
    [
        (b"SUB t c\n", b"E_INVALID cannot SUB in current state"),
        (identify(), b"E_INVALID cannot IDENTIFY in current state"),
        (b"IDENTIFY\n", b"E_INVALID cannot IDENTIFY in current state"),
        (auth("s"), b"E_INVALID cannot AUTH in current state"),
        (b"RDY 2501\n", b"E_INVALID RDY count 2501 out of range 0-2500"),
        (b"RDY x\n", b"E_INVALID RDY could not parse count x"),
        (b"RDY 18446744073709551615\n", b"E_INVALID RDY count -1 out of range 0-2500"),
        (b"FIN\n", b"E_INVALID FIN insufficient number of params"),
        (b"FIN short\n", b"E_INVALID invalid message ID"),
        (b"FIN 0123456 9abcdef\n", b"E_INVALID invalid message ID"),
        (b"REQ %s\n" % NOBODY, b"E_INVALID REQ insufficient number of params"),
        (b"REQ %s -1\n" % NOBODY, b"E_INVALID REQ could not parse timeout -1"),
        (b"TOUCH x\n", b"E_INVALID invalid message ID"),
    ],
)
def test_after_sub(node: NsqBroker, data: bytes, answer: bytes) -> None:
    client = node.nsq_client()
    client.subscribe("t", "c")
    assert client.ask(data) == [answer]
    assert client.lost
    node.check()


def test_another_protocol_is_refused(node: NsqBroker) -> None:
    client = node.nsq_client(greet=False)
    node.broker.events.on = True
    assert client.ask(b"  V1") == [b"E_BAD_PROTOCOL"]
    assert client.lost
    ((_, kind, values, _),) = node.broker.events.take()
    assert (kind, values[1:]) == ("opening_failed", ("nsq", "bad protocol magic b'  V1'"))


def test_no_sub_without_heartbeats(node: NsqBroker) -> None:
    client = node.nsq_client()
    client.send(identify(heartbeat_interval=-1))
    assert client.ask(b"SUB t c\n") == [b"OK", b"E_INVALID cannot SUB with heartbeats disabled"][1:]


def test_too_many_consumers() -> None:
    node = NsqBroker("nsq_max_channel_consumers = 1")
    node.nsq_client().subscribe("t", "c")
    answers = node.nsq_client().ask(b"SUB t c\n")
    assert answers == [b"E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1"]


def test_a_queue_of_one_amqp_connection_is_nobody_elses_channel(node: NsqBroker) -> None:
    client = node.client()
    node.nsq_client().send(pub("t", b"m"))
    client.call("queue.declare", queue="nsq.t:c", exclusive=True)
    client.call("queue.bind", queue="nsq.t:c", exchange="nsq.t")
    (answer,) = node.nsq_client().ask(b"SUB t c\n")
    assert isinstance(answer, bytes)
    assert answer.startswith(b"E_SUB_FAILED SUB failed cannot obtain exclusive access")


def test_an_exclusive_amqp_consumer_keeps_the_channel_for_itself(node: NsqBroker) -> None:
    node.nsq_client().subscribe("t", "c")
    node.clients[-1].drop()
    client = node.client()
    client.consume("nsq.t:c", exclusive=True)
    (answer,) = node.nsq_client().ask(b"SUB t c\n")
    assert answer == b"E_SUB_FAILED SUB failed queue 'nsq.t:c' in vhost '/' in exclusive use"


# -- rights --------------------------------------------------------------------------------------


def test_rights_are_those_of_the_user(node: NsqBroker) -> None:
    user = node.broker.users.users["guest"]
    client = node.nsq_client()
    assert client.ask(pub("open", b"m")) == [b"OK"]
    user.vhosts["/"] = ("", "open", r"open:c")
    node.broker.vhosts["/"].epoch += 1
    assert client.ask(pub("open", b"m")) == [b"OK"]
    assert client.ask(pub("openings", b"m")) == [
        b'E_UNAUTHORIZED AUTH failed for PUB on "openings" ""'
    ]
    other = node.nsq_client()
    assert other.ask(b"SUB open d\n") == [b'E_UNAUTHORIZED AUTH failed for SUB on "open" "d"']


def test_a_guest_from_elsewhere_may_nothing(node: NsqBroker) -> None:
    client = node.nsq_client(loopback=False)
    assert client.ask(pub("t", b"m")) == [b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""']
    assert node.broker.connection_count == 0


def test_users_of_the_broker_authenticate() -> None:
    node = NsqBroker("nsq_auth_required = true")
    client = node.nsq_client()
    answer = client.ask(identify(feature_negotiation=True))[0]
    assert isinstance(answer, bytes)
    assert json.loads(answer)["auth_required"] is True
    assert client.ask(auth("guest:guest")) == [
        b'{"identity":"guest","identity_url":"","permission_count":1}'
    ]
    assert client.ask(pub("t", b"m")) == [b"OK"]
    assert client.ask(auth("guest:guest")) == [b"E_INVALID AUTH already set"]
    assert node.nsq_client().ask(pub("t", b"m")) == [b"E_AUTH_FIRST AUTH required before PUB"]
    assert node.nsq_client().ask(auth("guest:wrong")) == [b"E_AUTH_FAILED AUTH failed"]


@pytest.mark.parametrize("setting", ['nsq_vhost = "gone"', 'nsq_user = "gone"'])
def test_a_node_whose_clients_may_nothing_says_why(
    setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    node = NsqBroker(setting)
    assert setting.split(" ", maxsplit=1)[0] + " 'gone' does not exist" in caplog.text
    assert node.nsq_client().ask(pub("t", b"m")) == [
        b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'
    ]


# -- held publishers -----------------------------------------------------------------------------


def test_an_alarm_holds_publishes_and_nothing_else(node: NsqBroker) -> None:
    producer, both = node.nsq_client(), node.nsq_client()
    both.subscribe("t", "c")
    producer.send(mpub("t", [b"a", b"b"]))
    first, second = both.messages()
    node.broker.admission.vhost_reasons["/"] = "over budget"
    node.run()
    answers = both.ask(pub("t", b"held") + fin(first.id) + b"REQ %s 0\n" % second.id)
    assert bodies(answers) == [b"b"]  # type: ignore[arg-type]
    assert both.session.held_bytes == 4 + HELD_MESSAGE_BYTES
    node.broker.admission.vhost_reasons.clear()
    node.run()
    answers = both.heard()
    assert sorted(map(str, answers)) == sorted(
        map(str, [b"OK", next(one for one in answers if isinstance(one, NsqMessage))])
    )
    assert both.session.held_bytes == 0
    node.check()


def test_what_is_held_keeps_the_place_of_its_answer(node: NsqBroker) -> None:
    client = node.nsq_client()
    client.subscribe("t", "c", ready=0)
    node.broker.admission.vhost_reasons["/"] = "over budget"
    node.run()
    assert client.ask(pub("t", b"m") + b"CLS\n" + b"WHAT\n") == []
    node.broker.admission.vhost_reasons.clear()
    node.run()
    assert client.heard() == [b"OK", b"CLOSE_WAIT", b"E_INVALID invalid command WHAT"]


def test_new_topics_are_made_fifty_a_turn(node: NsqBroker) -> None:
    client = node.nsq_client()
    client.send(b"".join(pub(f"t{number}", b"m") for number in range(250)), run=False)
    assert len(node.broker.vhosts["/"].topics.topics) == 50
    node.run()
    assert client.heard() == [b"OK"] * 250


# -- layers and time -----------------------------------------------------------------------------


def test_layers_follow_one_another(node: NsqBroker) -> None:
    node.nsq.identify_limits.offers_tls = True
    client = node.nsq_client()
    answers = client.ask(identify(feature_negotiation=True, tls_v1=True, snappy=True) + b"hello")
    assert answers[1:] == [b"OK", b"OK"]
    assert node.layers.put == [("tls", b"hello"), ("snappy", b"")]
    assert client.ask(pub("t", b"m")) == [b"OK"]
    row = client.session.client_row()
    assert (row["tls"], row["snappy"], row["deflate"]) == (True, True, False)


def test_layers_wait_for_what_was_said_before(node: NsqBroker) -> None:
    client = node.nsq_client()
    client.send(pub("t", b"m"))
    node.committer.hold = True
    assert client.ask(pub("t", b"m") + identify(feature_negotiation=True, deflate=True)) == []
    assert node.layers.put == []
    node.committer.finish()
    node.run()
    assert len(client.heard()) == 3
    assert node.layers.put == [("deflate", b"")]


def test_tls_may_be_required() -> None:
    node = NsqBroker()
    node.nsq.tls_required = True
    for command, verb in ((b"NOP\n", b"NOP"), (pub("t", b"m"), b"PUB"), (b"X\n", b"X")):
        answers = node.nsq_client().ask(command)
        assert answers == [b"E_INVALID cannot %s in current state (TLS required)" % verb]
    assert node.nsq_client().ask(identify()) == [b"OK"]


def test_heartbeats_and_silence(node: NsqBroker) -> None:
    client = node.nsq_client()
    client.send(identify(heartbeat_interval=1000))
    client.received = b""
    for _ in range(4):
        node.tick(250)
    assert client.heard() == [b"_heartbeat_"]
    client.send(b"NOP\n")
    for _ in range(7):
        node.tick(250)
    assert not client.session.closed
    node.tick(250)
    assert client.session.closed


def test_clients_are_described(node: NsqBroker) -> None:
    client = node.nsq_client()
    client.send(identify(client_id="c", hostname="h", user_agent="u"))
    client.send(pub("t", b"m") + mpub("t", [b"m", b"m"]))
    client.subscribe("t", "c", ready=5)
    assert client.session.client_row() == {
        "client_id": "c",
        "hostname": "h",
        "version": "V2",
        "remote_address": "127.0.0.1:50000",
        "state": 3,
        "ready_count": 5,
        "in_flight_count": 3,
        "message_count": 3,
        "finish_count": 0,
        "requeue_count": 0,
        "connect_ts": node.now_ms // 1000,
        "sample_rate": 0,
        "deflate": False,
        "snappy": False,
        "user_agent": "u",
        "pub_counts": [{"topic": "t", "count": 3}],
        "tls": False,
        "tls_cipher_suite": "",
        "tls_version": "",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": False,
    }
    assert list(node.nsq.sessions) == [client.session]
    client.drop()
    assert not node.nsq.sessions
