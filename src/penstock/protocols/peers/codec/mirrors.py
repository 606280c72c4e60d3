"""What groups of mirrored queues say to each other, as bytes: a payload is any number of these.

    size u32 (of what follows) · vhost text · queue text · speaker text · what is said (raw)

    text  length u16 · UTF-8, with what is none kept as it was (surrogates)

``speaker`` is the name that the sender has in the queue's ring.  What is said is the group's
(``cluster/mirrors/group.py``).
"""

from struct import Struct
from typing import Final

from penstock.protocols.peers.codec.queues import MalformedRequest

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")


def encode_said(vhost: str, queue: str, speaker: str, data: bytes) -> bytes:
    texts = b"".join([_text(vhost), _text(queue), _text(speaker)])
    return b"".join((_U32.pack(len(texts) + len(data)), texts, data))


def _text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return _U16.pack(len(raw)) + raw


def decode_said(payload: bytes) -> list[tuple[str, str, str, bytes]]:
    """Raises MalformedRequest."""
    said: list[tuple[str, str, str, bytes]] = []
    at = 0
    while at < len(payload):
        if at + 4 > len(payload):
            raise MalformedRequest("what a group says ends in its size")
        end = at + 4 + int(_U32.unpack_from(payload, at)[0])
        if end > len(payload):
            raise MalformedRequest(f"what a group says ends after {len(payload)} bytes, not {end}")
        vhost, at = _read_text(payload, at + 4, end)
        queue, at = _read_text(payload, at, end)
        speaker, at = _read_text(payload, at, end)
        said.append((vhost, queue, speaker, payload[at:end]))
        at = end
    return said


def _read_text(payload: bytes, at: int, end: int) -> tuple[str, int]:
    if at + 2 > end:
        raise MalformedRequest("what a group says ends in a name")
    stop = at + 2 + int(_U16.unpack_from(payload, at)[0])
    if stop > end:
        raise MalformedRequest("what a group says ends in a name")
    return payload[at + 2 : stop].decode("utf-8", "surrogateescape"), stop
