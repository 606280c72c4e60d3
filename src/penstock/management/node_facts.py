"""What the operating system says about this process and its machine."""

import os
import resource
import shutil
import time
from pathlib import Path

from penstock.management.view import Row


class NodeFacts:
    """Asked at each call; ``data_dir`` tells which disk matters."""

    def __init__(self, name: str, data_dir: str, config_file: str) -> None:
        self._name = name
        self._data_dir = data_dir
        self._config_file = config_file
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
            "disk_free": shutil.disk_usage(self._data_dir).free,
            "db_dir": self._data_dir,
            "config_files": [self._config_file] if self._config_file else [],
            "partitions": [],
            "cluster_links": [],
        }
        row.update(_from_proc())
        return row


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
