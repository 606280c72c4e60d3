"""Who waits for the disk from outside is told in time, whoever else gave up."""

from __future__ import annotations

import pytest

from penstock.runtime.disk_waiters import DiskWaiters
from tests.helpers.connection_pair import QuietBroker


@pytest.fixture
def waiters() -> DiskWaiters:
    return DiskWaiters(QuietBroker().turn)


def test_positions_come_in_any_order(waiters: DiskWaiters) -> None:
    futures = {position: waiters.wait(position) for position in (300, 100, 200)}
    waiters.confirm(100)
    assert {position for position, one in futures.items() if one.done()} == {100}
    assert waiters.awaiting_disk
    waiters.confirm(250)
    assert {position for position, one in futures.items() if one.done()} == {100, 200}
    waiters.confirm(300)
    assert futures[300].done()
    assert not waiters.awaiting_disk


def test_who_gave_up_holds_up_nobody(waiters: DiskWaiters) -> None:
    gone, stays = waiters.wait(100), waiters.wait(100)
    gone.cancel()
    waiters.confirm(100)
    assert stays.result(0) is None
