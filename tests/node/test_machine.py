"""How much memory is ours: the machine's, or what control groups of either version leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.node.machine import resident_bytes, total_memory_bytes

MEMINFO = "MemTotal:       16000000 kB\nMemFree:         1000 kB\n"
MACHINE = 16_000_000 * 1024


def machine(root: Path, files: dict[str, str]) -> int:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return total_memory_bytes(str(root))


@pytest.mark.parametrize(
    "files, total",
    [
        ({}, 0),
        ({"proc/meminfo": "nonsense"}, 0),
        ({"proc/meminfo": MEMINFO}, MACHINE),
        ({"proc/meminfo": MEMINFO, "sys/fs/cgroup/memory.max": "max\n"}, MACHINE),
        ({"proc/meminfo": MEMINFO, "sys/fs/cgroup/memory.max": "512000000\n"}, 512_000_000),
        ({"proc/meminfo": MEMINFO, "sys/fs/cgroup/memory.max": "99000000000\n"}, MACHINE),
        ({"sys/fs/cgroup/memory.max": "512000000\n"}, 512_000_000),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/system.slice/penstock.service\n",
                "sys/fs/cgroup/system.slice/penstock.service/memory.max": "max\n",
                "sys/fs/cgroup/system.slice/memory.max": "700000000\n",
            },
            700_000_000,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "12:cpu:/x\n7:hugetlb,memory:/docker/abc\n",
                "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "300000000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            300_000_000,
        ),
        (
            # In a container: the path is the host's, the limit is at the top.
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "7:memory:/docker/abc\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "400000000\n",
            },
            400_000_000,
        ),
    ],
)
def test_total(tmp_path: Path, files: dict[str, str], total: int) -> None:
    assert machine(tmp_path, files) == total


def test_this_process_is_somewhere() -> None:
    assert 1_000_000 < resident_bytes() < total_memory_bytes()
