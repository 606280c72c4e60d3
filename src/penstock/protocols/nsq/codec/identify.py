"""IDENTIFY: the options a client asks for, and the negotiated ones.

    body ─► ``Identity.take`` (or BadCommand, with nsqd's text)
            ``Identity.response`` ─► the JSON for clients that negotiate

The body is read as Go reads it into its structure: names whatever their case, ``null`` as not
said, unknown ones ignored, a value of another type refused.  0 asks for the default.

The output buffer is negotiated and answered as nsqd does; nothing here waits for it to fill, a
turn of the loop is all that a message ever waits.
"""

import json
from typing import Final, final

from mypy_extensions import i64

from penstock.core.json_reading import json_of
from penstock.protocols.nsq.codec.commands import BadCommand

DEFAULT_HEARTBEAT_MS: Final = 30_000
DEFAULT_OUTPUT_BYTES: Final = 16 * 1024
DEFAULT_OUTPUT_MS: Final = 250
DEFAULT_DEFLATE_LEVEL: Final = 6
SHORTEST_MS: Final = 1000
SMALLEST_OUTPUT_BYTES: Final = 64
SAMPLE_RATE_MAX: Final = 99
VERSION: Final = "1.3.0"
"""The release of nsqd whose protocol this is; clients and nsqadmin compare it."""


@final
class IdentifyLimits:
    """The most that a node grants, and the layers it offers, as its settings say."""

    def __init__(
        self,
        *,
        max_heartbeat_ms: i64 = 60_000,
        max_ready_count: i64 = 2500,
        message_timeout_ms: i64 = 60_000,
        max_message_timeout_ms: i64 = 900_000,
        max_output_bytes: i64 = 65_536,
        min_output_ms: i64 = 25,
        max_output_ms: i64 = 30_000,
        max_deflate_level: i64 = 6,
        offers_tls: bool = False,
        offers_snappy: bool = True,
        offers_deflate: bool = True,
        auth_required: bool = False,
    ) -> None:
        self.max_heartbeat_ms: i64 = max_heartbeat_ms
        self.max_ready_count: i64 = max_ready_count
        self.message_timeout_ms: i64 = message_timeout_ms
        self.max_message_timeout_ms: i64 = max_message_timeout_ms
        self.max_output_bytes: i64 = max_output_bytes
        self.min_output_ms: i64 = min_output_ms
        self.max_output_ms: i64 = max_output_ms
        self.max_deflate_level: i64 = max_deflate_level
        self.offers_tls: bool = offers_tls
        self.offers_snappy: bool = offers_snappy
        self.offers_deflate: bool = offers_deflate
        self.auth_required: bool = auth_required


@final
class Identity:
    """The options of one client: the defaults until ``take`` reads an IDENTIFY."""

    def __init__(self, limits: IdentifyLimits, host: str) -> None:
        self.client_id: str = host
        self.hostname: str = host
        self.user_agent: str = ""
        self.heartbeat_ms: i64 = DEFAULT_HEARTBEAT_MS  # 0 = none
        self.output_bytes: i64 = DEFAULT_OUTPUT_BYTES
        self.output_ms: i64 = DEFAULT_OUTPUT_MS
        self.sample_rate: i64 = 0
        self.message_timeout_ms: i64 = limits.message_timeout_ms
        self.negotiates: bool = False
        self.tls: bool = False
        self.snappy: bool = False
        self.deflate: bool = False
        self.deflate_level: i64 = DEFAULT_DEFLATE_LEVEL
        self._limits = limits

    def take(self, body: bytes) -> None:
        """The options of an IDENTIFY; a number that is 0 or absent stays.  Raises BadCommand."""
        fields = _fields(body)
        self.client_id = _text(fields, "client_id")
        self.hostname = _text(fields, "hostname")
        self.user_agent = _text(fields, "user_agent")
        self._take_numbers(fields)
        self._take_layers(fields)

    def _take_numbers(self, fields: dict[str, object]) -> None:
        limits = self._limits
        self.heartbeat_ms = _within_or_off(
            fields, "heartbeat_interval", SHORTEST_MS, limits.max_heartbeat_ms, self.heartbeat_ms
        )
        least, most = limits.min_output_ms, limits.max_output_ms
        self.output_ms = _within_or_off(
            fields, "output_buffer_timeout", least, most, self.output_ms
        )
        least, most = SMALLEST_OUTPUT_BYTES, limits.max_output_bytes
        self.output_bytes = _within_or_off(
            fields, "output_buffer_size", least, most, self.output_bytes
        )
        if self.output_bytes == 0:
            self.output_bytes, self.output_ms = 1, 0
        self.sample_rate = _within(fields, "sample_rate", 0, SAMPLE_RATE_MAX, 0)
        least, most = SHORTEST_MS, limits.max_message_timeout_ms
        self.message_timeout_ms = _within(
            fields, "msg_timeout", least, most, self.message_timeout_ms
        )

    def _take_layers(self, fields: dict[str, object]) -> None:
        limits = self._limits
        self.negotiates = _flag(fields, "feature_negotiation")
        if not self.negotiates:
            return
        self.tls = limits.offers_tls and _flag(fields, "tls_v1")
        self.deflate = limits.offers_deflate and _flag(fields, "deflate")
        self.snappy = limits.offers_snappy and _flag(fields, "snappy")
        level: i64 = DEFAULT_DEFLATE_LEVEL
        if self.deflate and _number(fields, "deflate_level") > 0:
            level = _number(fields, "deflate_level")
        self.deflate_level = min(level, limits.max_deflate_level)
        if self.deflate and self.snappy:
            raise BadCommand(
                "E_IDENTIFY_FAILED", "cannot enable both deflate and snappy compression"
            )

    def response(self) -> bytes:
        """For a client that negotiates, in nsqd's order."""
        limits = self._limits
        answer: dict[str, object] = {
            "max_rdy_count": int(limits.max_ready_count),
            "version": VERSION,
            "max_msg_timeout": int(limits.max_message_timeout_ms),
            "msg_timeout": int(self.message_timeout_ms),
            "tls_v1": self.tls,
            "deflate": self.deflate,
            "deflate_level": int(self.deflate_level),
            "max_deflate_level": int(limits.max_deflate_level),
            "snappy": self.snappy,
            "sample_rate": int(self.sample_rate),
            "auth_required": limits.auth_required,
            "output_buffer_size": int(self.output_bytes),
            "output_buffer_timeout": int(self.output_ms),
        }
        return json.dumps(answer, separators=(",", ":")).encode()


