"""One AMQP connection without its socket: the handshake, the channels, the end.

    header ─► START ─start-ok─► (login) ─► TUNE ─tune-ok─► OPEN ─open─► RUNNING ─► CLOSING ─► closed

Events of the decoder come in runs; this file only finds the channel and turns errors into
the right kind of goodbye: a soft error closes the channel, a hard one the connection, and
a mistake of ours closes the connection with 541 and is reported, while all others go on.
"""

from collections.abc import Callable
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.broker.access import User
from penstock.broker.broker import Broker
from penstock.core.errors import AccessRefused, BrokerError, CommandInvalid
from penstock.queues.queue import HeadAway
from penstock.server.amqp_channel import AmqpChannel
from penstock.server.amqp_handshake import (
    ACCEPTED_HEADERS,
    FRAME_MIN_BYTES,
    PROTOCOL_HEADER,
    Limits,
    check_tuning,
    log_in,
    mechanisms,
)
from penstock.server.amqp_heartbeat import DEAD, SPEAK, Heartbeat
from penstock.server.amqp_link import CancelSink, Link, NameSource
from penstock.server.session import Session
from penstock.wire.amqp import methods as m
from penstock.wire.amqp.decoder import AmqpDecoder
from penstock.wire.amqp.errors import NAMES, ProtocolViolation, is_hard, reply_code
from penstock.wire.amqp.events import (
    AckRun,
    ChannelFailed,
    ConnectionFailed,
    Event,
    MethodReceived,
    PublishRun,
)
from penstock.wire.amqp.methods import Method

SILENT_CLOSE_DELAY_MS: Final = 3000
CLOSING_TIMEOUT_MS: Final = 30_000
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
CLOSE_OK_FRAME: Final = b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x33\xce"

_WAIT_HEADER: Final = 0
_WAIT_START_OK: Final = 1
_WAIT_TUNE_OK: Final = 2
_WAIT_OPEN: Final = 3
_RUNNING: Final = 4
_CLOSING: Final = 5
_CLOSED: Final = 6
STATE_NAMES: Final = ("starting", "starting", "tuning", "opening", "running", "closing", "closed")


