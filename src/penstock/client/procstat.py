"""CPU time and resident memory of a local process, and of its children if wanted (Linux)."""

import os
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessGone(Exception):
    """The process measured does not exist (any more)."""


class ProcessGauge:
    """Watches ``pid``; with ``tree`` also every process that descends from it."""

    def __init__(self, pid: int, tree: bool) -> None:
        self.pid = pid
        self.peak_rss_bytes = 0
        self._tree = tree
        self.pids = [pid]
        self.refresh()
        self.sample_rss()

    def refresh(self) -> None:
        """Look for children that were started meanwhile."""
        if not self._tree:
            return
        parents: dict[int, int] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                fields = stat_fields(int(name))
                if fields:
                    parents[int(name)] = int(fields[1])
        family = [self.pid]
        for pid in family:  # grows while it is walked: children of children
            family += [child for child, parent in parents.items() if parent == pid]
        self.pids = family

    def cpu_s(self) -> tuple[float, float]:
        """User and system seconds so far; children that ended are no longer counted."""
        user = system = 0
        for pid in self.pids:
            fields = stat_fields(pid)
            if fields:
                user += int(fields[11])
                system += int(fields[12])
            elif pid == self.pid:
                raise ProcessGone(f"process {pid} is gone")
        return user / TICKS_PER_S, system / TICKS_PER_S

    def sample_rss(self) -> int:
        """Resident bytes now; remembers the peak.  Pages shared in a tree count each time."""
        total = 0
        for pid in self.pids:
            fields = read_words(f"/proc/{pid}/statm")
            if fields:
                total += int(fields[1]) * PAGE_BYTES
            elif pid == self.pid:
                raise ProcessGone(f"process {pid} is gone")
        self.peak_rss_bytes = max(self.peak_rss_bytes, total)
        return total


def stat_fields(pid: int) -> list[str]:
    """The fields of ``stat`` behind the command's name (which may hold anything)."""
    text = read_text(f"/proc/{pid}/stat")
    return text[text.rfind(")") + 1 :].split()


def read_words(path: str) -> list[str]:
    return read_text(path).split()


def read_text(path: str) -> str:
    """Empty when the process is gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""
