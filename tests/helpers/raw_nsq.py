"""NSQ's protocol as a client writes and reads it; the tests' own, so nothing judges itself."""

from __future__ import annotations

import json
import struct
from typing import NamedTuple

MAGIC = b"  V2"
RESPONSE, ERROR, MESSAGE = 0, 1, 2


class Frame(NamedTuple):
    type: int
    data: bytes


class NsqMessage(NamedTuple):
    timestamp_ns: int
    attempts: int
    id: bytes
    body: bytes


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def pub(topic: str, body: bytes) -> bytes:
    return b"PUB %s\n" % topic.encode() + sized(body)


def dpub(topic: str, delay_ms: int, body: bytes) -> bytes:
    return b"DPUB %s %d\n" % (topic.encode(), delay_ms) + sized(body)


def mpub(topic: str, bodies: list[bytes]) -> bytes:
    messages = b"".join(sized(body) for body in bodies)
    return b"MPUB %s\n" % topic.encode() + sized(struct.pack(">i", len(bodies)) + messages)


def identify(**fields: object) -> bytes:
    return b"IDENTIFY\n" + sized(json.dumps(fields).encode())


def auth(secret: str) -> bytes:
    return b"AUTH\n" + sized(secret.encode())


def fin(key: bytes) -> bytes:
    return b"FIN %s\n" % key


def split_frames(data: bytes) -> tuple[list[Frame], bytes]:
    """Whole frames, and what is left."""
    frames = []
    while len(data) >= 8:
        size, kind = struct.unpack_from(">ii", data)
        if len(data) < 4 + size:
            break
        frames.append(Frame(kind, data[8 : 4 + size]))
        data = data[4 + size :]
    return frames, data


def message_in(data: bytes) -> NsqMessage:
    timestamp_ns, attempts = struct.unpack_from(">qH", data)
    return NsqMessage(timestamp_ns, attempts, data[10:26], data[26:])
