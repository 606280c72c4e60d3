"""A blocking client of the broker's range protocol, over one socket.

``Connection`` is what everybody needs: the line, TLS, frames, a reply or the broker's refusal.
``RangeClient`` reads a queue; what else can be asked of a broker is in classes of their own, which
begin with ``login``.  The protocol is that of ``penstock_ranges``, as at the broker's end.

Errors, by whose fault they are and what helps:

    ConnectionLost  the broker cannot be reached or went away: try again
    Refused         the broker said no, or cannot be trusted; ``code`` says why (wire code of ERROR)
    Locked, Fenced, LeaseGone   kinds of it, told apart also where only a name is left
    Elsewhere       another node is the queue's master: ask that
    NoMaster        no node is, for now: ask again
    Gone            retention has taken messages of a stream

**Several nodes.**  An endpoint may name more nodes of one cluster.  A reader of a queue asks them
in order, first the one where it was found last, until one has it (``RangeClient``); a caller that
needs just any node gets the first that answers (``Connection``).  One round is made here; a caller
with patience goes round again (``planner.Patience``).
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Self, TypeVar

from penstock_ranges import frames, ranges, subscriptions
from penstock_ranges.frames import MalformedFrame
from penstock_ranges.ranges import Block, Head
from pyspark_penstock.endpoints import Endpoint, Tls

CONNECT_TIMEOUT_S = 10.0
REPLY_TIMEOUT_S = 30.0
"""A broker that says nothing for so long is as good as gone."""

FAREWELL_TIMEOUT_S = 2.0

Payload = TypeVar("Payload", bytes, memoryview)
Answer = TypeVar("Answer")


class ConnectionLost(ConnectionError):
    """The broker cannot be reached, or the connection broke."""


class NotPenstock(ConnectionLost):
    """What answers speaks otherwise: another port, or another program."""


class Refused(Exception):
    """The broker will not; trying again changes nothing unless ``code`` says so."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return self.text


class Locked(Refused):
    """The queue is in use: by consumers, or another reader of ranges."""


class Fenced(Refused):
    """A newer reader took the queue over."""


class LeaseGone(Refused):
    """This reader's lease of the queue has ended, and no other has one: open it again."""


class Elsewhere(Refused):
    """The queue's master is on another node."""


class NoMaster(Refused):
    """The queue has no master for now: its node is gone, and no other has taken its place yet."""


class Gone(Refused):
    """Retention has taken what was asked for of a stream."""


_KINDS: dict[int, type[Refused]] = {
    frames.LOCKED: Locked,
    frames.FENCED: Fenced,
    frames.LEASE_GONE: LeaseGone,
    frames.ELSEWHERE: Elsewhere,
    frames.NO_MASTER: NoMaster,
    frames.GONE: Gone,
}


class Retries:
    """Pauses between attempts, up to so long after the first failure since the last success."""

    def __init__(self, limit_s: float, pause_s: float) -> None:
        self._limit_s = limit_s
        self._pause_s = pause_s
        self._since_s: float | None = None

    def renew(self) -> None:
        self._since_s = None

    def failing_s(self) -> float:
        """Since the first failure; 0 where there was none."""
        return 0.0 if self._since_s is None else time.monotonic() - self._since_s

    def use(self, error: Exception, limit_s: float | None = None) -> None:
        """After a failure: pauses, or raises the error when the time is over."""
        if self._since_s is None:
            self._since_s = time.monotonic()
        if self.failing_s() >= (self._limit_s if limit_s is None else limit_s):
            raise error
        time.sleep(self._pause_s)


class Planned(NamedTuple):
    end: int
    messages: int
    content_bytes: int


