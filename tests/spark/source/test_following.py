"""A queue whose master moves while it is read: two hosts of one cluster.  No JVM is started."""

from __future__ import annotations

import itertools
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NoReturn

import pyspark  # noqa: F401
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock.queues.queue import Queue
from penstock_ranges.ranges import BROWSE
from pyspark_penstock import DefaultSource, client, options, planner
from pyspark_penstock.claims import holes_in
from pyspark_penstock.endpoints import Endpoint, parse_url
from pyspark_penstock.sink import Staged, _Writing
from pyspark_penstock.sink_options import parse_sink_options
from pyspark_penstock.source import RangePartition, cut, cut_all, width_of
from pyspark_penstock.staging_client import Stager, _Asking, commit
from pyspark_penstock.stream_source import StreamReader
from tests.spark.range_host import RangeHost, move_master

TERM = 1 << 40


class Pair:
    """n1 and n2; queue q begins at n1, and its master's terms are counted."""

    def __init__(self, first: RangeHost, second: RangeHost) -> None:
        self.hosts = [first, second]
        self.at = 0
        self.term = 0
        first.hall.declare("q")
        second.hall.declare_elsewhere(first.hall.queues["q"], "penstock@n1")
        self._readers: list[StreamReader] = []

    @property
    def queue(self) -> Queue:
        return self.hosts[self.at].hall.queues["q"]

    @property
    def endpoint(self) -> Endpoint:
        return parse_url(self.url)

    @property
    def url(self) -> str:
        ports = [f"127.0.0.1:{host.endpoint.port}" for host in self.hosts]
        return f"amqp://guest:guest@{','.join(ports)}/%2f"

    def publish(self, *bodies: bytes) -> None:
        host = self.hosts[self.at]
        with host.lock:
            host.hall.clock_ms += 1000
            host.hall.publish("q", list(bodies))

    def move(self) -> None:
        """The other host is the master; lines to the old one stay, as nobody was killed."""
        old, new = self.hosts[self.at], self.hosts[1 - self.at]
        self.term += 1
        self.at = 1 - self.at
        with old.lock, new.lock:
            move_master("q", self.term, old.hall, new.hall, f"penstock@n{self.at + 1}")

    def fail_over(self) -> None:
        """As ``move``, and all lines of the old master are cut."""
        old = self.hosts[self.at]
        self.move()
        old.drop_connections()

    def lose_master(self) -> None:
        for host in self.hosts:
            with host.lock:
                host.hall.declare_elsewhere(host.hall.queues["q"], "")

    def streaming(self, **more: Any) -> StreamReader:
        own = {"url": self.url, "queue": "q", "pollTimeout": "50ms", "reconnectTimeout": "5s"}
        given = DefaultSource({name: str(value) for name, value in (own | more).items()})
        reader = given.streamReader(given.schema())
        assert isinstance(reader, StreamReader)
        self._readers.append(reader)
        return reader

    def close(self) -> None:
        for reader in self._readers:
            reader.stop()


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(planner, "RETRY_PAUSE_S", 0.02)
    monkeypatch.setattr(planner, "ELSEWHERE_PATIENCE_S", 0.3)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    with ExitStack() as stack:
        pair = Pair(*(stack.enter_context(RangeHost()) for _ in range(2)))
        stack.callback(pair.close)
        yield pair


