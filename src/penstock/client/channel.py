"""One channel of the blocking client: its methods, call by call.

``Connection.channel`` makes it and hands it the frames that carry its number.
"""

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.client.endpoint import ChannelClosed, ClientError, ConnectionLost, ConsumerCancelled
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import Method, decode_method, encode_method
from penstock.protocols.amqp.codec.properties import (
    Properties,
    body_of,
    decode_properties,
    encode_properties,
    encode_written,
)

if TYPE_CHECKING:
    from penstock.client.amqp import Connection

FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
BODY_SIZE_AT: Final = 11
"""Offset of the body size in a content header frame."""
PROPERTIES_AT: Final = 19
"""And of the properties."""


class Delivery:
    """A message that came by ``basic.deliver``, ``basic.get-ok`` or ``basic.return``."""

    def __init__(self, method: Method, content: bytes) -> None:
        self.method = method
        self.properties = decode_properties(content)
        end = 7 + int.from_bytes(content[3:7], "big")
        self.written = content[PROPERTIES_AT:end]  # the properties, as they came
        self.body = body_of(content)

    @property
    def delivery_tag(self) -> int:
        return self.method.number("delivery_tag")

    @property
    def redelivered(self) -> bool:
        return self.method.flag("redelivered")

    @property
    def exchange(self) -> str:
        return self.method.text("exchange")

    @property
    def routing_key(self) -> str:
        return self.method.text("routing_key")


