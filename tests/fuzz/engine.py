"""Invariant: a whole broker survives any session: it never blames itself, gives everything
back when the peer is gone, and a well-behaved client beside the bad one notices nothing.

A node without its sockets runs in this process.  Sessions are fed with captured, damaged and
spliced bytes in random pieces; after each one a bystander session publishes and gets.
"""

import logging
import random
import shutil
import struct
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from penstock.node.node import Node
from penstock.protocols.amqp.session import AmqpSession
from penstock.runtime.session import Session
from penstock.settings.settings import load_settings
from tests.fuzz import mutate, targets
from tests.helpers import raw_codec as codec

INPUTS_PER_NODE = 300
"""Durable things that a session declared pile up; a fresh node forgets them."""
PEER = ("127.0.0.1", 50000)
HANDSHAKE = (
    codec.PROTOCOL_HEADER
    + codec.method_frame(
        0,
        "connection.start-ok",
        client_properties={"capabilities": {"consumer_cancel_notify": True}},
        mechanism="PLAIN",
        response="\0guest\0guest",
        locale="en_US",
    )
    + codec.method_frame(0, "connection.tune-ok", channel_max=2047, frame_max=131072)
    + codec.method_frame(0, "connection.open", virtual_host="/")
)


CONSUME = struct.pack(">HH", *codec.METHOD_IDS["basic.consume"])


def _answer(frame: codec.Frame) -> tuple[int, str]:
    """Channel and what was said there, without names the broker makes up."""
    name, args = codec.decode_method(frame.payload)
    if name in ("basic.get-ok", "basic.get-empty"):
        return frame.channel, "got"  # a message may expire between two pieces
    if name == "queue.declare-ok":
        return frame.channel, name
    return frame.channel, f"{name} {args}"


