"""The positions of a copy outlive crashes, clean stops and the journal's files, exactly."""

from __future__ import annotations

import random

import pytest

from penstock.cluster.agreement.reigns import (
    BEGINNING,
    NOWHERE,
    Holding,
    Position,
    gave_up_for,
)
from penstock.cluster.mirrors.copy_positions import CopyPositions
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

FAR = Position((1 << 22) - 1, (1 << 40) - 3)


def opened(files: SimFileSystem, *queue_ids: int) -> OpenEngine:
    small = limits(journal=3000, entries=20)
    return OpenEngine(files, dict.fromkeys(queue_ids, 16), small, journal_file_bytes=2000)


def positions(engine: OpenEngine, queue_id: int = 1) -> CopyPositions:
    return CopyPositions(engine.engine.journal, queue_id)


def test_a_new_copy_is_complete_nowhere_and_has_heard_nothing() -> None:
    engine = opened(SimFileSystem(), 1)
    assert positions(engine).holding() == Holding(NOWHERE, BEGINNING)


@pytest.mark.parametrize("reached", [BEGINNING, Position(3, 0), Position(3, 7), FAR])
@pytest.mark.parametrize("how", ["crash", "power cut", "clean stop"])
def test_both_are_found_as_they_were(reached: Position, how: str) -> None:
    files = SimFileSystem()
    engine = opened(files, 1, 2)
    here = positions(engine)
    here.hear(reached)
    here.reach(reached)
    here.doubt()
    assert here.durable_number(reached.term) == -1
    engine.commit()
    assert here.durable_number(reached.term) == reached.number
    wanted = here.holding()
    if how == "clean stop":
        engine.close_cleanly()
    elif how == "crash":
        files.kill()
    else:
        files.power_cut(random.Random(1))
    engine = opened(files, 1, 2)
    again = positions(engine)
    assert again.holding() == wanted
    assert again.durable_number(reached.term) == reached.number
    assert positions(engine, 2).holding() == Holding(NOWHERE, BEGINNING)


def test_they_never_go_back_and_outlive_the_file_they_were_written_to() -> None:
    files = SimFileSystem()
    engine = opened(files, 1, 2)
    here = positions(engine)
    here.begin(2)
    here.hear(Position(1, 9))
    here.reach(Position(1, 9))
    for _ in range(200):
        engine.queues[2].publish([message(b"x" * 100)], 1)
        engine.settle(1)
    assert engine.engine.journal.files_retired > 0
    files.power_cut(random.Random(1))
    again = positions(opened(files, 1, 2))
    assert again.holding() == Holding(Position(2, 0), Position(2, 0))


@pytest.mark.parametrize("is_clean", [True, False])
def test_with_its_queue_they_go(is_clean: bool) -> None:
    files = SimFileSystem()
    engine = opened(files, 1, 2)
    positions(engine, 1).begin(2)
    positions(engine, 2).begin(3)
    engine.commit()
    engine.queues.pop(1).delete()
    engine.commit()
    assert sorted(engine.engine.journal.positions().values()) == [(3 << 40) + 1] * 2
    if is_clean:
        engine.close_cleanly()
    else:
        files.kill()
    engine = opened(files, 2)
    assert positions(engine, 2).complete == Position(3, 0)
    assert len(engine.engine.journal.positions()) == 2


def test_for_which_term_a_copy_gave_up_is_found_until_it_is_complete() -> None:
    files = SimFileSystem()
    engine = opened(files, 1)
    positions(engine).give_up_for(3)
    engine.commit()
    files.kill()
    engine = opened(files, 1)
    here = positions(engine)
    assert here.holding() == Holding(gave_up_for(3), BEGINNING)
    assert here.durable_number(3) == -1
    here.begin(3)
    engine.commit()
    files.kill()
    assert positions(opened(files, 1)).holding() == Holding(Position(3, 0), Position(3, 0))
