"""SUBSCRIBE, START and OFFSET_AT in a whole node without noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.rules.access import User
from penstock.core.clock_types import WallMs
from penstock.protocols.ranges import subscribing
from penstock.protocols.ranges.leases import RangeLeases
from penstock.protocols.ranges.session import RangeSession
from penstock_ranges import frames as range_frames
from penstock_ranges import ranges, subscriptions
from penstock_ranges.subscriptions import BY_EXCHANGE, BY_QUEUES, BY_TOPIC
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.failing_rows import FailingRows
from tests.helpers.nsq_pair import NsqBroker
from tests.helpers.range_grace import LEASE_GRACE_MS
from tests.helpers.sim_files import SimFileSystem

QUEUE = "spark.events:lake"


class Peer:
    """One range connection of one user."""

    def __init__(self, node: QuietBroker, leases: RangeLeases, user: str = "guest") -> None:
        self._node = node
        self.leases = leases
        self.session = RangeSession(node.broker, leases, ("127.0.0.1", True), WallMs(node.now_ms))
        self.session.receive(range_frames.MAGIC, node.now_ms)
        self._user = user

    def ask(self, frame: bytes) -> tuple[int, bytes]:
        self.session.receive(frame, self._node.now_ms)
        data = self.session.out.getvalue()
        self.session.out.truncate(0)
        [reply] = range_frames.FrameSplitter(range_frames.REPLY_MAX_BYTES).feed(data)
        return reply

    def subscribe(self, by: int, names: list[str], *, make: bool = True) -> list[str]:
        kind, _ = self.ask(range_frames.encode_login(self._user, "guest", "/"))
        assert kind == range_frames.WELCOME
        kind, payload = self.ask(subscriptions.encode_subscribe(make, by, names))
        if kind == range_frames.ERROR:
            raise Told(*range_frames.decode_error(payload))
        assert kind == subscriptions.SUBSCRIBED
        return subscriptions.decode_subscribed(payload)

    def open(self, queue: str, mode: int = ranges.READ, token: int = 0) -> int:
        """The token of the lease."""
        request = ranges.OpenRequest("guest", "guest", "/", queue, mode, token)
        kind, payload = self.ask(ranges.encode_open(request))
        if kind == range_frames.ERROR:
            raise Told(*range_frames.decode_error(payload))
        return ranges.decode_opened(payload)[2]

    def start(self, request: str, seq_id: int) -> int:
        kind, payload = self.ask(subscriptions.encode_start(request, seq_id))
        assert kind == subscriptions.STARTED, payload
        return subscriptions.decode_started(payload)

    def ack(self, upto: int) -> int:
        kind, payload = self.ask(ranges.encode_ack(upto))
        assert kind == ranges.ACKED, payload
        return ranges.decode_acked(payload)


class Told(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class Room:
    def __init__(self, node: QuietBroker) -> None:
        self.node = node
        self.leases = RangeLeases(LEASE_GRACE_MS, node.broker.letting_go, node.broker.idleness)
        self.client = node.client()

    def subscribe(self, by: int, *names: str, make: bool = True, user: str = "guest") -> list[str]:
        return Peer(self.node, self.leases, user).subscribe(by, list(names), make=make)

    def refusal(self, by: int, *names: str, make: bool = True, user: str = "guest") -> Told:
        with pytest.raises(Told) as caught:
            self.subscribe(by, *names, make=make, user=user)
        return caught.value

    def depth(self, queue: str) -> int:
        return int(self.node.broker.vhosts["/"].queues[queue].backing.ready_count())

    def reader(self, queue: str) -> Peer:
        peer = Peer(self.node, self.leases)
        peer.open(queue)
        return peer


@pytest.fixture
def room() -> Room:
    found = Room(QuietBroker())
    found.client.call("exchange.declare", exchange="events", type="topic", durable=True)
    return found


# -- groups ----------------------------------------------------------------------------------


def test_a_group_gets_a_queue_of_its_own_as_often_as_it_likes(room: Room) -> None:
    assert room.refusal(BY_EXCHANGE, "events", "lake", make=False).code == range_frames.NOT_FOUND
    assert QUEUE not in room.node.broker.vhosts["/"].queues
    assert room.subscribe(BY_EXCHANGE, "events", "lake") == [QUEUE]
    assert room.subscribe(BY_EXCHANGE, "events", "lake") == [QUEUE]
    assert room.subscribe(BY_EXCHANGE, "events", "lake", make=False) == [QUEUE]
    room.client.publish("events", "eu.order", b"1")
    room.node.tick(300)
    assert room.depth(QUEUE) == 1
    assert room.node.broker.vhosts["/"].queues[QUEUE].durable


def test_keys_are_added_and_never_silently_left(room: Room) -> None:
    room.subscribe(BY_EXCHANGE, "events", "lake", "eu.#")
    room.subscribe(BY_EXCHANGE, "events", "lake", "eu.#", "us.#")
    for key in ("eu.1", "us.1", "asia.1"):
        room.client.publish("events", key, b"x")
    room.node.tick(300)
    assert room.depth(QUEUE) == 2
    told = room.refusal(BY_EXCHANGE, "events", "lake", "eu.#")
    assert "is bound to exchange 'events' by 'us.#', too" in told.text
    told = room.refusal(BY_EXCHANGE, "events", "lake", "eu.#", "us.#", "asia.#", make=False)
    assert "a batch read leaves bindings as they are" in told.text


@pytest.mark.parametrize("kind", ["fanout", "headers", "topic"])
def test_without_keys_a_group_gets_everything(room: Room, kind: str) -> None:
    room.client.call("exchange.declare", exchange="all", type=kind, durable=True)
    [queue] = room.subscribe(BY_EXCHANGE, "all", "lake")
    room.client.publish("all", "some.key", b"x", headers={"a": 1})
    room.node.tick(300)
    assert room.depth(queue) == 1


def test_what_has_no_everything_wants_keys(room: Room) -> None:
    told = room.refusal(BY_EXCHANGE, "amq.direct", "lake")
    assert "name the keys with option routingKey" in told.text
    assert "spark.amq.direct:lake" not in room.node.broker.vhosts["/"].queues
    assert room.subscribe(BY_EXCHANGE, "amq.direct", "lake", "k") == ["spark.amq.direct:lake"]


def test_wrong_names_are_refused(room: Room) -> None:
    assert room.refusal(BY_EXCHANGE, "nobody", "lake").code == range_frames.NOT_FOUND
    assert "without colons" in room.refusal(BY_EXCHANGE, "events", "a:b").text
    assert "shorten" in room.refusal(BY_EXCHANGE, "events", "g" * 300).text
    assert "is no name of a topic" in room.refusal(BY_TOPIC, "a b", "c").text
    assert "is no name of a channel" in room.refusal(BY_TOPIC, "a", "").text
    assert room.refusal(BY_QUEUES, "nobody").code == range_frames.NOT_FOUND
    assert "by option queue" in room.refusal(BY_EXCHANGE, "", "lake", "q").text


def test_queues_that_cannot_be_read_say_why(room: Room) -> None:
    room.client.call("queue.declare", queue="ranked", arguments={"x-max-priority": 3})
    assert "x-max-priority" in room.refusal(BY_QUEUES, "ranked").text
    room.client.call("queue.declare", queue="mine", exclusive=True)
    told = room.refusal(BY_QUEUES, "mine")
    assert told.code == range_frames.LOCKED
    assert "exclusive" in told.text
    room.client.call("queue.declare", queue="passing")
    assert room.subscribe(BY_QUEUES, "passing") == ["passing"]


# -- NSQ -------------------------------------------------------------------------------------


def test_a_channel_is_made_with_its_topic(room: Room) -> None:
    told = room.refusal(BY_TOPIC, "clicks", "lake", make=False)
    assert "has no channel 'lake' yet" in told.text
    assert "clicks" not in room.node.broker.vhosts["/"].topics.topics
    assert room.subscribe(BY_TOPIC, "clicks", "lake") == ["nsq.clicks:lake"]
    assert room.subscribe(BY_TOPIC, "clicks", "lake", make=False) == ["nsq.clicks:lake"]
    assert list(room.node.broker.vhosts["/"].topics.topics["clicks"].channels) == ["lake"]


def test_a_channel_is_read_by_spark_or_by_consumers() -> None:
    node = NsqBroker()
    room = Room(node)
    room.subscribe(BY_TOPIC, "clicks", "lake")
    publisher = node.nsq_client()
    publisher.send(b"PUB clicks\n" + (3).to_bytes(4, "big") + b"one")
    node.tick(300)
    assert room.depth("nsq.clicks:lake") == 1
    reader = room.reader("nsq.clicks:lake")
    [answer] = node.nsq_client().ask(b"SUB clicks lake\n")
    assert isinstance(answer, bytes)
    assert answer.startswith(b"E_SUB_FAILED SUB failed")
    assert b"leased" in answer
    assert reader.ack(1) == 1
    reader.ask(ranges.encode_close())
    node.nsq_client().subscribe("clicks", "lake")
    with pytest.raises(Told, match="has consumers"):
        room.reader("nsq.clicks:lake")


# -- rights ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "configure,write,read,text",
    [
        (".*", ".*", "^events", f"access to queue '{QUEUE}'"),
        ("^other", ".*", ".*", f"access to queue '{QUEUE}'"),
        (".*", "^other", ".*", f"access to queue '{QUEUE}'"),
        (".*", ".*", "^spark", "access to exchange 'events'"),
    ],
)
def test_making_needs_what_a_client_would_need(
    room: Room, configure: str, write: str, read: str, text: str
) -> None:
    permit(room.node, configure, write, read)
    told = room.refusal(BY_EXCHANGE, "events", "lake", user="clerk")
    assert told.code == range_frames.ACCESS_REFUSED
    assert text in told.text
    assert QUEUE not in room.node.broker.vhosts["/"].queues


def test_reading_what_is_there_needs_only_that(room: Room) -> None:
    room.subscribe(BY_EXCHANGE, "events", "lake")
    room.subscribe(BY_TOPIC, "clicks", "lake")
    permit(room.node, "", "", ":lake$")
    assert room.subscribe(BY_EXCHANGE, "events", "lake", user="clerk") == [QUEUE]
    assert room.subscribe(BY_TOPIC, "clicks", "lake", user="clerk") == ["nsq.clicks:lake"]
    told = room.refusal(BY_TOPIC, "clicks", "other", user="clerk")
    assert told.code == range_frames.ACCESS_REFUSED


def permit(node: QuietBroker, configure: str, write: str, read: str) -> None:
    """A user ``clerk`` with guest's password."""
    guest = node.broker.users.users["guest"]
    clerk = User("clerk", guest.password_hash, [])
    clerk.vhosts["/"] = (configure, write, read)
    node.broker.users.users["clerk"] = clerk


