"""What the operating system says about this process and its machine."""

import os
import resource
import time
from pathlib import Path

from penstock.broker.alarms import UNKNOWN, Alarms
from penstock.core.settings import Settings
from penstock.management.rows import Row


class NodeFacts:
    """Asked at each call; ``alarms`` has what was seen at the last look."""

    def __init__(self, name: str, settings: Settings, alarms: Alarms) -> None:
        self._name = name
        self._settings = settings
        self._alarms = alarms
        self._started_at_s = time.monotonic()

    def row(self) -> Row:
        open_files_limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        row: Row = {
            "name": self._name,
            "type": "disc",
            "running": True,
            "os_pid": str(os.getpid()),
            "uptime": int((time.monotonic() - self._started_at_s) * 1000),
            "processors": os.cpu_count() or 1,
            "fd_total": open_files_limit,
            **self._from_alarms(),
            "db_dir": self._settings.data_dir,
            "config_files": [self._settings.file_name] if self._settings.file_name else [],
            "partitions": [],
            "cluster_links": [],
        }
        row.update(_from_proc())
        return row

    def _from_alarms(self) -> Row:
        """As RabbitMQ has them; numbers that move are read without a stop of the data loop."""
        alarms = self._alarms
        free = int(alarms.disk_free_bytes)
        return {
            "mem_limit": int(alarms.memory_limit_bytes),
            "mem_alarm": alarms.memory,
            "disk_free": "NaN" if free == UNKNOWN else free,
            "disk_free_limit": int(alarms.disk_limit_bytes),
            "disk_free_alarm": alarms.disk,
        }


def _from_proc() -> Row:
    """Resident memory and open files; nothing where there is no /proc."""
    try:
        resident_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return {
            "mem_used": resident_pages * resource.getpagesize(),
            "mem_calculation_strategy": "rss",
            "fd_used": len(os.listdir("/proc/self/fd")),
        }
    except OSError:
        return {}
