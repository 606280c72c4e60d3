"""The first words of an AMQP connection: headers, offers, and who is asking.

What goes wrong here is answered with silence and a slow hang-up, as RabbitMQ does, so there
are no texts; the session decides, this file only reads.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.rules.access import User
from penstock.protocols.amqp.codec.errors import MalformedArguments, ProtocolViolation
from penstock.protocols.amqp.codec.tables import decode_table

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
ACCEPTED_HEADERS: Final = (PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09")
"""RabbitMQ also takes the header of 0-9, which differs in nothing that matters here."""
FRAME_MIN_BYTES: Final = 4096
MECHANISMS: Final = b"AMQPLAIN PLAIN"
EXTERNAL: Final = "EXTERNAL"
KNOWN_MECHANISMS: Final = ("AMQPLAIN", "PLAIN", EXTERNAL)


@final
class Limits:
    """What the broker offers a client, from the settings."""

    def __init__(
        self,
        channel_max: i64,
        frame_max: i64,
        heartbeat_s: i64,
        handshake_timeout_ms: i64,
        max_message_size_bytes: i64,
        initial_frame_max: i64 = FRAME_MIN_BYTES,
    ) -> None:
        """``initial_frame_max``: bytes of a frame before the client has logged in."""
        self.channel_max: i64 = channel_max
        self.frame_max: i64 = frame_max
        self.heartbeat_s: i64 = heartbeat_s
        self.handshake_timeout_ms: i64 = handshake_timeout_ms
        self.max_message_size_bytes: i64 = max_message_size_bytes
        self.initial_frame_max: i64 = initial_frame_max


def mechanisms(external: str | User | None) -> bytes:
    """What we offer; None = this listener does not ask for certificates."""
    return MECHANISMS if external is None else b"EXTERNAL " + MECHANISMS


def credentials_in(mechanism: str, response: bytes) -> tuple[str, str] | None:
    """Name and password out of a SASL response; None when it is none we understand."""
    if mechanism == "PLAIN":
        parts = response.split(b"\x00")
        if len(parts) != 3 or parts[0] != b"":
            return None
        return parts[1].decode("utf-8", "replace"), parts[2].decode("utf-8", "replace")
    if mechanism != "AMQPLAIN":
        return None
    try:
        table, _ = decode_table(len(response).to_bytes(4, "big") + response, 0)
    except MalformedArguments:
        return None
    if "LOGIN" not in table or "PASSWORD" not in table:
        return None
    return _text(table["LOGIN"]), _text(table["PASSWORD"])


def _text(value: object) -> str:
    """A byte array is text too; anything else, such as a number, is empty and gets refused."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def check_tuning(limits: Limits, channel_max: i64, frame_max: i64, method_key: int) -> None:
    """Raises ProtocolViolation when the client takes more than was offered, or too little."""
    if frame_max != 0 and frame_max < FRAME_MIN_BYTES:
        raise ProtocolViolation(530, "frame_max=" + str(frame_max) + " < 4096 minimum", method_key)
    _check_tuned("channel_max", channel_max, limits.channel_max, method_key)
    _check_tuned("frame_max", frame_max, limits.frame_max, method_key)


def _check_tuned(what: str, value: i64, ours: i64, method_key: int) -> None:
    if value == 0 or value > ours:
        raise ProtocolViolation(
            530,
            "negotiated "
            + what
            + " = "
            + str(value)
            + " is higher than the maximum allowed value ("
            + str(ours)
            + ")",
            method_key,
        )
