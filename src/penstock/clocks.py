"""The clocks of the machine, for the rooms that are not quiet; quiet rooms are told the time."""

import time

from penstock.core.clock_types import MonoMs, WallMs


def wall_ms() -> WallMs:
    return WallMs(time.time_ns() // 1_000_000)


def mono_ms() -> MonoMs:
    return MonoMs(time.monotonic_ns() // 1_000_000)
