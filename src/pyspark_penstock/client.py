"""A blocking client of the broker's range protocol, over one socket.

``Connection`` is what everybody needs: the line, TLS, frames, a reply or the broker's refusal.
``RangeClient`` reads a queue; what else can be asked of a broker is in classes of their own, which
begin with ``login``.  The protocol is described in the broker's ``ranges/codec/frames.py``
and ``ranges.py``; this file repeats the little of it a reader needs, because it must run where only
pyspark and pyarrow are installed (the broker's test suite holds the two against each other).

Errors, by whose fault they are and what helps:

    ConnectionLost  the broker cannot be reached or went away: try again
    Refused         the broker said no, or cannot be trusted; ``code`` says why (wire code of ERROR)
    Locked, Fenced, LeaseGone   kinds of it, told apart also where only a name is left
    Elsewhere       another node is the queue's master: ask that
    NoMaster        no node is, for now: ask again

**Several nodes.**  An endpoint may name more nodes of one cluster.  Who reads a queue asks them in
order, first the one where it was found last, until one has it (``RangeClient``); whoever needs just
any node gets the first that answers (``Connection``).  One round is made here; who has patience
goes round again (``planner.Patience``).
"""

import contextlib
import socket
import ssl
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from pyspark_penstock.options import Endpoint, Tls

MAGIC = b"PSTK\x00\x00\x00\x01"

REPLY = 64
"""A reply's kind is its request's kind plus this."""
LOGIN = 16
OPEN, WAIT, PLAN, RANGE, ACK, CLOSE, ACK_SOME = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, START, OFFSET_AT = 32, 33, 34
OPENED, HEAD, PLANNED, BLOCK, ACKED, CLOSED = 65, 66, 67, 68, 69, 70
SUBSCRIBED, STARTED, OFFSET = 96, 97, 98
ERROR = 127

BROWSE, READ, JOIN = 0, 1, 2
BY_QUEUES, BY_EXCHANGE, BY_TOPIC = 0, 1, 2

MALFORMED, ACCESS_REFUSED, NOT_FOUND, LOCKED, FENCED, LEASE_GONE, REFUSED = 1, 2, 3, 4, 5, 6, 7
ELSEWHERE, NO_MASTER = 8, 9

ACK_SOME_MAX = 512
CONNECT_TIMEOUT_S = 10.0
REPLY_TIMEOUT_S = 30.0
"""A broker that says nothing for so long is as good as gone."""

FAREWELL_TIMEOUT_S = 2.0

_HEAD = struct.Struct(">qqqq")
_BLOCK = struct.Struct(">Iq")


class ConnectionLost(ConnectionError):
    """The broker cannot be reached, or the connection broke."""


class Refused(Exception):
    """The broker will not; trying again changes nothing unless ``code`` says so."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return self.text


class Locked(Refused):
    """Somebody else has the queue: consumers, or another reader of ranges."""


class Fenced(Refused):
    """A newer reader took the queue over."""


class LeaseGone(Refused):
    """Nobody has the queue any more, not even we: open it again."""


class Elsewhere(Refused):
    """The queue's master is on another node."""


class NoMaster(Refused):
    """The queue has no master for now: its node is gone, and no other has taken its place yet."""


_KINDS: dict[int, type[Refused]] = {
    LOCKED: Locked,
    FENCED: Fenced,
    LEASE_GONE: LeaseGone,
    ELSEWHERE: Elsewhere,
    NO_MASTER: NoMaster,
}


class Head(NamedTuple):
    """Where the queue begins and ends."""

    floor: int
    acked: int
    next_seq: int
    ready: int


class Opened(NamedTuple):
    incarnation: str
    head: Head
    token: int


class Planned(NamedTuple):
    end: int
    messages: int
    content_bytes: int


