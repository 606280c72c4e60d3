"""The session of one NSQ connection: commands in, answers and messages out.

    bytes ─► reader ─► commands ─► publishing or consuming
                                ├► IDENTIFY: limits and texts (codec), the layers of its socket
                                └► AUTH: the log-in

``state`` is nsqd's number: 0 until SUB, 3 subscribed, 4 after CLS.  A fault is answered in its
turn and then the connection ends; only a FIN, REQ or TOUCH that came too late does not end it.

Commands that have to wait (for a callback's answer, for one of another node, ``core/pending.py``,
for the next turn's share of new topics) set ``waiting_head``; what came behind them waits too.
A turn does ``WORK_MAX`` commands and messages of one session: what else it sent waits for the next.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, final

from mypy_extensions import i64

from penstock.broker.topology.topics import is_name, queue_name
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import WallMs
from penstock.core.counting.traffic import Traffic
from penstock.core.errors import BrokerError, Undecided
from penstock.core.pending import Pending
from penstock.core.steps import STEPS_MAX, steps
from penstock.protocols.nsq.codec.commands import (
    BadCommand,
    Command,
    Continuation,
    FinishRun,
    NsqFault,
    PublishRun,
    Request,
    decimal,
    quoted,
    text_of,
)
from penstock.protocols.nsq.codec.frames import (
    BAD_PROTOCOL,
    CLOSE_WAIT,
    HEARTBEAT,
    OK,
    error_frame,
    response_frame,
)
from penstock.protocols.nsq.codec.identify import Identity
from penstock.protocols.nsq.codec.reader import MAGIC, NsqReader
from penstock.protocols.nsq.codec.unfinished import fault_in
from penstock.protocols.nsq.consuming import NsqConsuming
from penstock.protocols.nsq.heartbeat import DEAD, SPEAK, NsqHeartbeat
from penstock.protocols.nsq.layer_stack import DEFLATE, SNAPPY, TLS, LayerStack
from penstock.protocols.nsq.log_in import NsqLogIn, unauthorized
from penstock.protocols.nsq.publishing import NsqPublishing
from penstock.protocols.nsq.shared import NsqShared
from penstock.runtime.session import Session
from penstock.runtime.session_events import left

INIT: Final = 0
SUBSCRIBED: Final = 3
CLOSING: Final = 4
COMMAND_STEPS: Final[i64] = 100
IDENTIFY_STEPS: Final[i64] = 600
"""More than of another command: two texts of JSON."""
TOPIC_STEPS: Final[i64] = STEPS_MAX // 50 - COMMAND_STEPS
"""Of each new topic; a connection has ``STEPS_MAX`` in a turn."""
EARLY_MAX_BYTES: Final[i64] = 64 * 1024
"""Kept of what comes before a layer is up."""
DRAWS_MAX: Final[i64] = 16
"""Times a turn that a layer is asked for more."""


@final
class NsqSession(Session):
    def __init__(
        self, shared: NsqShared, peer: tuple[str, int], peer_is_loopback: bool, now_ms: WallMs
    ) -> None:
        super().__init__(shared.broker.flow.book)
        self.shared = shared
        self.state: i64 = INIT
        self.identity = Identity(shared.identify_limits, peer[0])
        self.traffic = Traffic(None)
        self.publishing = NsqPublishing(self, shared, self.traffic)
        self.consuming = NsqConsuming(self, shared, self.identity, self.traffic)
        self.layers = LayerStack(self, self.identity, peer)
        self.log_in = NsqLogIn(self, shared, self.traffic, self.layers, peer_is_loopback)
        self.connected_at_ms: WallMs = now_ms
        self._heartbeat = NsqHeartbeat(shared.broker.idleness.now_ms)
        self._line = NsqReader(
            shared.reader_limits, shared.ids, is_name, shared.identify_limits.auth_required
        )
        self._now_ms: WallMs = now_ms
        self._ended: bool = False  # the last word is in the queue of answers, or was said
        self._has_hung_up: bool = False
        self._postponed: list[Command] = []
        self._steps: i64 = 0  # that were counted when the turn began
        self.log_in.enter()
        self.look_at_gate()
        shared.sessions[self] = None

    # -- bytes in --------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: WallMs) -> None:
        self.received_bytes += len(data)
        self.received_count += 1
        self.traffic.receive(len(data))
        if self.received_count == 1:
            if data[: len(MAGIC)] != MAGIC:
                self.log_in.failed("bad protocol magic " + repr(data[: len(MAGIC)]))
                self.out.write(BAD_PROTOCOL)
                self.close()
                return
            data = data[len(MAGIC) :]
        if self._ended or self.closed:
            return
        self._begin(now_ms)
        if self.layers.due or self.waiting_head:
            self._keep(data)
            return
        self._commands(self._line.receive(data, now_ms))
        self._read_on()

    def _keep(self, data: bytes) -> None:
        """For later.  A client that waits for its layer sends little: a hello of TLS at most."""
        if self._line.keep(data) > EARLY_MAX_BYTES and self.layers.due:
            self._line.take_rest()
            self.layers.give_up()
            text = f"more than {int(EARLY_MAX_BYTES)} bytes before a layer was up"
            self._fault(BadCommand("E_INVALID", text))
            self._said()

    def hung_up(self, now_ms: WallMs) -> bool:
        """Who only stopped speaking still hears what became of its publishes, as with nsqd."""
        if self._has_hung_up or self.closed:
            return False
        if self.has_more and not self._ended:
            return True  # what it sent before is done first; the loop asks again after that
        self._has_hung_up = True
        if self._ended:
            return True
        self._now_ms = now_ms
        fault = None
        if self._may_go_on():
            fault = fault_in(self._line.take_rest())
        if fault is None and self.publishing.all_said():
            return False
        self._end()
        frame = b"" if fault is None else error_frame(fault.code, fault.text)
        self.publishing.finish(frame)
        self._said()
        return True

    def _begin(self, now_ms: WallMs) -> None:
        self._now_ms = now_ms
        self._steps = steps.taken
        self.has_more = False

    def _read_on(self) -> None:
        """What came behind IDENTIFY and AUTH and what a layer still has, as far as a turn goes."""
        line = self._line
        draws: i64 = 0
        while self._may_go_on():
            if line.full or draws > DRAWS_MAX:
                self.has_more = True
                self.waiting_head = True
            elif line.paused:
                self._commands(line.receive(b"", self._now_ms))
            else:
                draws += 1
                data = self.layers.draw()
                if len(data) == 0:
                    break
                self._commands(line.receive(data, self._now_ms))
        self._said()

    def _may_go_on(self) -> bool:
        return not (self.layers.due or self.waiting_head or self._ended or self.closed)

    def go_on(self, now_ms: WallMs) -> None:
        self._begin(now_ms)
        if self.closed:
            self.waiting_head = False
            return
        if self.log_in.is_asking():
            if not self.log_in.has_answer():
                return
            self._answered()
        if not self.may_go_on():
            return
        self.waiting_head = False
        postponed = self._postponed
        self._postponed = []
        self._commands(postponed)
        if self._line.full and self._may_go_on():
            self._commands(self._line.receive(b"", self._now_ms))
        self._read_on()

    def _answered(self) -> None:
        """An authority was asked about the client."""
        self.waiting_head = False
        try:
            welcome = self.log_in.take_answer()
        except BadCommand as wrong:
            self._fault(wrong)
            return
        if welcome is not None:
            self._welcome(welcome)

    def _commands(self, commands: list[Command]) -> None:
        for command in commands:
            if self._ended:
                return
            if self.waiting_head:
                self._postponed.append(command)
            else:
                steps.count(COMMAND_STEPS)
                self._command(command)
                if self._has_done_enough():
                    self.go_on_later()

    def _has_done_enough(self) -> bool:
        """Of one turn."""
        return steps.taken - self._steps >= STEPS_MAX

    def _command(self, command: Command) -> None:
        try:
            if isinstance(command, PublishRun):
                self._publish(command)
            elif isinstance(command, FinishRun):
                self._finish(command.keys)
            elif isinstance(command, Request):
                self._request(command)
            elif isinstance(command, Continuation):
                command.resume()
            elif isinstance(command, NsqFault):
                raise BadCommand(command.code, command.text)
        except Undecided as undecided:
            self.wait_for(undecided.ticket)
            self._postponed.append(command)
        except BadCommand as wrong:
            self._fault(wrong)

    def _request(self, request: Request) -> None:
        verb = request.verb
        if verb == b"IDENTIFY":
            self._identify(request.body)
            return
        self._check_tls(verb)
        if verb == b"RDY":
            self._ready(request.params)
        elif verb == b"FIN":
            self._check_subscribed("FIN")
            if len(request.params) < 2:
                raise BadCommand("E_INVALID", "FIN insufficient number of params")
            if len(request.params[1]) != 16:
                raise BadCommand("E_INVALID", "invalid message ID")
            self._finish([request.params[1]])
        elif verb == b"REQ":
            self._check_subscribed("REQ")
            self._tell(self.consuming.requeue(request.params, self._now_ms))
        elif verb == b"TOUCH":
            self._check_subscribed("TOUCH")
            self._tell(self.consuming.touch(request.params, self._now_ms))
        elif verb == b"SUB":
            self._subscribe(request)
        elif verb == b"AUTH":
            self._auth(request)
        elif verb == b"CLS":
            if self.state != SUBSCRIBED:
                raise BadCommand("E_INVALID", "cannot CLS in current state")
            self.state = CLOSING
            self.consuming.set_ready(0)
            self.publishing.answer(0, CLOSE_WAIT)
        elif verb != b"NOP":
            raise BadCommand("E_INVALID", "invalid command " + text_of(verb))

    def _check_tls(self, verb: bytes) -> None:
        if self.shared.tls_required and TLS not in self.layers.up:
            raise BadCommand("E_INVALID", f"cannot {text_of(verb)} in current state (TLS required)")

    def _check_subscribed(self, verb: str) -> None:
        if self.state != SUBSCRIBED and self.state != CLOSING:
            raise BadCommand("E_INVALID", f"cannot {verb} in current state")

    def _wait_with(self, command: Command) -> None:
        self.waiting_head = True
        self._postponed.append(command)

    # -- the opening -----------------------------------------------------------------------

    def _identify(self, body: bytes) -> None:
        if self.state != INIT:
            raise BadCommand("E_INVALID", "cannot IDENTIFY in current state")
        steps.count(IDENTIFY_STEPS)
        identity = self.identity
        identity.take(body)
        self._heartbeat.begin()
        if not identity.negotiates:
            self.publishing.answer(0, OK)
            return
        wanted = self.layers.wanted()
        self.publishing.answer(0, response_frame(identity.response()))
        self.layers.agree(wanted)

    def next_carrier(self, sock: object, touch: Callable[[], None]) -> object:
        return self.layers.put_next(self.shared.layers, sock, self._line.take_rest(), touch)

    def _auth(self, request: Request) -> None:
        if self.state != INIT:
            raise BadCommand("E_INVALID", "cannot AUTH in current state")
        welcome = self.log_in.auth(request.params, request.body)
        if welcome is None:
            self.waiting_head = True
            return
        self.look_at_gate()
        self._welcome(welcome)

    def _welcome(self, text: bytes) -> None:
        self._line.logged_in()
        self.publishing.answer(0, response_frame(text))

    # -- publishing ------------------------------------------------------------------------

    def look_at_gate(self) -> None:
        vhost = self.log_in.vhost
        if vhost is None:
            return
        self.gate = self.shared.broker.admission.reason(vhost.name)
        if self.gate == "" and self.publishing.has_held():
            self.shared.broker.flow.book.freed.append(self.reader)

    def _publish(self, run: PublishRun) -> None:
        vhost = self.log_in.allowed(run.topic)
        if vhost is None:
            vhost = self._judge(run)
            if vhost is None:
                return
        self.has_published = True
        publishing = self.publishing
        if self.gate != "" or publishing.credit.balance <= 0 or publishing.has_held():
            publishing.hold(run)
        else:
            publishing.publish(vhost, run, self._now_ms)

    def _judge(self, run: PublishRun) -> Vhost | None:
        """Where it may be published; None: not yet, it waits.  Raises BadCommand."""
        self._check_tls(run.verb.encode())
        vhost = self.log_in.check_publish(run.verb, run.topic)
        if vhost is None:
            self._wait_with(run)
            return None
        if run.topic not in vhost.topics.topics:
            if self._take_share(run):
                # It is there before something is published to it, or held for it.
                make = partial(vhost.topics.topic, run.topic)
                self._await(run.verb, self._agreed(make), partial(self._publish, run))
            return None
        self.log_in.allow(vhost, run.topic)
        return vhost

    def _take_share(self, command: Command) -> bool:
        """For a new topic or channel; False: in the next turn."""
        if not self._has_done_enough():
            steps.count(TOPIC_STEPS)
            return True
        self.has_more = True
        self._wait_with(command)
        return False

    def resume(self, now_ms: WallMs) -> None:
        vhost = self.log_in.vhost
        if vhost is not None and not self.closed:
            self._now_ms = now_ms
            self.publishing.publish_held(vhost, now_ms)
            self._said()

    # -- consuming ---------------------------------------------------------------------------

    def _subscribe(self, request: Request) -> None:
        params = request.params
        if self.state != INIT:
            raise BadCommand("E_INVALID", "cannot SUB in current state")
        if self.identity.heartbeat_ms == 0:
            raise BadCommand("E_INVALID", "cannot SUB with heartbeats disabled")
        if len(params) < 3:
            raise BadCommand("E_INVALID", "SUB insufficient number of parameters")
        topic = text_of(params[1])
        name = text_of(params[2])
        if not is_name(topic):
            raise BadCommand("E_BAD_TOPIC", f"SUB topic name {quoted(params[1])} is not valid")
        if not is_name(name):
            raise BadCommand("E_BAD_CHANNEL", f"SUB channel name {quoted(params[2])} is not valid")
        vhost = self.log_in.check_subscribe(topic, name)
        if vhost is None:
            self._wait_with(request)
            return
        join = partial(self.consuming.subscribe, vhost, topic, name)
        self._await("SUB", self._agreed(join), self._subscribed)

    def _subscribed(self) -> None:
        self.state = SUBSCRIBED
        self._line.begin()
        self.publishing.answer(0, OK)

    def _agreed(self, function: Callable[[], object]) -> Callable[[], object]:
        """A step for ``_await``: in a cluster all have to agree on what the function makes."""
        return partial(self.shared.broker.changes.ask(self.client.actor).run, function)

    def _await(self, verb: str, step: Callable[[], object], following: Callable[[], None]) -> None:
        """Go on with what follows when the step, and those it leads to, are done."""
        try:
            outcome = step()
        except BrokerError as error:
            raise BadCommand(f"E_{verb}_FAILED", f"{verb} failed {error}") from None
        if isinstance(outcome, Pending):
            self.wait_for(outcome.ticket)
            go_on = partial(self._await, verb, outcome.resume, following)
            self._postponed.append(Continuation(go_on))
            return
        following()

    def _ready(self, params: list[bytes]) -> None:
        if self.state == CLOSING:
            return
        if self.state != SUBSCRIBED:
            raise BadCommand("E_INVALID", "cannot RDY in current state")
        count = 1
        if len(params) > 1:
            count = decimal(params[1])
            if count < 0:
                raise BadCommand("E_INVALID", "RDY could not parse count " + text_of(params[1]))
            if count >= 1 << 63:
                count -= 1 << 64
        largest = int(self.shared.identify_limits.max_ready_count)
        if not 0 <= count <= largest:
            raise BadCommand("E_INVALID", f"RDY count {count} out of range 0-{largest}")
        self.consuming.set_ready(count)

    def _finish(self, keys: list[bytes]) -> None:
        self._check_tls(b"FIN")
        self._check_subscribed("FIN")
        for failure in self.consuming.finish(keys):
            self._tell(failure)

    def _tell(self, failure: tuple[str, str] | None) -> None:
        """Something failed that does not end the connection."""
        if failure is not None:
            self.publishing.answer(0, error_frame(failure[0], failure[1]))

    def drained(self) -> None:
        self.consuming.wake()

    def user_expired(self) -> None:
        self._fault(BadCommand("E_UNAUTHORIZED", "AUTH has expired"))
        self._said()

    def rights_changed(self) -> None:
        self.log_in.forget_allowed()
        channel = self.consuming.channel
        if channel is None or self._ended:
            return
        topic = channel.topic.name
        if not self.log_in.may_read(queue_name(topic, channel.name)):
            self._fault(unauthorized("SUB", topic, channel.name))
            self._said()

    # -- for operators who watch ---------------------------------------------------------------

    def client_row(self) -> dict[str, object]:
        """As nsqd shows a client, in its order."""
        identity = self.identity
        consuming = self.consuming
        identified = self.log_in.identified
        layers = self.layers
        counts = self.publishing.counts
        host, port = layers.peer
        row: dict[str, object] = {
            "client_id": identity.client_id,
            "hostname": identity.hostname,
            "version": "V2",
            "remote_address": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            "state": int(self.state),
            "ready_count": int(consuming.ready_count),
            "in_flight_count": int(consuming.in_flight_count),
            "message_count": int(consuming.message_count),
            "finish_count": int(consuming.finish_count),
            "requeue_count": int(consuming.requeue_count),
            "connect_ts": int(self.connected_at_ms // 1000),
            "sample_rate": int(identity.sample_rate),
            "deflate": DEFLATE in layers.up,
            "snappy": SNAPPY in layers.up,
            "user_agent": identity.user_agent,
        }
        if identified is not None:
            row["authed"] = True
            row["auth_identity"] = identified.identity
            row["auth_identity_url"] = identified.url
        if counts:
            row["pub_counts"] = [{"topic": topic, "count": counts[topic]} for topic in counts]
        row["tls"] = TLS in layers.up
        row["tls_cipher_suite"] = layers.tls_cipher
        row["tls_version"] = layers.tls_version
        row["tls_negotiated_protocol"] = ""
        row["tls_negotiated_protocol_is_mutual"] = False
        return row

    # -- endings -------------------------------------------------------------------------------

    def _end(self) -> None:
        """Nothing it says counts any more, and it takes no more messages."""
        self._ended = True
        self.consuming.stop()

    def _fault(self, wrong: BadCommand) -> None:
        self._end()
        self._postponed = []
        if wrong.code == "":
            self.close()
        else:
            self.publishing.finish(error_frame(wrong.code, wrong.text))

    def _said(self) -> None:
        """Let go of answers whose time has come, and see what comes then."""
        publishing = self.publishing
        if publishing.flush():
            self._end()
            self.close()
        self.awaiting_disk = publishing.awaits_disk()
        if self.layers.due and publishing.all_said() and not self.closed:
            self.swap_carrier(True)

    def confirm(self, durable_position: i64) -> None:
        self._said()

    def lost(self, now_ms: WallMs) -> None:
        if self not in self.shared.sessions:
            return
        del self.shared.sessions[self]
        left(self.shared.broker.events, self)
        self._end()
        self.close()
        self.waiting_head = False
        self.drop_ticket()
        self.publishing.close()
        vhost = self.log_in.vhost
        if vhost is not None:
            lost = self.consuming.leave(vhost, now_ms)
            if lost:
                self.shared.tell_cancelled(lost)
        self.log_in.leave()

    def shut_down(self) -> None:
        """As nsqd, which only hangs up."""
        self._end()
        self.close()

    # -- time ----------------------------------------------------------------------------------

    def sent(self, count: i64, now_ms: WallMs) -> None:
        self.sent_bytes += count
        self.sent_count += 1
        self.traffic.send(count)
        if self.clogged:
            self._heartbeat.heard()

    def tick(self, now_ms: WallMs) -> None:
        heartbeat = self._heartbeat
        elapsed_ms = heartbeat.elapsed_ms(self.shared.broker.idleness.now_ms)
        self.look_at_user(now_ms, self.shared.broker.idleness.now_ms)
        if self.log_in.is_overdue(elapsed_ms):
            self.log_in.failed("no AUTH in time")
            self.shut_down()
        interval_ms = self.identity.heartbeat_ms
        if self.closed or interval_ms == 0 or self.received_count == 0:
            return
        todo = heartbeat.tick(elapsed_ms, interval_ms, self.received_count, self.unread)
        if todo == DEAD:
            self.abandon()
        elif todo == SPEAK and not self.layers.due:
            heartbeat.begin()
            self.out.write(HEARTBEAT)
