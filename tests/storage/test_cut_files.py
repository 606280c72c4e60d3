"""A file that is cut short while the broker is down, at the end of any block, group or record.

A start either says so or has all that was confirmed: it does not take a cut for the end of the
file.  After a kill there is an exception, ``is_not_told``.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator

import pytest

from penstock.core.errors import Corrupt, DamagedQueue
from penstock.storage.audit.audit import DataAudit, QueueFacts
from penstock.storage.index.segment_codec import HEADER_BYTES, read_block
from penstock.storage.journal.codec import block_end, journal_file_no
from penstock.storage.store.codec import GROUP_HEADER_BYTES, read_group_header, store_file_no
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

QUEUE = 7
ENTRIES = 64
COUNT = 200
LARGE_EVERY = 3


def content(number: int) -> bytes:
    return b"%d:" % number + b"x" * (400 if number % LARGE_EVERY == 1 else 60)


def opened(files: SimFileSystem) -> OpenEngine:
    return OpenEngine(
        files,
        {QUEUE: ENTRIES},
        limits(embed=200, journal=8000),
        journal_file_bytes=4000,
        store_file_bytes=3000,
    )


def stopped(*, cleanly: bool, count: int = COUNT) -> SimFileSystem:
    """All messages were confirmed; the last ones are in the journal only, the others in segments,
    some of them by references.
    """
    files = SimFileSystem()
    engine = opened(files)
    for number in range(count):
        engine.queues[QUEUE].publish([message(content(number))], 1000)
        engine.commit()
        if number < count - 4:
            engine.settle(1_000_000 + 10_000 * number)
    if cleanly:
        engine.close_cleanly()
    files.kill()
    return files


def found(files: SimFileSystem) -> list[bytes]:
    """What a start finds, and a consumer is given.  Raises Corrupt."""
    engine = opened(files)
    queue = engine.queues[QUEUE]
    contents: list[bytes] = []
    for _ in range(10 * COUNT):
        contents += [one.content for one in queue.fetch(COUNT, 1 << 30)]
        if queue.records.fault:
            raise Corrupt(queue.records.fault)
        if len(contents) == COUNT or queue.ready_count() == 0:
            break
        engine.settle(2_000_000)
    return contents


def ends(data: bytes, end_of: Callable[[int], int]) -> Iterator[int]:
    """Where its blocks end, and 0."""
    at = 0
    while 0 <= at < len(data):
        yield at
        at = end_of(at)


def segment_ends(path: str, data: bytes) -> Iterator[int]:
    number = int(name_of(path).removesuffix(".idx"))

    def end_of(at: int) -> int:
        header = read_block(data, at, 0, QUEUE, number)
        return -1 if header is None else int(header.end())

    return ends(data, end_of)


def store_ends(path: str, data: bytes) -> Iterator[int]:
    number = store_file_no(name_of(path))

    def end_of(at: int) -> int:
        header = read_group_header(data[at:], number, at)
        return -1 if header is None else int(at + GROUP_HEADER_BYTES + header.size)

    return ends(data, end_of)


def journal_ends(path: str, data: bytes) -> Iterator[int]:
    number = journal_file_no(name_of(path))
    return ends(data, lambda at: int(block_end(data, at, number)))


KINDS: dict[str, Callable[[str, bytes], Iterator[int]]] = {
    ".idx": segment_ends,
    ".rdq": store_ends,
    ".jif": journal_ends,
}


def silent_cuts(files: SimFileSystem, kind: str) -> tuple[list[tuple[str, int]], int]:
    """The cuts after which messages are missing and nothing says so; and how many were tried."""
    silent: list[tuple[str, int]] = []
    tried = 0
    for path in sorted(files.names):
        if not path.endswith(kind):
            continue
        data = files.read(path)
        for end in KINDS[kind](path, data):
            for size in {end, min(end + 7, len(data) - 1)}:
                tried += 1
                image = copy.deepcopy(files)
                image.truncate(path, size)
                image.kill()
                try:
                    if found(image) != [content(number) for number in range(COUNT)]:
                        silent.append((path, size))
                except Corrupt:
                    pass
    return silent, tried


def is_not_told(path: str, size: int) -> bool:
    """A segment without its attestation may be one that was just begun."""
    return path.endswith(".idx") and size < HEADER_BYTES


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


@pytest.mark.parametrize("cleanly", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_no_cut_is_taken_for_the_end(kind: str, cleanly: bool) -> None:
    files = stopped(cleanly=cleanly)
    assert found(copy.deepcopy(files)) == [content(number) for number in range(COUNT)]
    silent, tried = silent_cuts(files, kind)
    assert tried >= 20
    if cleanly:
        assert silent == []
    else:
        assert all(is_not_told(path, size) for path, size in silent)


def numbers(found_contents: list[bytes]) -> list[int]:
    return [int(one.partition(b":")[0]) for one in found_contents]


def newest(files: SimFileSystem) -> str:
    paths = [path for path in files.names if path.endswith(".jif")]
    return max(paths, key=lambda path: journal_file_no(name_of(path)))


@pytest.mark.parametrize("restarted", [False, True])
def test_no_cut_of_the_newest_journal_file_however_much_is_in_it(restarted: bool) -> None:
    """Also of one in which the first group was just synced, or that a start began."""
    for count in range(15, 45):
        files = stopped(cleanly=False, count=count)
        if restarted:
            opened(files)
            files.kill()
        path = newest(files)
        data = files.read(path)
        for end in journal_ends(path, data):
            for size in (end, end + 7):
                image = copy.deepcopy(files)
                image.truncate(path, size)
                image.kill()
                try:
                    got = numbers(found(image))
                except Corrupt:
                    continue
                assert got == list(range(count)), (count, path, size)


def test_a_newest_journal_file_that_is_missing_is_noticed() -> None:
    for count in range(15, 45):
        files = stopped(cleanly=False, count=count)
        files.remove(newest(files))
        with contextlib.suppress(Corrupt):
            assert numbers(found(files)) == list(range(count))


def test_a_content_that_only_the_last_group_names_is_missed_of_its_queue() -> None:
    files = stopped(cleanly=False, count=LARGE_EVERY * 40 + 2)
    stores = [path for path in files.names if path.endswith(".rdq")]
    files.truncate(max(stores, key=lambda path: store_file_no(name_of(path))), 0)
    with pytest.raises(DamagedQueue, match=r"the content of message \d+ of queue 7 ") as refused:
        opened(files)
    assert refused.value.queue_id == QUEUE


def test_a_start_that_was_killed_is_no_cut() -> None:
    """It has made the end of the journal durable, and nothing else yet."""
    files = stopped(cleanly=False)
    path = newest(files)
    size = files.size(path)
    files.fail("makedirs", after=8)
    with pytest.raises(OSError):
        opened(files)
    files.kill()
    assert files.size(path) == size
    assert numbers(found(files)) == list(range(COUNT))


def test_the_audit_names_the_file_that_was_cut() -> None:
    files = stopped(cleanly=False)
    path = newest(files)
    end = list(journal_ends(path, files.read(path)))[-2]
    files.truncate(path, end)
    with pytest.raises(Corrupt, match=rf"{name_of(path)}: ends at offset {end}, although 4000 "):
        opened(copy.deepcopy(files))
    found_damage = DataAudit(
        files, "data", [QueueFacts(QUEUE, "/", "q", ENTRIES)], lambda _path, _size: None
    )
    found_damage.run()
    (damage,) = found_damage.damages
    file = path.removeprefix("data/")
    assert (damage.file, damage.offset, damage.length) == (file, end, 4000 - end)
