"""The opening of an AMQP connection: which protocol, which user, which limits, which virtual host.

    header ─► START ─start-ok─► (login) ─► TUNE ─tune-ok─► OPEN ─open─► opened

The session owns it, hands it what the peer says, and keeps it as the record of what was agreed on.
"""

from typing import Final, cast, final

from mypy_extensions import i64

from penstock.broker.rules.access import User
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.errors import BrokerError
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.errors import ProtocolViolation
from penstock.protocols.amqp.codec.methods import Method
from penstock.protocols.amqp.handshake import (
    ACCEPTED_HEADERS,
    PROTOCOL_HEADER,
    Limits,
    check_tuning,
    mechanisms,
)
from penstock.protocols.amqp.heartbeat import Heartbeat
from penstock.protocols.amqp.link import Link
from penstock.protocols.amqp.log_in import AmqpLogIn

WAIT_HEADER: Final = 0
WAIT_START_OK: Final = 1
WAIT_TUNE_OK: Final = 2
WAIT_OPEN: Final = 3
OPENED: Final = 4
STATE_NAMES: Final = ("starting", "starting", "tuning", "opening", "running")


@final
class AmqpOpening:
    """``limits``, ``server_properties``: what the client is offered."""

    def __init__(
        self,
        link: Link,
        limits: Limits,
        server_properties: dict[str, object],
        log_in: AmqpLogIn,
        now_ms: WallMs,
    ) -> None:
        self.limits: Final = limits
        self.state: i64 = WAIT_HEADER
        self.client_properties: dict[str, object] = {}
        self.log_in: Final = log_in
        self.channel_max: i64 = limits.channel_max
        self.connected_at_ms: Final = now_ms
        self._began_ms: Final = link.broker.idleness.now_ms
        self.heartbeat = Heartbeat(self._began_ms, 0)
        self._link: Final = link
        self._server_properties: Final = server_properties
        self._header: bytes = b""

    @property
    def state_name(self) -> str:
        return STATE_NAMES[self.state]

    def is_overdue(self, now_ms: MonoMs) -> bool:
        return now_ms - self._began_ms > self.limits.handshake_timeout_ms

    def header(self, data: bytes) -> bytes | None:
        """Collect the first eight octets; returns what follows them, None: they are not ours."""
        header = self._header + data
        shown = header[:8]
        if not PROTOCOL_HEADER.startswith(header[:4]) and len(header) < 8:
            header = header.ljust(8, b"\x00")
        if len(header) < 8:
            self._header = header
            return b""
        if header[:8] not in ACCEPTED_HEADERS:
            self.log_in.failed("bad header " + repr(shown))
            return None
        self.state = WAIT_START_OK
        offered = mechanisms(self.log_in.external)
        self._link.send(0, m.CONNECTION_START, [0, 9, self._server_properties, offered, b"en_US"])
        return header[8:]

    def capabilities(self) -> dict[str, object]:
        """What the client understands, as it said in start-ok."""
        capabilities = self.client_properties.get("capabilities")
        return capabilities if isinstance(capabilities, dict) else {}

    def start_ok(self, method: Method) -> bool:
        """Log in, and send ``tune``; as ``AmqpLogIn.begin``."""
        link = self._link
        self.client_properties = method.table("client_properties")
        link.learn(self.capabilities())
        if not self.log_in.begin(method):
            return False
        self.state = WAIT_TUNE_OK
        limits = self.limits
        link.send(0, m.CONNECTION_TUNE, [limits.channel_max, limits.frame_max, limits.heartbeat_s])
        return True

    def tune_ok(self, method: Method) -> None:
        """Raises ProtocolViolation."""
        channel_max = method.number("channel_max")
        frame_max = method.number("frame_max")
        check_tuning(self.limits, channel_max, frame_max, method.key)
        self.channel_max = channel_max
        self._link.decoder.tune(channel_max, frame_max)
        interval_ms = 1000 * method.number("heartbeat")
        self.heartbeat = Heartbeat(self._link.broker.idleness.now_ms, interval_ms)
        self.state = WAIT_OPEN

    def open(self, method: Method) -> None:
        """Enter the virtual host; raises ProtocolViolation."""
        link = self._link
        try:
            vhost = link.broker.enter(cast(User, link.session.user), method.text("virtual_host"))
        except BrokerError as error:
            raise ProtocolViolation(530, str(error), method.key) from None
        link.enter(vhost)
        self.state = OPENED
