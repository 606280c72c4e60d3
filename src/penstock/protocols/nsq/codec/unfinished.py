"""nsqd's error texts for a client that hung up in the middle of a command.

In: what is left of its bytes.  Out: a ``NsqFault``, or None where nsqd only hangs up too.
"""

from librt.strings import read_i32_be
from mypy_extensions import i64

from penstock.protocols.nsq.codec.commands import NsqFault, text_of


def fault_in(rest: bytes) -> NsqFault | None:
    """``rest`` begins where a command does, and is none that is whole."""
    end: i64 = rest.find(b"\n")
    if end < 0:
        return None
    verb = text_of(rest[:end].split(b" ")[0].rstrip(b"\r"))
    has_size = len(rest) - end - 1 >= 4
    if verb == "MPUB":
        return _in_batch(rest, end + 1)
    if verb == "PUB" or verb == "DPUB":
        what = "message body" if has_size else "message body size"
        return NsqFault("E_BAD_MESSAGE", f"{verb} failed to read {what}")
    what = "body" if has_size else "body size"
    return NsqFault("E_BAD_BODY", f"{verb} failed to read {what}")


def _in_batch(rest: bytes, start: i64) -> NsqFault:
    length: i64 = len(rest)
    if length < start + 4:
        return NsqFault("E_BAD_BODY", "MPUB failed to read body size")
    if length < start + 8:
        return NsqFault("E_BAD_BODY", "MPUB failed to read message count")
    place = start + 8
    number = 0
    while place + 4 <= length:
        size = i64(read_i32_be(rest, place))
        if size <= 0 or place + 4 + size > length:
            return NsqFault("E_BAD_MESSAGE", "MPUB failed to read message body")
        place += 4 + size
        number += 1
    return NsqFault("E_BAD_MESSAGE", f"MPUB failed to read message({number}) body size")
