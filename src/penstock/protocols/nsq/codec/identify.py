"""IDENTIFY: the options a client asks for, and the negotiated ones.

    body ─► ``identify`` ─► Identity (or Invalid, with nsqd's text)
    Identity ─► ``response`` ─► the JSON for clients that negotiate

The body is read as Go reads it into its structure: names whatever their case, ``null`` as not
said, unknown ones ignored, a value of another type refused.  0 asks for the default.

The output buffer is negotiated and answered as nsqd does; nothing here waits for it to fill, a
turn of the loop is all that a message ever waits.
"""

import json
from typing import Final, final

from mypy_extensions import i64

from penstock.protocols.nsq.codec.commands import Invalid

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
    """What a node gives at most, as its settings say."""

    def __init__(self) -> None:
        self.max_heartbeat_ms: i64 = 60_000
        self.max_ready_count: i64 = 2500
        self.message_timeout_ms: i64 = 60_000
        self.max_message_timeout_ms: i64 = 900_000
        self.max_output_bytes: i64 = 65_536
        self.min_output_ms: i64 = 25
        self.max_output_ms: i64 = 30_000
        self.max_deflate_level: i64 = 6
        self.offers_tls: bool = False
        self.offers_snappy: bool = True
        self.offers_deflate: bool = True
        self.auth_required: bool = False


@final
class Identity:
    """What holds of one client; before IDENTIFY the defaults."""

    def __init__(self, limits: IdentifyLimits, host: str) -> None:
        self.client_id: str = host
        self.hostname: str = host
        self.user_agent: str = ""
        self.topology_region: str = ""
        self.topology_zone: str = ""
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


_TEXTS: Final = (
    "client_id",
    "hostname",
    "user_agent",
    "topology_region",
    "topology_zone",
)
_NUMBERS: Final = (
    "heartbeat_interval",
    "output_buffer_size",
    "output_buffer_timeout",
    "deflate_level",
    "sample_rate",
    "msg_timeout",
)
_FLAGS: Final = ("feature_negotiation", "tls_v1", "deflate", "snappy")


def identify(identity: Identity, body: bytes, limits: IdentifyLimits) -> None:
    """Take what the client says; raises Invalid."""
    fields = _fields(body)
    identity.client_id = _text(fields, "client_id")
    identity.hostname = _text(fields, "hostname")
    identity.user_agent = _text(fields, "user_agent")
    identity.topology_region = _text(fields, "topology_region")
    identity.topology_zone = _text(fields, "topology_zone")
    _take_heartbeat(identity, _number(fields, "heartbeat_interval"), limits)
    _take_output_timeout(identity, _number(fields, "output_buffer_timeout"), limits)
    _take_output_size(identity, _number(fields, "output_buffer_size"), limits)
    rate = _number(fields, "sample_rate")
    if not 0 <= rate <= SAMPLE_RATE_MAX:
        raise _invalid("sample rate", rate)
    identity.sample_rate = rate
    timeout_ms = _number(fields, "msg_timeout")
    if timeout_ms != 0:
        if not SHORTEST_MS <= timeout_ms <= limits.max_message_timeout_ms:
            raise _invalid("msg timeout", timeout_ms)
        identity.message_timeout_ms = timeout_ms
    identity.negotiates = _flag(fields, "feature_negotiation")
    if not identity.negotiates:
        return
    identity.tls = limits.offers_tls and _flag(fields, "tls_v1")
    identity.deflate = limits.offers_deflate and _flag(fields, "deflate")
    identity.snappy = limits.offers_snappy and _flag(fields, "snappy")
    level: i64 = DEFAULT_DEFLATE_LEVEL
    if identity.deflate and _number(fields, "deflate_level") > 0:
        level = _number(fields, "deflate_level")
    identity.deflate_level = min(level, limits.max_deflate_level)
    if identity.deflate and identity.snappy:
        raise Invalid("E_IDENTIFY_FAILED", "cannot enable both deflate and snappy compression")


def response(identity: Identity, limits: IdentifyLimits) -> bytes:
    """For a client that negotiates, in nsqd's order."""
    answer: dict[str, object] = {
        "max_rdy_count": int(limits.max_ready_count),
        "version": VERSION,
        "max_msg_timeout": int(limits.max_message_timeout_ms),
        "msg_timeout": int(identity.message_timeout_ms),
        "tls_v1": identity.tls,
        "deflate": identity.deflate,
        "deflate_level": int(identity.deflate_level),
        "max_deflate_level": int(limits.max_deflate_level),
        "snappy": identity.snappy,
        "sample_rate": int(identity.sample_rate),
        "auth_required": limits.auth_required,
        "output_buffer_size": int(identity.output_bytes),
        "output_buffer_timeout": int(identity.output_ms),
    }
    return json.dumps(answer, separators=(",", ":")).encode()


# -- limits ----------------------------------------------------------------------------------


def _take_heartbeat(identity: Identity, wanted_ms: i64, limits: IdentifyLimits) -> None:
    if wanted_ms == -1:
        identity.heartbeat_ms = 0
    elif wanted_ms != 0:
        if not SHORTEST_MS <= wanted_ms <= limits.max_heartbeat_ms:
            raise _invalid("heartbeat interval", wanted_ms)
        identity.heartbeat_ms = wanted_ms


def _take_output_timeout(identity: Identity, wanted_ms: i64, limits: IdentifyLimits) -> None:
    if wanted_ms == -1:
        identity.output_ms = 0
    elif wanted_ms != 0:
        if not limits.min_output_ms <= wanted_ms <= limits.max_output_ms:
            raise _invalid("output buffer timeout", wanted_ms)
        identity.output_ms = wanted_ms


def _take_output_size(identity: Identity, wanted: i64, limits: IdentifyLimits) -> None:
    if wanted == -1:
        identity.output_bytes = 1
        identity.output_ms = 0
    elif wanted != 0:
        if not SMALLEST_OUTPUT_BYTES <= wanted <= limits.max_output_bytes:
            raise _invalid("output buffer size", wanted)
        identity.output_bytes = wanted


def _invalid(what: str, number: i64) -> Invalid:
    return Invalid("E_BAD_BODY", f"IDENTIFY {what} ({int(number)}) is invalid")


# -- JSON as Go reads it -----------------------------------------------------------------------


def _no_number(_text: str) -> object:
    raise ValueError("no JSON")


def _fields(body: bytes) -> dict[str, object]:
    """What is said, by our names, each of its type; raises Invalid."""
    refused = Invalid("E_BAD_BODY", "IDENTIFY failed to decode JSON body")
    try:
        parsed = json.loads(body.decode("utf-8", "replace"), parse_constant=_no_number)
    except (ValueError, RecursionError):
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