class Block:
    """Messages as columns; ``payload`` holds the bytes the lengths cut up, until the next reply."""

    def __init__(self, payload: bytes | memoryview) -> None:
        if len(payload) < _BLOCK.size:
            raise ConnectionLost("the broker sent a block that is cut short")
        self.count, self.next_start = _BLOCK.unpack_from(payload)
        at = _BLOCK.size
        count: int = self.count
        self.seq_ids = bytes(payload[at : at + 8 * count])
        at += 8 * count
        self.enqueued_at_ms = bytes(payload[at : at + 8 * count])
        at += 8 * count
        self.content_lengths = _numbers("I", payload[at : at + 4 * count])
        at += 4 * count
        self.address_lengths = _numbers("H", payload[at : at + 2 * count])
        at += 2 * count
        self.flags = bytes(payload[at : at + count])
        at += count
        self.addresses_at = at
        self.contents_at = at + sum(self.address_lengths)
        self.payload = payload
        if self.contents_at + sum(self.content_lengths) != len(payload):
            raise ConnectionLost("the broker sent a block that disagrees with its lengths")


class Connection:
    """One line to the broker, connected when made; the first request goes out with MAGIC.

    Where several nodes are named: to the first that answers.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._at_start = True
        self._greeting = MAGIC
        self._received = bytearray()
        *before, last = endpoint.nodes()
        for node in before:
            try:
                self._endpoint, self._socket = node, _connected(node)
            except ConnectionLost:
                continue
            return
        self._endpoint, self._socket = last, _connected(last)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def login(self) -> str:
        """Say who we are, where no OPEN says it; the broker's version."""
        end = self._endpoint
        names = b"".join(string(name) for name in (end.user, end.password, end.vhost))
        version, _ = take_string(self.ask(LOGIN, names), 0)
        return version

    def ask(self, kind: int, payload: bytes, patience_ms: int = 0) -> bytes:
        """The reply to one request; ``patience_ms`` is what the request allows the broker."""
        self.send(kind, payload)
        return self.reply(kind + REPLY, REPLY_TIMEOUT_S + patience_ms / 1000)

    def close(self) -> None:
        """Leave; never fails."""
        self._socket.close()

    # -- bytes -----------------------------------------------------------------------------

    def send(self, kind: int, payload: bytes) -> None:
        data = self._greeting + _frame(kind, payload)
        self._greeting = b""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise _broken(self._endpoint, error) from error

    def reply(self, kind: int, timeout_s: float = REPLY_TIMEOUT_S) -> bytes:
        """The payload of the next frame, which must be of this kind."""
        return bytes(self._reply(kind, timeout_s))

    def _reply(self, kind: int, timeout_s: float = REPLY_TIMEOUT_S) -> memoryview:
        """The same, in place: only until the next reply."""
        self._socket.settimeout(timeout_s)
        head = bytes(self._read(5))
        if self._at_start and head[:4] == b"AMQP":
            raise Refused(
                MALFORMED,
                f"the broker at {self._endpoint} does not know the range protocol: "
                "is it a Penstock of this version?",
            )
        self._at_start = False
        payload = self._read(int.from_bytes(head[:4], "big") - 1)
        if head[4] == kind:
            return payload
        if head[4] == ERROR:
            code = int.from_bytes(payload[:2], "big")
            text = bytes(payload[4:]).decode(errors="replace")
            raise _KINDS.get(code, Refused)(code, text)
        raise ConnectionLost(f"the broker at {self._endpoint} sent reply {head[4]}, not {kind}")

    def _read(self, size: int) -> memoryview:
        """So many bytes, in place of those before: fresh memory for each megabyte would cost."""
        if len(self._received) < size:
            self._received = bytearray(size)
        view = memoryview(self._received)[:size]
        got = 0
        try:
            while got < size:
                count = self._socket.recv_into(view[got:])
                if count == 0:
                    raise ConnectionLost(f"the broker at {self._endpoint} closed the connection")
                got += count
        except OSError as error:
            if isinstance(error, ConnectionLost):
                raise
            raise _broken(self._endpoint, error) from error
        return view


