"""What a case of NSQ is: a story told to a server, and the transcript it leaves.

As in ``tests/conformance``: a case is a function marked ``@case`` that asserts nothing.  What it
sends and what comes back is the transcript, and the transcripts of two servers are compared.  It
must be deterministic on a correct server, so it waits for answers; where time itself is the
subject it notes whether something came within bounds, never when.

A case names the server it needs: ``servers.py`` knows how each of them is configured.  Names,
message ids, addresses and versions are replaced by fixed words before the comparison.
"""

from __future__ import annotations

import http.client
import json
import re
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from tests.conformance_nsq.auth_service import AuthService
from tests.conformance_nsq.statsd_listener import StatsdListener
from tests.helpers.nsq_line import MESSAGE, Event, RawNsq

CaseFunction = Callable[["World"], None]
PLAIN = "plain"
TURN_S = 0.02
"""A broker counts a time from the beginning of the turn in which it was asked for."""
_SHOWN_HEADERS = ("Content-Type", "X-Nsq-Content-Type")
_VERSION = re.compile(r'("version": |"version":|nsqd v|nsqlookupd v)"?\d[^" ]*"?')


class Case(NamedTuple):
    tell: CaseFunction
    server: str
    slow: bool


CASES: dict[str, Case] = {}


class Place(NamedTuple):
    """Where a server listens, and what it was configured with: certificates, who it talks to."""

    port: int
    http_port: int
    https_port: int
    certificates: str = ""
    auth: AuthService | None = None
    statsd: StatsdListener | None = None


def case(server: str = PLAIN, slow: bool = False) -> Callable[[CaseFunction], CaseFunction]:
    """Register a case under its file's subject and its own name."""

    def register(function: CaseFunction) -> CaseFunction:
        subject = function.__module__.rsplit(".", 1)[-1].removeprefix("cases_")
        name = f"{subject}.{function.__name__}"
        assert name not in CASES, name
        CASES[name] = Case(function, server, slow)
        return function

    return register


