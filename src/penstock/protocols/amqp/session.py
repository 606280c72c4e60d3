"""One AMQP connection without its socket, once it is open: its channels, and what they say.

Events of the decoder come in runs; this file only finds the channel and turns errors into
the right kind of goodbye: a soft error closes the channel, a hard one the connection, and
a mistake of ours closes the connection with 541 and is reported, while all others go on.

Publishes of a channel without credit, and all of them while the broker is short of memory or disk,
are *held* in the channel's publish buffer, in order; everything else goes on.  What is held is
dropped when the connection is lost: it was never confirmed.  ``look_at_gate`` sends
connection.blocked and unblocked.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import final

from mypy_extensions import i64

from penstock.broker.broker import Broker
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.errors import BrokerError, CommandInvalid
from penstock.core.pending import Pending
from penstock.protocols.amqp.channel import AmqpChannel
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.errors import NAMES, ProtocolViolation, is_hard, reply_code
from penstock.protocols.amqp.codec.events import (
    AckRun,
    ChannelFailed,
    ConnectionFailed,
    Event,
    MethodReceived,
    PublishRun,
)
from penstock.protocols.amqp.codec.methods import Method
from penstock.protocols.amqp.handshake import Limits
from penstock.protocols.amqp.heartbeat import HEARTBEAT_FRAME
from penstock.protocols.amqp.input import UnfinishedInput, too_much
from penstock.protocols.amqp.link import CancelSink, NameSource, Suspended
from penstock.protocols.amqp.opening import (
    CLOSING,
    CLOSING_TIMEOUT_MS,
    RUNNING,
    WAIT_HEADER,
    WAIT_OPEN,
    WAIT_START_OK,
    WAIT_TUNE_OK,
    AmqpOpening,
)
from penstock.protocols.amqp.publish_buffer import OVERTAKES
from penstock.runtime.session_events import failed, left


@final
class AmqpSession(AmqpOpening):
    """See the head of this file."""

    def __init__(
        self,
        broker: Broker,
        limits: Limits,
        server_properties: dict[str, object],
        new_name: NameSource,
        tell_cancelled: CancelSink,
        report: Callable[[str], None],
        peer: tuple[str, bool],
        now_ms: WallMs,
        external: str | None = None,
    ) -> None:
        super().__init__(
            broker,
            limits,
            server_properties,
            new_name,
            tell_cancelled,
            report,
            peer,
            now_ms,
            external,
        )
        self.channels: dict[int, AmqpChannel] = {}
        self._confirm_ready: list[AmqpChannel] = []
        self._is_lost: bool = False
        self._postponed: list[Event] = []  # behind a get whose message is not at hand
        self._close_waits: bool = False  # behind what is held
        most_bytes = limits.max_message_size_bytes
        self._input = UnfinishedInput(broker.engine.ram, broker.flow, most_bytes)

    @property
    def state_name(self) -> str:
        """As RabbitMQ names them; ``blocking`` = it would be blocked, if it published."""
        if self.state != RUNNING:
            return self.opening_state
        if self.gate != "":
            return "blocked" if self.has_published else "blocking"
        return self.reader.state(self.broker.events.now_ms - self.active_at_ms)

    # -- bytes in ------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: WallMs) -> None:
        self.link.begin(now_ms)
        self.has_more = False
        self.received_bytes += len(data)
        self.received_count += 1
        self.link.traffic.receive(len(data))
        if len(data) > len(HEARTBEAT_FRAME):
            self.active_at_ms = now_ms
        if self.state == WAIT_HEADER:
            data = self._protocol_header(data)
        if self.state >= CLOSING and self.decoder.failed:
            self._await_close_ok(data)
            return
        self._decode(data)
        unfinished_bytes = self.decoder.unfinished.size_bytes
        if unfinished_bytes != self._input.size_bytes and not self._input.count(unfinished_bytes):
            self.decoder.stop()
            self._violated(0, too_much())
        if self.state == CLOSING and self.decoder.failed:
            self._await_close_ok(data)  # it may have come behind what broke the decoder
        self._flush_confirms()

    def _decode(self, data: bytes) -> None:
        """What came in, and what the decoder has; what must wait for an answer ends it."""
        flow = self.broker.flow
        while True:
            since = perf_counter_ns() if flow.measuring else 0
            events = self.decoder.receive(data, self.link.now_ms)
            if flow.measuring:
                flow.count_decoding(perf_counter_ns() - since)
            self._events(events)
            if self.decoder.full:
                self.has_more = self.waiting_head = True
            if not self.decoder.paused or self.waiting_head:
                return
            data = b""

    def go_on(self, now_ms: WallMs) -> None:
        if not self.may_go_on() or self.link.awaits_copies():
            return
        self.link.begin(now_ms)
        self.has_more = False
        self.waiting_head = False
        postponed = self._postponed
        self._postponed = []
        self._events(postponed)
        self._go_on_publishing()
        if self.decoder.paused and not self.waiting_head:
            self._decode(b"")
        self._flush_confirms()

    def _events(self, events: list[Event]) -> None:
        for event in events:
            if self.waiting_head:
                self._postponed.append(event)
            elif self.state >= CLOSING:
                self._await_method_close_ok(event)
            elif isinstance(event, PublishRun):
                self._publish(event)
            elif isinstance(event, AckRun):
                self._ack(event)
            elif isinstance(event, Suspended):
                self._method(event.channel, event.method, event)
            elif self.held_bytes > 0 and self._is_held_back(event):
                pass
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
        intake = channel.intake
        is_behind = self.held_bytes > 0 and intake.has_held()
        if self.gate != "" or intake.credit.balance <= 0 or is_behind:
            self._hold(channel, run)
        else:
            self._publish_now(channel, run)

    def _publish_now(self, channel: AmqpChannel, run: PublishRun) -> None:
        self.has_published = True
        try:
            if channel.publish(run):
                self._confirm_ready.append(channel)
            if self.link.has_routed_enough():
                self.has_more = self.waiting_head = True
                rest = channel.publishing.take_rest()
                if rest is not None:
                    channel.intake.hold_first(rest)
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

    def _method(self, number: i64, method: Method, suspended: Suspended | None = None) -> None:
        """``suspended``: it was begun and goes on."""
        try:
            if suspended is not None:
                self._resume_method(number, suspended)
            elif number == 0:
                self._connection_method(method)
            elif method.key == m.CHANNEL_OPEN:
                self._open_channel(number)
            else:
                self._channel_method(number, method)
        except ProtocolViolation as wrong:
            self._violated(number, wrong)
        except BrokerError as error:
            self.channel_failed(number, error, method.key)
        except Exception as error:  # noqa: BLE001 - ours: ends this session, reported, no other
            self._our_fault(number, error, method.key)

    # -- holding publishes ---------------------------------------------------------------

    def _hold(self, channel: AmqpChannel, run: PublishRun) -> None:
        channel.intake.hold(run)
        if self.gate != "":
            self.has_published = True
            self.link.tell_blocked(self.gate)

    def _is_held_back(self, event: Event) -> bool:
        """Must it wait for publishes that are held?  Then it is held as well."""
        if event.channel == 0:
            if isinstance(event, MethodReceived) and event.method.key == m.CONNECTION_CLOSE:
                self._close_waits = True
            return self._close_waits
        channel = self.channels.get(event.channel)
        if channel is None or not channel.intake.has_held():
            return False
        if isinstance(event, ConnectionFailed):
            return False
        if isinstance(event, MethodReceived) and event.method.key in OVERTAKES:
            return False
        channel.intake.hold(event)
        return True

    def look_at_gate(self) -> None:
        if self.state != RUNNING:
            return
        reason = self.broker.admission.reason(self.link.vhost.name)
        if self.gate == reason:
            return
        self.gate = reason
        if reason == "" or self.has_published:
            self.link.tell_blocked(reason)
        if reason == "" and self.held_bytes > 0:
            self.broker.flow.book.freed.append(self.reader)

    def resume(self, now_ms: WallMs) -> None:
        if self.held_bytes == 0 or self.waiting_head or self.state != RUNNING:
            return
        self.link.begin(now_ms)
        self.has_more = False
        self._go_on_publishing()
        self._flush_confirms()

    def _go_on_publishing(self) -> None:
        """With what was held, as far as it goes."""
        if self.held_bytes == 0:
            return
        for channel in list(self.channels.values()):
            while self._publish_held(channel):
                pass
        if self._close_waits and self.held_bytes == 0 and self.state == RUNNING:
            self._close_asked()

    def _publish_held(self, channel: AmqpChannel) -> bool:
        """The oldest thing the channel holds; False = there is none, or it must go on waiting."""
        intake = channel.intake
        event = intake.first()
        if event is None or self.waiting_head or self.state != RUNNING:
            return False
        if isinstance(event, PublishRun):
            if self.gate != "" or intake.credit.balance <= 0:
                return False
            intake.drop_first()
            self._publish_now(channel, event)
            return True
        intake.drop_first()
        if isinstance(event, MethodReceived):
            self._method(event.channel, event.method)
        elif isinstance(event, ChannelFailed):
            self.channel_failed(event.channel, event.error, event.method_key)
        return True

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
                channel.publishing.write_confirms()
                channel.close()
            self.link.send(number, m.CHANNEL_CLOSE_OK, [])
        elif method.key == m.CHANNEL_CLOSE_OK:
            if not channel.closing:
                raise CommandInvalid("unimplemented method")
            del self.channels[number]
        elif channel.closing:
            return
        elif method.key >> 16 == 50 or method.key >> 16 == 40:
            self._hold_outcome(number, method, channel.topology.handle(method))
        elif method.key == m.BASIC_GET or method.key == m.BASIC_CONSUME:
            self._hold_outcome(number, method, channel.ask_queue(method))
        elif method.key == m.TX_COMMIT:
            self._hold_outcome(number, method, channel.commit())
            self._confirm_ready.append(channel)
        else:
            channel.handle(method)

    def _hold_outcome(self, number: i64, method: Method, outcome: object) -> None:
        """While it is pending, what comes behind it on this connection waits."""
        if isinstance(outcome, Pending):
            self.waiting_head = True
            if self.link.share == 0 or self.link.has_routed_enough():
                self.has_more = True
            self.ticket = outcome.ticket
            self._postponed.append(Suspended(number, method, outcome))
        elif self.link.awaits_copies():
            self.has_more = self.waiting_head = True

    def _resume_method(self, number: i64, suspended: Suspended) -> None:
        pending = suspended.pending
        channel = self.channels.get(number)
        if channel is not None and not channel.closing:
            self._hold_outcome(number, suspended.method, pending.resume())
            self._confirm_ready.append(channel)
        elif pending.ticket is not None:
            pending.ticket.drop()

    def channel_failed(self, number: i64, error: BrokerError, method_key: i64) -> None:
        self.broker.waits.forget_after(0)  # of what was published before it failed
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
        reason = name + " - " + str(error)
        self._note_failure("channel_failed", number, int(method_key), int(code), reason)
        self.link.send(
            number, m.CHANNEL_CLOSE, [code, reason, method_key >> 16, method_key & 0xFFFF]
        )

    def _note_failure(
        self, kind: str, number: i64, method_key: int, code: int, reason: str
    ) -> None:
        who = self.link.who
        operation = m.METHODS[method_key][0] if method_key in m.METHODS else None
        failed(self.broker.events, kind, self, int(number), who, operation, code, reason)

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
        elif key == m.CONNECTION_START_OK and self.state == WAIT_START_OK:
            self._start_ok(method)
        elif key == m.CONNECTION_TUNE_OK and self.state == WAIT_TUNE_OK:
            self._tune_ok(method)
        elif key == m.CONNECTION_OPEN and self.state == WAIT_OPEN:
            self._open(method)
        elif key == m.CONNECTION_UPDATE_SECRET and self.state == RUNNING:
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
        if self.state < RUNNING:
            self._hang_up_later()
            return
        self.lost(self.link.now_ms)
        self.link.send(0, m.CONNECTION_CLOSE_OK, [])
        self._close_now()
        self.close_after_ms = MonoMs(self.broker.idleness.now_ms + CLOSING_TIMEOUT_MS)

    # -- endings -------------------------------------------------------------------------

    def _violated(self, number: i64, wrong: ProtocolViolation) -> None:
        """Say why, give everything back, and wait for the peer's close-ok."""
        if self.state >= CLOSING:
            return
        text = wrong.name
        if wrong.text != "":
            text += " - " + wrong.text
        if self.state < WAIT_OPEN:
            if wrong.code not in (0, 320):
                self._opening_failed(text)
            self._hang_up_later()
            return
        if wrong.code != 0:
            self._note_failure("connection_failed", number, wrong.method_key, wrong.code, text)
        self.lost(self.link.now_ms)
        if wrong.code == 0:
            self._close_now()
            return
        self._say_close(wrong.code, text, wrong.method_key)

    def _await_method_close_ok(self, event: Event) -> None:
        if isinstance(event, MethodReceived) and event.channel == 0:
            if event.method.key == m.CONNECTION_CLOSE_OK:
                self._close_now()
            elif event.method.key == m.CONNECTION_CLOSE and self.state == CLOSING:
                self.link.send(0, m.CONNECTION_CLOSE_OK, [])

    def lost(self, now_ms: WallMs) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self.waiting_head = False
        self.drop_ticket()
        self._postponed = []
        self.link.set_now(now_ms)
        self._input.forget()
        for channel in list(self.channels.values()):
            if not channel.closing:
                channel.publishing.write_confirms()
                channel.close()
        self.channels = {}
        left(self.broker.events, self)
        self.link.leave()

    def shut_down(self) -> None:
        if self.state >= CLOSING:
            return
        self.force_close("broker forced connection closure with reason 'shutdown'")

    def force_close(self, reason: str) -> None:
        self._violated(0, ProtocolViolation(320, NAMES[320], reason, True, 0))

    # -- the turn ------------------------------------------------------------------------

    def _flush_confirms(self) -> None:
        for channel in self._confirm_ready:
            if not channel.closing:
                channel.publishing.write_confirms()
                self.awaiting_disk = self.awaiting_disk or channel.awaits_disk()
        self._confirm_ready.clear()

    def confirm(self, durable_position: i64) -> None:
        self.awaiting_disk = False
        for channel in self.channels.values():
            if channel.awaits_disk():
                try:
                    channel.advance(durable_position)
                except BrokerError as error:
                    self.channel_failed(channel.number, error, m.TX_COMMIT)
                self.awaiting_disk = self.awaiting_disk or channel.awaits_disk()

    def drained(self) -> None:
        numbers = list(self.channels)  # in turn: the first one is the last next time
        for number in numbers:
            self.channels[number].wake_queues()
        for number in numbers[:1]:
            self.channels[number] = self.channels.pop(number)

    def sent(self, count: i64, now_ms: WallMs) -> None:
        self.sent_bytes += count
        self.sent_count += 1
        self.link.traffic.send(count)
        if self.clogged:
            self.heartbeat.heard()

    def tick(self, now_ms: WallMs) -> None:
        self.link.set_now(now_ms)
        mono_ms = self.broker.idleness.now_ms
        if self.state == CLOSING:
            if mono_ms - self._closing_since_ms > CLOSING_TIMEOUT_MS:
                self._abandon()
        elif self.state < RUNNING:
            if mono_ms - self._began_ms > self.limits.handshake_timeout_ms:
                self._opening_failed("handshake timeout in state " + self.opening_state)
                self._close_now()
        elif self.state == RUNNING:
            self.look_at_user()
            self._check_channels()
            heartbeat = self.heartbeat
            received, sent = self.received_count, self.sent_count
            self._beat(heartbeat.tick(mono_ms, received, sent, self.unread))

    def user_deleted(self) -> None:
        self.force_close(f"user '{self.link.who[0]}' is deleted")

    def rights_changed(self) -> None:
        for channel in self.channels.values():
            channel.rights_changed()

    def _check_channels(self) -> None:
        """Close those on which a delivery was open for too long."""
        for number, channel in list(self.channels.items()):
            if not channel.closing:
                try:
                    channel.check_deadlines()
                except BrokerError as error:
                    self.channel_failed(number, error, 0)