# -- where a reader begins -------------------------------------------------------------------


def test_a_position_outlives_the_node_until_something_beyond_it_is_acknowledged(
    tmp_path: Path,
) -> None:
    files = SimFileSystem()
    path = str(tmp_path / "definitions.db")
    room = Room(QuietBroker(files, path))
    room.client.call("queue.declare", queue="q", durable=True)
    for _ in range(10):
        room.client.publish("", "q", b"x", delivery_mode=2)
    room.node.tick(300)
    assert room.reader("q").start("latest", 10) == 10
    room.node.tick(300)
    room.node.definitions.commit()
    room.node.definitions.close()

    again = Room(QuietBroker(files, path))
    reader = again.reader("q")
    assert reader.start("latest", 0) == 10, "the same request, the same answer"
    assert reader.ack(10) == 0, "what was skipped stays for now"
    assert again.depth("q") == 10
    assert reader.start("seq:7", 7) == 7, "another request replaces it"
    assert reader.start("seq:7", 3) == 7
    assert reader.ack(8) == 8, "beyond it, all goes"
    assert reader.start("seq:7", 9) == 9, "and so does the position"
    assert reader.start("", 8) == 8
    assert reader.ack(9) == 1


def test_only_who_holds_the_lease_says_where_it_begins(room: Room) -> None:
    room.client.call("queue.declare", queue="q", durable=True)
    peer = Peer(room.node, room.leases)
    request = ranges.OpenRequest("guest", "guest", "/", "q", ranges.BROWSE)
    peer.ask(ranges.encode_open(request))
    kind, _ = peer.ask(subscriptions.encode_start("latest", 0))
    assert kind == range_frames.ERROR


