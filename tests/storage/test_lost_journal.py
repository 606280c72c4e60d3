"""A journal that is gone is no new journal: a start refuses a directory that has lost it."""

from __future__ import annotations

import contextlib
import random

import pytest

from penstock.core.errors import Corrupt
from penstock.storage.engine.resting_queue import FLUSHED
from penstock.storage.journal.journal import Journal
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

QUEUE_ID = 7
JOURNAL = "data/journal"


def opened(files: SimFileSystem) -> OpenEngine:
    return OpenEngine(files, {QUEUE_ID: 16}, limits(embed=200))


def filled(files: SimFileSystem, size: int) -> OpenEngine:
    one = opened(files)
    one.queues[QUEUE_ID].publish([message(b"x" * size) for _ in range(5)], 1)
    one.commit()
    return one


def only_definitions(files: SimFileSystem) -> None:
    filled(files, 50)


def segments(files: SimFileSystem) -> None:
    one = filled(files, 50)
    assert one.queues[QUEUE_ID].flush_file(1 << 40, 1 << 40) == FLUSHED
    one.run_jobs()


def store_files(files: SimFileSystem) -> None:
    filled(files, 500)
    files.remove_dir("data/queues")


def terms(files: SimFileSystem) -> None:
    filled(files, 50).close_cleanly()
    files.remove_dir("data/queues/7")


WITNESSES = {
    only_definitions: "definitions.db names 1 durable queues",
    segments: "queues has 1 segment files",
    store_files: "store/persistent has 1 files with contents",
    terms: "the terms of a clean stop name journal file 2",
}


@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize("witness", WITNESSES, ids=lambda one: one.__name__)
def test_a_start_without_the_journal_is_refused(witness: object, *, emptied: bool) -> None:
    files = SimFileSystem()
    witness(files)  # type: ignore[operator]
    files.kill()
    files.remove_dir(JOURNAL)
    if emptied:
        files.makedirs(JOURNAL)
    before = set(files.names)
    with pytest.raises(Corrupt) as refused:
        opened(files)
    text = str(refused.value)
    assert text.startswith(f"{JOURNAL}: no journal file that was begun is there, although ")
    assert WITNESSES[witness] in text  # type: ignore[index]
    assert "restore" in text
    assert "penstock repair data --new-journal" in text
    assert set(files.names) == before


def test_a_journal_file_that_was_never_begun_is_no_journal() -> None:
    files = SimFileSystem()
    segments(files)
    files.kill()
    files.truncate(f"{JOURNAL}/1.jif", 0)
    with pytest.raises(Corrupt, match="no journal file that was begun"):
        opened(files)


VERBS = ("makedirs", "sync_dir", "open_write", "allocate", "pwrite", "sync")


@pytest.mark.parametrize("verb", VERBS)
def test_a_first_start_that_was_interrupted_is_repeated(verb: str) -> None:
    """At each of its steps, with queues in the definitions."""
    for seed in range(8):
        for step in range(30):
            files = SimFileSystem()
            files.fail(verb, after=step)
            with contextlib.suppress(OSError):
                opened(files)
            if not files.has_failed:
                assert step > 0
                break
            files.power_cut(random.Random(seed))
            assert opened(files).opening.messages == 0
        else:
            raise AssertionError("the start never came to its end")


def test_a_new_journal_can_be_begun_in_its_place() -> None:
    files = SimFileSystem()
    segments(files)
    files.kill()
    files.remove_dir(JOURNAL)
    Journal(files, JOURNAL).begin(1, {})
    assert opened(files).opening.messages == 5
