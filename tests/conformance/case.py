"""What a conformance case is: a story told to a broker, and the transcript it leaves.

A case is a function ``def some_name(w: World) -> None`` marked ``@case``.  It talks to the
broker at ``w.url`` with raw clients and asserts nothing: every line sent and received goes
into the transcript, and the transcripts of two brokers are compared.  So a case must be
deterministic on a correct broker: it waits for an answer, never for time, and it takes
answers only where the protocol fixes their order.

Names that differ from run to run are replaced before the comparison: a name made by
``w.name("q")`` becomes ``<q>``, server-made names and client ports become fixed words.
"""

import re
import secrets
from collections.abc import Callable
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import CLOSED, SILENCE, Event, RawClient, connect

CaseFunction = Callable[["World"], None]
CASES: dict[str, CaseFunction] = {}
SLOW: set[str] = set()
"""Cases that must wait for a timeout of the broker; they run beside the others."""
ANSWER_TIMEOUT_S = 8.0

_SERVER_MADE = (
    (re.compile(r"amq\.gen-[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])"), "amq.gen-<22 characters>"),
    (re.compile(r"amq\.ctag-[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])"), "amq.ctag-<22 characters>"),
    (re.compile(r"(amq\.rabbitmq\.reply-to\.)[A-Za-z0-9+/=_.-]{22,}"), r"\1<key>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:<port>"),
    (re.compile(r"'time': Typed\(letter='T', value=\d+\)"), "'time': <now>"),
    (re.compile(r"\b(node'?): '[^']+'"), r"\1: <node>"),
    (re.compile(r"\\n +"), ""),  # Erlang folds long terms in its texts
)


def case(function: CaseFunction) -> CaseFunction:
    """Register a case under its file's subject and its own name."""
    subject = function.__module__.rsplit(".", 1)[-1].removeprefix("cases_")
    name = f"{subject}.{function.__name__}"
    assert name not in CASES, name
    CASES[name] = function
    return function


def slow(function: CaseFunction) -> CaseFunction:
    """Mark a registered case as one that waits."""
    SLOW.update(name for name, known in CASES.items() if known is function)
    return function


