"""A real etcd loses its data: a member takes nothing for deleted (O6 of ``coordinator.py``)."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from penstock.cluster.agreement.coordinator import FAILED, Change
from penstock.cluster.agreement.known_keys import FOUNDED
from penstock.node.coordination.etcd_coordinator import EtcdCoordinator
from penstock.node.coordination.etcd_lease import EtcdLease, boot_ms
from penstock.node.coordination.etcd_watch import EtcdWatch
from tests.cluster.coordinator_worlds import Copy, EtcdWorld
from tests.helpers.etcd import EtcdServer, missing_reason

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]


def put(key: str, value: str = "1") -> Change:
    return Change(key, value)


def found(world: EtcdWorld) -> tuple[EtcdCoordinator, Copy]:
    """A member of a cluster that has a queue."""
    one = world.join("a/1")
    copy = Copy(one)
    world.done(one, [], [put(FOUNDED, '{"v":1,"id":"a/1"}'), put("queues/%2F/q")])
    copy.take()
    return one, copy


def judge_lost(world: EtcdWorld, one: EtcdCoordinator, copy: Copy, match: str) -> None:
    """It hears of nothing that is missing, and can change nothing."""
    known = dict(copy.keys)
    world.wait(lambda: one.why_lost() != "")
    assert match in one.why_lost()
    world.spend(3 * world.ttl_ms)
    one.new_lease()
    world.spend(500)
    assert copy.take() == []
    assert copy.keys == known
    assert world.done(one, [], [put("k")]).state == FAILED
    assert "k" not in {entry.key for entry in world.join("b/1").snapshot()}


def test_o6_it_comes_back_empty(world: EtcdWorld, server: EtcdServer) -> None:
    one, copy = found(world)
    server.kill()
    shutil.rmtree(server.directory / server.name)
    server.start()
    judge_lost(world, one, copy, "its data")


@pytest.mark.parametrize("heard_from", ["its renewal", "a proposal"])
def test_o6_the_lease_does_not_end_before_the_loss_is_known(
    world: EtcdWorld, server: EtcdServer, monkeypatch: pytest.MonkeyPatch, heard_from: str
) -> None:
    """Else the node joins anew, and its mirrored queues are copies without a master for good."""
    one, _ = found(world)

    async def silent(_watch: EtcdWatch) -> None:
        await asyncio.sleep(3600)

    async def renewed(lease: EtcdLease) -> bool:
        lease._rely(boot_ms())
        return True

    monkeypatch.setattr(EtcdWatch, "_follow", silent)
    if heard_from == "a proposal":
        monkeypatch.setattr(EtcdLease, "_renewed", renewed)
    server.kill()
    shutil.rmtree(server.directory / server.name)
    server.start()

    def is_known() -> bool:
        if heard_from == "a proposal":  # a first one may fail for a connection of before the kill
            assert world.done(one, [], [Change("k", "1", leased=True)]).state == FAILED
        return one.why_lost() != "" or one.lease_has_ended()

    world.wait(is_known)
    assert not one.lease_has_ended()
    assert "its data" in one.why_lost()


def test_o6_it_comes_back_with_an_older_copy(world: EtcdWorld, server: EtcdServer) -> None:
    one, copy = found(world)
    data, backup = server.directory / server.name, server.directory / "backup"
    server.kill()
    shutil.copytree(data, backup)
    server.start()
    world.wait(lambda: world.done(one, [], []).revision > 0)
    for number in range(5):
        world.done(one, [], [put(f"queues/%2F/{number}")])
    copy.take()
    server.kill()
    shutil.rmtree(data)
    backup.rename(data)
    server.start()
    judge_lost(world, one, copy, "older than what it said before")