class Channel:
    def __init__(self, connection: "Connection", number: int) -> None:
        self.connection = connection
        self.number = number
        self.returned: deque[Delivery] = deque()
        self.nacked: list[int] = []
        self.unconfirmed: dict[int, None] = {}  # a set that keeps its order
        self._published = 0
        self._confirming = False
        self._closed: ClientError | None = None
        self._methods: deque[Method] = deque()
        self._deliveries: deque[Delivery] = deque()
        self.kept_bytes = 0  # of these
        self._cancelled: str | None = None
        self._content_method: Method | None = None
        self._content: list[bytes] = []
        self._body_left = 0

    # -- entities ----------------------------------------------------------------------

    def exchange_declare(
        self,
        exchange: str,
        kind: str = "direct",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        internal: bool = False,
        arguments: dict[str, object] | None = None,
    ) -> None:
        flags = (passive, durable, auto_delete, internal, False)
        values = (0, exchange, kind, *flags, arguments or {})
        self.call(m.EXCHANGE_DECLARE, m.EXCHANGE_DECLARE_OK, *values)

    def exchange_delete(self, exchange: str, *, if_unused: bool = False) -> None:
        self.call(m.EXCHANGE_DELETE, m.EXCHANGE_DELETE_OK, 0, exchange, if_unused, False)

    def exchange_bind(
        self, destination: str, source: str, routing_key: str, arguments: dict[str, object]
    ) -> None:
        values = (0, destination, source, routing_key, False, arguments)
        self.call(m.EXCHANGE_BIND, m.EXCHANGE_BIND_OK, *values)

    def exchange_unbind(
        self, destination: str, source: str, routing_key: str, arguments: dict[str, object]
    ) -> None:
        values = (0, destination, source, routing_key, False, arguments)
        self.call(m.EXCHANGE_UNBIND, m.EXCHANGE_UNBIND_OK, *values)

    def queue_declare(
        self,
        queue: str = "",
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        arguments: dict[str, object] | None = None,
    ) -> Method:
        """The answer has ``queue``, ``message_count`` and ``consumer_count``."""
        flags = (passive, durable, exclusive, auto_delete, False)
        values = (0, queue, *flags, arguments or {})
        return self.call(m.QUEUE_DECLARE, m.QUEUE_DECLARE_OK, *values)

    def queue_bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: dict[str, object] | None = None,
    ) -> None:
        values = (0, queue, exchange, routing_key, False, arguments or {})
        self.call(m.QUEUE_BIND, m.QUEUE_BIND_OK, *values)

    def queue_purge(self, queue: str) -> int:
        answer = self.call(m.QUEUE_PURGE, m.QUEUE_PURGE_OK, 0, queue, False)
        return answer.number("message_count")

    def queue_delete(self, queue: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        values = (0, queue, if_unused, if_empty, False)
        return self.call(m.QUEUE_DELETE, m.QUEUE_DELETE_OK, *values).number("message_count")

    # -- publishing --------------------------------------------------------------------

    def confirm_select(self) -> None:
        self.call(m.CONFIRM_SELECT, m.CONFIRM_SELECT_OK, False)
        self._confirming = True

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        *,
        mandatory: bool = False,
        written: bytes | None = None,
    ) -> int:
        """Send one message; returns its confirm tag (0 without ``confirm_select``).

        ``written``: of another ``Delivery``, in place of properties, down to the last bit.
        """
        self._check_open()
        values = (0, exchange, routing_key, mandatory, False)
        frame_max = self.connection.frame_max
        if written is None:
            written = encode_properties(properties or Properties())
        content = encode_written(written, body, self.number, frame_max)
        self.connection.send(encode_method(self.number, m.BASIC_PUBLISH, values) + content)
        if not self._confirming:
            return 0
        self._published += 1
        self.unconfirmed[self._published] = None
        return self._published

    def wait_for_confirms(self, timeout_s: float = 30.0) -> list[int]:
        """Wait until nothing is unconfirmed; returns the tags the broker nacked."""
        deadline = time.monotonic() + timeout_s
        while self.unconfirmed:
            self._wait(deadline, f"{len(self.unconfirmed)} messages are not confirmed")
        nacked, self.nacked = self.nacked, []
        return nacked

    # -- consuming ---------------------------------------------------------------------

    def qos(self, prefetch_count: int, *, for_channel: bool = False) -> None:
        self.call(m.BASIC_QOS, m.BASIC_QOS_OK, 0, prefetch_count, for_channel)

    def consume(
        self,
        queue: str,
        consumer_tag: str = "",
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: dict[str, object] | None = None,
    ) -> str:
        values = (0, queue, consumer_tag, False, no_ack, exclusive, False, arguments or {})
        answer = self.call(m.BASIC_CONSUME, m.BASIC_CONSUME_OK, *values)
        return answer.text("consumer_tag")

    def next_delivery(self, timeout_s: float = 10.0) -> Delivery | None:
        deadline = time.monotonic() + timeout_s
        while not self._deliveries:
            if self._cancelled is not None:
                raise ConsumerCancelled(f"the broker cancelled consumer {self._cancelled!r}")
            self._check_open()
            if not self.connection.process(max(0.0, deadline - time.monotonic())):
                return None
        delivery = self._deliveries.popleft()
        self.kept_bytes -= len(delivery.body)
        return delivery

    def cancel(self, consumer_tag: str) -> None:
        self.call(m.BASIC_CANCEL, m.BASIC_CANCEL_OK, consumer_tag, False)

    def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        self._check_open()
        self.connection.send(encode_method(self.number, m.BASIC_GET, (0, queue, no_ack)))
        answer = self._answer(m.BASIC_GET)
        if answer.key == m.BASIC_GET_EMPTY:
            return None
        assert answer.key == m.BASIC_GET_OK, answer
        delivery = self._deliveries.pop()  # put there, last, together with its method
        self.kept_bytes -= len(delivery.body)
        return delivery

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        self._tell(m.BASIC_ACK, delivery_tag, multiple)

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        self._tell(m.BASIC_NACK, delivery_tag, multiple, requeue)

    def reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        self._tell(m.BASIC_REJECT, delivery_tag, requeue)

    def recover(self) -> None:
        """Requeue everything this channel holds unacknowledged."""
        self.call(m.BASIC_RECOVER, m.BASIC_RECOVER_OK, True)

    def close(self) -> None:
        if self._closed is None:
            self.call(m.CHANNEL_CLOSE, m.CHANNEL_CLOSE_OK, 200, "Goodbye", 0, 0)
            self._closed = ClientError("the channel was closed by this side")
            self.connection.forget(self.number)

    # -- calls and their answers -------------------------------------------------------

    def call(self, key: int, answer_key: int, *values: object) -> Method:
        self._tell(key, *values)
        answer = self._answer(key)
        if answer.key != answer_key:
            raise ClientError(f"{answer.name} came as the answer to {m.METHODS[key][0]}")
        return answer

    def _tell(self, key: int, *values: object) -> None:
        self._check_open()
        self.connection.send(encode_method(self.number, key, values))

    def _answer(self, key: int) -> Method:
        deadline = time.monotonic() + self.connection.timeout_s
        while not self._methods:
            self._wait(deadline, f"{m.METHODS[key][0]} was not answered")
        return self._methods.popleft()

    def _wait(self, deadline: float, complaint: str) -> None:
        self._check_open()
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not self.connection.process(left_s):
            raise ConnectionLost(f"{complaint} in time")
        self._check_open()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    # -- what the broker says ----------------------------------------------------------

    def take_frame(self, kind: int, frame: bytes) -> None:
        if kind == m.FRAME_METHOD:
            self._take_method(decode_method(frame[7:-1]))
        elif kind == FRAME_HEADER:
            self._content = [frame]
            self._body_left = int.from_bytes(frame[BODY_SIZE_AT : BODY_SIZE_AT + 8], "big")
            self._finish_content()
        elif kind == FRAME_BODY:
            self._content.append(frame)
            self._body_left -= len(frame) - 8
            self._finish_content()
        else:
            raise ClientError(f"frame of unknown type {kind}")

    def _take_method(self, method: Method) -> None:
        if method.key in {m.BASIC_DELIVER, m.BASIC_GET_OK, m.BASIC_RETURN}:
            self._content_method = method
        elif method.key == m.BASIC_ACK or method.key == m.BASIC_NACK:
            self._confirm(method)
        elif method.key == m.BASIC_CANCEL:
            self._cancelled = method.text("consumer_tag")
        elif method.key == m.CHANNEL_FLOW:
            self._tell(m.CHANNEL_FLOW_OK, method.flag("active"))
        elif method.key == m.CHANNEL_CLOSE:
            self.connection.send(encode_method(self.number, m.CHANNEL_CLOSE_OK, ()))
            self._closed = ChannelClosed(method.number("reply_code"), method.text("reply_text"))
            self.connection.forget(self.number)
        else:
            self._methods.append(method)

    def _finish_content(self) -> None:
        if self._body_left > 0:
            return
        method = self._content_method
        if method is None or self._body_left < 0:
            raise ClientError("content came without its method, or with too long a body")
        delivery = Delivery(method, b"".join(self._content))
        self._content_method = None
        self._content = []
        if method.key == m.BASIC_RETURN:
            self.returned.append(delivery)
            return
        self._deliveries.append(delivery)
        self.kept_bytes += len(delivery.body)
        if method.key == m.BASIC_GET_OK:
            self._methods.append(method)

    def _confirm(self, method: Method) -> None:
        tag = method.number("delivery_tag")
        settled = [tag]
        if method.flag("multiple"):
            settled = [waiting for waiting in self.unconfirmed if waiting <= tag]
        for confirmed in settled:
            self.unconfirmed.pop(confirmed, None)
        if method.key == m.BASIC_NACK:
            self.nacked += settled