class World:
    """One run of one case against one broker."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 5672
        self.user, self.password = parts.username or "guest", parts.password or "guest"
        self.lines: list[str] = []
        self._names: dict[str, str] = {}
        self._clients: list[RawClient] = []
        self._setup: RawClient | None = None
        self._put_count = 0
        self._unconfirmed: set[int] = set()

    # names and lines -------------------------------------------------------------------

    def name(self, base: str) -> str:
        """A name nobody else uses, shown as ``<base>`` in the transcript."""
        unique = f"{base}-{secrets.token_hex(6)}"
        self._names[unique] = f"<{base}>"
        return unique

    def say(self, text: str) -> None:
        """A remark in the transcript: what the next lines are about."""
        self.lines.append(f"# {text}")

    def transcript(self) -> list[str]:
        """The lines, normalised; one that repeats is written once, with how often."""
        runs = [(line, len(list(same))) for line, same in groupby(map(self._normalise, self.lines))]
        return [line if count == 1 else f"{line}  ({count} times)" for line, count in runs]

    def _normalise(self, line: str) -> str:
        for unique, shown in self._names.items():
            line = line.replace(unique, shown)
        for pattern, shown in _SERVER_MADE:
            line = pattern.sub(shown, line)
        return line

    # clients ---------------------------------------------------------------------------

    def raw(self, name: str = "A") -> RawClient:
        """A TCP connection on which nothing was said."""
        client = connect(self.url, name, self.lines.append)
        self._clients.append(client)
        return client

    def client(self, name: str = "A", **options: Any) -> RawClient:
        """A connection that is open, with channel 1 open; its handshake is off the record."""
        client = self.raw(name)
        client.open(user=self.user, password=self.password, **options)
        client.open_channel(1)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close_socket()

    # common moves ----------------------------------------------------------------------

    def fate(self, client: RawClient, timed: bool = True, timeout_s: float = 20.0) -> None:
        """Whatever comes until the connection ends; a connection.close is answered."""
        while True:
            event = client.receive_quietly(timeout_s)
            if event.name == "connection.close":
                client.note(f"< {event}")
                client.send(0, "connection.close-ok")
                client.until_closed(timeout_s)
                return
            if event.name in (CLOSED, SILENCE):
                client.note_end(event, timed)
                return
            client.note(f"< {event}")

    def attempt(self, client: RawClient, method: str, channel: int = 1, **args: Any) -> Event:
        """Send a method that may be refused; afterwards the channel is open again.

        A connection that gets closed is answered and watched to its end.
        """
        client.send(channel, method, **args)
        return self.outcome(client, channel)

    def outcome(self, client: RawClient, channel: int = 1) -> Event:
        """What the broker answers, and the polite reaction to a close."""
        event = client.receive(ANSWER_TIMEOUT_S)
        if event.name == "channel.close":
            client.send(channel, "channel.close-ok")
            client.open_channel(channel)
        elif event.name == "connection.close":
            client.send(0, "connection.close-ok")
            client.until_closed()
        return event

    def barrier(self, client: RawClient, channel: int = 1) -> Event:
        """A harmless call: its answer shows that all before it was handled without error."""
        client.note(f"> barrier ch={channel}")
        client.send_off_record(codec.method_frame(channel, "basic.qos"))
        return self.outcome(client, channel)

    def outcome_or_barrier(self, client: RawClient, channel: int = 1) -> Event:
        """After a method without answer that may be refused: the error, or that there is none."""
        client.send_off_record(codec.method_frame(channel, "basic.qos"))
        return self.outcome(client, channel)

    def queue(self, client: RawClient, base: str = "q", **args: Any) -> str:
        """Declare a fresh queue off the record; returns its name."""
        name = self.name(base)
        client.send_off_record(codec.method_frame(1, "queue.declare", queue=name, **args))
        answer = client.receive_quietly()
        assert answer.name == "queue.declare-ok", answer
        return name

    def exchange(self, client: RawClient, base: str = "x", type_: str = "direct", **a: Any) -> str:
        """Declare a fresh exchange off the record; returns its name."""
        name = self.name(base)
        client.send_off_record(
            codec.method_frame(1, "exchange.declare", exchange=name, type=type_, **a)
        )
        answer = client.receive_quietly()
        assert answer.name == "exchange.declare-ok", answer
        return name

    def put(self, queue: str, *bodies: bytes, exchange: str = "", **properties: Any) -> None:
        """Publish from elsewhere and wait until the broker has confirmed every message."""
        if self._setup is None:
            self._setup = connect(self.url, "setup")
            self._clients.append(self._setup)
            self._setup.open(user=self.user, password=self.password)
            self._setup.open_channel(1)
            self._setup.call(1, "confirm.select")
        for body in bodies:
            self._setup.publish(1, exchange, queue, body, **properties)
            self._put_count += 1
            self._unconfirmed.add(self._put_count)
        while self._unconfirmed:
            ack = self._setup.expect("basic.ack").args
            low = 0 if ack["multiple"] else ack["delivery_tag"]
            settled = range(low, ack["delivery_tag"] + 1)
            self._unconfirmed.difference_update(settled)

    def fill(self, client: RawClient, queue: str, *bodies: bytes) -> None:
        """Publish from the client itself and wait until the messages rest in the queue.

        Without waiting, a broker may answer a declare or delete before it has counted them.
        """
        client.send_off_record(
            codec.method_frame(9, "channel.open") + codec.method_frame(9, "confirm.select")
        )
        for body in bodies:
            publish = codec.method_frame(9, "basic.publish", routing_key=queue)
            client.send_off_record(publish + codec.content_frames(9, body, {}))
        client.receive_quietly()
        client.receive_quietly()
        while (tag := client.receive_quietly()).args["delivery_tag"] < len(bodies):
            assert tag.name == "basic.ack"
        client.send_off_record(codec.method_frame(9, "channel.close", code=200))
        client.receive_quietly()

    def purge(self, *queues: str) -> None:
        """Remove queues that would outlive the case (not needed for exclusive ones)."""
        client = connect(self.url, "cleanup")
        client.open(user=self.user, password=self.password)
        client.open_channel(1)
        for queue in queues:
            client.call(1, "queue.delete", queue=queue)
        client.close_socket()
