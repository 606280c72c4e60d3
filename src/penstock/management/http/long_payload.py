"""The JSON of a publish whose payload is long: read in pieces, everything else bounded.

Python's JSON reader holds the interpreter from the first byte to the last, and the data loop with
it; and what it makes of a few bytes may take a hundred times their room.  So the one long string
of a body is cut out before the rest is read:

    body ─► strings, found piece by piece ─► the long one ─► its pieces decoded one by one
                                          └► the rest, at most ``rest_max_bytes`` ─► JSON

Between two pieces other threads run.  The long string must be the value of the key ``payload``.
"""

import binascii
import itertools
import json
import re
import secrets
from typing import Final

PIECE_BYTES: Final = 256 * 1024
"""Of a string: so much is read before another thread may run.  A multiple of 4, for base64."""
_TEXT: Final = re.compile(
    rb"(?:[^\"\\]+"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair is not cut in two
    rb"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
    rb"|\\[^u])*+"
)
_ESCAPE_BYTES: Final = 12
"""The longest."""
_QUOTE: Final = b'"'
_INSIDE_A_CHARACTER: Final = 0x80


class TooMuchBesides(ValueError):
    """What is not the payload has more bytes than it may."""


def read_publish(body: bytes, rest_max_bytes: int) -> tuple[bytes, str, bytes]:
    """The JSON without its long string, what stands for that there, and the string as UTF-8.

    Bytes that are no UTF-8 may be spelt as Python's ``surrogateescape`` does.  Raises ValueError
    for what is no JSON, TooMuchBesides for more than ``rest_max_bytes`` beside one long string.
    """
    mark = secrets.token_hex(16)  # no client can have written it
    rest: list[bytes] = []
    rest_bytes = at = 0
    payload: bytes | None = None
    while True:
        start = body.find(_QUOTE, at, at + rest_max_bytes + 1)
        end = len(body) if start < 0 else start
        rest_bytes += end - at
        if rest_bytes > rest_max_bytes:
            raise TooMuchBesides
        rest.append(body[at:end])
        if start < 0:
            return b"".join(rest), mark, payload or b""
        pieces = _pieces(body, start + 1)
        at = pieces[-1] + 1
        if at - start <= PIECE_BYTES:
            rest.append(body[start:at])
            rest_bytes += at - start
        elif payload is None:
            payload = _decoded(body, pieces)
            rest.append(f'"{mark}"'.encode())
        else:
            raise TooMuchBesides


def _pieces(body: bytes, start: int) -> list[int]:
    """Where the pieces of a string begin, and where its quote is.  Raises ValueError."""
    found = [start]
    while True:
        at = found[-1]
        limit = min(len(body), at + PIECE_BYTES)
        while limit < len(body) and body[limit] & 0xC0 == _INSIDE_A_CHARACTER and limit > at:
            limit -= 1
        match = _TEXT.match(body, at, limit)
        assert match is not None  # it may be empty
        end = match.end()
        if end > at:
            found.append(end)
        if end < len(body) and body[end : end + 1] == _QUOTE:
            return found
        if end == at or end < limit - _ESCAPE_BYTES:
            raise ValueError("a string does not end, or has an escape that is none")


def _decoded(body: bytes, pieces: list[int]) -> bytes:
    found: list[bytes] = []
    for start, end in itertools.pairwise(pieces):
        text: str = json.loads(f'"{body[start:end].decode()}"')
        found.append(text.encode("utf-8", "surrogateescape"))
    return b"".join(found)


def base64_decoded(text: bytes) -> bytes:
    """Raises ValueError for what is no base64."""
    found: list[bytes] = []
    for start in range(0, len(text), PIECE_BYTES):
        piece = text[start : start + PIECE_BYTES]
        found.append(binascii.a2b_base64(piece, strict_mode=True))
        is_last = start + PIECE_BYTES >= len(text)
        if not is_last and len(found[-1]) != PIECE_BYTES // 4 * 3:
            raise ValueError("padding before the end")
    return b"".join(found)
