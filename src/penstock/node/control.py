"""``Control``: what the management API may ask of this node (``management/http/control``)."""

from penstock.management.http.control import NodeControl
from penstock.node.backup import Backup
from penstock.node.inspection.logs import Logs
from penstock.node.listener_set import ListenerSet
from penstock.node.shutdown import Shutdown


class Control(NodeControl):
    """Of one node."""

    def __init__(self, doors: ListenerSet, ending: Shutdown, logs: Logs, backup: Backup) -> None:
        self._backup = backup
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

    def back_up(self, directory: str) -> None:
        self._backup.begin(directory)

    def backup(self) -> dict[str, object]:
        backup = self._backup
        return {
            "under_way": backup.is_under_way,
            "bytes": backup.copied_bytes,
            "error": backup.error,
        }

    def is_open(self) -> bool:
        return not self._doors.shut

    def stop(self) -> None:
        self._ending.ask()
