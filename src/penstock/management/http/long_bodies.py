"""Long JSON, read in pieces between which other threads run: of a publish, and of definitions.

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
from typing import Any, Final

from penstock.management.http.bodies import HALF_A_PAIR, check_writable, finite, no_number
from penstock.management.http.listing import BadQuery

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
_SPACE: Final = re.compile(r"[ \t\n\r]*")


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


def parsed_by_rows(body: bytes, reason: str) -> Any:
    """What ``parsed`` makes of an object whose large members are arrays of small things.

    ``json.loads`` keeps the interpreter for itself until it is through, in a thread too, and both
    loops stand still: 30 ms for each MB.  Here it is asked for one row at a time.  That takes three
    times as long altogether, in a thread of its own.  Raises BadQuery with that reason when it is
    no JSON.
    """
    try:
        text = body.decode(json.detect_encoding(body), "surrogatepass")
        return _Reader(text, HALF_A_PAIR in body.lower()).whole()
    except (ValueError, RecursionError) as error:
        raise BadQuery(reason) from error


class _Reader:
    """At ``_place`` of a text."""

    def __init__(self, text: str, is_suspect: bool) -> None:
        """``is_suspect``: something in it may be half a character."""
        self._text = text
        self._place = 0
        self._is_suspect = is_suspect
        self._read = json.JSONDecoder(parse_constant=no_number, parse_float=finite).raw_decode

    def whole(self) -> Any:
        value = self._object() if self._next() == "{" else self._value()
        if self._next():
            raise ValueError("something follows")
        return value

    def _next(self) -> str:
        """What comes behind white space, "" at the end."""
        found = _SPACE.match(self._text, self._place)
        assert found is not None
        self._place = found.end()
        return self._text[self._place : self._place + 1]

    def _value(self) -> Any:
        value, self._place = self._read(self._text, self._place)
        if self._is_suspect:
            check_writable(value)
        return value

    def _object(self) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self._place += 1
        if self._next() == "}":
            self._place += 1
            return members
        while True:
            if self._next() != '"':
                raise ValueError("no name")
            name = self._value()
            if self._next() != ":":
                raise ValueError("no colon")
            self._place += 1
            members[name] = self._array() if self._next() == "[" else self._value()
            if self._is_last("}"):
                return members

    def _array(self) -> list[Any]:
        rows: list[Any] = []
        self._place += 1
        if self._next() == "]":
            self._place += 1
            return rows
        while True:
            self._next()
            rows.append(self._value())
            if self._is_last("]"):
                return rows

    def _is_last(self, end: str) -> bool:
        found = self._next()
        if found not in (end, ","):
            raise ValueError("neither a comma nor an end")
        self._place += 1
        return found == end
