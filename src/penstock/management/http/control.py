"""``NodeControl``: the node's interface for management: its log, listeners, drain and stop.

The server makes one (``node/control``); those marked so are called on the data loop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.core.clock_types import WallMs

TIME_MAX_MS: Final = WallMs(253_402_300_799_999)
"""The end of the year 9999."""
NO_RECORDS: Final[dict[str, Any]] = {"records": [], "next": None}
NO_BACKUP: Final[dict[str, Any]] = {"under_way": False, "bytes": 0, "error": ""}


class TrailQuery(NamedTuple):
    """Which records of the audit trail: fields with these values, a text in the object, a time.

    ``before``: the place that an earlier answer ended with, "" = from the newest on.
    """

    fields: dict[str, str]
    object: str = ""
    since_ms: WallMs = WallMs(0)
    until_ms: WallMs = TIME_MAX_MS
    before: str = ""
    limit: int = 100


@dataclass(frozen=True)
class NodeControl:
    """Without a running node: every request is refused or its answer is empty."""

    log_lines: Callable[[int], list[str]] = lambda _count: []
    """The last lines, the oldest first; from any thread."""
    audit_records: Callable[[TrailQuery], dict[str, Any]] = lambda _query: dict(NO_RECORDS)
    """``records``, the newest first, and ``next``: where others follow, None = nowhere.

    From any thread; it reads files.  Raises ValueError for a wrong ``before``."""
    log_levels: Callable[[], dict[str, str]] = lambda: {"": "info"}
    """Category ─► level, "" being everything else; from any thread."""
    set_log_level: Callable[[str, str], None] = lambda _level, _category: None
    """From any thread; the level is one there is, "" takes a category's away."""
    drained: Callable[[], dict[str, Any]] = lambda: {"draining": False, "connections": 0}
    """Whether the listeners are shut, and which clients remain; on the data loop."""
    drain: Callable[[], None] = lambda: None
    """Refuse new connections; on the data loop."""
    revive: Callable[[], None] = lambda: None
    """Let clients in again; on the data loop."""
    back_up: Callable[[str], None] = lambda _directory: None
    """Begin to copy the data directory to a new one; on the data loop.

    Raises PreconditionFailed."""
    backup: Callable[[], dict[str, Any]] = lambda: dict(NO_BACKUP)
    """How far the last one is; from any thread."""
    is_open: Callable[[], bool] = lambda: True
    """May clients come?  From any thread."""
    stop: Callable[[], None] = lambda: None
    """In good order, soon; from any thread."""
