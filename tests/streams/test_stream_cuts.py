"""A file of a stream that is cut short while the broker is down, at the end of any block or in it.

After a kill a start says so, if messages that had been confirmed are missing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from penstock.core.errors import Corrupt, DamagedQueue
from penstock.streams.block_codec import read_head, segment_first
from penstock.streams.log import StreamLimits
from tests.backing.engine_tools import DIRECTORY, OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

STREAM = 3
QUEUE = 7
COUNT = 12
PATH = f"{DIRECTORY}/streams/{STREAM}"


def opened(files: SimFileSystem) -> OpenEngine:
    engine = OpenEngine(
        files,
        {QUEUE: 64},
        limits(journal=8000),
        journal_file_bytes=4000,
        store_file_bytes=3000,
        streams=[STREAM],
    )
    engine.streams[STREAM].log.set_limits(StreamLimits(segment_bytes=900))
    return engine


def killed(messages_behind: int) -> SimFileSystem:
    """All was confirmed; behind the last message of the stream came some of a queue."""
    files = SimFileSystem()
    engine = opened(files)
    for number in range(COUNT):
        engine.streams[STREAM].publish([message(b"%d:" % number + bytes(200))], 1000)
        engine.commit()
    for number in range(messages_behind):
        engine.queues[QUEUE].publish([message(b"%d:" % number + bytes(200))], 1000)
        engine.commit()
        engine.settle(1_000_000 + 10_000 * number)
    files.kill()
    return files


def paths(files: SimFileSystem) -> list[str]:
    names = [path for path in files.names if path.startswith(PATH)]
    return sorted(names, key=lambda path: segment_first(path.rpartition("/")[2]))


def ends(path: str, data: bytes) -> Iterator[int]:
    """Where its blocks end, and 0."""
    at = 0
    while at < len(data):
        yield at
        head = read_head(data, at, 0, STREAM, path)
        assert head is not None
        at = int(head.end())


def silent_cuts(files: SimFileSystem, path: str) -> list[int]:
    silent: list[int] = []
    data = files.read(path)
    for end in ends(path, data):
        for size in {end, end + 7, end + 85}:
            image = copy.deepcopy(files)
            image.truncate(path, size)
            image.kill()
            try:
                if opened(image).streams[STREAM].log.next_offset < COUNT:
                    silent.append(size)
            except Corrupt:
                pass
    return silent


@pytest.mark.parametrize("messages_behind", [0, 1, 40])
def test_no_cut_is_taken_for_the_end(messages_behind: int) -> None:
    files = killed(messages_behind)
    assert opened(copy.deepcopy(files)).streams[STREAM].log.next_offset == COUNT
    assert len(paths(files)) >= 3
    assert [size for path in paths(files) for size in silent_cuts(files, path)] == []


@pytest.mark.parametrize("messages_behind", [0, 1, 40])
def test_a_file_that_is_missing_is_noticed(messages_behind: int) -> None:
    files = killed(messages_behind)
    for path in paths(files):
        image = copy.deepcopy(files)
        image.remove(path)
        with pytest.raises(DamagedQueue) as refused:
            opened(image)
        assert refused.value.queue_id == STREAM