def test_a_deleted_queue_takes_its_position_along(room: Room) -> None:
    room.client.call("queue.declare", queue="q", durable=True)
    room.client.publish("", "q", b"x", delivery_mode=2)
    room.node.tick(300)
    reader = room.reader("q")
    assert reader.start("latest", 1) == 1
    room.client.call("queue.delete", queue="q")
    room.client.call("queue.declare", queue="q", durable=True)
    assert room.reader("q").start("latest", 0) == 0


# -- whose it is -----------------------------------------------------------------------------


def test_a_lease_outlives_the_node(tmp_path: Path) -> None:
    files = SimFileSystem()
    path = str(tmp_path / "definitions.db")
    room = Room(QuietBroker(files, path))
    for queue in ("q", "given_back"):
        room.client.call("queue.declare", queue=queue, durable=True)
    peers = {queue: Peer(room.node, room.leases) for queue in ("q", "given_back")}
    tokens = {queue: peer.open(queue) for queue, peer in peers.items()}
    peers["given_back"].ask(ranges.encode_close())
    room.node.tick(300)
    room.node.definitions.commit()
    room.node.definitions.close()

    again = Room(QuietBroker(files, path))
    again.leases.adopt(again.node.broker)
    queues = again.node.broker.vhosts["/"].queues
    assert queues["q"].is_leased
    assert not queues["given_back"].is_leased
    assert Peer(again.node, again.leases).open("q", ranges.JOIN, tokens["q"]) == tokens["q"]
    assert Peer(again.node, again.leases).open("q", ranges.READ, tokens["q"]) == tokens["q"]
    with pytest.raises(Told, match="being read by another pipeline"):
        Peer(again.node, again.leases).open("q")
    with pytest.raises(Told, match="not leased any more"):
        Peer(again.node, again.leases).open("given_back", ranges.JOIN, tokens["given_back"])


