"""The texts of refusals of broken frames: RabbitMQ's, down to the Erlang terms.

Clients log these texts and people search for them; so the same mistake reads the same here.
"""

from typing import Final

from mypy_extensions import i64

from penstock.core.errors import BrokerError, PreconditionFailed

FRAME_OVERHEAD: Final = 8
SNIPPET_BYTES: Final = 16
METHOD_BYTES_MAX: Final[i64] = 20 * 1024
"""Of a method on a channel, which has names and a table of arguments."""


def frame_text(data: bytes, position: i64, start: i64, end: i64) -> str:
    """The frame at ``position`` with as much of start..end as RabbitMQ shows."""
    return "type " + str(data[position]) + _octets(data, start, end)


def too_large(size: i64, frame_max: i64) -> str:
    return f": {{frame_too_large,{size},{frame_max - FRAME_OVERHEAD}}}"


def bad_end(octet: int) -> str:
    return f": {{invalid_frame_end_marker,{octet}}}"


def _octets(data: bytes, start: i64, end: i64) -> str:
    """A payload the way RabbitMQ's texts show it: an Erlang binary, cut at SNIPPET_BYTES octets."""
    if end - start > 16:
        return ", first 16 octets = " + erlang_binary(data[start : start + SNIPPET_BYTES])
    return ", all octets = " + erlang_binary(data[start:end])


def erlang_binary(octets: bytes) -> str:
    """A binary as Erlang prints it: as text if all of it can be printed."""
    printable = len(octets) > 0
    for octet in octets:
        if not (32 <= octet <= 126 or octet >= 160 or 8 <= octet <= 13 or octet == 27):
            printable = False
    if not printable:
        return "<<" + ",".join([str(octet) for octet in octets]) + ">>"
    text = octets.decode("latin-1").replace("\\", "\\\\").replace('"', '\\"')
    return '<<"' + text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '">>'


def message_too_large(size_bytes: i64, most_bytes: i64) -> BrokerError:
    size = int(size_bytes) & 0xFFFFFFFFFFFFFFFF
    return PreconditionFailed(
        f"message size {size} is larger than configured max size {int(most_bytes)}"
    )


def method_too_long(size_bytes: i64) -> BrokerError:
    """Arguments are kept as long as what they declare."""
    return PreconditionFailed(
        f"a method of {int(size_bytes)} bytes: with all its arguments it may have"
        f" {int(METHOD_BYTES_MAX)}"
    )
