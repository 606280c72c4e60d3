"""What groups of mirrored queues say to each other, as bytes: a payload is any number of these.

    size u32 (of what follows) · vhost text · queue text · speaker text · what is said (raw)

    text  length u16 · UTF-8, with what is none kept as it was (surrogates)

``speaker`` is the name that the sender has in the queue's ring.  What is said is the group's
(``cluster/mirrors/group.py``).  With an empty vhost it is the names of the nodes of which the
sender hears nothing, by lines, or with the queue ``LOG_INS`` wrong passwords (``encode_news``);
releases that do not know of that know no such queue, and ignore it.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from penstock.core.byte_reader import ByteReader

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")


def encode_said(vhost: str, queue: str, speaker: str, said: Sequence[bytes]) -> list[bytes]:
    """Pieces of a payload, from those of what is said; they are copied once, when it is joined."""
    texts = b"".join([_text(vhost), _text(queue), _text(speaker)])
    size = len(texts)
    for piece in said:
        size += len(piece)
    return [_U32.pack(size), texts, *said]


def _text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return _U16.pack(len(raw)) + raw


def decode_said(payload: bytes) -> list[tuple[str, str, str, bytes]]:
    """(vhost, queue, speaker, what is said) each.  Raises Malformed."""
    said: list[tuple[str, str, str, bytes]] = []
    reader = ByteReader(payload, 0, len(payload))
    while reader.offset < reader.end:
        size = reader.long()
        start = reader.take(size)
        one = ByteReader(payload, start, start + size)
        said.append((one.text(), one.text(), one.text(), one.raw(one.end - one.offset)))
    return said


LOG_INS: Final = "log-ins"


def encode_news(news: Sequence[tuple[int, str, str]]) -> bytes:
    """Each is what u8 · user text · address text."""
    return b"".join([bytes((what,)) + _text(user) + _text(where) for what, user, where in news])


def decode_news(data: bytes) -> list[tuple[int, str, str]]:
    """Raises Malformed."""
    news: list[tuple[int, str, str]] = []
    reader = ByteReader(data, 0, len(data))
    while reader.offset < reader.end:
        news.append((int(reader.octet()), reader.text(), reader.text()))
    return news