def test_a_lease_nobody_returns_to_ends(tmp_path: Path) -> None:
    path = str(tmp_path / "definitions.db")
    room = Room(QuietBroker(SimFileSystem(), path))
    room.client.call("queue.declare", queue="q", durable=True)
    peer = Peer(room.node, room.leases)
    token = peer.open("q")
    peer.session.lost(room.node.now_ms)
    newer = Peer(room.node, room.leases)
    assert newer.open("q") > token, "an orphan is anybody's"
    newer.session.lost(room.node.now_ms)
    later = RangeLeases(LEASE_GRACE_MS, room.node.broker.letting_go, room.node.broker.idleness)
    room.node.broker.vhosts["/"].queues["q"].ranges.close(token + 1)
    later.adopt(room.node.broker)
    assert room.node.broker.vhosts["/"].queues["q"].is_leased
    room.node.now_ms += 10 * LEASE_GRACE_MS  # the clock is set
    room.node.run()
    later.tick()
    assert room.node.broker.vhosts["/"].queues["q"].is_leased
    room.node.mono_ms += LEASE_GRACE_MS
    room.node.run()
    later.tick()
    assert not room.node.broker.vhosts["/"].queues["q"].is_leased
    later.adopt(room.node.broker)
    assert not room.node.broker.vhosts["/"].queues["q"].is_leased, "and is forgotten"


