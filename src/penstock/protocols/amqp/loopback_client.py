"""``LoopbackClient``: an AMQP client without a socket, with which management publishes and gets.

    publish ─► frames ─► AmqpSession ─► frames back ─► a future: was it routed?

So everything that holds for AMQP holds for HTTP without being written twice: rights, topic rights,
alarms, limits, exclusive owners, policies, dead letters, the firehose.  One connection with one
channel, for one request; it counts as a connection of its user while it lasts, and is in no list.

A publish is answered when it is safe.  That is the turn's business: to the turn this is a
session with confirms to come.
"""

from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from penstock.core import errors as kinds
from penstock.core.clock_types import WallMs
from penstock.core.pending import Pending
from penstock.management.facts.sessions import Got, InternalClient, InternalClientRefused
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.errors import ACCESS_REFUSED
from penstock.protocols.amqp.codec.methods import FRAME_METHOD, Method, decode_method, encode_method
from penstock.protocols.amqp.codec.properties import (
    Properties,
    body_of,
    decode_properties,
    encode_content,
)
from penstock.protocols.amqp.handshake import EXTERNAL, PROTOCOL_HEADER
from penstock.protocols.amqp.session import AmqpSession
from penstock.runtime.session import Session
from penstock.runtime.turn import Turn

CHANNEL: Final = 1
FRAME_HEAD_BYTES: Final = 7
NUMBERS: Final = {"delivery_mode": 255, "priority": 255, "timestamp": 2**63 - 1}
"""And how large they may be."""
NO_ROOM: Final = "rejected Unable to publish message. Check queue limits."
"""RabbitMQ's words."""


class LoopbackClient(Session, InternalClient):
    """See the head of this file; every method is called on the data loop."""

    def __init__(self, session: AmqpSession, turn: Turn, vhost: str, now_ms: WallMs) -> None:
        """``session`` is new, and trusts that its user is who it says."""
        super().__init__(turn.flow.book)
        self._inner = session
        self._turn = turn
        self._frame_max = int(session.opening.limits.frame_max)
        self._answer: Future[bool] | None = None
        self._returned = False
        self._contents = bytearray()  # of the frames behind the last method
        greeting = [
            encode_method(0, m.CONNECTION_START_OK, [{}, EXTERNAL, b"", "en_US"]),
            encode_method(0, m.CONNECTION_TUNE_OK, [CHANNEL, self._frame_max, 0]),
            encode_method(0, m.CONNECTION_OPEN, [vhost, "", False]),
            encode_method(CHANNEL, m.CHANNEL_OPEN, [""]),
            encode_method(CHANNEL, m.CONFIRM_SELECT, [False]),
        ]
        self._say(PROTOCOL_HEADER + b"".join(greeting), now_ms)
        if session.closed:  # silently, as when a log-in is refused
            raise InternalClientRefused(ACCESS_REFUSED, "ACCESS_REFUSED - no user of that name")

    # -- what management asks for ----------------------------------------------------------

    def publish(
        self,
        exchange: str,
        routing_key: str,
        properties: dict[str, object],
        body: bytes,
        now_ms: WallMs,
    ) -> Future[bool]:
        if self._inner.gate != "":
            raise kinds.Blocked(self._inner.gate)
        try:
            method = [0, exchange, routing_key, True, False]
            frames = encode_method(CHANNEL, m.BASIC_PUBLISH, method) + encode_content(
                properties_of(properties), body, CHANNEL, self._frame_max
            )
        except ValueError as error:
            raise kinds.PreconditionFailed(str(error)) from error
        answer: Future[bool] = Future()
        self._answer = answer
        self._returned = False
        self._say(frames, now_ms)
        self._await_disk()
        return answer

    def get(self, queue: str, now_ms: WallMs) -> Got | Pending | None:
        inner = self._inner
        if inner.waiting_head:
            inner.go_on(now_ms)
            replies = self._replies()
        else:
            frame = encode_method(CHANNEL, m.BASIC_GET, [0, queue, False])
            replies = self._say(frame, now_ms)
        if inner.waiting_head:
            return Pending(None, partial(self.get, queue, now_ms))
        for reply in replies:
            if reply.key == m.BASIC_GET_OK:
                return self._got(reply)
        return None

    def _got(self, reply: Method) -> Got:
        content = bytes(self._contents)
        return Got(
            reply.number("delivery_tag"),
            reply.text("exchange"),
            reply.text("routing_key"),
            reply.flag("redelivered"),
            reply.number("message_count"),
            decode_properties(content).as_dict(),
            body_of(content),
        )

    def is_waiting(self) -> bool:
        return bool(self._inner.waiting_head)

    def accept(self, now_ms: WallMs) -> None:
        self._say(encode_method(CHANNEL, m.BASIC_ACK, [0, True]), now_ms)

    def refuse(self, requeue: bool, now_ms: WallMs) -> None:
        self._say(encode_method(CHANNEL, m.BASIC_NACK, [0, True, requeue]), now_ms)

    def leave(self, now_ms: WallMs) -> None:
        self._inner.lost(now_ms)
        self.awaiting_disk = False

    # -- to and from the session -------------------------------------------------------------

    def _say(self, frames: bytes, now_ms: WallMs) -> list[Method]:
        self._inner.receive(frames, now_ms)
        return self._replies()

    def _replies(self) -> list[Method]:
        """What the session has said; raises what it closed us for."""
        out = self._inner.out
        data = out.getvalue()
        out.truncate(0)
        replies: list[Method] = []
        at = 0
        while at < len(data):
            end = at + FRAME_HEAD_BYTES + int.from_bytes(data[at + 3 : at + 7]) + 1
            if data[at] == FRAME_METHOD:
                replies.append(decode_method(data[at + FRAME_HEAD_BYTES : end - 1]))
                self._contents.clear()
            else:
                self._contents += data[at:end]
            at = end
        for reply in replies:
            self._heard(reply)
        return replies

    def _heard(self, reply: Method) -> None:
        answer = self._answer
        if reply.key in (m.CHANNEL_CLOSE, m.CONNECTION_CLOSE):
            raise InternalClientRefused(reply.number("reply_code"), reply.text("reply_text"))
        if reply.key == m.BASIC_RETURN:
            self._returned = True
        elif reply.key == m.BASIC_ACK and answer is not None:
            self._answer = None
            if answer.set_running_or_notify_cancel():  # else who asked has given up
                answer.set_result(not self._returned)
        elif reply.key == m.BASIC_NACK and answer is not None:
            self._answer = None
            if answer.set_running_or_notify_cancel():
                answer.set_exception(kinds.PreconditionFailed(NO_ROOM))

    # -- what the turn asks for --------------------------------------------------------------

    def _await_disk(self) -> None:
        self.awaiting_disk = self._inner.awaiting_disk
        self._turn.fed(self)

    def confirm(self, durable_position: int) -> None:
        self._inner.confirm(durable_position)
        self.awaiting_disk = self._inner.awaiting_disk
        self._replies()


def properties_of(given: dict[str, object]) -> Properties:
    """Of values management has judged; other names mean nothing here.

    Raises PreconditionFailed for numbers that do not fit.
    """
    known: dict[str, Any] = {name: given.get(name) for name in Properties._fields}
    for name, value in known.items():
        if isinstance(value, int) and not 0 <= value <= NUMBERS[name]:
            raise kinds.PreconditionFailed(f"{name}: {value} is out of range")
    return Properties(**known)
