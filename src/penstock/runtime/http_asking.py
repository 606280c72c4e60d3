"""HTTP requests to other machines: no redirect is followed, and an answer has an end.

A redirect would let the other side choose where this machine connects; a compressed answer would
let it choose how much memory that takes.

    is_host      what may stand for a machine in an address
    ASKING       options of each request
    PLAIN        options of each session
    read_answer  the body, up to a bound
"""

import ipaddress
import re
from typing import Any, Final

import aiohttp

NAME_MAX_CHARS: Final = 253
_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.(?!-)[A-Za-z0-9_-]{1,63})*\.?")
_SCOPE: Final = re.compile(r"%[A-Za-z0-9_.-]+\Z")
ASKING: Final[dict[str, Any]] = {"allow_redirects": False}
PLAIN: Final[dict[str, Any]] = {
    "auto_decompress": False,
    "headers": {"Accept-Encoding": "identity"},
}


class AnswerTooLong(aiohttp.ClientError):
    """It has more bytes than it may."""


def is_host(text: str) -> bool:
    """A name as DNS has them, or an address without brackets."""
    if len(text) <= NAME_MAX_CHARS and _NAME.fullmatch(text):
        return True
    try:
        ipaddress.ip_address(_SCOPE.sub("", text))
    except ValueError:
        return False
    return "%" not in _SCOPE.sub("", text)


async def read_answer(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """Raises AnswerTooLong as soon as it is."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > most_bytes:
            response.close()
            raise AnswerTooLong(f"its answer has more than {most_bytes} bytes")
        parts.append(part)
    return b"".join(parts)
