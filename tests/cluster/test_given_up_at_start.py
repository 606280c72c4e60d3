"""Which damaged copies a start gives up: the rule of ``give_up_copy``, without processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cluster.agreement.coordinator import Entry
from penstock.cluster.agreement.metadata import path
from penstock.cluster.agreement.mirror_keys import VIEWS
from penstock.cluster.agreement.queue_views import first_ruled_view, first_view, view_to_json
from penstock.core.errors import CopyGivenUp, DamagedQueue
from penstock.node.cluster import damaged_copies
from penstock.node.coordination.etcd_coordinator import EtcdUnavailable
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import QueueRecord

HERE, THERE = "a@h", "b@h"
MIRRORED = view_to_json(first_view(f"{THERE}/1"))
QUORUM = view_to_json(first_ruled_view(f"{THERE}/1", (HERE, THERE), (HERE, THERE)))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Which queues are left after a start that found the only one damaged."""

    told: list[str] = []

    def started(name: str, view: str, *, life: str = "1", is_away: bool = False) -> list[str]:
        definitions = Definitions(str(tmp_path / "definitions.db"))
        definitions.put_queue(QueueRecord(7, "i", "/", name, False, {}))
        definitions.commit()
        member = SimpleNamespace(
            coordinator=SimpleNamespace(
                snapshot=lambda: [Entry(path(VIEWS, "/", "q"), view, 3, 3)]
            ),
            membership=SimpleNamespace(
                nodes={THERE: SimpleNamespace(living=SimpleNamespace(member=f"{THERE}/{life}"))}
            ),
            leave=lambda: None,
            listeners=[],
        )

        def join() -> Any:
            if is_away:
                raise EtcdUnavailable("it does not answer")
            return member

        access = SimpleNamespace(join=join)
        monkeypatch.setattr(damaged_copies, "cluster_access", lambda *_: access)
        damage, topology = DamagedQueue("7/0.idx: damaged", 7), definitions.load()
        settings: Any = SimpleNamespace()
        monkeypatch.setattr(damaged_copies, "tls_between_nodes", lambda _: None)
        try:
            damaged_copies.give_up_copy(damage, topology, definitions, settings, HERE)
        except CopyGivenUp as error:
            told.append(str(error))
        left = [queue.name for queue in definitions.load().queues]
        definitions.close()
        assert len(told) + len(left) == 1
        return left

    return started


@pytest.mark.parametrize("name", ["amq.mirror.q", "q"])
@pytest.mark.parametrize("view", [MIRRORED, QUORUM])
def test_the_copy_of_a_mirror_and_of_a_former_master_is_given_up(
    start: Callable[..., list[str]], name: str, view: str
) -> None:
    assert start(name, view) == []


def test_a_quorum_queue_whose_master_does_not_live_keeps_it(
    start: Callable[..., list[str]],
) -> None:
    assert start("amq.mirror.q", QUORUM, life="2") == ["amq.mirror.q"]


def test_a_queue_without_mirrors_and_one_of_a_cluster_that_is_away_keep_it(
    start: Callable[..., list[str]],
) -> None:
    assert start("other", MIRRORED) == ["other"]


def test_it_is_kept_if_the_cluster_cannot_be_asked(start: Callable[..., list[str]]) -> None:
    assert start("q", MIRRORED, is_away=True) == ["q"]
