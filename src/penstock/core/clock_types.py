"""Types of points in time, in milliseconds: mypy refuses one clock's time where another's is meant.

``WallMs``  since 1970, as people read it; it may be set forward or back.  What is kept on disk or
            sent to other programs has this time.
``MonoMs``  since the machine started; it only goes forward.  Durations are measured by it.
``BootMs``  the same with the time in which the machine slept: leases are measured by it.

Their base is ``i64``: mypyc compiles a parameter or a field of these types as an ``i64``, so they
cost nothing in hot files.  Arithmetic gives an ``i64``: a difference is a duration, and a later
time is named again, ``MonoMs(now_ms + PATIENCE_MS)``.
"""

from typing import NewType

from mypy_extensions import i64

WallMs = NewType("WallMs", i64)
MonoMs = NewType("MonoMs", i64)
BootMs = NewType("BootMs", i64)
