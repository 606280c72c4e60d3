"""The planner's line to one queue: holds its lease, and comes back when the line breaks.

A stream has no lease: its planner reads as a group, and the group's place is what it acknowledges.

Every request may be repeated, so a broken line only costs time, up to ``reconnectTimeout``.  So
does a queue whose master is lost or moves: the next attempt finds the new one (``RangeClient`` goes
round the nodes of the URL), and opens the lease there with the token it had.  What the broker
refuses is told with what helps (``CURES``): its reader sees a failed query, and often has not
written the program.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from select import select
from typing import Any, TypeVar

from penstock_ranges import frames, subscriptions
from penstock_ranges.ranges import BROWSE, READ, Head
from pyspark_penstock import client
from pyspark_penstock.client import (
    ConnectionLost,
    Elsewhere,
    NoMaster,
    Planned,
    RangeClient,
    Refused,
    Retries,
)
from pyspark_penstock.endpoints import Endpoint
from pyspark_penstock.options import Position, Settings

LOCK_PATIENCE_S = 15.0
"""A killed pipeline's connections take a moment to be noticed as gone."""
ELSEWHERE_PATIENCE_S = 15.0
"""All nodes that are named say that another is the master: shortly after a failover that passes."""
RETRY_PAUSE_S = 0.2

CURES = (
    (frames.NOT_FOUND, "no queue", "declare it first, or correct the name or the virtual host"),
    (frames.NOT_FOUND, "no exchange", "declare it first, or correct the name or the virtual host"),
    (frames.NOT_FOUND, "not found", "correct the virtual host in {url}"),
    (frames.NOT_FOUND, "was deleted", "start again when it is declared, with a new checkpoint"),
    (frames.ACCESS_REFUSED, "access to", "have an administrator grant it"),
    (frames.ACCESS_REFUSED, "", "correct user and password in {url} or PENSTOCK_URL"),
    (frames.LOCKED, "another pipeline", "stop that one, or take it over by {takeOver}"),
    (
        frames.LOCKED,
        "has consumers",
        "cancel its consumers, or read messages of your own by {exchange} and {group}",
    ),
    (frames.LOCKED, "unacknowledged", "let its consumers settle them, or close their channels"),
    (frames.LOCKED, "exclusive", "it is private to the connection that declared it"),
    (frames.ELSEWHERE, "", "name that node in {url}, too: amqp://user@host:5672,host:5672/vhost"),
    (frames.NO_MASTER, "", "wait until it has one; 'penstock cluster status' says why it has none"),
    (frames.MALFORMED, "", "the port in {url} must be the AMQP port of a Penstock"),
    (frames.REFUSED, "is a stream", "name it by {stream}, and this reader of it by {group}"),
    (frames.REFUSED, "is no stream", "name it by {queue}"),
    (frames.FENCED, "", "this query has ended for good; only one may read a queue at a time"),
)
"""Code, words in the broker's text, what helps; an option is {named} as the source calls it."""
OPTIONS = ("url", "takeOver", "exchange", "group", "stream", "queue")
IN_PROGRAMS = {name: f"option {name}" for name in OPTIONS} | {"takeOver": "option takeOver=true"}
"""How a program of Spark gives each of the options that ``CURES`` name."""

T = TypeVar("T")


def cure_of(error: Refused, named: Mapping[str, str]) -> str:
    """What helps, or nothing; ``named``: how each of ``OPTIONS`` is given."""
    for code, words, cure in CURES:
        if error.code == code and words in error.text:
            return cure.format_map(named)
    return ""


def advised(error: Refused) -> Refused:
    """The same refusal with what helps behind it."""
    cure = cure_of(error, IN_PROGRAMS)
    return type(error)(error.code, f"{error.text}; {cure}") if cure else error


def without_cure(text: str) -> tuple[str, str]:
    """The text of a refusal that was ``advised``, and its cure as in ``CURES``."""
    for _, _, cure in CURES:
        end = f"; {cure.format_map(IN_PROGRAMS)}"
        if text.endswith(end):
            return text.removesuffix(end), cure
    return text, ""


def subscribe(settings: Settings, *, make: bool) -> list[str]:
    by = {
        "exchange": subscriptions.BY_EXCHANGE,
        "topic": subscriptions.BY_TOPIC,
        "stream": subscriptions.BY_STREAM,
        "queuesPattern": subscriptions.BY_PATTERN,
    }
    chosen = settings.subscription
    kind = by.get(chosen.by, subscriptions.BY_QUEUES)
    return patiently(
        settings, lambda: client.subscribe(settings.endpoint, kind, chosen.names, make=make)
    )


def patiently(settings: Settings, request: Callable[[], T]) -> T:
    """What may be repeated, until there is an answer or patience ends."""
    patience = Patience(settings)
    while True:
        try:
            return request()
        except (ConnectionLost, Refused) as error:
            patience.use(error)


