"""``StoreService``: one process holds the store and serves it to members in other processes.

In: bytes from each member's connection, and time.  Out: bytes for each of them, in order: events
before the answers they belong to (O3).  What arrives at once is one transaction of the file, and
is told after it is on disk.

A message is a line, a JSON object with one of these:

    from a member                                       back
    hello, above   what it knows already; null: all     snapshot, revision, ttl_ms
                                                        or at, founded: where the store is;
                                                        then events, or difference, and revision
    grant                                               lease
    keep           a lease                              kept
    end            a lease
    n, lease, if, do   a proposal, numbered             n, state, revision

A connection that breaks ends no lease: its member may live, and rely on it.
"""

import json
from typing import Any, Final, final

from penstock.cluster.agreement.coordinator import ACCEPTED, FAILED, REFUSED
from penstock.cluster.agreement.known_keys import FOUNDED
from penstock.core.clock_types import BootMs
from penstock.core.errors import Corrupt
from penstock.storage.definitions.coordination import NO_LEASE, CoordinationStore, HistoryForgotten

LINE_MAX_BYTES: Final = 16 << 20
"""Of a proposal: its greatest size, with every byte of it escaped."""

Message = dict[str, Any]


def to_line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


@final
class LineReader:
    """Bytes as they arrive, as messages."""

    __slots__ = ("_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, data: bytes, max_bytes: int = 0) -> list[Message]:
        """Raises Corrupt for what is no message."""
        *lines, rest = data.split(b"\n")
        messages: list[Message] = []
        for line in lines:
            messages.append(_message(b"".join((*self._parts, line))))
            self._parts, self._size = [], 0
        self._parts.append(rest)
        self._size += len(rest)
        if 0 < max_bytes < self._size:
            raise Corrupt("a line of the coordinator is too long")
        return messages


def _message(line: bytes) -> Message:
    message: Any = None
    try:
        message = json.loads(line)
    except ValueError as error:
        raise Corrupt(f"a line of the coordinator is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise Corrupt("a line of the coordinator is no object")
    return message


@final
class MemberConnection:
    """A member's connection.  ``told``: the revision up to which it has heard; -1 = nothing."""

    __slots__ = ("lines", "output", "told")

    def __init__(self) -> None:
        self.lines = LineReader()
        self.output = bytearray()
        self.told = -1

    def say(self, message: Message) -> None:
        self.output += to_line(message)

    def tell(self, message: Message, revision: int) -> None:
        """With it the member has heard everything up to there."""
        self.say(message)
        self.told = revision


@final
class StoreService:
    """Raises OSError when the disk fails, and is of no use after that."""

    def __init__(self, store: CoordinationStore, ttl_ms: int) -> None:
        self._store = store
        self._ttl_ms = ttl_ms
        self._visitors: list[MemberConnection] = []

    def enter(self) -> MemberConnection:
        visitor = MemberConnection()
        self._visitors.append(visitor)
        return visitor

    def leave(self, visitor: MemberConnection) -> None:
        self._visitors.remove(visitor)

    def tick(self, now_ms: BootMs) -> None:
        """To be called several times per second."""
        if self._store.end_overdue(now_ms):
            self._store.commit()
            self._tell_all()

    def receive(self, visitor: MemberConnection, data: bytes, now_ms: BootMs) -> None:
        """Raises Corrupt: the connection is to be closed."""
        answers: list[Message] = []
        try:
            for message in visitor.lines.take(data, LINE_MAX_BYTES):
                answer = self._answer(visitor, message, now_ms)
                if answer:
                    answers.append(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"a member's line is not understood: {error!r}") from error
        finally:
            self._store.commit()
            self._tell_all()
            for answer in answers:
                visitor.say(answer)

    def _answer(self, visitor: MemberConnection, message: Message, now_ms: BootMs) -> Message:
        if "n" in message:
            return self._propose(message)
        if "keep" in message:
            lease = int(message["keep"])
            return {"kept": self._store.keep_alive(lease, now_ms), "lease": lease}
        if "grant" in message:
            return {"granted": self._store.grant(self._ttl_ms, now_ms)}
        if "end" in message:
            self._store.end_lease(int(message["end"]))
            return {}
        if "hello" in message:
            self._welcome(visitor, message["above"])
            return {}
        raise Corrupt(f"a member says {sorted(message)}, which means nothing here")

    def _propose(self, message: Message) -> Message:
        revision = self._store.transact(
            int(message["lease"]),
            [(key, wanted) for key, wanted in message["if"]],
            [(key, value, leased, below) for key, value, leased, below in message["do"]],
        )
        state = ACCEPTED if revision > 0 else FAILED if revision == NO_LEASE else REFUSED
        return {"n": message["n"], "state": state, "revision": max(0, revision)}

    # -- telling -------------------------------------------------------------------------

    def _welcome(self, visitor: MemberConnection, above: int | None) -> None:
        """What else came with the hello is told behind it."""
        store = self._store
        store.commit()
        if above is None:
            told = {"snapshot": store.entries(), "revision": store.revision, "ttl_ms": self._ttl_ms}
            visitor.tell(told, store.revision)
        else:
            told = {"at": store.revision, "founded": store.value(FOUNDED)}
            visitor.tell(told, min(above, store.revision))

    def _tell_all(self) -> None:
        for visitor in self._visitors:
            if 0 <= visitor.told < self._store.revision:
                self._tell(visitor)

    def _tell(self, visitor: MemberConnection) -> None:
        store = self._store
        try:
            told: Message = {"events": store.history(visitor.told)}
        except HistoryForgotten:
            told = {"difference": store.entries()}
        visitor.tell({**told, "revision": store.revision}, store.revision)
