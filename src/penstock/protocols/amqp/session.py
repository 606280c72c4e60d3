"""One AMQP connection without its socket: its opening, its channels, and its end.

    OPENING (``amqp/opening.py``) ─► RUNNING ─► CLOSING (``amqp/closing.py``) ─► CLOSED

What goes wrong before the connection is tuned is not answered, and slowly so; later the peer is
told why, and given time to say that it heard.

Events of the decoder come in runs; this file only finds the channel and turns errors into
the right kind of goodbye: a soft error closes the channel, a hard one the connection, and
a mistake of ours closes the connection with 541 and is reported, while all others go on.

Publishes of a channel without credit, and all of them while the broker is short of memory or disk,
are *held* in the channel's publish buffer, in order; everything else goes on.  What is held is
dropped when the connection is lost: it was never confirmed.  ``look_at_gate`` sends
connection.blocked and unblocked.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Final, final

from mypy_extensions import i64

from penstock.broker.broker import Broker
from penstock.broker.rules.access import User
from penstock.broker.rules.rights import check_enter
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.errors import AccessRefused, BrokerError, CommandInvalid, LoginRefused, Undecided
from penstock.core.pending import Pending, Ticket, after
from penstock.protocols.amqp.channel import AmqpChannel
from penstock.protocols.amqp.closing import CLOSING_TIMEOUT_MS, Closing
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.decoder import AmqpDecoder
from penstock.protocols.amqp.codec.errors import ProtocolViolation, is_hard, reply_code
from penstock.protocols.amqp.codec.events import (
    AckRun,
    ChannelFailed,
    ConnectionFailed,
    Event,
    MethodReceived,
    PublishRun,
)
from penstock.protocols.amqp.codec.methods import Method
from penstock.protocols.amqp.ending import end
from penstock.protocols.amqp.handshake import PROTOCOL_HEADER, Limits
from penstock.protocols.amqp.heartbeat import DEAD, HEARTBEAT_FRAME, SPEAK
from penstock.protocols.amqp.input import UnfinishedInput, too_much
from penstock.protocols.amqp.link import CancelSink, Link, NameSource, Suspended
from penstock.protocols.amqp.log_in import AmqpLogIn
from penstock.protocols.amqp.opening import (
    WAIT_HEADER,
    WAIT_OPEN,
    WAIT_START_OK,
    WAIT_TUNE_OK,
    AmqpOpening,
)
from penstock.protocols.amqp.publish_buffer import OVERTAKES
from penstock.runtime.session import Session
from penstock.runtime.session_events import entered, failed

OPENING: Final = 0
RUNNING: Final = 1
CLOSING: Final = 2
CLOSED: Final = 3
SILENT_CLOSE_DELAY_MS: Final = 3000


@final
class AmqpSession(Session):
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
        external: str | User | None = None,
    ) -> None:
        # ``peer`` and ``external`` as in ``AmqpLogIn``.
        super().__init__(broker.flow.book)
        most_bytes = limits.max_message_size_bytes
        self.broker = broker
        self.state: i64 = OPENING
        self.decoder = AmqpDecoder(limits.initial_frame_max, most_bytes)
        self.link = Link(self, broker, self.decoder, new_name, tell_cancelled)
        log_in = AmqpLogIn(self.link, peer, external, report)
        self.opening = AmqpOpening(self.link, limits, server_properties, log_in, now_ms)
        self.active_at_ms: WallMs = now_ms  # heartbeats are no activity
        self._report = report
        self._closing: Closing | None = None  # once we have sent connection.close
        self.channels: dict[int, AmqpChannel] = {}
        self._confirm_ready: list[AmqpChannel] = []
        self._is_lost: bool = False
        self._postponed: list[Event] = []  # behind a get whose message is not at hand
        self._held_close: Method | None = None  # waits behind what is held
        self._input = UnfinishedInput(broker.engine.ram, broker.flow, most_bytes)

    @property
    def state_name(self) -> str:
        """As RabbitMQ names them; ``blocking`` = it would be blocked, if it published."""
        if self.state == OPENING:
            return self.opening.state_name
        if self.state >= CLOSING:
            return "closing" if self.state == CLOSING else "closed"
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
        if self.state == OPENING and self.opening.state == WAIT_HEADER:
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
                self.go_on_later()
            if not self.decoder.paused or self.waiting_head:
                return
            data = b""

    def go_on(self, now_ms: WallMs) -> None:
        if not self.may_go_on() or self.link.awaits_copies():
            return
        self.link.begin(now_ms)
        self.begin_again()
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
                self.go_on_later()
            if channel.publishing.rest is not None:
                self._hold_rest(channel)
        except Undecided as undecided:
            channel.intake.hold_first(run)
            self.wait_for(undecided.ticket)
        except BrokerError as error:
            self.channel_failed(run.channel, error, m.BASIC_PUBLISH)
        except Exception as error:  # noqa: BLE001 - ours: ends this session, reported, no other
            self._our_fault(run.channel, error, m.BASIC_PUBLISH)

    def _ack(self, run: AckRun) -> None:
        channel = self.channels.get(run.channel)
        if channel is None or channel.closing:
            return
        try:
            ticket = channel.ack(run)
            if ticket is not None:
                self.wait_for(ticket)
            elif run.multiple or channel.shared.limit > 0:
                self._pause_behind_settlements()
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
        except Undecided as undecided:
            again = partial(self._method_again, number, method, suspended)
            self._hold_outcome(number, method, Pending(undecided.ticket, again))
        except ProtocolViolation as wrong:
            self._violated(number, wrong)
        except BrokerError as error:
            self.channel_failed(number, error, method.key)
        except Exception as error:  # noqa: BLE001 - ours: ends this session, reported, no other
            self._our_fault(number, error, method.key)

    def _method_again(self, number: i64, method: Method, suspended: Suspended | None) -> object:
        """A backend was asked, and has answered."""
        if suspended is not None:
            return suspended.pending.resume()
        if number == 0:
            self._connection_method(method)
        else:
            self._channel_method(number, method)
        return None

    def _hold_rest(self, channel: AmqpChannel) -> None:
        """Of a run that was published in part."""
        rest = channel.publishing.take_rest()
        if rest is not None:
            channel.intake.hold_first(rest)
        ticket = channel.publishing.take_ticket()
        if ticket is not None:
            self.wait_for(ticket)

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
                self._held_close = event.method
            return self._held_close is not None
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
        close = self._held_close
        if close is not None and self.held_bytes == 0 and self.state == RUNNING:
            self._held_close = None
            self._close_asked(close)

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
            raise ProtocolViolation(504, "second 'channel.open' seen", m.CHANNEL_OPEN)
        self.channels[number] = AmqpChannel(self.link, number)
        self.link.send(number, m.CHANNEL_OPEN_OK, [b""])

    def _channel_method(self, number: i64, method: Method) -> None:
        channel = self.channels.get(number)
        if channel is None:
            return
        if method.key == m.CHANNEL_CLOSE:
            del self.channels[number]
            said = partial(self.link.send, number, m.CHANNEL_CLOSE_OK, [])
            self._hold_outcome(0, method, after(end(self.link, [channel]), said))
        elif method.key == m.CHANNEL_CLOSE_OK:
            if not channel.closing:
                raise CommandInvalid("unimplemented method")
            forget = partial(self._forget_channel, number)
            self._hold_outcome(0, method, after(end(self.link, [channel]), forget))
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
            self._hold_outcome(number, method, channel.handle(method))
            if method.key >> 16 == 60:
                self._pause_behind_settlements()

    def _forget_channel(self, number: i64) -> None:
        self.channels.pop(number, None)

    def _pause_behind_settlements(self) -> None:
        """They may be many, and may give room to a window that many consumers share."""
        if self.link.has_routed_enough():
            self.go_on_later()

    def _hold_outcome(self, number: i64, method: Method, outcome: object) -> None:
        """While it is pending, what comes behind it on this connection waits."""
        if isinstance(outcome, Pending):
            self.wait_for(outcome.ticket)
            if self.link.share == 0 or self.link.has_routed_enough():
                self.has_more = True
            self._postponed.append(Suspended(number, method, outcome))
        elif self.link.awaits_copies():
            self.go_on_later()

    def _resume_method(self, number: i64, suspended: Suspended) -> None:
        pending = suspended.pending
        channel = self.channels.get(number)
        if number == 0:
            pending.resume()
        elif channel is not None and not channel.closing:
            self._hold_outcome(number, suspended.method, pending.resume())
            self._confirm_ready.append(channel)
        elif pending.ticket is not None:
            pending.ticket.drop()

    def channel_failed(self, number: i64, error: BrokerError, method_key: i64) -> None:
        self.broker.waits.forget_after(0)  # of what was published before it failed
        code, name = reply_code(error)
        if is_hard(code) or number == 0:
            self._violated(number, ProtocolViolation(code, str(error), int(method_key)))
            return
        channel = self.channels.get(number)
        if channel is None or channel.closing:
            return
        end(self.link, [channel])
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
        self._violated(number, ProtocolViolation(541, "internal error", int(method_key)))

    # -- the connection itself -------------------------------------------------------------

    def _protocol_header(self, data: bytes) -> bytes:
        """Returns the bytes behind the header; the session answers another header with its own."""
        rest = self.opening.header(data)
        if rest is None:
            self.out.write(PROTOCOL_HEADER)
            self._close_now()
            return b""
        return rest

    def _connection_method(self, method: Method) -> None:
        key = method.key
        step = self.opening.state
        if key == m.CONNECTION_CLOSE:
            self._close_asked(method)
        elif key == m.CONNECTION_START_OK and step == WAIT_START_OK:
            self._log_in(method)
        elif key == m.CONNECTION_TUNE_OK and step == WAIT_TUNE_OK:
            self.opening.tune_ok(method)
        elif key == m.CONNECTION_OPEN and step == WAIT_OPEN:
            self._open(method)
        elif key == m.CONNECTION_UPDATE_SECRET and self.state == RUNNING:
            self._update_secret(method)
        else:
            text = "unexpected method in connection state " + self.state_name
            raise ProtocolViolation(504, text, key)

    def _log_in(self, method: Method) -> None:
        try:
            if not self.opening.start_ok(method):
                self._hang_up_later()
        except LoginRefused as error:
            self.mute(MonoMs(self.broker.idleness.now_ms + error.delay_ms))
            self._refuse_login("ACCESS_REFUSED - " + self.opening.log_in.refusal(error))

    def _update_secret(self, method: Method) -> None:
        if self.opening.log_in.renew(method):
            self.look_at_user(self.link.now_ms, self.broker.idleness.now_ms)
        if self.state == RUNNING:
            self.link.send(0, m.CONNECTION_UPDATE_SECRET_OK, [])

    def _refuse_login(self, reply: str) -> None:
        """403 to those who understand it; silence, and after a while the end, to the others."""
        if self.opening.capabilities().get("authentication_failure_close") is True:
            self._say_close(403, reply, 0)
        else:
            self._hang_up_later()

    def _open(self, method: Method) -> None:
        self.opening.open(method)
        self.state = RUNNING
        user, vhost = self.link.who
        given_name = self.opening.client_properties.get("connection_name")
        entered(self.broker.events, self, user, vhost, "AMQP 0-9-1", given_name)
        self.look_at_gate()
        self.link.send(0, m.CONNECTION_OPEN_OK, [""])

    # -- endings -------------------------------------------------------------------------

    def _close_asked(self, method: Method) -> None:
        """Everything is given back before close-ok says so; then it is the peer's to hang up."""
        if self.state == OPENING:
            self._hang_up_later()
            return
        ticket = self._end(self.link.now_ms)
        self._hold_outcome(0, method, after(ticket, self._say_closed))

    def _say_closed(self) -> None:
        self.link.send(0, m.CONNECTION_CLOSE_OK, [])
        self.state = CLOSED
        self.close_after(MonoMs(self.broker.idleness.now_ms + CLOSING_TIMEOUT_MS))

    def _hang_up_later(self) -> None:
        self.state = CLOSED
        self.close_after(MonoMs(self.broker.idleness.now_ms + SILENT_CLOSE_DELAY_MS))

    def _close_now(self) -> None:
        self.state = CLOSED
        self.closed = True

    def _abandon(self) -> None:
        self.state = CLOSED
        self.abandon()

    def _say_close(self, code: int, reply: str, method_key: i64) -> None:
        self.link.send(0, m.CONNECTION_CLOSE, [code, reply, method_key >> 16, method_key & 0xFFFF])
        self.state = CLOSING
        self._closing = Closing(self.broker.idleness.now_ms)

    def _await_close_ok(self, data: bytes) -> None:
        closing = self._closing
        if closing is not None and closing.is_answered(data):
            self._close_now()

    def _violated(self, number: i64, wrong: ProtocolViolation) -> None:
        """Say why, give everything back, and wait for the peer's close-ok."""
        if self.state >= CLOSING:
            return
        text = wrong.name
        if wrong.text != "":
            text += " - " + wrong.text
        if self.state == OPENING and self.opening.state < WAIT_OPEN:
            if wrong.code not in (0, 320):
                self.opening.log_in.failed(text)
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
        self._end(now_ms)

    def _end(self, now_ms: WallMs) -> Ticket | None:
        """Give back everything; None: it is done."""
        if self._is_lost:
            return None
        self._is_lost = True
        self.waiting_head = False
        self.drop_ticket()
        self._postponed = []
        self.link.set_now(now_ms)
        self._input.forget()
        channels = list(self.channels.values())
        self.channels = {}
        return end(self.link, channels, leave=True)

    def shut_down(self) -> None:
        if self.state >= CLOSING:
            return
        self.force_close("broker forced connection closure with reason 'shutdown'")

    def force_close(self, reason: str) -> None:
        self._violated(0, ProtocolViolation(320, reason))

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
            self.opening.heartbeat.heard()

    def tick(self, now_ms: WallMs) -> None:
        self.link.set_now(now_ms)
        mono_ms = self.broker.idleness.now_ms
        opening, closing = self.opening, self._closing
        if self.state == CLOSING:
            if closing is not None and closing.is_overdue(mono_ms):
                self._abandon()
        elif self.state == OPENING:
            if opening.is_overdue(mono_ms):
                opening.log_in.failed("handshake timeout in state " + opening.state_name)
                self._close_now()
        elif self.state == RUNNING:
            self.look_at_user(now_ms, mono_ms)
            self._check_channels()
            received, sent = self.received_count, self.sent_count
            self._beat(opening.heartbeat.tick(mono_ms, received, sent, self.unread))

    def _beat(self, todo: int) -> None:
        if todo == SPEAK:
            self.out.write(HEARTBEAT_FRAME)
        elif todo == DEAD:
            seconds = self.opening.heartbeat.interval_ms // 1000
            self._report(f"missed heartbeats from client, timeout: {seconds}s")
            self._abandon()

    def user_deleted(self) -> None:
        self.force_close(f"user '{self.link.who[0]}' is deleted")

    def user_expired(self) -> None:
        self.force_close("credential expired")

    def rights_changed(self) -> None:
        self.decoder.forget_addresses()
        if self.state == RUNNING:
            self.link.name_publisher()
        user = self.user
        if user is not None and user.judge is not None:  # with RabbitMQ, a change of tables is none
            try:
                check_enter(user, self.link.vhost.name)
            except AccessRefused as error:
                self._violated(0, ProtocolViolation(530, str(error)))
                return
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
