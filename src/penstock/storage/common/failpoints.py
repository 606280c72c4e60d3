"""Fail points: named places where a test may let the process die.

A crash that comes at a random moment seldom comes between a rename and the removal behind it.
So the code says ``reach("store.gc.renamed")`` there, and a test that starts the broker with
``PENSTOCK_FAILPOINT=store.gc.renamed`` gets a process that dies exactly then; ``...renamed:3``
lets it pass twice and die the third time.

A name says what *has just happened*: a point stands behind the call it is named after, and
what comes after it is what the crash prevents.

Unarmed, which is always but in those tests, ``reach`` looks whether a dictionary is empty.
Still it belongs only where the disk has just been asked for something slow: after syncs,
renames, removals and steps of recovery, never where messages pass one by one.

How the process dies is an argument of ``arm``
(``runtime/disk/failpoint.py``: SIGKILL; a test in one process: an exception).  Fail points are
reached in several threads; the one that counts to the end is the one that ends it.

Every name is in ``NAMES``, and only there may a new one be invented: a test compares them
with the places in the sources.
"""

from collections.abc import Callable
from typing import Final

from penstock.core.errors import SettingInvalid

NAMES: Final[dict[str, str]] = {
    "journal.rolled": "a new journal file is there, its name is durable, nothing is in it",
    "journal.synced": "a group of the journal is synced, no confirm was sent",
    "journal.retired": "the oldest journal file is removed, or made ready to be used again",
    "segment.written": "blocks of a segment are written, not synced",
    "segment.synced": "a segment is synced, its queue was not told",
    "segment.copied": "what lives in a segment is copied and synced, unnamed yet",
    "segment.renamed": "the copy has the segment's name, which may not be durable",
    "segment.removed": "a segment of which nothing lives is removed",
    "queue.removed": "the directory of a deleted queue is removed",
    "store.rolled": "a new file of the message store is there, nothing is in it",
    "store.gc.copied": "garbage collection has copied what lives and synced it, unnamed yet",
    "store.gc.renamed": "the copy has its name, what it replaces is still there",
    "store.gc.removed": "the files that a copy replaced are removed",
    "stream.rolled": "a new file of a stream is there, its name is durable, nothing is in it",
    "stream.synced": "a group of the streams is synced, the journal's block of it is not",
    "stream.retired": "a file of a stream below its floor is removed",
    "stream.removed": "the directory of a deleted stream is removed",
    "recovery.journal_read": "at start: the journal is read, nothing else",
    "recovery.segments_read": "at start: all queues have read their segments",
    "recovery.flushed": "at start: what recovery had to write is written and synced",
    "recovery.ready": "at start: all is read and mended, the listeners are still closed",
    "terms.written": "at a clean stop: the terms of recovery are written and durable",
    "terms.removed": "at start: the terms are read and removed, so the next start is a dirty one",
}
"""Every fail point, and what has just happened there."""

armed: Final[dict[str, int]] = {}
"""Name to how many more times it must be reached; filled only by ``arm``."""
_ends: Final[list[Callable[[str], None]]] = []


def reach(name: str) -> None:
    """Here the process may die."""
    if armed:
        _count(name)


def _count(name: str) -> None:
    left = armed.get(name, 0)
    if left == 0:
        return
    if left > 1:
        armed[name] = left - 1
        return
    del armed[name]
    for end in _ends:
        end(name)


def arm(text: str, end: Callable[[str], None]) -> None:
    """``name`` or ``name:3``; the name's first or third time, ``end`` is called with it."""
    name, colon, times = text.partition(":")
    if name not in NAMES:
        known = ", ".join(NAMES)
        raise SettingInvalid(f"there is no fail point {name!r}; there are {known}")
    if colon and not (times.isdecimal() and times.isascii() and int(times) > 0):
        raise SettingInvalid(f"fail point {text!r}: a number from 1 on belongs behind the colon")
    disarm()
    armed[name] = int(times) if colon else 1
    _ends.append(end)


def disarm() -> None:
    armed.clear()
    _ends.clear()