class Answer(NamedTuple):
    """What an HTTP server said."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def _in_order(value: Any) -> Any:
    """Lists of names sorted, since their order is that of a hash table."""
    if isinstance(value, dict):
        return {key: _in_order(item) for key, item in value.items()}
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return sorted(value)
    return value


class World:
    """One run of one case against one server."""

    host = "127.0.0.1"

    def __init__(self, place: Place) -> None:
        self.place = place
        self.lines: list[str] = []
        self.late = False  # a time was over its upper bound: the server was slow, or the machine
        self._names: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._clients: list[RawNsq] = []

    # names and lines ----------------------------------------------------------------------

    def name(self, base: str) -> str:
        """A name nobody else uses, shown as ``<base>`` in the transcript."""
        unique = f"{base}-{secrets.token_hex(6)}"
        self._names[unique] = f"<{base}>"
        return unique

    def say(self, text: str) -> None:
        """A remark: what the next lines are about, or what was seen otherwise."""
        self.lines.append(f"# {text}")

    def transcript(self) -> list[str]:
        """The lines, normalised; one that repeats is written once, with how often."""
        runs = [(line, len(list(same))) for line, same in groupby(map(self._normalise, self.lines))]
        return [line if count == 1 else f"{line}  ({count} times)" for line, count in runs]

    def _normalise(self, line: str) -> str:
        for known in (self._names, self._ids):
            for unique, word in known.items():
                line = line.replace(quote(unique), word).replace(unique, word)
        line = line.replace("127.0.0.1", "<host>").replace(socket.gethostname(), "<hostname>")
        line = re.sub(r"<host>:\d+", "<host>:<port>", line)
        return _VERSION.sub(r'\1"<version>"', line)

    def _hear(self, line: str) -> None:
        """A line of a client; the ids of messages are numbered as they come."""
        found = re.search(r" < message ([0-9a-f]{16}) attempts", line)
        if found and found[1] not in self._ids:
            self._ids[found[1]] = f"<id {len(self._ids) + 1}>"
        self.lines.append(line)

    def within(self, began: float, low_s: float, high_s: float, what: str = "that") -> None:
        """Notes whether the time since ``began`` is between the bounds."""
        passed_s = time.monotonic() - began
        fits = low_s - TURN_S <= passed_s <= high_s
        self.late |= passed_s > high_s
        verdict = f"between {low_s:g} and {high_s:g} s" if fits else f"after {passed_s:.2f} s"
        self.say(f"{what} took {verdict}")

    # clients ------------------------------------------------------------------------------

    def raw(self, name: str = "A") -> RawNsq:
        """A connection on which nothing was said."""
        client = RawNsq(self.host, self.place.port, name, self._hear)
        self._clients.append(client)
        return client

    def client(self, name: str = "A", **fields: Any) -> RawNsq:
        """A connection that has said the magic word, and IDENTIFY if fields are given."""
        client = self.raw(name)
        client.magic()
        if fields:
            event = client.identify_off_record(fields)
            assert event.kind == "response", event
        return client

    def subscriber(
        self, topic: str, channel: str, rdy: int = 0, name: str = "A", **fields: Any
    ) -> RawNsq:
        """A consumer of a channel, off the record."""
        client = self.client(name, **fields)
        event = client.call_off_record(f"SUB {topic} {channel}")
        assert event.text == "OK", event
        if rdy:
            client.send_off_record(b"RDY %d\n" % rdy)
        return client

    def barrier(self, client: RawNsq) -> Event:
        """A publish elsewhere: its OK shows that all before it was handled without error."""
        client.note("> barrier")
        topic = self.name("barrier")
        client.send_off_record(b"PUB %s\n" % topic.encode() + b"\0\0\0\1b")
        return client.receive()

    def put(self, topic: str, *bodies: bytes, defer_ms: int = 0) -> None:
        """Publish from elsewhere, one after the other."""
        for body in bodies:
            path = f"/pub?topic={quote(topic)}" + (f"&defer={defer_ms}" if defer_ms else "")
            answer = self.http_quietly("POST", path, body)
            assert answer.status == 200, answer

    def close(self) -> None:
        for client in self._clients:
            client.close_socket()

    def got(self, *clients: RawNsq, count: int = 1, timeout_s: float = 8.0) -> list[Event]:
        """Messages whose order is not fixed: noted sorted by their bodies."""
        events: list[Event] = []
        for client in clients:
            while len(events) < count:
                event = client.receive_quietly(timeout_s)
                if event.kind != MESSAGE:
                    client.note(f"< {event}")
                    break
                events.append(event)
        events.sort(key=lambda event: event.body)
        for event in events:
            self._hear(f"{clients[0].name} < {event}")
        return events

    # HTTP ---------------------------------------------------------------------------------

    def http_quietly(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Answer:
        """A request; with ``tls`` by HTTPS."""
        connection = http.client.HTTPConnection(self.host, self.place.http_port, timeout=10)
        if tls is not None:
            connection = http.client.HTTPSConnection(
                self.host, self.place.https_port, timeout=10, context=tls
            )
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # refused before it was read
                connection.request(method, path, body=body)
            response = connection.getresponse()
            headers = {name.title(): value for name, value in response.getheaders()}
            return Answer(response.status, response.reason, headers, response.read())
        finally:
            connection.close()

    def http(self, method: str, path: str, body: bytes | None = None, **query: object) -> Answer:
        """A request on the record; its answer with the headers that say something."""
        if query:
            path += "?" + urlencode({key: str(value) for key, value in query.items()})
        self.lines.append(f"http > {method} {path}" + ("" if body is None else f" {body[:60]!r}"))
        answer = self.http_quietly(method, path, body)
        kinds = [answer.headers[name] for name in _SHOWN_HEADERS if name in answer.headers]
        said = f"http < {answer.status} {answer.reason} [{' | '.join(kinds)}]"
        self.lines.append(f"{said} {self._said(answer)}".rstrip())
        return answer

    def _said(self, answer: Answer) -> str:
        try:
            return json.dumps(_in_order(answer.json()), sort_keys=True)
        except ValueError:
            return repr(answer.body.decode(errors="replace")) if answer.body else ""

    # what /stats says ---------------------------------------------------------------------

    def topic_stats(self, topic: str) -> dict[str, Any]:
        path = f"/stats?format=json&topic={quote(topic)}"
        topics = self.http_quietly("GET", path).json()["topics"] or []
        return dict(topics[0]) if topics else {}

    def stats(self, topic: str, *fields: str) -> None:
        """Counters of a topic, noted."""
        known = self.topic_stats(topic)
        wanted = fields or ("depth", "backend_depth", "message_count", "message_bytes", "paused")
        shown = " ".join(f"{field}={known.get(field)}" for field in wanted)
        self.lines.append(f"stats {topic}: {shown}" if known else f"stats {topic}: none")

    def channel_stats(self, topic: str, channel: str, *fields: str) -> None:
        """Counters of a channel, noted."""
        shown_fields = fields or (
            *("depth", "in_flight_count", "deferred_count", "message_count"),
            *("requeue_count", "timeout_count", "client_count", "paused"),
        )
        for known in self.topic_stats(topic).get("channels", []):
            if known["channel_name"] == channel:
                shown = " ".join(f"{field}={known.get(field)}" for field in shown_fields)
                self.lines.append(f"stats {topic}/{channel}: {shown}")
                return
        self.lines.append(f"stats {topic}/{channel}: none")

    def until(self, what: str, holds: Callable[[], bool], timeout_s: float = 8.0) -> None:
        """Waits until something is true of the server; notes only if it never is."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                self.say(f"never: {what}")
                return
            time.sleep(0.02)

    def until_channel(
        self, topic: str, channel: str, timeout_s: float = 8.0, **wanted: object
    ) -> None:
        """Waits until the channel's counters are these."""

        def holds() -> bool:
            for known in self.topic_stats(topic).get("channels", []):
                if known["channel_name"] == channel:
                    return all(known[field] == value for field, value in wanted.items())
            return False

        self.until(f"{channel} with {wanted}", holds, timeout_s)
