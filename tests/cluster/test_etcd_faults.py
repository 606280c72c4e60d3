"""A real etcd that dies, stands still, or forgets."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from penstock.cluster.agreement.coordinator import (
    ABSENT,
    ACCEPTED,
    FAILED,
    REFUSED,
    UNCERTAIN,
    Change,
    Condition,
)
from penstock.node.coordination import etcd_proposals
from penstock.node.coordination.etcd_lease import boot_ms
from penstock.node.coordination.etcd_names import from_base64, to_base64
from penstock.node.coordination.etcd_seal import Seal
from tests.cluster.coordinator_worlds import SECRET, Copy, EtcdWorld
from tests.helpers.bad_line import CUT, GOOD, LOSES_ANSWERS, SILENT, BadLine
from tests.helpers.broker_process import free_port
from tests.helpers.etcd import EtcdServer, EtcdTrio, missing_reason

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]

SEED = 20_261_121


def put(key: str, value: str = "1", *, leased: bool = False) -> Change:
    return Change(key, value, leased=leased)


@pytest.fixture
def line(server: EtcdServer) -> Iterator[BadLine]:
    made = BadLine(server.port)
    yield made
    made.close()


@pytest.fixture
def far(line: BadLine) -> Iterator[EtcdWorld]:
    """Members behind a line that can be made bad."""
    made = EtcdWorld((line.endpoint,), lease_ttl_s=2)
    yield made
    line.state = GOOD
    made.close()


# -- what it looks like there (docs/formats/membership.md, section 2) -----------------------------


def everything(server: EtcdServer) -> list[tuple[str, str, bool]]:
    """Key, value, and whether it is bound to a lease."""
    asked = {"key": to_base64("\0"), "range_end": to_base64("\0")}
    rows = server.ask("kv/range", asked).get("kvs", [])
    assert isinstance(rows, list)
    return [
        (from_base64(row["key"]), from_base64(row.get("value", "")), "lease" in row) for row in rows
    ]


def test_2_1_the_keys_of_a_cluster(world: EtcdWorld, server: EtcdServer) -> None:
    one = world.join("a/1")
    world.done(one, [], [put("queues/%2F/q", "{}"), put("mine", leased=True)])
    lease = one._lease.lease
    slot = f"/penstock/penstock/slots/{lease:x}/0"
    mine, queue = (f"/penstock/penstock/keys/{key}" for key in ("mine", "queues/%2F/q"))
    seal = Seal(SECRET)
    assert everything(server) == [
        ("/penstock/penstock/format", "2", False),
        (mine, seal.sealed(mine, "1"), True),
        (queue, seal.sealed(queue, "{}"), False),
        (slot, "1", True),
    ]
    one.close()
    assert [key for key, _, _ in everything(server)] == [
        "/penstock/penstock/format",
        queue,
    ]


def test_2_1_clusters_share_an_etcd_and_know_nothing_of_each_other(
    world: EtcdWorld, server: EtcdServer
) -> None:
    one = world.join("a/1")
    # Names that begin alike, and one that ends where the other's keys begin.
    other = EtcdWorld((server.endpoint,), cluster_name="penstock.keys", lease_ttl_s=2)
    two = other.join("a/1")
    world.done(one, [], [put("k")])
    assert other.done(two, [Condition("k", ABSENT)], [put("k", "2")]).state == ACCEPTED
    world.done(one, [], [Change("", None, below=True)])
    other.barrier(two)
    assert [(event.key, event.value) for event in two.take_events()] == [("k", "2")]
    other.close()


def test_2_2_a_revision_is_etcds(world: EtcdWorld, server: EtcdServer) -> None:
    one = world.join("a/1")
    done = world.done(one, [], [put("k")])
    header = server.ask("kv/range", {"key": to_base64("x")})["header"]
    assert isinstance(header, dict)
    assert header["revision"] == str(done.revision)


# -- etcd is gone, or stands still ------------------------------------------------------------


def test_killed_and_started_again(world: EtcdWorld, server: EtcdServer) -> None:
    one = world.join("a/1")
    copy = Copy(one)
    world.done(one, [], [put("mine", leased=True)])
    server.kill()
    early = one.propose([], [put("early")])
    cpu_s = time.process_time()
    world.wait(lambda: one.why_not() != "", 4000)
    assert "has not answered for" in one.why_not()
    assert server.endpoint in one.why_not()
    cut = one.propose([], [put("k")])
    assert (cut.state, cut.error[:4]) == (FAILED, "etcd")
    assert time.process_time() - cpu_s < 1.0, "that is a busy loop"
    server.start()
    world.wait(lambda: one.why_not() == "", 5000)
    # etcd gives every lease its time anew when it starts.
    assert not one.lease_has_ended()
    world.wait(lambda: early.done)
    assert early.state == ACCEPTED
    assert world.done(one, [], [put("late")]).state == ACCEPTED
    copy.take()
    assert copy.keys == {"mine": "1", "early": "1", "late": "1"}


@pytest.mark.slow
def test_paused_for_longer_than_the_lease(world: EtcdWorld, server: EtcdServer) -> None:
    one = world.join("a/1")
    copy = Copy(one)
    world.done(one, [], [put("mine", leased=True)])
    until_ms = one.lease_valid_until_ms()
    server.pause()
    lost = one.propose([], [put("k")])
    world.spend(world.ttl_ms + 1000)
    assert until_ms <= one.lease_valid_until_ms() < boot_ms()
    assert "has not answered for" in one.why_not()
    server.resume()
    world.wait(lambda: one.lease_has_ended() or one.lease_valid_until_ms() > boot_ms())
    world.wait(lambda: lost.done)
    if one.lease_has_ended():
        one.new_lease()
        world.wait(lambda: one.why_not() == "")
    world.barrier(one)
    world.spend(800)
    copy.take()
    # Which of the two it was is etcd's choice; that they fit together is ours.
    assert lost.state in (ACCEPTED, FAILED, UNCERTAIN)
    if lost.state != UNCERTAIN:
        assert ("k" in copy.keys) == (lost.state == ACCEPTED)
    present = world.done(one, [Condition("mine", ABSENT)], []).state == REFUSED
    assert ("mine" in copy.keys) == present


@pytest.mark.parametrize("cut_ms", [1200, 4000], ids=["within the lease", "the lease ends"])
def test_a_stream_that_was_cut_begins_again_when_etcd_answers(
    far: EtcdWorld, line: BadLine, server: EtcdServer, cut_ms: int
) -> None:
    """Its connection outlives the cut, and nothing comes on it (CL10 of the review)."""
    one = far.join("a/1")
    copy = Copy(one)
    far.done(one, [], [put("mine", leased=True)])
    line.state = CUT
    far.spend(cut_ms)
    key = "/penstock/penstock/keys/theirs"
    server.put(key, Seal(SECRET).sealed(key, "1"))
    line.state = GOOD

    def heard() -> bool:
        if one.lease_has_ended():
            one.new_lease()
        copy.take()
        return "theirs" in copy.keys and (cut_ms < far.ttl_ms or "mine" not in copy.keys)

    far.wait(heard, 5000)


def test_a_lease_that_somebody_else_ended(world: EtcdWorld, server: EtcdServer) -> None:
    one = world.join("a/1")
    world.done(one, [], [put("mine", leased=True)])
    lease = one._lease.lease
    server.ask("lease/revoke", {"ID": str(lease)})
    asked = world.done(one, [], [put("k")])
    assert asked.state == FAILED
    assert "lease" in asked.error
    assert one.lease_has_ended()
    assert one.lease_valid_until_ms() == 0
    one.new_lease()
    world.wait(lambda: not one.lease_has_ended())
    assert world.done(one, [Condition("mine", ABSENT)], [put("k")]).state == ACCEPTED


BEATING: Final = """
import sys, time
from penstock.cluster.agreement.coordinator import Change
from penstock.node.coordination.etcd_coordinator import EtcdCoordinator
from penstock.node.coordination.etcd_http import EtcdOptions
from penstock.node.coordination.etcd_lease import boot_ms
member = EtcdCoordinator(EtcdOptions((sys.argv[1],), sys.argv[2].encode(), lease_ttl_s=2))
member.start()
member.propose([], [Change("alive", "1", leased=True)])
asked, ended_ms = [], 0
while not ended_ms or boot_ms() < ended_ms + 1000:
    asked.append(member.propose([], [Change("beat", str(len(asked)))]))
    time.sleep(0.005)
    member.tick(boot_ms())
    if member.lease_has_ended():
        ended_ms = ended_ms or boot_ms()
