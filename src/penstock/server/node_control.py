"""``Control``: what the management API may ask of this node (``management/control``)."""

from penstock.management.control import NodeControl
from penstock.server.doors import Doors
from penstock.server.ending import Ending
from penstock.server.logs import Logs


class Control(NodeControl):
    """Of one node."""

    def __init__(self, doors: Doors, ending: Ending, logs: Logs) -> None:
        self._doors = doors
        self._ending = ending
        self._logs = logs

    def log_lines(self, count: int) -> list[str]:
        return self._logs.lines(count)

    def log_levels(self) -> dict[str, str]:
        return self._logs.levels()

    def set_log_level(self, level: str, category: str) -> None:
        self._logs.set_level(level, category)

    def drained(self) -> dict[str, object]:
        return {"draining": self._doors.shut, "connections": self._doors.client_count()}

    def drain(self) -> None:
        self._doors.drain()

    def revive(self) -> None:
        self._doors.revive()

    def is_open(self) -> bool:
        return not self._doors.shut

    def stop(self) -> None:
        self._ending.ask()