_TEXTS: Final = ("client_id", "hostname", "user_agent", "topology_region", "topology_zone")
_NUMBERS: Final = (
    "heartbeat_interval",
    "output_buffer_size",
    "output_buffer_timeout",
    "deflate_level",
    "sample_rate",
    "msg_timeout",
)
_FLAGS: Final = ("feature_negotiation", "tls_v1", "deflate", "snappy")


def _within(fields: dict[str, object], key: str, least: i64, most: i64, unsaid: i64) -> i64:
    """The number of a field, or ``unsaid`` for 0; raises BadCommand."""
    wanted: i64 = _number(fields, key)
    if wanted == 0:
        return unsaid
    if not least <= wanted <= most:
        name = key.replace("_", " ")
        raise BadCommand("E_BAD_BODY", f"IDENTIFY {name} ({int(wanted)}) is invalid")
    return wanted


def _within_or_off(fields: dict[str, object], key: str, least: i64, most: i64, unsaid: i64) -> i64:
    """The same for what -1 turns off; 0 = off."""
    return 0 if _number(fields, key) == -1 else _within(fields, key, least, most, unsaid)


# -- JSON as Go reads it -----------------------------------------------------------------------


def _no_number(_text: str) -> object:
    raise ValueError("no JSON")


def _fields(body: bytes) -> dict[str, object]:
    """What is said, by our names, each of its type; raises BadCommand."""
    refused = BadCommand("E_BAD_BODY", "IDENTIFY failed to decode JSON body")
    try:
        parsed = json_of(body.decode("utf-8", "replace"), _no_number)
    except ValueError:
        raise refused from None
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise refused
    fields: dict[str, object] = {}
    for name, value in parsed.items():
        key = name.lower()
        if value is not None and not _fits(key, value):
            raise refused
        if value is not None:
            fields[key] = value
    return fields


def _fits(key: str, value: object) -> bool:
    """Is it of the type this field has?  Unknown fields may be anything."""
    if key in _TEXTS:
        return isinstance(value, str)
    if key in _FLAGS:
        return isinstance(value, bool)
    if key in _NUMBERS:
        bits = 31 if key == "sample_rate" else 63
        return (
            isinstance(value, int)
            and not isinstance(value, bool)
            and -(1 << bits) <= value < 1 << bits
        )
    return True


def _text(fields: dict[str, object], key: str) -> str:
    value = fields.get(key, "")
    assert isinstance(value, str)
    # Half a pair of surrogates is no text; Go replaces it as well.
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _number(fields: dict[str, object], key: str) -> int:
    value = fields.get(key, 0)
    assert isinstance(value, int)
    return value


def _flag(fields: dict[str, object], key: str) -> bool:
    return fields.get(key) is True