def test_a_start_that_cannot_be_read_is_refused_and_not_taken_for_none() -> None:
    """Neither a new start is stored, nor anything let go of; when the disk gives it all goes on."""
    node = QuietBroker()
    node.client().call("queue.declare", queue=QUEUE, durable=True)
    end = node.client()
    for _ in range(9):
        end.publish("", QUEUE, delivery_mode=2)
    peer = Peer(node, RangeLeases(LEASE_GRACE_MS, node.broker.letting_go, node.broker.idleness))
    peer.open(QUEUE)
    assert peer.start("earliest", 5) == 5
    node.run()
    rows = FailingRows(node.definitions._db)
    node.definitions._db = node.definitions._transaction._db = rows  # type: ignore[assignment]
    for frame in (subscriptions.encode_start("latest", 9), ranges.encode_ack(3)):
        rows.fail(0, once=True)
        kind, payload = peer.ask(frame)
        assert kind == range_frames.ERROR
        code, text = range_frames.decode_error(payload)
        assert code == range_frames.REFUSED
        assert f"'{QUEUE}'" in text
        assert "disk I/O error" in text
        peer = Peer(node, peer.leases)
        peer.open(QUEUE)
        node.run()
    assert peer.start("earliest", 9) == 5
    node.run()
    assert node.broker.vhosts["/"].queues[QUEUE].backing.ready_count() == 9


def test_leases_that_cannot_be_read_end_the_start() -> None:
    node = QuietBroker()
    rows = FailingRows(node.definitions._db)
    node.definitions._db = node.definitions._transaction._db = rows  # type: ignore[assignment]
    rows.fail(0, once=True)
    leases = RangeLeases(LEASE_GRACE_MS, node.broker.letting_go, node.broker.idleness)
    with pytest.raises(OSError, match="disk I/O error") as error:
        leases.adopt(node.broker)
    assert error.value.filename == ":memory:"


# -- patterns --------------------------------------------------------------------------------


def test_a_pattern_is_looked_for_in_shares_of_a_turn(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribing, "SEARCH_SLICE_S", 0.0)  # a name each
    for name in ("orders.b", "orders.a", "other"):
        room.client.call("queue.declare", queue=name)
    peer = Peer(room.node, room.leases)
    peer.ask(range_frames.encode_login("guest", "guest", "/"))
    frame = subscriptions.encode_subscribe(True, subscriptions.BY_PATTERN, ["orders.*"])
    peer.session.receive(frame, room.node.now_ms)
    for _ in range(3):
        assert not peer.session.out.getvalue()
        assert peer.session.has_waiters
        peer.session.tick(room.node.now_ms)
    [(kind, payload)] = range_frames.FrameSplitter(range_frames.REPLY_MAX_BYTES).feed(
        peer.session.out.getvalue()
    )
    assert kind == subscriptions.SUBSCRIBED
    assert subscriptions.decode_subscribed(payload) == ["orders.a", "orders.b"]


def test_a_pattern_that_cannot_be_is_refused(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    told = room.refusal(subscriptions.BY_PATTERN, "(a+)+$")
    assert "could take too long" in told.text
    assert room.refusal(subscriptions.BY_PATTERN, "x.*", make=False).code == range_frames.NOT_FOUND
    assert room.subscribe(subscriptions.BY_PATTERN, "x.*") == []
    monkeypatch.setattr(subscriptions, "NAMES_MAX", 1)
    for name in ("x1", "x2"):
        room.client.call("queue.declare", queue=name)
    assert "more than 1 queues" in room.refusal(subscriptions.BY_PATTERN, "x.*").text
