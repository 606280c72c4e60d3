"""Types of points in time, in milliseconds: mypy refuses one clock's time where another's is meant.

``WallMs``  since 1970, as people read it; it may be set forward or back.  What is kept on disk or
            sent to other programs has this time.
``MonoMs``  since the machine started; it only goes forward.  Durations are measured by it.
``BootMs``  the same with the time in which the machine slept: leases are measured by it.
"""

from typing import NewType

WallMs = NewType("WallMs", int)
MonoMs = NewType("MonoMs", int)
BootMs = NewType("BootMs", int)