def _until_channel_error(told: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The answers without confirms, up to the first channel error.

    What a client sends after it on that channel does not count, and whether a fault in there
    is still seen depends on how far the decoder had read ahead, here as in RabbitMQ.
    """
    kept = []
    for channel, text in told:
        if not text.startswith("basic.ack"):
            kept.append((channel, text))
        if text.startswith("channel.close {"):
            break
    return kept


TURNS_MAX = 100
"""A session's share of a turn is a time, which is short on a busy machine."""


class _Complaints(logging.Handler):
    """Collects what the broker says when the fault is its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class Engine:
    """Nodes for the fuzzer, one after the other; a context manager."""

    def __init__(self) -> None:
        self._node: Node | None = None
        self._directory = ""
        self._inputs = 0
        self._now_ms = 1_700_000_000_000
        self._complaints = _Complaints()
        self._bystander: AmqpSession | None = None

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self._complaints)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        logging.getLogger().removeHandler(self._complaints)
        self._drop_node()

    def run(self, rng: random.Random, corpus: list[bytes]) -> None:
        """The target: one session from its first byte to its loss."""
        data = next(mutate.inputs(rng, corpus))
        if rng.randrange(2) and data.startswith(b"AMQP"):
            data = HANDSHAKE + codec.method_frame(1, "channel.open") + data[8:]
        targets.last_input[:] = [data]
        node = self._fresh_node()
        self._complaints.texts.clear()
        try:
            self._one_session(node, rng, data)
            self._check_bystander(node)
        except BaseException:
            self._drop_node()
            raise
        if self._complaints.texts:
            self._drop_node()
            raise targets.Broken(f"the broker blamed itself: {self._complaints.texts[0]}")

    def replies(self, rng: random.Random, corpus: list[bytes]) -> None:
        """The target: a session is answered the same, whole or in pieces.

        Only sessions without consumers: there, what may be acknowledged depends on what was
        delivered meanwhile, and a client that does not wait gets what it deserves.
        """
        quiet = [data for data in corpus if CONSUME not in data]
        data = mutate.damaged(rng, rng.choice(quiet))
        if rng.randrange(2) and data.startswith(b"AMQP"):
            data = HANDSHAKE + data[8:]
        targets.last_input[:] = [data]
        whole = self._answers([data])
        for parts in (mutate.splits(rng, data, rng.randint(1, 6)), mutate.bytewise(data[:1000])):
            answers = self._answers(parts)
            wanted = whole if b"".join(parts) == data else self._answers([b"".join(parts)])
            if answers != wanted:
                raise targets.Broken(f"{[len(p) for p in parts][:9]}: {answers} != {wanted}")

    def _answers(self, parts: list[bytes]) -> list[tuple[int, str]]:
        """What a fresh node says to these bytes; confirms aside, which may be joined."""
        self._drop_node()
        node = self._fresh_node()
        session = self._open(node)
        said = b""
        for part in parts:
            if not session.closed:
                self._feed(node, session, part)
            said += self._said(session)
        frames, _ = codec.split_frames(said.removeprefix(codec.PROTOCOL_HEADER))
        told = [_answer(frame) for frame in frames if frame.type == codec.METHOD]
        return _until_channel_error(told)

    # Inside.

    def _fresh_node(self) -> Node:
        self._inputs += 1
        if self._node is not None and self._inputs <= INPUTS_PER_NODE:
            return self._node
        self._drop_node()
        self._directory = tempfile.mkdtemp(prefix="fuzz-")
        data_dir = str(Path(self._directory) / "data")
        self._node = Node(load_settings(None, {}, {"data_dir": data_dir}))
        self._inputs = 1
        self._bystander = self._open(self._node)
        declare = codec.method_frame(1, "queue.declare", queue="bystander", exclusive=True)
        for part in (HANDSHAKE, codec.method_frame(1, "channel.open"), declare):
            self._feed(self._node, self._bystander, part)
        self._said(self._bystander)
        return self._node

    def _drop_node(self) -> None:
        if self._node is not None:
            self._node._close()
            self._node = None
            shutil.rmtree(self._directory, ignore_errors=True)

    def _open(self, node: Node) -> AmqpSession:
        sessions = node.loop._sessions
        return cast(AmqpSession, sessions.choose(codec.PROTOCOL_HEADER, PEER, self._now_ms))

    def _feed(self, node: Node, session: Session, data: bytes) -> None:
        """What the loop does with one read, and the turns until the session's share sufficed."""
        session.receive(data, self._now_ms)
        node.turn.fed(session)
        self._turn(node)
        for _ in range(TURNS_MAX):
            if not session.has_more or session.closed:
                break
            session.go_on(self._now_ms)
            node.turn.fed(session)
            self._turn(node)

    def _turn(self, node: Node) -> None:
        self._now_ms += 3
        node.turn.run(self._now_ms, idle=True)
        for session in node.turn.touched:
            session.touched = False
        node.turn.touched = []

    def _one_session(self, node: Node, rng: random.Random, data: bytes) -> None:
        session = self._open(node)
        for part in mutate.splits(rng, data, rng.choice((0, 0, 1, 5, 40))):
            self._feed(node, session, part)
            codec.split_frames(self._said(session).removeprefix(codec.PROTOCOL_HEADER))
            if session.closed:
                break
        session.tick(self._now_ms)
        session.lost(self._now_ms)
        self._turn(node)
        if session.channels:
            raise targets.Broken(f"channels left after the loss: {list(session.channels)}")

    def _said(self, session: Session) -> bytes:
        """Take the session's output, as the loop does when it writes."""
        data = session.out.getvalue()
        session.out.truncate(0)
        session.sent(len(data), self._now_ms)
        return data

    def _check_bystander(self, node: Node) -> None:
        bystander = self._bystander
        assert bystander is not None
        publish = codec.method_frame(1, "basic.publish", routing_key="bystander")
        get = codec.method_frame(1, "basic.get", queue="bystander", no_ack=True)
        content = codec.content_frames(1, b"still here", {})
        self._feed(node, bystander, publish + content + get)
        frames, rest = codec.split_frames(self._said(bystander))
        if rest or not frames or frames[-1].payload != b"still here":
            raise targets.Broken(f"the bystander was disturbed: {frames} {rest!r}")