@final
class AmqpSession(Session):
    """See the head of this file."""

    def __init__(
        self,
        broker: Broker,
        limits: Limits,
        server_properties: dict[str, object],
        new_name: NameSource,
        tell_cancelled: CancelSink,
        report: Callable[[str], None],
        peer_is_loopback: bool,
        now_ms: i64,
        external: str | None = None,
    ) -> None:
        # ``external``: whom a certificate names, "" = nobody; None = EXTERNAL is not offered.
        super().__init__()
        self.broker = broker
        self.limits = limits
        self.decoder = AmqpDecoder(FRAME_MIN_BYTES, limits.max_message_size_bytes)
        self.link = Link(self, broker, self.decoder, new_name, tell_cancelled)
        self.channels: dict[int, AmqpChannel] = {}
        self.client_properties: dict[str, object] = {}
        self.state: i64 = _WAIT_HEADER
        self.mechanism: str = ""
        self.channel_max: i64 = limits.channel_max
        self.heartbeat = Heartbeat(now_ms)
        self.connected_at_ms: i64 = now_ms
        self.received_bytes: i64 = 0
        self.sent_bytes: i64 = 0
        self._server_properties = server_properties
        self._report = report
        self._peer_is_loopback = peer_is_loopback
        self._external = external
        self._header: bytes = b""
        self._close_tail: bytes = b""
        self._closing_since_ms: i64 = 0
        self._confirm_ready: list[AmqpChannel] = []
        self._is_lost: bool = False
        self._postponed: list[Event] = []  # behind a get whose message is not at hand

    @property
    def state_name(self) -> str:
        return STATE_NAMES[self.state]

    def blocked(self, reason: str) -> None:
        if self.state == _RUNNING:
            self.link.tell_blocked(reason)

    # -- bytes in ------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        self.heartbeat.heard()
        self.link.begin(now_ms)
        self.received_bytes += len(data)
        if self.state == _WAIT_HEADER:
            data = self._protocol_header(data)
        if self.state >= _CLOSING and self.decoder.failed:
            self._await_close_ok(data)
            return
        self._events(self.decoder.receive(data, now_ms))
        self._decode_on()
        if self.state == _CLOSING and self.decoder.failed:
            self._await_close_ok(data)  # it may have come behind what broke the decoder
        self._flush_confirms()

    def _decode_on(self) -> None:
        while self.decoder.paused and not self.waiting_head:
            self._events(self.decoder.receive(b"", self.link.now_ms))

    def go_on(self, now_ms: i64) -> None:
        self.link.begin(now_ms)
        self.waiting_head = False
        postponed = self._postponed
        self._postponed = []
        self._events(postponed)
        self._decode_on()
        self._flush_confirms()

    def _protocol_header(self, data: bytes) -> bytes:
        """Collect and judge the first eight octets; returns what follows them."""
        header = self._header + data
        if not PROTOCOL_HEADER.startswith(header[:4]) and len(header) < 8:
            header = header.ljust(8, b"\x00")
        if len(header) < 8:
            self._header = header
            return b""
        if header[:8] not in ACCEPTED_HEADERS:
            # Tell what we speak, and go: the answer every AMQP client knows.
            self.out.write(PROTOCOL_HEADER)
            self._close_now()
            return b""
        self.state = _WAIT_START_OK
        self.link.send(
            0,
            m.CONNECTION_START,
            [0, 9, self._server_properties, mechanisms(self._external), b"en_US"],
        )
        return header[8:]

    def _events(self, events: list[Event]) -> None:
        for event in events:
            if self.waiting_head:
                self._postponed.append(event)
            elif self.state >= _CLOSING:
                self._await_method_close_ok(event)
            elif isinstance(event, PublishRun):
                self._publish(event)
            elif isinstance(event, AckRun):
                self._ack(event)
            elif isinstance(event, MethodReceived):
                self._method(event.channel, event.method)
            elif isinstance(event, ChannelFailed):
                self.channel_failed(event.channel, event.error, event.method_key)
            elif isinstance(event, ConnectionFailed):
                self._violated(event.channel, event.violation)

    def _publish(self, run: PublishRun) -> None:
        channel = self.channels.get(run.channel)
        if channel is None or channel.closing:
            return
        try:
            if channel.publishing.publish(run):
                self._confirm_ready.append(channel)
        except BrokerError as error:
            self.channel_failed(run.channel, error, m.BASIC_PUBLISH)
        except Exception as error:  # noqa: BLE001 - ours: ends this session, reported, no other
            self._our_fault(run.channel, error, m.BASIC_PUBLISH)

    def _ack(self, run: AckRun) -> None:
        channel = self.channels.get(run.channel)
        if channel is None or channel.closing:
            return
        try:
            channel.ack(run)
        except BrokerError as error:
            self.channel_failed(run.channel, error, m.BASIC_ACK)
        except Exception as error:  # noqa: BLE001 - ours: ends this session, reported, no other
            self._our_fault(run.channel, error, m.BASIC_ACK)

    def _method(self, number: i64, method: Method) -> None:
        try:
            if number == 0:
                self._connection_method(method)
            elif method.key == m.CHANNEL_OPEN:
                self._open_channel(number)
            else:
                self._channel_method(number, method)
        except ProtocolViolation as violation:
            self._violated(number, violation)
        except HeadAway:
            self.waiting_head = True
            self._postponed.append(MethodReceived(number, method))
        except BrokerError as error:
            self.channel_failed(number, error, method.key)
        except Exception as error:  # noqa: BLE001 - ours: ends this session, reported, no other
            self._our_fault(number, error, method.key)

    # -- channels ------------------------------------------------------------------------

    def _open_channel(self, number: i64) -> None:
        if number in self.channels:
            raise ProtocolViolation(
                504, "CHANNEL_ERROR", "second 'channel.open' seen", True, m.CHANNEL_OPEN
            )
        self.channels[number] = AmqpChannel(self.link, number)
        self.link.send(number, m.CHANNEL_OPEN_OK, [b""])

    def _channel_method(self, number: i64, method: Method) -> None:
        channel = self.channels.get(number)
        if channel is None:
            return
        if method.key == m.CHANNEL_CLOSE:
            del self.channels[number]
            if not channel.closing:
                channel.close()
            self.link.send(number, m.CHANNEL_CLOSE_OK, [])
        elif method.key == m.CHANNEL_CLOSE_OK:
            if not channel.closing:
                raise CommandInvalid("unimplemented method")
            del self.channels[number]
        elif not channel.closing and channel.handle(method):
            self._confirm_ready.append(channel)

    def channel_failed(self, number: i64, error: BrokerError, method_key: i64) -> None:
        code, name = reply_code(error)
        if is_hard(code) or number == 0:
            self._violated(number, ProtocolViolation(code, name, str(error), True, int(method_key)))
            return
        channel = self.channels.get(number)
        if channel is None or channel.closing:
            return
        channel.publishing.write_confirms()
        channel.close()
        self.decoder.discard(number)
        self.link.send(
            number,
            m.CHANNEL_CLOSE,
            [code, name + " - " + str(error), method_key >> 16, method_key & 0xFFFF],
        )

    def _our_fault(self, number: i64, error: Exception, method_key: i64) -> None:
        self._report("internal error on channel " + str(number) + ": " + repr(error))
        self._violated(
            number,
            ProtocolViolation(541, "INTERNAL_ERROR", "internal error", True, int(method_key)),
        )

    # -- the connection itself -------------------------------------------------------------

    def _connection_method(self, method: Method) -> None:
        key = method.key
        if key == m.CONNECTION_CLOSE:
            self._close_asked()
        elif key == m.CONNECTION_START_OK and self.state == _WAIT_START_OK:
            self._start_ok(method)
        elif key == m.CONNECTION_TUNE_OK and self.state == _WAIT_TUNE_OK:
            self._tune_ok(method)
        elif key == m.CONNECTION_OPEN and self.state == _WAIT_OPEN:
            self._open(method)
        elif key == m.CONNECTION_UPDATE_SECRET and self.state == _RUNNING:
            # Passwords are judged once, at login, as RabbitMQ's internal users are.
            self.link.send(0, m.CONNECTION_UPDATE_SECRET_OK, [])
        else:
            raise ProtocolViolation(
                504,
                "CHANNEL_ERROR",
                "unexpected method in connection state " + self.state_name,
                True,
                key,
            )

    def _close_asked(self) -> None:
        """Everything is given back before close-ok says so; then it is the peer's to hang up."""
        if self.state < _RUNNING:
            self._hang_up_later()
            return
        self.lost(self.link.now_ms)
        self.link.send(0, m.CONNECTION_CLOSE_OK, [])
        self._close_now()
        self.close_after_ms = self.link.now_ms + CLOSING_TIMEOUT_MS

    def _start_ok(self, method: Method) -> None:
        self.client_properties = method.table("client_properties")
        capabilities = self.client_properties.get("capabilities")
        understood = capabilities if isinstance(capabilities, dict) else {}
        self.link.cancel_notify = understood.get("consumer_cancel_notify") is True
        self.link.blocked_notify = understood.get("connection.blocked") is True
        self.mechanism = method.text("mechanism")
        response = method.raw("response")
        try:
            user = log_in(
                self.broker, self.mechanism, response, self._peer_is_loopback, self._external
            )
        except AccessRefused:
            self._refuse_login(understood.get("authentication_failure_close") is True)
            return
        if user is None:
            self._hang_up_later()
            return
        self.link.user = user
        self.decoder.user_id = user.name.encode()
        self.state = _WAIT_TUNE_OK
        limits = self.limits
        self.link.send(
            0, m.CONNECTION_TUNE, [limits.channel_max, limits.frame_max, limits.heartbeat_s]
        )

    def _refuse_login(self, tell: bool) -> None:
        """403 to those who understand it; silence, and after a while the end, to the others."""
        if not tell:
            self._hang_up_later()
            return
        self._say_close(
            403,
            "ACCESS_REFUSED - Login was refused using authentication mechanism "
            + self.mechanism
            + ". For details see the broker logfile.",
            0,
        )

    def _hang_up_later(self) -> None:
        """What goes wrong before the connection is tuned is not answered, and slowly so."""
        self._close_now()
        self.close_after_ms = self.link.now_ms + SILENT_CLOSE_DELAY_MS

    def _tune_ok(self, method: Method) -> None:
        channel_max = method.number("channel_max")
        frame_max = method.number("frame_max")
        check_tuning(self.limits, channel_max, frame_max, method.key)
        self.channel_max = channel_max
        self.decoder.channel_max = channel_max
        self.decoder.frame_max = frame_max
        self.link.frame_max = frame_max
        self.heartbeat.interval_ms = 1000 * method.number("heartbeat")
        self.state = _WAIT_OPEN

    def _open(self, method: Method) -> None:
        name = method.text("virtual_host")
        user = cast(User, self.link.user)
        try:
            vhost = self.broker.enter(user, name)
        except BrokerError as error:
            raise ProtocolViolation(530, "NOT_ALLOWED", str(error), True, method.key) from None
        self.link.enter(vhost)
        self.state = _RUNNING
        self.decoder.opened = True
        self.link.send(0, m.CONNECTION_OPEN_OK, [""])

    # -- endings -------------------------------------------------------------------------

    def _violated(self, number: i64, violation: ProtocolViolation) -> None:
        """Say why, give everything back, and wait for the peer's close-ok."""
        if self.state >= _CLOSING:
            return
        if self.state < _WAIT_OPEN:
            self._hang_up_later()
            return
        self.lost(self.link.now_ms)
        if violation.code == 0:
            self._close_now()
            return
        text = violation.name
        if violation.text != "":
            text += " - " + violation.text
        self._say_close(violation.code, text, violation.method_key)

    def _say_close(self, code: int, reply: str, method_key: i64) -> None:
        self.link.send(0, m.CONNECTION_CLOSE, [code, reply, method_key >> 16, method_key & 0xFFFF])
        self.state = _CLOSING
        self._closing_since_ms = self.link.now_ms

    def _await_method_close_ok(self, event: Event) -> None:
        if isinstance(event, MethodReceived) and event.channel == 0:
            if event.method.key == m.CONNECTION_CLOSE_OK:
                self._close_now()
            elif event.method.key == m.CONNECTION_CLOSE and self.state == _CLOSING:
                self.link.send(0, m.CONNECTION_CLOSE_OK, [])

    def _await_close_ok(self, data: bytes) -> None:
        """After an error frame boundaries may be lost, so look for the frame itself."""
        self._close_tail = (self._close_tail + data)[-65536:]
        if CLOSE_OK_FRAME in self._close_tail:
            self._close_now()

    def _abandon(self) -> None:
        self.abandoned = True
        self._close_now()

    def renew_output(self) -> None:
        super().renew_output()
        self.link.out = self.out

    def _close_now(self) -> None:
        self.state = _CLOSED
        self.closed = True

    def lost(self, now_ms: i64) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self.waiting_head = False
        self._postponed = []
        self.link.now_ms = now_ms
        for channel in list(self.channels.values()):
            if not channel.closing:
                channel.publishing.write_confirms()
                channel.close()
        self.channels = {}
        self.link.leave()

    def shut_down(self) -> None:
        if self.state >= _CLOSING:
            return
        self.force_close("broker forced connection closure with reason 'shutdown'")

    def force_close(self, reason: str) -> None:
        """Somebody here wants it to end."""
        self._violated(0, ProtocolViolation(320, NAMES[320], reason, True, 0))

    # -- the turn ------------------------------------------------------------------------

    def _flush_confirms(self) -> None:
        if len(self._confirm_ready) == 0:
            return
        for channel in self._confirm_ready:
            channel.publishing.write_confirms()
            confirms = channel.publishing.confirms
            if confirms is not None and confirms.waiting():
                self.awaiting_disk = True
        self._confirm_ready = []

    def confirm(self, durable_position: i64) -> None:
        self.awaiting_disk = False
        for channel in self.channels.values():
            confirms = channel.publishing.confirms
            if confirms is not None and confirms.waiting():
                confirms.advance(durable_position)
                channel.publishing.write_confirms()
                if confirms.waiting():
                    self.awaiting_disk = True

    def drained(self) -> None:
        for channel in self.channels.values():
            channel.wake_queues()

    def sent(self, count: i64, now_ms: i64) -> None:
        self.sent_bytes += count
        self.heartbeat.spoke()
        if self.clogged:
            self.heartbeat.heard()

    def tick(self, now_ms: i64) -> None:
        self.link.now_ms = now_ms
        if self.state == _CLOSING:
            if now_ms - self._closing_since_ms > CLOSING_TIMEOUT_MS:
                self._abandon()
        elif self.state < _RUNNING:
            if now_ms - self.connected_at_ms > self.limits.handshake_timeout_ms:
                self._close_now()
        elif self.state == _RUNNING:
            self._check_channels(now_ms)
            self._beat(self.heartbeat.tick(now_ms, self.unread))

    def _beat(self, todo: int) -> None:
        if todo == SPEAK:
            self.out.write(HEARTBEAT_FRAME)
        elif todo == DEAD:
            seconds = self.heartbeat.interval_ms // 1000
            self._report(f"missed heartbeats from client, timeout: {seconds}s")
            self._abandon()

    def _check_channels(self, now_ms: i64) -> None:
        """Close those on which a delivery was open for too long."""
        for number, channel in list(self.channels.items()):
            if not channel.closing:
                try:
                    channel.check_deadlines(now_ms)
                except BrokerError as error:
                    self.channel_failed(number, error, 0)