class Connection:
    """One line to the broker, connected when made; the first request goes out with MAGIC.

    Where several nodes are named: to the first that answers.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._at_start = True
        self._greeting = frames.MAGIC
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
        """User, password and virtual host, where no OPEN has them; returns the broker's version."""
        end = self._endpoint
        request = frames.encode_login(end.user, end.password, end.vhost)
        return self.ask(request, frames.decode_welcome)

    def ask(
        self, request: bytes, decode: Callable[[bytes], Answer], patience_ms: int = 0
    ) -> Answer:
        """The reply to one frame; ``patience_ms`` is what the request allows the broker."""
        self.send(request)
        timeout_s = REPLY_TIMEOUT_S + patience_ms / 1000
        return self.decoded(decode, self.reply(request[4] + frames.REPLY, timeout_s))

    def decoded(self, decode: Callable[[Payload], Answer], payload: Payload) -> Answer:
        """Raises ConnectionLost where the broker broke the grammar."""
        try:
            return decode(payload)
        except MalformedFrame as error:
            raise NotPenstock(f"the broker at {self._endpoint} sent: {error}") from error

    def close(self) -> None:
        self._socket.close()

    # -- bytes -----------------------------------------------------------------------------

    def send(self, request: bytes) -> None:
        data = self._greeting + request
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
                frames.MALFORMED,
                f"the broker at {self._endpoint} does not know the range protocol: "
                "is it a Penstock of this version?",
            )
        self._at_start = False
        payload = self._read(int.from_bytes(head[:4], "big") - 1)
        if head[4] == kind:
            return payload
        if head[4] == frames.ERROR:
            code, text = self.decoded(frames.decode_error, bytes(payload))
            raise _KINDS.get(code, Refused)(code, text)
        raise NotPenstock(f"the broker at {self._endpoint} sent reply {head[4]}, not {kind}")

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
            user, password, vhost = endpoint.user, endpoint.password, endpoint.vhost
            request = ranges.OpenRequest(user, password, vhost, queue, mode, token, force)
            self.opened = self.ask(ranges.encode_open(request), ranges.decode_opened)
        except BaseException:
            self._socket.close()
            raise

    def follow(self, group: str) -> int:
        """Read a stream as this group; returns what is next for it, -1 if it has no place yet."""
        return self.ask(ranges.encode_group(group), ranges.decode_grouped)

    def wait(self, start: int, timeout_ms: int) -> Head:
        """The head, as soon as there is something at or after ``start``, or in time."""
        return self.ask(ranges.encode_wait(start, timeout_ms), ranges.decode_head, timeout_ms)

    def begin_wait(self, start: int, timeout_ms: int) -> None:
        """As ``wait``, in two steps: between them, others can be waited for, too."""
        self.send(ranges.encode_wait(start, timeout_ms))

    def end_wait(self) -> Head:
        """The head as it is now, whether or not it was worth the wait."""
        self.send(ranges.encode_wait(0, 0))  # a request behind it ends the wait
        self.reply(ranges.HEAD)
        return self.decoded(ranges.decode_head, self.reply(ranges.HEAD))

    def fileno(self) -> int:
        return self._socket.fileno()

    def start(self, request: str, seq_id: int) -> int:
        """Where reading begins: ``seq_id``, or what the same request got the first time."""
        given = subscriptions.encode_start(request, seq_id)
        return self.ask(given, subscriptions.decode_started)

    def offset_at(self, timestamp_ms: int, low: int, high: int) -> int:
        """The first position between whose message came at or after that time; else ``high``."""
        while low < high:
            request = subscriptions.encode_offset_at(timestamp_ms, low, high)
            low, high = self.ask(request, subscriptions.decode_offset)
        return low

    def plan(self, start: int, end: int, max_messages: int, max_bytes: int) -> Planned:
        """Where a slice that begins at ``start`` ends, within all three bounds."""
        first = planned = start
        count, size, more = 0, 0, True
        while more and count < max_messages and size < max_bytes:
            request = ranges.encode_plan(planned, end, max_messages - count, max_bytes - size)
            planned, got, got_bytes, more = self.ask(request, ranges.decode_planned)
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
        self.send(ranges.encode_range(start, end, max_bytes, with_body))
        while True:
            block = self.decoded(Block, self._reply(ranges.BLOCK))
            last = block.next_start >= end
            if not last:
                self.send(ranges.encode_range(block.next_start, end, max_bytes, with_body))
            yield block
            if last:
                return

    def ack(self, upto: int, *, later: bool = False) -> int:
        """Everything below ``upto`` is done with; returns how many messages that were.

        ``later``: the broker says 0 at once, and they go while the next ones are read.
        """
        return self.ask(ranges.encode_ack(upto, later=later), ranges.decode_acked)

    def ack_some(self, seq_ids: Iterable[int]) -> int:
        """These are done with, and no others; returns how many of them were still there."""
        chosen = sorted(seq_ids)
        count = 0
        for at in range(0, len(chosen), ranges.ACK_SOME_MAX):
            request = ranges.encode_ack_some(chosen[at : at + ranges.ACK_SOME_MAX])
            count += self.ask(request, ranges.decode_acked_some)
        return count

    def close(self) -> None:
        """Give the lease back and leave; never fails."""
        with contextlib.suppress(OSError, Refused):
            self.send(ranges.encode_close())
            self.reply(ranges.CLOSED, FAREWELL_TIMEOUT_S)
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
    with Connection(endpoint) as line:
        line.login()
        request = subscriptions.encode_subscribe(make, by, list(names))
        return line.ask(request, subscriptions.decode_subscribed)


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
    """The authorities to trust and our certificate; without a file, this system's authorities."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_cert_file)
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except OSError as error:
        given = (("caCertFile", tls.ca_cert_file), ("certFile", tls.cert_file))
        named = ", ".join(f"{name} {path}" for name, path in given if path)
        raise Refused(frames.REFUSED, f"cannot use the certificates of {named}: {error}") from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _broken(endpoint: Endpoint, error: OSError) -> Exception:
    """What an error of the socket means: time may heal a line, but not a certificate."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Refused(
            frames.REFUSED,
            f"the certificate of the broker at {endpoint} is not trusted: {error.verify_message}; "
            "option caCertFile names the authority that signed it",
        )
    transient = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
    if isinstance(error, ssl.SSLError) and not isinstance(error, transient):
        return Refused(
            frames.REFUSED,
            f"TLS with the broker at {endpoint} failed: {error}; is this its TLS port "
            "(usually 5671), and does it ask for a certificate (options certFile, keyFile)?",
        )
    return ConnectionLost(f"the broker at {endpoint} is gone: {error}")
