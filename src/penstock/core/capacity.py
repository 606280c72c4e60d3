"""Sizes as operators write them, and the two limits that are written with them.

In: texts such as ``0.4``, ``256MiB``, ``mem_relative 1.0``, from settings, commands and HTTP.
Out: numbers, or None for what is none; and limits that become bytes once the machine is known.

Units are RabbitMQ's, whatever their case: ``k`` and ``kiB`` are 1024, ``kB`` is 1000, and so
are M, G and T of each kind.  RabbitMQ 3.10 has no T, knows ``KiB`` in some spellings only, and
fails on others; whatever it takes means the same here.
"""

import math
import re
from typing import Final, NamedTuple

_SIZE: Final = re.compile(r"([0-9]{1,19})([kmgt]?)(i?b)?", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9]{1,19}(\.[0-9]{1,19})?(e-?[0-9]{1,2})?")
BYTES_MAX: Final = 1 << 62
MEM_RELATIVE: Final = "mem_relative"
AUTO: Final = "auto"
BARE_BYTES_MIN: Final = 1_000_000
AUTO_SHARE: Final = 50
AUTO_LEAST_BYTES: Final = 50_000_000
AUTO_MOST_BYTES: Final = 2_000_000_000
"""The free disk that is kept by default: one fiftieth, within these bounds.  RabbitMQ's default
of 50 MB is gone in a tenth of a second of publishing, before the next look at the disk."""


def parse_size(text: str) -> int | None:
    """Bytes of ``2GB`` and its like; None if it is none of them, or too much."""
    found = _SIZE.fullmatch(text)
    if found is None or (found[3] and not found[2]):
        return None
    base = 1000 if (found[3] or "").lower() == "b" else 1024
    power = "kmgt".index(found[2].lower()) + 1 if found[2] else 0
    size = int(found[1]) * int(base**power)
    return size if size <= BYTES_MAX else None


def parse_number(text: str) -> float | None:
    """A number that is not negative, written plainly; None if it is none."""
    if _NUMBER.fullmatch(text) is None:
        return None
    number = float(text)
    return number if math.isfinite(number) else None


class MemoryLimit(NamedTuple):
    """``vm_memory_high_watermark``: a share of the memory, or so many bytes."""

    fraction: float
    absolute_bytes: int = -1  # -1: the fraction counts

    def bytes_of(self, total_bytes: int) -> int:
        if self.absolute_bytes >= 0:
            # More than there is would never be reached: the machine would die first.
            return min(self.absolute_bytes, total_bytes)
        return int(self.fraction * total_bytes)


class DiskLimit(NamedTuple):
    """``disk_free_limit``: so many bytes, a multiple of the memory, or a share of the disk."""

    absolute_bytes: int = -1
    mem_relative: float = -1.0

    def bytes_of(self, total_memory_bytes: int, disk_bytes: int) -> int:
        if self.absolute_bytes >= 0:
            return self.absolute_bytes
        if self.mem_relative >= 0:
            return int(self.mem_relative * total_memory_bytes)
        return min(max(disk_bytes // AUTO_SHARE, AUTO_LEAST_BYTES), AUTO_MOST_BYTES)


def parse_memory_limit(text: str) -> MemoryLimit | None:
    """Up to 1 is a share; whole numbers from ``BARE_BYTES_MIN``, and sizes with a unit, are bytes.

    What is between is neither: 3 is no share, and as bytes it would block all publishers.
    """
    share = parse_number(text)
    if share is not None and share <= 1:
        return MemoryLimit(share)
    size = parse_size(text)
    if size is None or (share is not None and size < BARE_BYTES_MIN):
        return None
    return MemoryLimit(0.0, size)


def parse_disk_limit(text: str) -> DiskLimit | None:
    if text == AUTO:
        return DiskLimit()
    word, _, rest = text.partition(" ")
    if word == MEM_RELATIVE:
        share = parse_number(rest.strip())
        return None if share is None or share > BYTES_MAX else DiskLimit(-1, share)
    size = parse_size(text)
    return None if size is None else DiskLimit(size)