print(asked[-1].state, asked[-1].error)
"""


@pytest.mark.slow
def test_a_process_that_stood_still_changes_nothing_any_more(
    world: EtcdWorld, server: EtcdServer
) -> None:
    """Whatever it had on its way, and whatever it believes until it hears of its end."""
    one = world.join("a/1")
    copy = Copy(one)
    child = subprocess.Popen(
        [sys.executable, "-c", BEATING, server.endpoint, SECRET.decode()],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        world.wait(lambda: bool(copy.take()) and int(copy.keys.get("beat", "0")) > 20, 20_000)
        child.send_signal(signal.SIGSTOP)
        world.wait(lambda: bool(copy.take()) and "alive" not in copy.keys, 5000)
        gone_at = copy.revision
        child.send_signal(signal.SIGCONT)
        said, _ = child.communicate(timeout=20)
    finally:
        child.kill()
        child.wait()
    world.barrier(one)
    copy.take()
    assert [revision for revision, key, _ in copy.log if key == "beat" and revision > gone_at] == []
    assert said == f"{FAILED} the lease of this member has ended\n"


def test_an_etcd_whose_data_was_replaced_is_not_believed(
    world: EtcdWorld, server: EtcdServer
) -> None:
    one = world.join("a/1")
    world.done(one, [], [put("k")])
    server.kill()
    shutil.rmtree(server.directory)
    server.peer_port = free_port()  # etcd's id is made of its members' addresses
    server.start()
    # First it may be an etcd that does not answer.
    world.wait(lambda: "it belongs to another etcd" in one.why_not())
    world.spend(200)
    assert "it belongs to another etcd" in one.why_not()
    assert one.propose([], [put("k")]).state == FAILED
    world.wait(lambda: one.lease_valid_until_ms() < boot_ms())
    world.spend(500)
    assert one.lease_valid_until_ms() < boot_ms()


# -- answers that get lost --------------------------------------------------------------------


def test_o5_a_lost_answer_is_looked_for(far: EtcdWorld, line: BadLine) -> None:
    one = far.join("a/1")
    line.state = LOSES_ANSWERS
    asked = one.propose([Condition("k", ABSENT)], [put("k")])
    far.spend(300)
    assert not asked.done
    line.state = GOOD
    far.wait(lambda: asked.done)
    assert (asked.state, asked.error) == (ACCEPTED, "")
    assert [(event.key, event.revision) for event in one.take_events()] == [("k", asked.revision)]


def test_o5_a_request_that_never_arrived_is_made_again(far: EtcdWorld, line: BadLine) -> None:
    one = far.join("a/1")
    line.state = SILENT
    asked = one.propose([Condition("k", ABSENT)], [put("k")])
    far.spend(200)
    line.state = GOOD
    far.wait(lambda: asked.done)
    assert asked.state == ACCEPTED


def test_o5_without_any_answer_it_is_uncertain(
    far: EtcdWorld, line: BadLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_proposals, "PATIENCE_S", 1.0)
    one = far.join("a/1")
    line.state = LOSES_ANSWERS
    asked = one.propose([], [put("k")])
    far.wait(lambda: asked.done)
    assert asked.state == UNCERTAIN
    assert "may have happened" in asked.error


def test_o5_on_a_line_that_is_bad_now_and_then_everything_is_counted(
    far: EtcdWorld, line: BadLine
) -> None:
    """Compare-and-set on one number: as many as were accepted, and nothing refused for nothing."""
    one = far.join("a/1")
    copy = Copy(one)
    rng = Random(SEED)
    counts = {ACCEPTED: 0, UNCERTAIN: 0}
    for _ in range(40):
        before = [Condition("count", copy.revisions.get("count", ABSENT))]
        asked = one.propose(before, [put("count", str(counts[ACCEPTED] + 1))])
        if rng.random() < 0.5:
            line.state = rng.choice((LOSES_ANSWERS, SILENT))
            far.spend(rng.choice((5, 20, 60)))
            line.state = GOOD
        far.wait(lambda asked=asked: asked.done)  # type: ignore[misc]
        copy.take()
        assert asked.state == ACCEPTED, (asked.state, asked.error)
        counts[asked.state] += 1
        assert copy.keys["count"] == str(counts[ACCEPTED])


# -- history that is gone ---------------------------------------------------------------------


def test_compacted_history_becomes_the_difference(
    world: EtcdWorld, far: EtcdWorld, line: BadLine, server: EtcdServer
) -> None:
    one, two = world.join("a/1"), far.join("b/1")
    copy = Copy(two, may_differ=True)
    world.done(one, [], [put(key) for key in ("kept", "gone", "anew", "changed")])
    far.barrier(two)
    copy.take()
    line.state = SILENT
    world.done(one, [], [Change("gone", None), Change("anew", None)])
    world.done(one, [], [put("anew", "2"), put("changed", "2"), put("short")])
    last = world.done(one, [], [put("changed", "3"), Change("short", None)])
    server.ask("kv/compaction", {"revision": str(last.revision), "physical": True})
    line.state = GOOD
    far.wait(lambda: bool(copy.take()) or two._watch.differences > 0)
    far.barrier(two)
    copy.take()
    assert copy.keys == {"kept": "1", "anew": "2", "changed": "3"}
    assert two._watch.differences == 1
    assert [key for _, key, value in copy.log if value is None] == ["gone", "anew"]
    world.done(one, [], [put("after")])
    far.barrier(two)
    copy.take()
    assert "after" in copy.keys


def test_a_snapshot_of_many_pages(world: EtcdWorld) -> None:
    one = world.join("a/1")
    asked = [
        one.propose([], [put(f"k{part}/{number:02}") for number in range(90)]) for part in range(15)
    ]
    world.wait(lambda: all(each.done for each in asked))
    two = world.join("b/1")
    assert len({entry.key for entry in two.snapshot()}) == len(two.snapshot()) == 1350
    assert [entry.made for entry in two.snapshot()] == sorted(e.made for e in two.snapshot())


def test_more_at_once_than_etcd_is_given_at_once(
    world: EtcdWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for its turn here is no failure of etcd's."""
    monkeypatch.setattr(etcd_proposals, "PATIENCE_S", 0.1)
    one = world.join("a/1")
    asked = [one.propose([], [put(f"k{number}")]) for number in range(600)]
    world.wait(lambda: all(each.done for each in asked))
    assert {each.state for each in asked} == {ACCEPTED}


