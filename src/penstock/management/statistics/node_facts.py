"""Facts about the process, its machine and the node.

A row has RabbitMQ's fields.  Where RabbitMQ counts what does not exist here the nearest thing with
the same use is told: its Erlang processes are our threads.
"""

import gc
import os
import platform
import resource
import sqlite3
import ssl
import time
from pathlib import Path
from typing import Final

import aiohttp

from penstock import __version__
from penstock.broker.rules.alarms import UNKNOWN, Alarms
from penstock.core.counting.io_counts import IoCounts
from penstock.core.rabbitmq_plugins import BUILT_IN
from penstock.management.facts.rows import Row
from penstock.management.statistics.completing import Statistics
from penstock.settings.settings import Settings

EXCHANGE_TYPES: Final = {
    "direct": "AMQP direct exchange, as per the AMQP specification",
    "fanout": "AMQP fanout exchange, as per the AMQP specification",
    "headers": "AMQP headers exchange, as per the AMQP specification",
    "topic": "AMQP topic exchange, as per the AMQP specification",
    "x-consistent-hash": "Consistent Hashing Exchange",
    "x-local-random": "Picks one random local binding (queue) to route via (to).",
    "x-modulus-hash": "Modulus Hashing Exchange",
    "x-random": "AMQP random exchange",
    "x-recent-history": "Recent History Exchange.",
}
RETENTION_S: Final = {"global": [600, 3600, 28800, 86400], "basic": [600, 3600], "detailed": [600]}
"""The ages for which a client may ask samples, as RabbitMQ's defaults are."""

_USER_TICKS: Final = 11
_SYSTEM_TICKS: Final = 12
"""Of a thread's ``stat``, behind its name."""


class NodeFacts:
    """Asked at each call; ``alarms`` has what was seen at the last look, ``io_counts`` the disk."""

    def __init__(self, name: str, settings: Settings, alarms: Alarms, io_counts: IoCounts) -> None:
        self._name = name
        self._io_counts = io_counts
        self.settings = settings
        self._alarms = alarms
        self._started_at_s = time.monotonic()
        self.statistics: Statistics | None = None  # adds what is known of the past

    def row(self) -> Row:
        open_files_limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        row: Row = {
            "name": self._name,
            "type": "disc",
            "running": True,
            "os_pid": str(os.getpid()),
            "uptime": int((time.monotonic() - self._started_at_s) * 1000),
            "processors": os.cpu_count() or 1,
            "fd_total": open_files_limit,
            "sockets_total": open_files_limit,
            "proc_total": _threads_limit(),
            "context_switches": usage.ru_nvcsw + usage.ru_nivcsw,
            "gc_num": sum(generation["collections"] for generation in gc.get_stats()),
            **self._from_alarms(),
            **self._io_counts.fields(),
            **self._what_it_is(),
        }
        row.update(_from_proc())
        if self.statistics is not None:
            self.statistics.node(row)
        return row

    def _what_it_is(self) -> Row:
        settings = self.settings
        return {
            "db_dir": settings.data_dir,
            "config_files": [settings.file_name] if settings.file_name else [],
            "log_files": ["<stderr>"],
            "enabled_plugins": list(BUILT_IN),
            "exchange_types": exchange_type_rows(),
            "auth_mechanisms": _mechanism_rows(bool(settings.ssl_cert_login_from)),
            "applications": _application_rows(),
            "rates_mode": "none",
            "partitions": [],
            "cluster_links": [],
        }

    def resident_bytes(self) -> int:
        """0 where there is no /proc."""
        used = _from_proc().get("mem_used", 0)
        assert isinstance(used, int)
        return used

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


def exchange_type_rows() -> list[Row]:
    return [
        {"name": name, "description": description, "enabled": True}
        for name, description in EXCHANGE_TYPES.items()
    ]


def _mechanism_rows(external: bool) -> list[Row]:
    known = (
        ("PLAIN", "SASL PLAIN authentication mechanism", True),
        ("AMQPLAIN", "QPid AMQPLAIN mechanism", True),
        ("EXTERNAL", "SASL EXTERNAL authentication mechanism", external),
    )
    return [
        {"name": name, "description": description, "enabled": enabled}
        for name, description, enabled in known
    ]


def _application_rows() -> list[Row]:
    """What the process is made of."""
    known = (
        ("aiohttp", "HTTP server of the management API", aiohttp.__version__),
        ("openssl", "TLS", ssl.OPENSSL_VERSION.split()[1]),
        ("penstock", "Penstock", __version__),
        ("python", platform.python_implementation(), platform.python_version()),
        ("sqlite", "Keeps the definitions", sqlite3.sqlite_version),
    )
    return [
        {"name": name, "description": description, "version": version}
        for name, description, version in known
    ]


def runtime_version() -> str:
    return f"Python {platform.python_version()} [{platform.machine()}] [{platform.system()}]"


def _threads_limit() -> int:
    """How many threads there may be: of the user, else of the machine."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if limit != resource.RLIM_INFINITY:
        return limit
    try:
        return int(Path("/proc/sys/kernel/threads-max").read_text(encoding="ascii"))
    except OSError:
        return 0


def _from_proc() -> Row:
    """Memory, files, threads and disk of this process; nothing where there is no /proc."""
    try:
        own = Path("/proc/self")
        resident_pages = int((own / "statm").read_text(encoding="ascii").split()[1])
        return {
            "mem_used": resident_pages * resource.getpagesize(),
            "mem_calculation_strategy": "rss",
            "fd_used": len(os.listdir("/proc/self/fd")),
            "proc_used": len(os.listdir("/proc/self/task")),
            **_disk_traffic(own),
        }
    except OSError:
        return {}


def _disk_traffic(own: Path) -> Row:
    """Bytes that went through to the disk; not every container lets its processes read this."""
    try:
        text = (own / "io").read_text(encoding="ascii")
    except OSError:
        return {}
    numbers = dict(line.split(": ") for line in text.splitlines())
    return {
        "io_read_bytes": int(numbers["read_bytes"]),
        "io_write_bytes": int(numbers["write_bytes"]),
    }


def thread_rows() -> list[Row]:
    """The threads of this process; nothing where there is no /proc."""
    tick_ms = 1000 // os.sysconf("SC_CLK_TCK")
    rows: list[Row] = []
    for task in Path("/proc/self/task").glob("*"):
        try:
            text = (task / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        cpu_ms = (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) * tick_ms
        rows.append({"pid": task.name, "name": name, "status": fields[0], "cpu_time_ms": cpu_ms})
    return rows