def bodies(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    found: list[bytes] = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += batch.column("body").to_pylist()
    return found


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def place(offset: dict[str, Any]) -> Any:
    return offset["q"]["q"]


# -- the url ---------------------------------------------------------------------------------


def test_a_url_may_name_several_nodes() -> None:
    end = parse_url("amqp://me:p%2cw@n1:5673,n2,[::1]:5674/team")
    assert (end.user, end.password, end.vhost) == ("me", "p,w", "team")
    nodes = [(node.host, node.port) for node in end.nodes()]
    assert nodes == [("n1", 5673), ("n2", 5672), ("::1", 5674)]
    assert all(node.user == "me" and not node.others for node in end.nodes())
    secure = parse_url("amqps://n1,n2/?verify=verify_none")
    assert [node.port for node in secure.nodes()] == [5671, 5671]
    assert all(node.tls is not None for node in secure.nodes())


NODES = [
    ("n1:5673,[::1]:5674", [("n1", 5673), ("::1", 5674)]),
    ("[::1],n1", [("::1", 5672), ("n1", 5672)]),
    ("[2001:DB8::1]:5673, [fe80::1%eth0]", [("2001:db8::1", 5673), ("fe80::1%eth0", 5672)]),
    ("N1:,10.0.0.1:1,n2:65535", [("n1", 5672), ("10.0.0.1", 1), ("n2", 65535)]),
]


@pytest.mark.parametrize("hosts, nodes", NODES)
@pytest.mark.parametrize("who", ["", "me:p%40:[w%5D,@"])
def test_each_node_may_be_a_name_or_an_address(
    hosts: str, nodes: list[tuple[str, int]], who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever this Python's ``urlsplit`` thinks of a list: others refuse it."""

    def refusing(url: str, *_: object) -> NoReturn:
        raise ValueError("Invalid IPv6 URL")  # as Pythons of 2025 and later

    for module in (urllib.parse, options):
        monkeypatch.setattr(module, "urlsplit", refusing, raising=False)
    end = parse_url(f"amqp://{who and who + '@'}{hosts}/team")
    assert [(node.host, node.port) for node in end.nodes()] == nodes
    assert (end.user, end.password) == (("me", "p@:[w],@") if who else ("guest", "guest"))


@pytest.mark.parametrize(
    "url, user, password, vhost",
    [
        ("amqp://h", "guest", "guest", "/"),
        ("amqp://h/", "guest", "guest", "/"),
        ("AMQP://h/%2f", "guest", "guest", "/"),
        ("amqp://me@h", "me", "guest", "/"),
        ("amqp://me:@h/a%2Fb", "me", "", "a/b"),
        ("amqp://@h", "", "guest", "/"),
        ("amqp://m%3ae:p:%2f%23%3f%25@h/a@b,[c]:d", "m:e", "p:/#?%", "a@b,[c]:d"),
        ("amqp://me:p%zz%@h/v", "me", "p%zz%", "v"),
        (" amqp://me:\uff20\uff1a@h/v\n", "me", "\uff20\uff1a", "v"),
    ],
)
def test_the_parts_of_a_url(url: str, user: str, password: str, vhost: str) -> None:
    end = parse_url(url)
    assert (end.host, end.port, end.vhost, end.tls) == ("h", 5672, vhost, None)
    assert (end.user, end.password) == (user, password)


WRONG_NODES = [
    *("", "n1,", ",n1", "n1,,n2", "n1, ,n2", ":5672", "n1,n1:5672", "n1,N1", "[::1],[::1]:5672"),
    *("[::1", "n1,[::1", "::1]", "[]", "[:5672", "[n1]", "[127.0.0.1]", "[::1]5672", "[[::1]]"),
    *("n1[::1]", "n1:5673[::1]", "[::1]n1", "::1", "::1:5672", "n1:5:6", "n 1", "n1\t2", "n1,n\n2"),
    *("n1:x,n2", "n1,n2:99999", "n1:0", "n1:-1", "n1:+1", "n1: 1", "n1:\u0661", "n1:1_0"),
    *("n1#", "n1;n2", "n1\\n2", "n1%00"),
]


@pytest.mark.parametrize("hosts", WRONG_NODES)
def test_a_url_with_a_wrong_node_is_refused(hosts: str) -> None:
    with pytest.raises(ValueError, match="'url'") as caught:
        parse_url(f"amqp://guest:secret@{hosts}/%2f")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "h",
            "h:5672",
            "//h",
            "amqp:h",
            "amqp:/h",
            "amqp:///v",
            "amqp://",
            "amqp://me:secret@",
        ),
        *("http://h", "amqps", "xamqp://h", "amqp//h", "amqp://h/v#secret", "amqp://me:sec#ret@h/"),
        *(
            "amqp://me:sec/ret@h/",
            "amqp://me:sec?ret@h/",
            "amqps://h?secret=1",
            "amqp://h?verify=x",
        ),
    ],
)
def test_what_is_no_url_of_a_broker_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="'url'"):
        parse_url(url)


@pytest.mark.parametrize(
    "url", ["amqp://me:sec/ret@h/", "amqp://me:sec?ret@h/", "amqp://sec#ret@h"]
)
def test_a_password_that_is_not_escaped_is_not_said_aloud(url: str) -> None:
    with pytest.raises(ValueError, match="%2F") as caught:
        parse_url(url)
    assert "sec" not in str(caught.value)
    assert "ret" not in str(caught.value)


