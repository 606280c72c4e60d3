"""``Token``: a JSON web token in its compact form, read within bounds and not yet believed.

    header.claims.signature     each part in base64url, the first two JSON objects

In: what a client sent as its password.  Out: the parts, or ``TokenRefused`` with the reason, which
never has anything of the token in it.  ``check_times`` and ``check_issuer`` judge claims.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

from penstock.core.clock_types import WallMs
from penstock.core.errors import PenstockError
from penstock.core.json_reading import json_of

TOKEN_MAX_CHARS: Final = 32 * 1024
KEY_ID_MAX_CHARS: Final = 1024
NOT_BEFORE_SLACK_MS: Final = 10_000
"""A token is used as soon as it is issued, by the clock of another machine."""
LATEST_S: Final = 1 << 40
"""A later expiry is no time."""
ENCRYPTED_DOTS: Final = 4
_PART: Final = re.compile(r"[A-Za-z0-9_-]*")

Claims = dict[str, Any]


class TokenRefused(PenstockError):
    """Its text is the reason, for the log."""


class Token(NamedTuple):
    """``key_id``: None where the header names none.  ``signed``: the bytes under the signature."""

    algorithm: str
    key_id: str | None
    claims: Claims
    signed: bytes
    signature: bytes


def bearer_token(header: str) -> str:
    """Of the header ``Authorization``; "" = it has none."""
    scheme, _, shown = header.partition(" ")
    return shown.strip() if scheme.lower() == "bearer" else ""


def parse_token(text: str) -> Token:
    """Raises TokenRefused."""
    if len(text) > TOKEN_MAX_CHARS:
        raise TokenRefused(f"the token has more than {TOKEN_MAX_CHARS} characters")
    dots = text.count(".")
    if dots == ENCRYPTED_DOTS:
        raise TokenRefused("the token is encrypted; signed tokens are taken only")
    if dots != 2:
        raise TokenRefused("the password is no token")
    first, second, third = text.split(".")
    header = _object(first, "header")
    if "crit" in header:
        raise TokenRefused("the token demands an extension (crit)")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise TokenRefused("the token names no algorithm")
    if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= KEY_ID_MAX_CHARS):
        raise TokenRefused("the token's key ID is no short text")
    claims, signature = _object(second, "claims"), _bytes(third, "signature")
    return Token(algorithm, key_id, claims, f"{first}.{second}".encode(), signature)


def _bytes(part: str, what: str) -> bytes:
    if _PART.fullmatch(part) is None:
        raise TokenRefused(f"the token's {what} is no base64url")
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        raise TokenRefused(f"the token's {what} is no base64url") from None


def _object(part: str, what: str) -> Claims:
    data = _bytes(part, what)
    try:
        found = json_of(data.decode(), _no_number)
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        raise TokenRefused(f"the token's {what} cannot be read as JSON") from None
    if not isinstance(found, dict):
        raise TokenRefused(f"the token's {what} is no JSON object")
    return found


def _no_number(_text: str) -> NoReturn:
    raise ValueError


def check_times(claims: Mapping[str, object], require_exp: bool, now_ms: WallMs) -> WallMs | None:
    """When the token ends, in ms of wall time; None: never.  Raises TokenRefused."""
    starts_ms = _time_ms(claims, "nbf")
    if starts_ms is not None and starts_ms > now_ms + NOT_BEFORE_SLACK_MS:
        raise TokenRefused(f"the token holds from {starts_ms // 1000} (now {now_ms // 1000})")
    ends_ms = _time_ms(claims, "exp")
    if ends_ms is None:
        if require_exp:
            raise TokenRefused("the token has no exp claim")
        return None
    if ends_ms <= now_ms:
        raise TokenRefused(f"the token expired at {ends_ms // 1000} (now {now_ms // 1000})")
    return ends_ms


def _time_ms(claims: Mapping[str, object], name: str) -> WallMs | None:
    """Of a claim in seconds, cut to whole ones as RabbitMQ does.  Raises TokenRefused."""
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"the token's {name} claim is no number")
    if not abs(value) <= LATEST_S:  # nor is NaN; ``math.isfinite`` fails for very long integers
        raise TokenRefused(f"the token's {name} claim is no time")
    return WallMs(int(value) * 1000)


def check_issuer(claims: Mapping[str, object], issuers: frozenset[str]) -> None:
    """``issuers``: the names of the provider; none = any.  Raises TokenRefused."""
    if not issuers:
        return
    issuer = claims.get("iss")
    if not isinstance(issuer, str) or issuer.rstrip("/") not in issuers:
        raise TokenRefused("the token is of another issuer (iss)")
