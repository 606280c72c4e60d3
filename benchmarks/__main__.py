"""One command for each table: ``python -m benchmarks TABLE``; its options: ``--help``."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / place) for place in ("", "src")]

from benchmarks.harness import Table, run  # noqa: E402

TABLES = {
    "compare": "throughput",
    "builds": "throughput",
    "tls": "throughput",
    "nodes": "throughput",
    "storage": "storage",
    "slow-consumers": "storage",
    "paging-reads": "storage",
    "topology": "topology",
    "overload": "overload",
    "mirrors": "mirrors",
    "mirror-sync": "mirrors",
    "pauses": "pauses",
    "streams": "streams",
    "archive": "archive",
    "nsq": "nsq",
    "nsq-lateness": "nsq",
    "events": "costs",
    "sampling": "costs",
    "credit": "costs",
    "core": "costs",
    "instructions": "costs",
    "instructions-core": "costs",
}
"""Where each is, in the order in which the README lists them."""


def table_of(name: str) -> Table:
    tables = import_module(f"benchmarks.{TABLES[name]}").TABLES
    found: Table = next(table for table in tables if table.name == name)
    return found


def main() -> int:
    words = sys.argv[1:]
    if not words or words[0] not in TABLES:
        print(f"usage: python -m benchmarks TABLE [OPTION]…\ntables: {', '.join(TABLES)}")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and no broker is left behind
    return run(table_of(words[0]), words[1:])


if __name__ == "__main__":
    sys.exit(main())
