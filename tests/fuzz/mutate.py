"""Valid bytes become nearly valid bytes; everything follows from the ``random.Random`` given.

Two kinds of damage: blind (bits, bytes, slices) and frame-wise (a frame's type, channel,
size, class, method, order), because blind damage alone rarely gets past the first frame.
"""

import random
import struct
from collections.abc import Iterator

from tests.helpers import raw_codec as codec

INTERESTING = (0, 1, 2, 7, 8, 127, 128, 255, 0xCE)
SIZES = (0, 1, 7, 255, 256, 4095, 4096, 4097, 131064, 131072, 131073, 2**31 - 1, 2**31, 2**32 - 1)


def splits(rng: random.Random, data: bytes, count: int) -> list[bytes]:
    """``data`` cut at ``count`` random places; joining the parts gives it back."""
    places = sorted(rng.randrange(len(data) + 1) for _ in range(count)) if data else []
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def damaged(rng: random.Random, data: bytes) -> bytes:
    """One to four wounds, blind or frame-wise."""
    for _ in range(rng.randint(1, 4)):
        wound = rng.choice((blind, blind, _frames))
        data = wound(rng, data)
    return data


def blind(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return bytes([rng.randrange(256)])
    at = rng.randrange(len(data))
    end = min(len(data), at + rng.choice((1, 1, 2, 4, 8, 40)))
    choice = rng.randrange(7)
    if choice == 0:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if choice == 1:
        return data[:at] + bytes([rng.choice(INTERESTING)]) + data[at + 1 :]
    if choice == 2:
        return data[:at] + data[end:]
    if choice == 3:
        return data[:end] + data[at:]
    if choice == 4:
        return data[:at] + rng.randbytes(end - at) + data[end:]
    if choice == 5:
        return data[:at] + struct.pack(">I", rng.choice(SIZES)) + data[at + 4 :]
    return data[:at]


def _frames(rng: random.Random, data: bytes) -> bytes:
    """Take the frames apart, hurt one, put them together again."""
    head = data[:8] if data.startswith(b"AMQP") else b""
    try:
        frames, rest = codec.split_frames(data[len(head) :])
    except ValueError:
        return blind(rng, data)
    if not frames:
        return blind(rng, data)
    at = rng.randrange(len(frames))
    parts = [codec.encode_frame(f.type, f.channel, f.payload) for f in frames]
    parts[at : at + 1] = _hurt_frame(rng, frames, at)
    return head + b"".join(parts) + rest


def _hurt_frame(rng: random.Random, frames: list[codec.Frame], at: int) -> list[bytes]:
    frame = frames[at]
    whole = codec.encode_frame(frame.type, frame.channel, frame.payload)
    payload = frame.payload
    choice = rng.randrange(9)
    if choice == 0:
        return [codec.encode_frame(rng.choice((0, 1, 2, 3, 8, 9)), frame.channel, payload)]
    if choice == 1:
        return [codec.encode_frame(frame.type, rng.choice((0, 1, 2, 5, 65535)), payload)]
    if choice == 2:
        return [whole[:3] + struct.pack(">I", rng.choice(SIZES)) + whole[7:]]
    if choice == 3:
        return [whole[:-1] + bytes([rng.randrange(256)])]
    if choice == 4:
        ids = struct.pack(">HH", rng.choice((10, 20, 40, 50, 60, 85, 90, 91)), rng.randrange(131))
        return [codec.encode_frame(frame.type, frame.channel, ids + payload[4:])]
    if choice == 5:
        return [whole] * rng.choice((0, 2, 3))
    if choice == 6:
        other = frames[rng.randrange(len(frames))]
        return [codec.encode_frame(other.type, other.channel, other.payload), whole]
    if choice == 7:
        return [codec.encode_frame(frame.type, frame.channel, blind(rng, payload))]
    cut = rng.randrange(len(payload) + 1)
    return [codec.encode_frame(frame.type, frame.channel, payload[:cut])]


def random_table(rng: random.Random, depth: int = 0) -> bytes:
    """The inside of a table: mostly well formed, sometimes not."""
    out = b""
    for _ in range(rng.randrange(4)):
        out += codec.short_string(rng.randbytes(rng.randrange(6))) + random_value(rng, depth)
    return out


def random_value(rng: random.Random, depth: int) -> bytes:
    letter = rng.choice("SIlFAVxtbBsuifdDTZL")
    sizes = {"t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "f": 4, "l": 8, "L": 8, "d": 8,
             "T": 8, "D": 5, "V": 0, "Z": 1}  # fmt: skip
    if letter in sizes:
        body = rng.randbytes(sizes[letter])
    elif letter in "FA":
        deeper = depth < rng.choice((2, 5, 200))
        inner = b""
        if deeper:
            inner = random_table(rng, depth + 1) if letter == "F" else random_value(rng, depth + 1)
        body = codec.long_string(inner)
    else:
        body = codec.long_string(rng.randbytes(rng.randrange(20)))
    if rng.randrange(20) == 0:
        body = blind(rng, body)
    return letter.encode() + body


def inputs(rng: random.Random, corpus: list[bytes]) -> Iterator[bytes]:
    """Endless sessions: captured, damaged, spliced, and plain noise."""
    while True:
        choice = rng.randrange(10)
        if choice == 0:
            yield rng.choice(corpus)
        elif choice == 1:
            yield rng.randbytes(rng.choice((1, 7, 8, 50, 400)))
        elif choice == 2:
            one, other = rng.choice(corpus), rng.choice(corpus)
            yield one[: rng.randrange(len(one))] + other[rng.randrange(len(other)) :]
        else:
            yield damaged(rng, rng.choice(corpus))
