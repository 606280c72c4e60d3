"""JSON of definitions, read row by row.

In: the bytes of an object whose large members are arrays of small things.  Out: what ``parsed``
makes of them, and the same refusals.

``json.loads`` keeps the interpreter for itself until it is through, in a thread too, and both
loops stand still: 30 ms for each MB.  Here it is asked for one row at a time, and between two rows
others go on.  That takes three times as long altogether, in a thread of its own.
"""

import json
import re
from typing import Any, Final

from penstock.management.http.bodies import HALF_A_PAIR, check_writable, finite, no_number
from penstock.management.http.listing import BadQuery

_SPACE: Final = re.compile(r"[ \t\n\r]*")


def parsed_by_rows(body: bytes, reason: str) -> Any:
    """Raises BadQuery with that reason when it is no JSON."""
    try:
        text = body.decode(json.detect_encoding(body), "surrogatepass")
        return _Reader(text, HALF_A_PAIR in body.lower()).whole()
    except (ValueError, RecursionError) as error:
        raise BadQuery("bad_request", reason) from error


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
