"""The clocks of the machine, for packages that are not quiet; the quiet ones are told the time."""

import time

from penstock.core.clock_types import MonoMs, WallMs


def wall_ms() -> WallMs:
    return WallMs(time.time_ns() // 1_000_000)


def mono_ms() -> MonoMs:
    return MonoMs(time.monotonic_ns() // 1_000_000)
