"""What stands in etcd counts only if a node with the cluster's secret has written it (M5)."""

from __future__ import annotations

import re

import pytest

from penstock.cluster.agreement.coordinator import FAILED, Change
from penstock.node.coordination.etcd_coordinator import EtcdCoordinator, EtcdUnavailable
from penstock.node.coordination.etcd_http import EtcdOptions
from penstock.node.coordination.etcd_names import to_base64
from penstock.node.coordination.etcd_seal import Seal, WrongSeal
from penstock.node.coordination.etcd_upgrade import SEALING
from tests.cluster.coordinator_worlds import SECRET, Copy, EtcdWorld
from tests.helpers.etcd import EtcdServer, missing_reason

with_etcd = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))
ROOT = "/penstock/penstock/"
BOB = ROOT + "keys/users/bob"
ADMINISTRATOR = '{"tags":["administrator"],"v":1}'


def test_a_value_counts_under_its_key_alone() -> None:
    seal = Seal(SECRET)
    stored = seal.sealed(BOB, ADMINISTRATOR)
    assert stored.endswith(" " + ADMINISTRATOR)
    assert seal.opened(BOB, stored) == ADMINISTRATOR
    for value in ("", "x" * 1000, "\0", "grün"):
        assert seal.opened(BOB, seal.sealed(BOB, value)) == value
    for path, wrong in (
        (ROOT + "keys/users/bo", stored),
        ("/penstock/other/keys/users/bob", stored),
        (BOB, stored + " "),
        (BOB, stored.replace("administrator", "administratos")),
        (BOB, ADMINISTRATOR),
        (BOB, ""),
        (BOB, Seal(SECRET + b"!").sealed(BOB, ADMINISTRATOR)),
    ):
        with pytest.raises(WrongSeal, match=re.escape(repr(path))):
            seal.opened(path, wrong)


def join(options: EtcdOptions) -> str:
    """Why it cannot."""
    with pytest.raises(EtcdUnavailable) as failure:
        EtcdCoordinator(options).start(patience_s=0.3)
    return str(failure.value)


@with_etcd
@pytest.mark.slow
@pytest.mark.parametrize(
    "stored",
    [
        ADMINISTRATOR,
        b"\xff" + ADMINISTRATOR.encode(),
        Seal(b"a secret of others").sealed(BOB, ADMINISTRATOR),
        Seal(SECRET).sealed(ROOT + "keys/users/ann", ADMINISTRATOR),
    ],
    ids=["plain", "no text", "of another secret", "of another key"],
)
def test_members_hear_nothing_of_it(
    world: EtcdWorld, server: EtcdServer, stored: str | bytes
) -> None:
    one = world.join("a/1")
    copy = Copy(one)
    world.done(one, [], [Change("users/bob", '{"tags":[],"v":1}')])
    copy.take()
    known = dict(copy.keys)
    server.put(BOB, stored)
    world.wait(lambda: one.why_lost() != "")
    assert repr(BOB) in one.why_lost()
    assert copy.take() == []
    assert copy.keys == known
    assert world.done(one, [], [Change("k", "1")]).state == FAILED
    assert repr(BOB) in join(world.options)


@with_etcd
@pytest.mark.slow
def test_a_record_under_a_key_that_is_no_text(world: EtcdWorld, server: EtcdServer) -> None:
    key = to_base64(b"/penstock/penstock/keys/users/\xff")
    server.ask("kv/put", {"key": key, "value": to_base64(ADMINISTRATOR)})
    assert "has no checksum" in join(world.options)


# -- after release 0.1 ------------------------------------------------------------------------


def some_hundred(world: EtcdWorld) -> Copy:
    """Records, which fill several transactions."""
    one = world.join("a/1")
    copy = Copy(one)
    for start in range(0, 250, 50):
        changes = [Change(f"queues/%2F/q{number}", "1") for number in range(start, start + 50)]
        world.done(one, [], changes)
    for number in range(4):
        world.done(one, [], [Change(f"policies/%2F/p{number}", "x" * 500_000)])
    copy.take()
    one.close()
    return copy


@with_etcd
@pytest.mark.slow
@pytest.mark.parametrize("form", ["1", SEALING], ids=["at once", "in two starts"])
def test_records_get_checksums_when_that_is_asked_for(
    world: EtcdWorld, server: EtcdServer, form: str
) -> None:
    copy = some_hundred(world)
    sealed = server.rows(ROOT)
    server.unseal(ROOT)
    if form == SEALING:
        for path in (path for path in sealed if path.endswith("7")):
            server.put(path, sealed[path])
        server.put(ROOT + "format", SEALING)
    assert "cluster_etcd_seal_records = true" in join(world.options)
    with pytest.raises(EtcdUnavailable, match="cluster_etcd_seal_records = true"):
        EtcdCoordinator(world.options).look()
    sealing = EtcdOptions((server.endpoint,), SECRET, lease_ttl_s=2, seal_records=True)
    first = EtcdCoordinator(sealing)
    first.look()
    assert server.rows(ROOT)[ROOT + "format"] == form, "it only looks"
    first.start()
    world.members.append(first)
    for member in (first, world.join("c/1")):
        assert {entry.key: entry.value for entry in member.snapshot()} == copy.keys
    assert server.rows(ROOT)[ROOT + "format"] == "2"


@with_etcd
@pytest.mark.slow
def test_records_get_no_checksums_while_a_node_runs(world: EtcdWorld, server: EtcdServer) -> None:
    one = world.join("a/1")
    world.done(one, [], [Change("members/a", "1", leased=True), Change("k", "1")])
    server.put(ROOT + "format", "1")
    before = server.rows(ROOT)
    sealing = EtcdOptions((server.endpoint,), SECRET, lease_ttl_s=2, seal_records=True)
    assert "'/penstock/penstock/keys/members/a' belongs to one" in join(sealing)
    assert server.rows(ROOT) == before


@with_etcd
@pytest.mark.slow
def test_a_plain_record_of_this_release_is_believed_in_no_case(
    world: EtcdWorld, server: EtcdServer
) -> None:
    world.join("a/1").close()
    server.put(BOB, ADMINISTRATOR)
    sealing = EtcdOptions((server.endpoint,), SECRET, lease_ttl_s=2, seal_records=True)
    assert repr(BOB) in join(sealing)
