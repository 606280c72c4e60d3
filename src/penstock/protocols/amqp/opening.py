"""The beginning of an AMQP connection, and its last words: everything but the channels.

    header ─► START ─start-ok─► (login) ─► TUNE ─tune-ok─► OPEN ─open─► RUNNING ─► CLOSING ─► closed

What goes wrong before the connection is tuned is not answered, and slowly so; later the peer is
told why, and given time to say that it heard.  ``AmqpSession`` goes on from here.
"""

from collections.abc import Callable
from typing import Final, cast

from mypy_extensions import i64

from penstock.broker.broker import Broker
from penstock.broker.rules.access import User
from penstock.broker.rules.log_ins import Source
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.errors import BrokerError, LoginRefused
from penstock.core.traffic import AMQP
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.decoder import AmqpDecoder
from penstock.protocols.amqp.codec.errors import ProtocolViolation
from penstock.protocols.amqp.codec.methods import Method
from penstock.protocols.amqp.handshake import (
    ACCEPTED_HEADERS,
    FRAME_MIN_BYTES,
    KNOWN_MECHANISMS,
    PROTOCOL_HEADER,
    Limits,
    check_tuning,
    log_in,
    mechanisms,
)
from penstock.protocols.amqp.heartbeat import DEAD, HEARTBEAT_FRAME, SPEAK, Heartbeat
from penstock.protocols.amqp.link import CancelSink, Link, NameSource
from penstock.runtime.session import Session
from penstock.runtime.session_events import connection_name, entered

SILENT_CLOSE_DELAY_MS: Final = 3000
CLOSING_TIMEOUT_MS: Final = 30_000

WAIT_HEADER: Final = 0
WAIT_START_OK: Final = 1
WAIT_TUNE_OK: Final = 2
WAIT_OPEN: Final = 3
RUNNING: Final = 4
CLOSING: Final = 5
CLOSED: Final = 6
STATE_NAMES: Final = ("starting", "starting", "tuning", "opening", "running", "closing", "closed")

CLOSE_OK_FRAME: Final = b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x33\xce"


