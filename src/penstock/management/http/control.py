"""``NodeControl``: the node's interface for management: its log, listeners, drain and stop.

The server makes one (``node/control``); the methods marked so run on the data loop.
"""

from typing import Any


class NodeControl:
    """Without a running node: every request is refused or its answer is empty."""

    def log_lines(self, _count: int) -> list[str]:
        """The last lines, the oldest first; from any thread."""
        return []

    def log_levels(self) -> dict[str, str]:
        """Category ─► level, "" being everything else; from any thread."""
        return {"": "info"}

    def set_log_level(self, _level: str, _category: str) -> None:
        """From any thread; the level is one there is, "" takes a category's away."""

    def drained(self) -> dict[str, Any]:
        """Whether the doors are shut, and who is still in; on the data loop."""
        return {"draining": False, "connections": 0}

    def drain(self) -> None:
        """Refuse new connections; on the data loop."""

    def revive(self) -> None:
        """Let clients in again; on the data loop."""

    def back_up(self, _directory: str) -> None:
        """Begin to copy the data directory to a new one; on the data loop.

        Raises PreconditionFailed.
        """

    def backup(self) -> dict[str, Any]:
        """How far the last one is; from any thread."""
        return {"under_way": False, "bytes": 0, "error": ""}

    def is_open(self) -> bool:
        """May clients come?  From any thread."""
        return True

    def stop(self) -> None:
        """In good order, soon; from any thread."""
