"""``WallMs`` and ``MonoMs``: mypy refuses the time of one clock where the other's is meant.

``WallMs``  since 1970, as people read it; it may be set forward or back.  What is kept on disk or
            sent to other programs has this time.
``MonoMs``  since the machine started; it only goes forward.  Durations are measured by it.
"""

from typing import NewType

WallMs = NewType("WallMs", int)
MonoMs = NewType("MonoMs", int)