# -- where the master is ---------------------------------------------------------------------


def test_a_node_that_is_not_the_master_says_who_is(pair: Pair) -> None:
    with pytest.raises(client.Elsewhere, match="ask 'penstock@n1'"):
        client.RangeClient(pair.hosts[1].endpoint, "q", BROWSE)
    pair.lose_master()
    with pytest.raises(client.NoMaster, match="no master at present"):
        client.RangeClient(pair.hosts[1].endpoint, "q", BROWSE)


def test_the_master_is_found_whichever_node_is_named_first(pair: Pair) -> None:
    pair.publish(b"x")
    first, second = (host.endpoint for host in pair.hosts)
    for one, other in ((first, second), (second, first)):
        url = f"amqp://guest:guest@127.0.0.1:{one.port},127.0.0.1:{other.port}/%2f"
        with client.RangeClient(parse_url(url), "q", BROWSE) as reader:
            assert reader.opened.head.ready == 1


def test_who_has_found_the_master_asks_there_first(pair: Pair) -> None:
    pair.move()
    before = pair.hosts[0].accepted
    for _ in range(3):
        with client.RangeClient(pair.endpoint, "q", BROWSE):
            pass
    assert pair.hosts[0].accepted - before == 1


def test_a_master_that_no_named_node_is_ends_the_query_with_advice(pair: Pair) -> None:
    with pair.hosts[0].lock:
        hall = pair.hosts[0].hall
        hall.declare_elsewhere(hall.queues["q"], "penstock@n3")
    began_s = time.monotonic()
    with pytest.raises(client.Elsewhere, match="name that node in option url, too"):
        pair.streaming().initialOffset()
    assert 0.3 <= time.monotonic() - began_s < 4


def test_a_queue_without_a_master_is_waited_for(pair: Pair) -> None:
    """Longer than for one whose master is not named."""
    kept = pair.queue
    reader = pair.streaming()
    pair.publish(*numbered(0, 3))
    start = reader.initialOffset()
    pair.lose_master()

    def come_back() -> None:
        with pair.hosts[0].lock:
            kept.deleted = False
            pair.hosts[0].hall.queues["q"] = kept

    later = threading.Timer(0.8, come_back)
    later.start()
    try:
        end = reader.latestOffset(start, ReadMaxRows(10))
    finally:
        later.join()
    assert bodies(reader, start, end) == numbered(0, 3)


def test_a_queue_that_stays_without_a_master_ends_the_query(pair: Pair) -> None:
    reader = pair.streaming(reconnectTimeout="200ms")
    reader.initialOffset()
    pair.lose_master()
    with pytest.raises(client.NoMaster):
        reader.initialOffset()


# -- a stream --------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [Pair.move, Pair.fail_over])
def test_a_stream_goes_on_at_the_next_master(pair: Pair, way: Any) -> None:
    """Twice, there and back; each message once, in order, and acknowledged where it is now."""
    reader = pair.streaming()
    at = reader.initialOffset()
    got: list[bytes] = []
    for turn in range(3):
        pair.publish(*numbered(10 * turn, 10 * turn + 10))
        end = reader.latestOffset(at, ReadMaxRows(7))
        got += bodies(reader, at, end)
        reader.commit(end)
        at = end
        way(pair)
    for _ in range(8):
        end = reader.latestOffset(at, ReadMaxRows(7))
        got += bodies(reader, at, end)
        at = end
    assert got == numbered(0, 30)
    reader.latestOffset(at, ReadMaxRows(7))
    assert pair.queue.backing.ready_count() == 0
    assert place(at)["holes"] == 0


