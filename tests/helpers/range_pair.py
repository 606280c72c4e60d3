"""The peer of one range session around a quiet broker: it stages, commits and is told."""

from __future__ import annotations

from typing import Any

from penstock.broker.rules.access import HASHING, User, hash_password
from penstock.core.clock_types import WallMs
from penstock.protocols.ranges.leases import RangeLeases
from penstock.protocols.ranges.session import RangeSession
from penstock.storage.definitions.records import PermissionRecord, UserRecord
from penstock_ranges import frames as rf
from penstock_ranges import staging
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.range_grace import LEASE_GRACE_MS


class Answered(Exception):
    """The broker said ERROR."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


def publishes(
    exchange: str, key: str, bodies: list[bytes], *, mode: int = 2, **properties: Any
) -> bytes:
    """As a publisher says it on channel 1."""
    method = codec.method_frame(1, "basic.publish", exchange=exchange, routing_key=key)
    return b"".join(
        method + codec.content_frames(1, body, {"delivery_mode": mode, **properties})
        for body in bodies
    )


def leases_of(node: QuietBroker) -> RangeLeases:
    return RangeLeases(LEASE_GRACE_MS, node.broker.letting_go, node.broker.idleness)


class StagingEnd(ClientEnd):
    """One connection, logged in unless that is left to OPEN."""

    def __init__(
        self,
        node: QuietBroker,
        user: str = "guest",
        *,
        login: bool = True,
        leases: RangeLeases | None = None,
    ) -> None:
        """``leases``: those of the node, if others read there too."""
        here = ("127.0.0.1", True)
        session = RangeSession(node.broker, leases or leases_of(node), here, WallMs(node.now_ms))
        session.channels = {}  # type: ignore[attr-defined]
        super().__init__(node, session)  # type: ignore[arg-type]
        node.clients.append(self)
        self.splitter = rf.FrameSplitter(rf.REPLY_MAX_BYTES)
        self.replies: list[tuple[int, bytes]] = []
        self.send(rf.MAGIC)
        if login:
            self.send(rf.encode_login(user, user, "/"))
            self.expect(rf.WELCOME)

    def hear(self) -> None:
        data, self.received = self.received, b""
        self.replies += self.splitter.feed(data)

    def expect(self, kind: int) -> bytes:
        """The payload of the next reply, which is there already."""
        self.hear()
        assert self.replies, "no reply yet"
        got, payload = self.replies.pop(0)
        if got == rf.ERROR:
            raise Answered(*rf.decode_error(payload))
        assert got == kind
        return payload

    def silent(self) -> bool:
        self.hear()
        return not self.replies

    # -- what a program does -----------------------------------------------------------------

    def begin(
        self,
        batch: int,
        producer: str = "p",
        run: str = "r1",
        *,
        must_route: bool = False,
        max_bytes: int = 1 << 30,
    ) -> str:
        request = staging.BeginRequest(producer, run, batch, max_bytes, must_route)
        self.send(staging.encode_begin(request))
        return staging.decode_begun(self.expect(staging.STAGE_BEGUN))

    def block(self, frames: bytes) -> str:
        self.send(staging.encode_block(frames))
        return staging.decode_taken(self.expect(staging.STAGE_TAKEN))

    def end(self, messages: int) -> int:
        self.send(staging.encode_end(messages))
        return staging.decode_ended(self.expect(staging.STAGE_ENDED))

    def stage(
        self, batch: int, key: str, bodies: list[bytes], exchange: str = "", **options: Any
    ) -> str:
        """A whole set; its name."""
        name = self.begin(batch, **options)
        if name:
            assert self.block(publishes(exchange, key, bodies)) == ""
            self.end(len(bodies))
        return name

    def ask_commit(
        self,
        batch: int,
        sets: list[str],
        producer: str = "p",
        run: str = "r1",
        *,
        must_route: bool = False,
        patience_ms: int = 60_000,
        turn: bool = True,
    ) -> None:
        request = staging.CommitRequest(producer, run, batch, must_route, patience_ms, sets)
        self.send(staging.encode_commit(request), run=turn)

    def commit(self, batch: int, sets: list[str], **options: Any) -> staging.Committed:
        self.ask_commit(batch, sets, **options)
        return staging.decode_committed(self.expect(staging.COMMITTED))

    def abort(self, sets: list[str]) -> int:
        self.send(staging.encode_abort(sets))
        return staging.decode_aborted(self.expect(staging.ABORTED))

    def last(self, producer: str = "p") -> int:
        self.send(staging.encode_last(producer))
        return staging.decode_last_batch(self.expect(staging.LAST))

    def publish_directly(
        self, frames: bytes, *, must_route: bool = False, patience_ms: int = 1000
    ) -> tuple[str, int]:
        self.send(staging.encode_publish(frames, must_route, patience_ms))
        return staging.decode_published(self.expect(staging.PUBLISHED))


def bodies_in(node: QuietBroker, queue: str) -> list[bytes]:
    """Of all ready messages, in order."""
    parts = node.broker.vhosts["/"].queues[queue].backing.parts()
    every = 1 << 60
    found = [
        one for part in reversed(parts) for one in part.reads.read_range(0, every, every, every)
    ]
    return [body_of(one.content) for one in found]


def body_of(content: bytes) -> bytes:
    frames, rest = codec.split_frames(content)
    assert not rest
    return b"".join(frame.payload for frame in frames if frame.type == codec.BODY)


def declare(node: QuietBroker, queue: str, **arguments: Any) -> ClientEnd:
    client = node.client()
    client.call("queue.declare", queue=queue, durable=True, arguments=arguments)
    return client


def check(node: QuietBroker) -> None:
    node.check()
    node.broker.staging.check()


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def add_user(node: QuietBroker, name: str, write: str = ".*") -> None:
    hashed = hash_password(name, b"salt")
    user = User(name, hashed, [], HASHING)
    user.vhosts["/"] = ("", write, "")
    node.broker.users.users[name] = user
    node.definitions.put_user(UserRecord(name, hashed, HASHING, []))
    node.definitions.put_permission(PermissionRecord(name, "/", "", write, ""))