class RangeClient(Connection):
    """Reads one queue; opens it when made, at the node that is its master."""

    def __init__(
        self, endpoint: Endpoint, queue: str, mode: int, token: int = 0, *, force: bool = False
    ) -> None:
        errors: list[ConnectionLost | Refused] = []
        for place in _asked_in_turn(endpoint, queue):
            node = endpoint.nodes()[place]
            try:
                self._open(node, queue, mode, token, force)
            except (ConnectionLost, Elsewhere, NoMaster) as error:
                errors.append(error)
            else:
                _found_at[endpoint, queue] = place
                return
        raise _most_hopeful(errors)

    def _open(self, endpoint: Endpoint, queue: str, mode: int, token: int, force: bool) -> None:
        super().__init__(endpoint)
        try:
            names = (endpoint.user, endpoint.password, endpoint.vhost, queue)
            request = b"".join(string(name) for name in names)
            request += struct.pack(">BQB", mode, token, 1 if force else 0)
            payload = self.ask(OPEN, request)
        except BaseException:
            self._socket.close()
            raise
        incarnation, at = take_string(payload, 0)
        head = Head._make(_HEAD.unpack_from(payload, at))
        (token,) = struct.unpack_from(">Q", payload, at + _HEAD.size)
        self.opened = Opened(incarnation, head, token)

    def wait(self, start: int, timeout_ms: int) -> Head:
        """The head, as soon as there is something at or after ``start``, or in time."""
        payload = self.ask(WAIT, struct.pack(">qI", start, timeout_ms), timeout_ms)
        return Head._make(_HEAD.unpack(payload))

    def begin_wait(self, start: int, timeout_ms: int) -> None:
        """As ``wait``, in two steps: between them, others can be waited for, too."""
        self.send(WAIT, struct.pack(">qI", start, timeout_ms))

    def end_wait(self) -> Head:
        """The head as it is now, whether or not it was worth the wait."""
        self.send(WAIT, struct.pack(">qI", 0, 0))  # a request behind it ends the wait
        self.reply(HEAD)
        return Head._make(_HEAD.unpack(self.reply(HEAD)))

    def fileno(self) -> int:
        return self._socket.fileno()

    def start(self, request: str, seq_id: int) -> int:
        """Where reading begins: ``seq_id``, or what the same request got the first time."""
        payload = self.ask(START, string(request) + struct.pack(">q", seq_id))
        return int.from_bytes(payload, "big", signed=True)

    def offset_at(self, timestamp_ms: int, low: int, high: int) -> int:
        """The first position between whose message came at or after that time; else ``high``."""
        while low < high:
            payload = self.ask(OFFSET_AT, struct.pack(">qqq", timestamp_ms, low, high))
            low, high = struct.unpack(">qq", payload)
        return low

    def plan(self, start: int, end: int, max_messages: int, max_bytes: int) -> Planned:
        """Where a slice that begins at ``start`` ends, within all three bounds."""
        first = planned = start
        count, size, more = 0, 0, True
        while more and count < max_messages and size < max_bytes:
            bounds = struct.pack(">qqqq", planned, end, max_messages - count, max_bytes - size)
            planned, got, got_bytes, more = struct.unpack(">qqqB", self.ask(PLAN, bounds))
            if count and size + got_bytes > max_bytes:
                break  # the one message too many is only planned when it is the first
            count += got
            size += got_bytes
            start = planned
        return Planned(start if count else first, count, size)

    def blocks(self, start: int, end: int, max_bytes: int, *, with_body: bool) -> Iterator[Block]:
        """All of a range.  The next block is on its way while the caller works on this one, and
        takes its place.
        """
        if start >= end:
            return
        body = 1 if with_body else 0
        self.send(RANGE, struct.pack(">qqIB", start, end, max_bytes, body))
        while True:
            block = Block(self._reply(BLOCK))
            last = block.next_start >= end
            if not last:
                following = struct.pack(">qqIB", block.next_start, end, max_bytes, body)
                self.send(RANGE, following)
            yield block
            if last:
                return

    def ack(self, upto: int, *, later: bool = False) -> int:
        """Everything below ``upto`` is done with; returns how many messages that were.

        ``later``: the broker says 0 at once, and they go while the next ones are read.
        """
        request = struct.pack(">q", upto) + (b"\x01" if later else b"")
        return int.from_bytes(self.ask(ACK, request), "big", signed=True)

    def ack_some(self, seq_ids: Iterable[int]) -> int:
        """These are done with, and no others; returns how many of them were still there."""
        chosen = sorted(seq_ids)
        count = 0
        for at in range(0, len(chosen), ACK_SOME_MAX):
            some = chosen[at : at + ACK_SOME_MAX]
            reply = self.ask(ACK_SOME, struct.pack(f">{len(some)}q", *some))
            count += int.from_bytes(reply, "big", signed=True)
        return count

    def close(self) -> None:
        """Give the lease back and leave; never fails."""
        with contextlib.suppress(OSError, Refused):
            self.send(CLOSE, b"")
            self.reply(CLOSED, FAREWELL_TIMEOUT_S)
        self._socket.close()

    def abandon(self) -> None:
        """Leave without a word: the broker keeps the lease for a while."""
        self._socket.close()