class AmqpOpening(Session):
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
        # ``peer``: its address, and is it this machine?  ``external``: the user that a certificate
        # names, "" = none; None = EXTERNAL is not offered.
        super().__init__(broker.flow.book)
        self.broker = broker
        self.limits = limits
        self.decoder = AmqpDecoder(FRAME_MIN_BYTES, limits.max_message_size_bytes)
        self.link = Link(self, broker, self.decoder, new_name, tell_cancelled)
        self.client_properties: dict[str, object] = {}
        self.state: i64 = WAIT_HEADER
        self.mechanism: str = ""
        self.channel_max: i64 = limits.channel_max
        self._began_ms: MonoMs = broker.idleness.now_ms
        self.heartbeat = Heartbeat(self._began_ms, 0)
        self.connected_at_ms: WallMs = now_ms
        self.active_at_ms: WallMs = now_ms  # heartbeats are no activity
        self._server_properties = server_properties
        self._report = report
        self._peer = peer
        self._external = external
        self._header: bytes = b""
        self._closing_since_ms: MonoMs = MonoMs(0)
        self._close_tail: bytes = b""

    @property
    def opening_state(self) -> str:
        return STATE_NAMES[self.state]

    # -- the handshake -------------------------------------------------------------------

    def _protocol_header(self, data: bytes) -> bytes:
        """Collect and judge the first eight octets; returns what follows them."""
        header = self._header + data
        shown = header[:8]
        if not PROTOCOL_HEADER.startswith(header[:4]) and len(header) < 8:
            header = header.ljust(8, b"\x00")
        if len(header) < 8:
            self._header = header
            return b""
        if header[:8] not in ACCEPTED_HEADERS:
            # Tell what we speak, and go: the answer every AMQP client knows.
            self._opening_failed("bad header " + repr(shown))
            self.out.write(PROTOCOL_HEADER)
            self._close_now()
            return b""
        self.state = WAIT_START_OK
        self.link.send(
            0,
            m.CONNECTION_START,
            [0, 9, self._server_properties, mechanisms(self._external), b"en_US"],
        )
        return header[8:]

    def _start_ok(self, method: Method) -> None:
        self.client_properties = method.table("client_properties")
        capabilities = self.client_properties.get("capabilities")
        understood = capabilities if isinstance(capabilities, dict) else {}
        self.link.learn(understood)
        self.mechanism = method.text("mechanism")
        response = method.raw("response")
        try:
            user = log_in(self.broker, self.mechanism, response, self._source(), self._external)
        except LoginRefused as error:
            self.mute_until_ms = MonoMs(self.broker.idleness.now_ms + error.delay_ms)
            self._refuse_login(understood.get("authentication_failure_close") is True)
            return
        if user is None:
            self._opening_failed("bad response to mechanism '" + self.mechanism + "'")
            self._hang_up_later()
            return
        self.log_in_as(user)
        self.state = WAIT_TUNE_OK
        limits = self.limits
        self.link.send(
            0, m.CONNECTION_TUNE, [limits.channel_max, limits.frame_max, limits.heartbeat_s]
        )

    def _source(self) -> Source:
        address, is_local = self._peer
        # The log has the words of the node, not of a client.
        mechanism = self.mechanism if self.mechanism in KNOWN_MECHANISMS else "unknown"
        return Source(AMQP, mechanism, address, is_local, connection_name(self))

    def _opening_failed(self, reason: str) -> None:
        self.broker.users.opening_failed(self._source(), reason)

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
        self.close_after_ms = MonoMs(self.broker.idleness.now_ms + SILENT_CLOSE_DELAY_MS)

    def _tune_ok(self, method: Method) -> None:
        channel_max = method.number("channel_max")
        frame_max = method.number("frame_max")
        check_tuning(self.limits, channel_max, frame_max, method.key)
        self.channel_max = channel_max
        self.decoder.tune(channel_max, frame_max)
        interval_ms = 1000 * method.number("heartbeat")
        self.heartbeat = Heartbeat(self.broker.idleness.now_ms, interval_ms)
        self.state = WAIT_OPEN

    def _open(self, method: Method) -> None:
        name = method.text("virtual_host")
        user = cast(User, self.user)
        try:
            vhost = self.broker.enter(user, name)
        except BrokerError as error:
            raise ProtocolViolation(530, "NOT_ALLOWED", str(error), True, method.key) from None
        self.link.enter(vhost)
        self.state = RUNNING
        given_name = self.client_properties.get("connection_name")
        entered(self.broker.events, self, user.name, name, "AMQP 0-9-1", given_name)
        self.look_at_gate()
        self.link.send(0, m.CONNECTION_OPEN_OK, [""])

    # -- endings -------------------------------------------------------------------------

    def _say_close(self, code: int, reply: str, method_key: i64) -> None:
        self.link.send(0, m.CONNECTION_CLOSE, [code, reply, method_key >> 16, method_key & 0xFFFF])
        self.state = CLOSING
        self._closing_since_ms = self.broker.idleness.now_ms

    def _abandon(self) -> None:
        self.abandoned = True
        self._close_now()

    def _close_now(self) -> None:
        self.state = CLOSED
        self.closed = True

    def _await_close_ok(self, data: bytes) -> None:
        """After an error frame boundaries may be lost, so look for the frame itself."""
        self._close_tail = (self._close_tail + data)[-65536:]
        if CLOSE_OK_FRAME in self._close_tail:
            self._close_now()

    # -- time ----------------------------------------------------------------------------

    def _beat(self, todo: int) -> None:
        if todo == SPEAK:
            self.out.write(HEARTBEAT_FRAME)
        elif todo == DEAD:
            seconds = self.heartbeat.interval_ms // 1000
            self._report(f"missed heartbeats from client, timeout: {seconds}s")
            self._abandon()