@pytest.mark.slow
def test_a_fault_of_ours_is_logged_and_costs_a_second(
    world: EtcdWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.join("a/1")
    monkeypatch.setattr(one._lease, "_renewed", None)
    world.wait(lambda: "talking to etcd failed" in caplog.text)
    monkeypatch.undo()
    world.spend(1500)
    assert one.lease_valid_until_ms() > boot_ms()


# -- three members ----------------------------------------------------------------------------


@pytest.mark.slow
def test_three_members_and_one_is_killed_or_stands_still(tmp_path: Path) -> None:
    trio = EtcdTrio(tmp_path / "etcd")
    world = EtcdWorld(trio.endpoints, lease_ttl_s=6)
    try:
        trio.start()
        one, two = world.join("a/1"), world.join("b/1")
        copies = [Copy(one), Copy(two)]
        world.done(one, [], [put("mine", leased=True)])
        slowest_ms = accepted = steps = unsafe_steps = 0
        for number, member in enumerate((*trio.members, trio.members[0])):
            (member.kill if number < 3 else member.pause)()
            began_ms, asked_count = boot_ms(), 0
            while boot_ms() - began_ms < 2500:
                asked_ms = boot_ms()
                asked = world.done(one, [], [put("k", str(asked_count))])
                assert asked.state == ACCEPTED, asked.error
                slowest_ms = max(slowest_ms, boot_ms() - asked_ms)
                accepted += 1
                asked_count += 1
                for handle in (one, two):
                    steps += 1
                    unsafe_steps += handle.lease_valid_until_ms() <= boot_ms()
                world.spend(20)
            if number < 3:
                member.start()
            else:
                member.resume()
            world.spend(500)
        world.barrier(two)
        for copy in copies:
            copy.take()
        assert copies[0].keys == copies[1].keys
        assert copies[0].log == copies[1].log
        assert not one.lease_has_ended()
        assert len([one for one in copies[0].log if one[1] == "k"]) == accepted
        assert unsafe_steps < steps / 10, "a node would stop confirming (K4)"
        print(f"{accepted} proposals accepted, the slowest after {slowest_ms} ms;")
        print(f"in {unsafe_steps} of {steps} steps no lease to rely on")
    finally:
        world.close()
        trio.kill()
