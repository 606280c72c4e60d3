"""The header ``traceparent`` of W3C Trace Context, read where it lies.

In: a content that the decoder has checked.  Out: its 55 characters, or "" where there is none, it
is none that the specification allows, or its publisher does not record the trace.
"""

import re
from typing import Final

from penstock.protocols.amqp.codec.properties import FLAGS_AT, header_end

FIELD: Final = b"\x0btraceparentS\0\0\0\x37"
"""A key of a table, and the type and length of its value."""
LENGTH: Final = 55
_FORM: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_RECORDED: Final = b"13579bdf"
"""What the last digit of the flags may be when the first bit is set."""


def trace_parent(content: bytes) -> str:
    """See the head of this file; a message without the header costs one search of its headers."""
    at = content.find(FIELD, FLAGS_AT, header_end(content, 0))
    if at < 0:
        return ""
    value = content[at + len(FIELD) : at + len(FIELD) + LENGTH]
    if _FORM.fullmatch(value) is None or value[LENGTH - 1 :] not in _RECORDED:
        return ""
    return value.decode("ascii")