class Planner:
    """One queue, read for one query."""

    def __init__(self, settings: Settings, queue: str) -> None:
        self._settings = settings
        self.queue = queue
        self._client: RangeClient | None = None
        self.token = 0
        self.incarnation = ""
        self.last_head: Head | None = None
        self.leaves_some: bool = False  # what was acknowledged last may still be going
        self._begun: tuple[str, int] | None = None  # what ``start`` was told, until it is behind us

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    def head(self) -> Head:
        self.last_head = self.call(lambda line: line.wait(0, 0))
        return self.last_head

    def begin_wait(self, timeout_ms: int) -> bool:
        """Ask for the head as soon as there is something new; False: the line broke.

        The next request meets the same error, and deals with it.
        """
        start = 0 if self.last_head is None else self.last_head.next_seq
        with self._dropping():
            self.connected().begin_wait(start, timeout_ms)
        return self._client is not None

    def end_wait(self) -> None:
        with self._dropping():
            self.last_head = self.connected().end_wait()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except (ConnectionLost, Refused):
            self.drop()

    def plan(self, start: int, end: int, max_messages: int, max_bytes: int) -> Planned:
        return self.call(lambda line: line.plan(start, end, max_messages, max_bytes))

    def ack(self, upto: int, *, later: bool = False) -> int:
        count = self.call(lambda line: line.ack(upto, later=later))
        self.leaves_some = later
        if self._begun is not None and upto > self._begun[1]:
            self._begun = None
        return count

    def first_position(self, head: Head, *, added: bool) -> int:
        """Where this query begins, the same each time until its first batch is committed.

        Another one than was asked for, when that is not there.  ``added``: the query has batches
        already; then ``latest`` would pass over what came before it looked.
        """
        starting = self._settings.starting
        seq_id = starting.seq_ids.get(self.queue)
        if seq_id is not None:
            nearest = min(max(seq_id, head.floor), head.next_seq)
            return self._start(f"seq:{seq_id}", nearest)
        if starting.timestamp_ms is not None:
            at = self.call(lambda line: resolved(line, starting, line.wait(0, 0)))
            return self._start(f"at:{starting.timestamp_ms}", at)
        if starting.word == "latest":
            return self._start("latest", head.floor if added else head.next_seq)
        # Retention moves the floor of a stream, so the group keeps it.
        return self._start("earliest" if self._settings.subscription.is_stream else "", head.floor)

    def forget_position(self) -> None:
        self._start("", 0)

    def _start(self, request: str, position: int) -> int:
        told = self.call(lambda line: line.start(request, position))
        self._begun = (request, told) if request else None
        return told

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def call(self, request: Callable[[RangeClient], T]) -> T:
        patience = Patience(self._settings)
        while True:
            try:
                return request(self.connected())
            except ConnectionLost as error:
                self.drop()
                patience.use(error)
            except Refused as error:
                self.drop()
                if error.code == frames.LEASE_GONE:
                    self.token = 0
                else:
                    patience.use(error, lock=True)

    def connected(self) -> RangeClient:
        if self._client is None:
            settings = self._settings
            if settings.subscription.is_stream:
                self._client = RangeClient(settings.endpoint, self.queue, BROWSE)
                self._client.follow(settings.subscription.group)
                self.incarnation = self._client.opened.incarnation
                return self._client
            # Force only the first time: a reader that was forced out must not force its way back.
            force = settings.take_over and self.incarnation == ""
            self._client = RangeClient(settings.endpoint, self.queue, READ, self.token, force=force)
            opened = self._client.opened
            if self._begun is not None and opened.token != self.token:
                # The next master does not know it, and would drop what the position skips.
                self._client.start(*self._begun)
            self.incarnation = opened.incarnation
            self.token = opened.token
        return self._client

    def drop(self) -> None:
        if self._client is not None:
            self._client.abandon()
            self._client = None


def give_back(
    endpoint: Endpoint,
    queue: str,
    done: tuple[str, int] = ("", 0),
    patience_s: float = 3.0,
    group: str = "",
) -> bool:
    """Free a queue whose reader has just ended, instead of letting its lease run out.

    Spark kills its planner process when a query stops, so the reader itself can neither acknowledge
    the last batch nor say goodbye.  Taking the lease it left behind does both: in the incarnation
    ``done[0]`` everything below ``done[1]`` is acknowledged first.  False: another reader leases
    the queue, or the broker cannot be asked.  ``group``: of a stream, which has no lease.
    """
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            with RangeClient(endpoint, queue, BROWSE if group else READ) as reader:
                if group:
                    reader.follow(group)
                if reader.opened.incarnation == done[0]:
                    reader.ack(done[1])
                return True
        except client.Locked:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(0.1)  # the broker has not seen the end of the dead one's line yet
        except (ConnectionLost, Refused):
            return False  # also when its master is away: then its lease is, too


def resolved(line: RangeClient, position: Position, head: Head) -> int:
    """The position that a time means in this queue."""
    assert position.timestamp_ms is not None
    return line.offset_at(position.timestamp_ms, min(head.floor, head.next_seq), head.next_seq)


def wait_for_any(planners: Sequence[Planner], timeout_ms: int) -> None:
    """Until one of the queues has something new, or in time."""
    waiting = [planner for planner in planners if planner.begin_wait(timeout_ms)]
    if not planners:  # a pattern has no queue yet
        time.sleep(timeout_ms / 1000)
    if waiting:
        select([planner.connected() for planner in waiting], [], [], timeout_ms / 1000)
    for planner in waiting:
        planner.end_wait()


class Patience:
    """How long to try again before giving up; success ends the count."""

    def __init__(self, settings: Settings) -> None:
        self._failing = Retries(settings.reconnect_timeout_ms / 1000, RETRY_PAUSE_S)
        self._elsewhere = Retries(ELSEWHERE_PATIENCE_S, 0)

    def renew(self) -> None:
        self._failing.renew()
        self._elsewhere.renew()

    def use(self, error: ConnectionLost | Refused, *, lock: bool = False) -> None:
        """Wait a little, or raise the error when it has lasted too long, or time heals it not.

        ``lock``: for a reader that may wait until another one has left the queue.
        """
        if isinstance(error, Elsewhere):
            self._elsewhere.use(advised(error))
            self._failing.use(advised(error))
            return
        self._elsewhere.renew()
        if isinstance(error, ConnectionLost | NoMaster):
            self._failing.use(error)
        elif error.code == frames.LOCKED and lock:
            self._failing.use(advised(error), LOCK_PATIENCE_S)
        else:
            raise advised(error) from None  # the last words are those of the cause