def test_a_task_goes_on_at_the_next_master_behind_the_last_message(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader sits idle meanwhile: the task is the first that the next master hears of."""
    monkeypatch.setattr("penstock.protocols.ranges.reading.BLOCK_MESSAGES_MAX", 10)
    pair.publish(*numbered(0, 100))
    reader = pair.streaming()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100))
    [partition] = reader.partitions(start, end)
    found: list[bytes] = []
    for batch in reader.read(partition):
        found += batch.column("body").to_pylist()
        if len(found) in (20, 60):
            pair.fail_over()
    assert found == numbered(0, 100)
    following = reader.latestOffset(end, ReadMaxRows(100))
    assert following == end
    assert pair.queue.backing.ready_count() == 0, "the reader has the lease its task has opened"


def test_a_wait_for_messages_ends_when_the_master_moves(pair: Pair) -> None:
    reader = pair.streaming(pollTimeout="30s")
    start = reader.initialOffset()

    def move() -> None:
        pair.move()
        pair.publish(b"new")

    later = threading.Timer(0.3, move)
    later.start()
    began_s = time.monotonic()
    try:
        end = reader.latestOffset(start, ReadMaxRows(10))
    finally:
        later.join()
    assert time.monotonic() - began_s < 10
    if end == start:  # it was heard, and is seen by the next look
        end = reader.latestOffset(start, ReadMaxRows(10))
    assert bodies(reader, start, end) == [b"new"]


def test_a_restart_goes_on_from_its_checkpoint_at_the_next_master(pair: Pair) -> None:
    pair.publish(*numbered(0, 10))
    old = pair.streaming()
    start = old.initialOffset()
    end = old.latestOffset(start, ReadMaxRows(4))
    assert bodies(old, start, end) == numbered(0, 4)
    pair.fail_over()
    pair.publish(*numbered(10, 12))
    new = pair.streaming()
    following = new.latestOffset(end, ReadMaxRows(100))
    assert bodies(new, end, following) == numbered(4, 12)
    assert pair.queue.backing.tiers.floor_seq_id() == 4, (
        "what the checkpoint has is acknowledged here"
    )


def test_what_a_start_position_skips_stays_at_the_next_master(pair: Pair) -> None:
    pair.publish(*numbered(0, 10))
    reader = pair.streaming(startingOffsets="latest")
    start = reader.initialOffset()
    pair.fail_over()
    assert reader.latestOffset(start, ReadMaxRows(9)) == start
    assert pair.queue.backing.ready_count() == 10
    pair.publish(b"new")
    end = reader.latestOffset(start, ReadMaxRows(9))
    assert bodies(reader, start, end) == [b"new"]
    reader.latestOffset(end, ReadMaxRows(9))
    assert pair.queue.backing.ready_count() == 0


# -- who reads it ----------------------------------------------------------------------------


def test_the_newest_reader_wins_whoever_finds_the_next_master_first(pair: Pair) -> None:
    pair.publish(*numbered(0, 10))
    old = pair.streaming()
    start = old.initialOffset()
    stale = old.partitions(start, old.latestOffset(start, ReadMaxRows(5)))
    new = pair.streaming(takeOver="true")
    new.initialOffset()
    pair.fail_over()
    old.latestOffset(start, ReadMaxRows(5))
    end = new.latestOffset(start, ReadMaxRows(5))
    with pytest.raises(client.Fenced):
        old.latestOffset(start, ReadMaxRows(5))
    with pytest.raises(client.Fenced):
        list(old.read(stale[0]))
    assert bodies(new, start, end) == numbered(0, 5)


def test_a_task_of_an_older_reader_is_fenced_at_the_next_master(pair: Pair) -> None:
    pair.publish(*numbered(0, 10))
    old = pair.streaming()
    start = old.initialOffset()
    stale = old.partitions(start, old.latestOffset(start, ReadMaxRows(5)))
    new = pair.streaming(takeOver="true")
    new.initialOffset()
    pair.fail_over()
    new.latestOffset(start, ReadMaxRows(5))
    with pytest.raises(client.Fenced):
        list(old.read(stale[0]))


def test_a_lease_that_ended_at_the_next_master_is_not_opened_by_a_task(pair: Pair) -> None:
    """Consumers may have had the queue meanwhile."""
    pair.publish(*numbered(0, 10))
    reader = pair.streaming()
    start = reader.initialOffset()
    [partition] = reader.partitions(start, reader.latestOffset(start, ReadMaxRows(5)))
    pair.fail_over()
    assert planner.give_back(pair.endpoint, "q")
    with pytest.raises(client.LeaseGone):
        list(reader.read(partition))


def test_a_token_of_this_node_whose_lease_has_ended_means_nothing(pair: Pair) -> None:
    """Not even when its reader has come back: others may have read the queue in between."""
    pair.publish(*numbered(0, 10))
    reader = pair.streaming()
    start = reader.initialOffset()
    [partition] = reader.partitions(start, reader.latestOffset(start, ReadMaxRows(5)))
    pair.hosts[0].forget_leases()
    reader.latestOffset(start, ReadMaxRows(5))
    with pytest.raises(client.Fenced):
        list(reader.read(partition))


# -- numbers of several masters --------------------------------------------------------------


def whole(start: int, end: int) -> RangePartition:
    return RangePartition("q", "life", start, end, 0)


def test_a_range_over_two_masters_is_cut_where_messages_are() -> None:
    pieces = cut(whole(100, TERM + 1000), 4, 1000)
    edges = [(piece.start, piece.end) for piece in pieces]
    assert edges == [(100, 600), (600, TERM), (TERM, TERM + 500), (TERM + 500, TERM + 1000)]
    assert width_of(whole(100, TERM), 1000) == 1000, "the next has given no number yet"
    assert len(cut(whole(100, TERM), 3, 0)) == 1


@pytest.mark.parametrize("start, end", [(5, TERM), (5, 3 * TERM + 7), (TERM - 1, TERM + 1)])
@pytest.mark.parametrize("pieces", [1, 2, 7, 50])
@pytest.mark.parametrize("most", [0, 1, 3, 100_000])
def test_pieces_cover_a_range_over_masters_once(
    start: int, end: int, pieces: int, most: int
) -> None:
    found = cut(whole(start, end), pieces, most)
    assert 1 <= len(found) <= pieces
    assert found[0].start == start
    assert found[-1].end == end
    assert all(a.end == b.start for a, b in itertools.pairwise(found))
    assert all(piece.start < piece.end for piece in found)


def test_a_queue_with_another_master_leaves_pieces_to_others() -> None:
    found = cut_all([whole(0, TERM + 10), whole(0, 1000)], 10, 1000)
    assert len(found) <= 12


def test_numbers_that_no_master_gave_are_no_holes() -> None:
    assert holes_in(10, 20, 7) == 3
    assert holes_in(10, TERM + 20, 15) == 0
    assert holes_in(10, TERM, 5) == 0


# -- writing ---------------------------------------------------------------------------------


def test_a_commit_waits_for_its_home_before_others_are_asked(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the sets, and may only be starting again."""
    monkeypatch.setattr("pyspark_penstock.staging_client.RETRY_PAUSE_S", 0.02)
    options = {"url": pair.url, "queue": "q", "reconnectTimeout": "200ms"}
    once = parse_sink_options(options)
    pair.hosts[0].__exit__()
    with pytest.raises(client.ConnectionLost):
        commit(once, "query", "run", 7, ["set"], 0)
    assert pair.hosts[1].accepted == 0


def test_when_the_home_stays_away_the_others_are_asked_in_turn(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_penstock.staging_client.RETRY_PAUSE_S", 0.001)
    monkeypatch.setattr("pyspark_penstock.staging_client.HOME_PATIENCE_S", 0.02)
    settings = parse_sink_options({"url": pair.url, "queue": "q", "reconnectTimeout": "1s"})
    here, there = settings.endpoint.nodes()
    asking = _Asking(settings, 0)
    asked = []
    for _ in range(40):
        asked.append(asking.node())
        asking.failed(client.ConnectionLost("away"))
    first = asked.index(there)
    assert first > 1
    assert set(asked[:first]) == {here}
    assert asked[first : first + 4] == [there, here, there, here]
    assert asking.home_text() == str(here)


def test_any_node_takes_what_needs_no_home(pair: Pair) -> None:
    options = {"url": pair.url, "queue": "q", "delivery": "at-least-once"}
    pair.hosts[0].__exit__()
    with Stager(parse_sink_options(options)):
        assert pair.hosts[1].accepted == 1


def test_sets_of_one_batch_at_two_nodes_are_not_committed(pair: Pair) -> None:
    sink = _Writing(parse_sink_options({"url": pair.url, "queue": "q"}))
    told = [Staged("query", "run", 7, [f"set {home}"], home) for home in (0, 1)]
    with pytest.raises(RuntimeError, match=r"batch 7 was staged at .* and .*, because"):
        sink._commit([*told])
    assert [host.accepted for host in pair.hosts] == [0, 0]