_found_at: dict[tuple[Endpoint, str], int] = {}
"""Which of an endpoint's nodes was a queue's master when this process asked last."""


def _asked_in_turn(endpoint: Endpoint, queue: str) -> list[int]:
    """Places in ``nodes()``: the last one known first."""
    first = _found_at.get((endpoint, queue), 0)
    places = range(len(endpoint.others) + 1)
    return [first, *(place for place in places if place != first)]


def _most_hopeful(errors: list[ConnectionLost | Refused]) -> ConnectionLost | Refused:
    """Of those of one round: what may heal by itself comes before what does not."""
    for kind in (NoMaster, ConnectionLost):
        for error in errors:
            if isinstance(error, kind):
                return error
    return errors[-1]


def subscribe(endpoint: Endpoint, by: int, names: Sequence[str], *, make: bool) -> list[str]:
    """Names of the queues that are meant; ``make`` has the broker make what is missing."""
    request = bytes((1 if make else 0, by)) + struct.pack(">H", len(names))
    with Connection(endpoint) as line:
        line.login()
        payload = line.ask(SUBSCRIBE, request + b"".join(string(name) for name in names))
    queues = []
    at = 2
    while at < len(payload):
        queue, at = take_string(payload, at)
        queues.append(queue)
    return queues


def _connected(endpoint: Endpoint) -> socket.socket:
    context = None if endpoint.tls is None else _context(endpoint.tls)
    try:
        line = socket.create_connection((endpoint.host, endpoint.port), CONNECT_TIMEOUT_S)
    except OSError as error:
        raise ConnectionLost(f"cannot connect to the broker at {endpoint}: {error}") from error
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if context is None:
        return line
    try:
        return context.wrap_socket(line, server_hostname=endpoint.host)
    except OSError as error:
        line.close()
        raise _broken(endpoint, error) from error


def _context(tls: Tls) -> ssl.SSLContext:
    """Whom to trust, and who we are; without a file named, this system's authorities."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_cert_file)
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except OSError as error:
        given = (("caCertFile", tls.ca_cert_file), ("certFile", tls.cert_file))
        named = ", ".join(f"{name} {path}" for name, path in given if path)
        raise Refused(REFUSED, f"cannot use the certificates of {named}: {error}") from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _broken(endpoint: Endpoint, error: OSError) -> Exception:
    """What an error of the socket means: time may heal a line, but not a certificate."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Refused(
            REFUSED,
            f"the certificate of the broker at {endpoint} is not trusted: {error.verify_message}; "
            "option caCertFile names the authority that signed it",
        )
    transient = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
    if isinstance(error, ssl.SSLError) and not isinstance(error, transient):
        return Refused(
            REFUSED,
            f"TLS with the broker at {endpoint} failed: {error}; is this its TLS port "
            "(usually 5671), and does it ask for a certificate (options certFile, keyFile)?",
        )
    return ConnectionLost(f"the broker at {endpoint} is gone: {error}")


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">IB", len(payload) + 1, kind) + payload


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def take_string(payload: bytes, at: int) -> tuple[str, int]:
    """(text, position after it)"""
    end = at + 2 + int.from_bytes(payload[at : at + 2], "big")
    return payload[at + 2 : end].decode(), end


def _numbers(code: str, data: bytes | memoryview) -> list[int]:
    """A little-endian column as Python numbers."""
    column = array(code)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tolist()
