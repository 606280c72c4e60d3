"""What a node believes of its lease after it stood still."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cluster.agreement.pauses import UNSURE_MS, Pauses

LEASE_MS = 9000
PAUSE_MS = LEASE_MS // 3
BEGAN_MS = 100_000


class World:
    """A membership and its coordinator."""

    def __init__(self) -> None:
        self.valid_until_ms = BEGAN_MS + LEASE_MS
        self.ended = False
        self.silent = ""

    def may_act(self, now_ms: int) -> bool:
        return now_ms < self.valid_until_ms

    def lease_has_ended(self) -> bool:
        return self.ended

    def why_not(self) -> str:
        return self.silent


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pauses(world: World) -> Pauses:
    here: Any = world
    made = Pauses(here, here, LEASE_MS)
    made.turned(BEGAN_MS)
    return made


def test_a_lease_that_lasts_has_not_lapsed(pauses: Pauses) -> None:
    assert not pauses.lapsed(BEGAN_MS + LEASE_MS - 1)
    assert pauses.lapsed(BEGAN_MS + LEASE_MS)


def test_a_lease_lapses_once(pauses: Pauses) -> None:
    assert pauses.lapsed(BEGAN_MS + LEASE_MS)
    pauses.turned(BEGAN_MS + LEASE_MS)
    assert not pauses.lapsed(BEGAN_MS + LEASE_MS)


def test_a_pause_within_a_turn_is_one(pauses: Pauses) -> None:
    """Between the news of the coordinator and the end of ``begin``."""
    pauses.turned(BEGAN_MS + LEASE_MS)
    assert pauses.lapsed(BEGAN_MS + LEASE_MS)
    assert not pauses.is_known(BEGAN_MS + LEASE_MS)


def test_after_a_pause_a_silent_coordinator_is_no_answer(pauses: Pauses, world: World) -> None:
    now_ms = BEGAN_MS + LEASE_MS
    world.silent = "etcd has not answered"
    assert pauses.lapsed(now_ms)
    assert not pauses.is_known(now_ms)
    pauses.doubt(now_ms)
    assert not pauses.settle(now_ms + UNSURE_MS - 1)
    world.ended = True
    assert pauses.settle(now_ms + UNSURE_MS - 1)
    assert pauses.unsure_until_ms == 0


def test_after_a_pause_the_lease_may_have_been_kept_alive(pauses: Pauses, world: World) -> None:
    now_ms = BEGAN_MS + LEASE_MS
    assert pauses.lapsed(now_ms)
    pauses.doubt(now_ms)
    world.valid_until_ms = now_ms + LEASE_MS
    assert pauses.settle(now_ms)


def test_doubt_ends_while_the_coordinator_stays_away(pauses: Pauses) -> None:
    now_ms = BEGAN_MS + LEASE_MS
    assert pauses.lapsed(now_ms)
    pauses.doubt(now_ms)
    assert pauses.settle(now_ms + UNSURE_MS)


def test_without_a_pause_a_silent_coordinator_promotes_no_other_node(
    pauses: Pauses, world: World
) -> None:
    now_ms = BEGAN_MS + LEASE_MS
    pauses.turned(now_ms - PAUSE_MS + 1)
    assert pauses.lapsed(now_ms)
    assert not pauses.is_known(now_ms)
    world.silent = "etcd has not answered"
    assert pauses.is_known(now_ms)
    pauses.doubt(now_ms)
    assert pauses.unsure_until_ms == 0
