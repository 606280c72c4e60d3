"""The commands of the NSQ reader: runs of equal ones, and single ones.

A ``PublishRun`` is one MPUB, or all PUBs (or DPUBs) with the same line that came one behind the
other; a ``FinishRun`` all FINs that did.  A ``NsqFault`` ends the connection, and is the last thing
the reader says.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.message import Message


class Command:
    """Of any kind."""


@final
class Continuation(Command):
    """One that was begun, and goes on in its place: not of the reader's."""

    def __init__(self, resume: Callable[[], None]) -> None:
        self.resume: Final[Callable[[], None]] = resume


@final
class PublishRun(Command):
    """``delay_ms`` is that of DPUB; ``answers`` is how many commands it was.

    ``until_ms`` is when what is delayed is due.
    """

    def __init__(
        self,
        verb: str,
        topic: str,
        messages: list[Message],
        size_bytes: i64,
        answers: i64,
        until_ms: WallMs,
    ) -> None:
        self.verb = verb
        self.topic = topic
        self.messages = messages
        self.size_bytes: i64 = size_bytes
        self.answers: i64 = answers
        self.until_ms: WallMs = until_ms  # 0 = now


@final
class FinishRun(Command):
    def __init__(self) -> None:
        self.keys: list[bytes] = []


@final
class Request(Command):
    """Any other command: its line at the spaces, and its body."""

    def __init__(self, params: list[bytes], body: bytes) -> None:
        self.verb = params[0]
        self.params = params
        self.body = body


@final
class NsqFault(Command):
    """Say so and hang up; with no ``code``, hang up."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text


@final
class BadCommand(Exception):
    """A number that is none, or a command that is wrong: a fault on its way."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def text_of(param: bytes) -> str:
    """What need not be UTF-8 keeps its bytes."""
    return param.decode("utf-8", "surrogateescape")


def quoted(param: bytes) -> str:
    """In quotes, as Go's ``%q`` writes what came from a client."""
    parts = ['"']
    for character in text_of(param):
        code = ord(character)
        if character in _ESCAPES:
            parts.append(_ESCAPES[character])
        elif 0xDC80 <= code <= 0xDCFF:
            parts.append(f"\\x{code - 0xDC00:02x}")
        elif code < 0x20 or code == 0x7F:
            parts.append(f"\\x{code:02x}")
        else:
            parts.append(character)
    parts.append('"')
    return "".join(parts)


def decimal(digits: bytes) -> int:
    """A number as nsqd reads one: digits only, 64 bits, none at all is 0; -1 = it is no number.

    It may be more than an ``i64`` holds: compare it with an ``int``.
    """
    number = 0
    for digit in digits:
        if not 0x30 <= digit <= 0x39:
            return -1
        number = number * 10 + digit - 0x30 & 0xFFFFFFFFFFFFFFFF
    return number
