"""Staged sets in hard times: limits, alarms, restarts, faults, and requests in any order."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.rules.log_ins import Link
from penstock.broker.transfers import batches, producers
from penstock.broker.transfers import staging as rules
from penstock.protocols.ranges import reporting as range_reporting
from penstock.protocols.ranges.reporting import ReportRequests
from penstock.storage.journal.codec import JournalGroup
from penstock_ranges import frames as rf
from penstock_ranges import ranges, reports, staging
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import HeldCommitter, QuietBroker
from tests.helpers.range_pair import (
    Answered,
    StagingEnd,
    add_user,
    bodies_in,
    check,
    declare,
    numbers,
    publishes,
)
from tests.helpers.slow_judge import SlowBackend, SlowJudge


@pytest.fixture
def node() -> QuietBroker:
    node = QuietBroker()
    declare(node, "q")
    return node


# -- limits ------------------------------------------------------------------------------------


def test_an_alarm_holds_who_stages_and_says_why(node: QuietBroker) -> None:
    end = StagingEnd(node)
    name = end.begin(0)
    node.committer.stalled = "the disk is full"
    node.run()
    assert end.block(publishes("", "q", [b"a"])) == "low on disk"
    node.committer.stalled = ""
    node.run()
    assert end.block(publishes("", "q", [b"a"])) == ""
    end.end(1)
    end.commit(0, [name])
    assert bodies_in(node, "q") == [b"a"]


def test_a_set_has_a_size(node: QuietBroker) -> None:
    end = StagingEnd(node)
    end.begin(0, max_bytes=1000)
    with pytest.raises(Answered, match=r"larger than the 1000 bytes.*raise stageMaxBytes"):
        end.block(publishes("", "q", [b"x" * 2000]))
    assert node.broker.staging.sets == {}


def test_a_lost_connection_drops_what_it_had_not_ended(node: QuietBroker) -> None:
    end, other = StagingEnd(node), StagingEnd(node)
    ended = end.stage(0, "q", [b"a"])
    end.begin(0)
    end.drop()
    assert list(node.broker.staging.sets) == [("/", ended)]
    other.commit(0, [ended])
    assert bodies_in(node, "q") == [b"a"]
    check(node)


def test_sets_nobody_commits_are_dropped_in_time(node: QuietBroker) -> None:
    node.broker.staging.set_ttl_ms = 60_000
    end = StagingEnd(node)
    name = end.stage(0, "q", [b"a"])
    node.tick(59_000)
    assert len(node.broker.staging.sets) == 1
    node.tick(2_000)
    assert node.broker.staging.sets == {}
    with pytest.raises(Answered, match=r"no finished staged set.*run the batch again"):
        end.commit(0, [name])
    check(node)


def test_sets_are_dropped_some_a_turn(node: QuietBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a queue to delete, and a batch may have thousands."""
    monkeypatch.setattr(rules, "DROPPED_AT_ONCE", 2)
    known = node.broker.staging
    work, left = known.run, [5]

    def watched(*given: Any) -> bool:
        more = bool(work(*given))
        check(node)
        left.append(len(known.sets))
        return more

    end = StagingEnd(node)
    sets = [end.stage(0, "q", [b"%d" % number]) for number in range(5)]
    monkeypatch.setattr(known, "run", watched)
    assert end.commit(0, sets) == staging.Committed(staging.DONE, 5, 0, "")
    assert left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) == 2
    for _ in range(5):
        end.stage(1, "q", [b"nobody's"])
    known.set_ttl_ms = 60_000
    node.tick(59_000)
    left[:] = [5]
    for _ in range(3):
        node.tick(2_000)
    assert left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) == 2


def test_keeping_house_looks_at_old_producers_only(node: QuietBroker) -> None:
    class Watched(dict[tuple[str, str], Any]):
        looked = 0

        def items(self) -> Any:
            for pair in super().items():
                self.looked += 1
                yield pair

    end = StagingEnd(node)
    for number in range(50):
        end.commit(0, [], producer=f"p{number}")
    known = node.broker.staging.producers
    known.known = watched = Watched(known.known)
    node.tick(2_000)
    assert watched.looked == 1
    assert len(watched) == 50


def test_producers_are_forgotten_in_time(node: QuietBroker) -> None:
    node.broker.staging.producer_ttl_ms = 60_000
    end = StagingEnd(node)
    end.commit(0, [end.stage(0, "q", [b"a"])])
    node.tick(61_000)
    node.tick(1_000)
    assert end.last() == -1
    assert node.definitions.staging.load_producers() == []


def test_there_are_bounds_of_sets_and_runs(
    node: QuietBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "SETS_MAX", 2)
    monkeypatch.setattr(rules, "FENCED_RUNS_MAX", 2)
    end = StagingEnd(node)
    sets = [end.stage(0, "q", [b"a"]) for _ in range(2)]
    with pytest.raises(Answered, match="2 sets are staged in vhost '/' already"):
        end.begin(0)
    monkeypatch.setattr(rules, "SETS_MAX", 3)
    monkeypatch.setattr(rules, "SETS_OF_USER_MAX", 2)
    end = StagingEnd(node)
    with pytest.raises(Answered, match="user 'guest' has 2 sets staged in vhost '/' already"):
        end.begin(0)
    add_user(node, "other")
    StagingEnd(node, "other").begin(0, "theirs")
    end = StagingEnd(node)
    end.abort(sets)
    for run in ("r2", "r3", "r4"):
        end.abort([end.stage(0, "q", [b"a"], run=run)])
    assert node.broker.staging.producers.known[("/", "guest", "p")].fenced == ["r2", "r3"]


def test_the_producer_used_longest_ago_is_forgotten_for_a_new_one(
    node: QuietBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 3)
    end = StagingEnd(node)
    end.stage(0, "q", [b"a"], producer="busy")
    for name in ("first", "second", "first", "third"):
        end.commit(end.last(name) + 1, [], producer=name)
    known = [end.last(name) for name in ("busy", "first", "second", "third")]
    assert known == [-1, 1, -1, 0]
    assert [one.producer for one in node.definitions.staging.load_producers()] == [
        "busy",
        "first",
        "third",
    ]
    check(node)


@pytest.mark.parametrize("bound", [("PRODUCERS_MAX", 5), ("OF_USER_MAX", 3)])
def test_who_fills_the_table_forgets_his_own(
    node: QuietBroker, monkeypatch: pytest.MonkeyPatch, bound: tuple[str, int]
) -> None:
    """Else a batch of somebody else, tried again, would be published twice."""
    monkeypatch.setattr(producers, *bound)
    add_user(node, "other")
    end, other = StagingEnd(node), StagingEnd(node, "other")
    end.commit(7, [end.stage(7, "q", [b"a"])])
    for number in range(20):
        other.commit(0, [], producer=f"p{number}")
    assert end.commit(7, []).outcome == staging.DUPLICATE
    assert other.last("p19") == 0
    assert other.last("p0") == -1
    end.commit(0, [], producer="mine too")
    assert end.last() == 7
    assert other.last("p19") == 0
    check(node)


# -- readers -----------------------------------------------------------------------------------


def test_readers_of_ranges_see_what_no_crash_takes_back(node: QuietBroker) -> None:
    """A reader notes how far it has read: what came again behind that would be read twice."""
    end, reader = StagingEnd(node), StagingEnd(node, login=False)
    reader.send(ranges.encode_open(ranges.OpenRequest("guest", "guest", "/", "q", ranges.READ)))
    reader.expect(ranges.OPENED)
    name = end.stage(0, "q", numbers(0, 5))
    node.committer.hold = True
    end.ask_commit(0, [name])
    reader.send(ranges.encode_wait(0, 10_000))
    node.tick(20)
    assert node.broker.vhosts["/"].queues["q"].backing.ready_count() == 5
    assert reader.silent()
    node.committer.hold = False
    node.committer.finish()
    node.run()
    node.tick(20)
    assert ranges.decode_head(reader.expect(ranges.HEAD)).next_seq == 5


# -- restarts ------------------------------------------------------------------------------------


def again(node: QuietBroker, definitions: str) -> QuietBroker:
    """After a kill."""
    node.files.kill()
    node.definitions.close()
    heir = QuietBroker(node.files, definitions)
    heir.now_ms = node.now_ms
    heir.run()
    return heir


def test_a_start_keeps_what_was_finished(tmp_path: Path) -> None:
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    declare(node, "q")
    end, slow = StagingEnd(node), StagingEnd(node)
    finished = end.stage(0, "q", numbers(0, 3))
    slow.begin(0)
    slow.block(publishes("", "q", [b"not whole"]))
    node = again(node, definitions)
    assert list(node.broker.staging.sets) == [("/", finished)]
    StagingEnd(node).commit(0, [finished])
    assert bodies_in(node, "q") == numbers(0, 3)
    check(node)
    node.definitions.close()


def test_a_start_goes_on_with_what_was_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "PUBLISHED_AT_ONCE", 10)
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    client = declare(node, "q")
    end = StagingEnd(node)
    sets = [end.stage(0, "q", numbers(0, 50)), end.stage(0, "q", numbers(50, 60))]
    end.ask_commit(0, sets, turn=False)
    for _ in range(3):
        node.turn.run(node.now_ms, idle=True)
    assert 0 < node.broker.staging.batches.published_count < 60
    client.session.lost(node.now_ms)
    node = again(node, definitions)
    assert bodies_in(node, "q") == numbers(0, 60)
    assert StagingEnd(node).commit(0, sets).outcome == staging.DUPLICATE
    assert node.broker.staging.sets == {}
    check(node)
    node.definitions.close()


def test_a_start_remembers_who_is_fenced(tmp_path: Path) -> None:
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    declare(node, "q")
    end = StagingEnd(node)
    end.commit(0, [end.stage(0, "q", [b"a"])])
    end.commit(1, [], run="r2")
    node = again(node, definitions)
    end = StagingEnd(node)
    assert end.last() == 1
    with pytest.raises(Answered, match="run 'r2' has taken over from 'r1'"):
        end.begin(2)
    node.definitions.close()


# -- hidden --------------------------------------------------------------------------------------


def test_clients_neither_see_nor_touch_the_room_of_a_set(node: QuietBroker) -> None:
    end = StagingEnd(node)
    name = end.stage(0, "q", [b"a"])
    assert name.startswith("amq.staged.")
    assert name not in node.broker.vhosts["/"].queues
    client = node.client()
    client.method(1, "queue.declare", queue=name, durable=True)
    assert client.methods()[0][1]["code"] == 403
    client = node.client()
    client.method(1, "basic.consume", queue=name)
    assert client.methods()[0][1]["code"] == 404
    client = node.client()
    client.call("queue.delete", queue=name)  # deleting what is not there is fine, in RabbitMQ too
    assert node.broker.staging.totals()["messages"] == 1


# -- publishing without a set --------------------------------------------------------------------


def test_a_publish_is_answered_when_it_is_on_disk(node: QuietBroker) -> None:
    end = StagingEnd(node)
    node.committer.hold = True
    end.send(staging.encode_publish(publishes("", "q", numbers(0, 3)), False, 1000))
    assert end.silent()
    node.committer.finish()
    node.run()
    assert staging.decode_published(end.expect(staging.PUBLISHED)) == ("", 0)
    assert bodies_in(node, "q") == numbers(0, 3)
    check(node)


def test_a_publish_says_how_many_reach_no_queue(node: QuietBroker) -> None:
    end = StagingEnd(node)
    data = publishes("", "q", [b"a"]) + publishes("", "gone", [b"b", b"c"])
    assert end.publish_directly(data) == ("", 2)
    with pytest.raises(Answered, match="reach no queue"):
        end.publish_directly(data, must_route=True)


def test_a_publish_to_a_full_queue_ends_with_its_patience(node: QuietBroker) -> None:
    declare(node, "small", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    end = StagingEnd(node)
    end.send(staging.encode_publish(publishes("", "small", numbers(0, 3)), False, 1000))
    node.now_ms += 3_600_000  # the wall clock may be set meanwhile
    node.tick(500)
    assert end.silent()
    node.now_ms -= 7_200_000
    node.tick(600)
    with pytest.raises(Answered, match="queue 'small' is full"):
        end.expect(staging.PUBLISHED)


def test_a_publish_that_waits_for_room_ends_with_the_right(node: QuietBroker) -> None:
    client = declare(node, "small", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    add_user(node, "ann")
    end = StagingEnd(node, "ann")
    end.send(staging.encode_publish(publishes("", "small", [b"a", b"b"]), False, 60_000))
    assert end.silent()
    node.broker.users.users["ann"].permit("/", "", "^$", "")
    node.tick(1)
    client.received = b""
    client.consume("small", no_ack=True)
    node.tick(60)
    with pytest.raises(Answered, match="refused for user 'ann'"):
        end.expect(staging.PUBLISHED)
    assert client.bodies() == [b"a"]


def test_a_right_that_another_backend_took_ends_publishing(node: QuietBroker) -> None:
    judge = SlowJudge()
    slow = SlowBackend(judge)
    node.broker.users.form([Link(slow, slow)])
    end = StagingEnd(node, "ann")
    assert end.publish_directly(publishes("", "q", [b"a"])) == ("", 0)
    judge.denied.add(("exchange", "amq.default"))
    judge.lost = True
    node.tick(1)
    with pytest.raises(Answered, match="refused for user 'ann'"):
        end.publish_directly(publishes("", "q", [b"b"]))
    assert bodies_in(node, "q") == [b"a"]


def test_a_clock_that_is_set_back_does_not_stop_a_publish(node: QuietBroker) -> None:
    client = declare(node, "small", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    end = StagingEnd(node)
    end.send(staging.encode_publish(publishes("", "small", [b"a", b"b"]), False, 60_000))
    assert end.silent()
    client.received = b""
    client.consume("small", no_ack=True)
    node.now_ms -= 3_600_000
    node.tick(50)
    node.tick(1)
    assert staging.decode_published(end.expect(staging.PUBLISHED)) == ("", 0)
    assert client.bodies() == [b"a", b"b"]


def test_an_event_log_that_cannot_be_read_is_said(
    node: QuietBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ReportRequests, "_directory", lambda _: tmp_path)

    def broken(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(range_reporting, "event_files", broken)
    end = StagingEnd(node)
    end.send(reports.encode_event_files())
    with pytest.raises(Answered, match="event log cannot be read: Permission denied"):
        end.expect(reports.EVENT_FILES_ARE)


def test_a_batch_of_many_is_published_some_a_turn(node: QuietBroker) -> None:
    end = StagingEnd(node)
    name = end.stage(0, "q", numbers(0, 3000))
    turns: list[int] = []
    publish = node.broker.staging.publisher.publish

    def counted(*arguments: Any, **more: Any) -> int:
        turns.append(len(arguments[1]))
        return publish(*arguments, **more)

    node.broker.staging.publisher.publish = counted  # type: ignore[method-assign]
    end.commit(0, [name])
    assert max(turns) <= 512
    assert bodies_in(node, "q") == numbers(0, 3000)


def test_a_batch_goes_on_while_letters_die_in_every_turn(node: QuietBroker) -> None:
    declare(node, "dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client = declare(node, "mortal", **letters)
    for _ in range(8):
        client.publish("", "mortal")
    client.consume("mortal")
    end = StagingEnd(node)
    name = end.stage(0, "q", numbers(0, 2000))
    end.ask_commit(0, [name], turn=False)
    for tag in range(1, 9):
        reject = codec.method_frame(1, "basic.reject", delivery_tag=tag, requeue=False)
        client.send(reject, run=False)
        node.turn.run(node.now_ms, False)
    assert bodies_in(node, "q") == numbers(0, 2000)
    node.run()
    assert len(bodies_in(node, "dead")) == 8
    check(node)


def test_what_is_dropped_behind_a_wait_is_defined_before_it_is_forgotten(
    node: QuietBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between the two would bring the set back, finished and empty."""
    end = StagingEnd(node)
    name = StagingEnd(node).stage(0, "q", [b"a"])
    end.begin(0)
    submit = HeldCommitter.submit
    groups: list[JournalGroup] = []

    def judged(committer: HeldCommitter, group: JournalGroup) -> None:
        assert not node.definitions.dirty, "messages are forgotten first"
        groups.append(group)
        submit(committer, group)

    monkeypatch.setattr(HeldCommitter, "submit", judged)
    end.send(staging.encode_end(0) + staging.encode_abort([name]))
    assert staging.decode_ended(end.expect(staging.STAGE_ENDED)) == 0
    assert staging.decode_aborted(end.expect(staging.ABORTED)) == 1
    node.tick(1000)
    assert groups
    check(node)


# -- faults ------------------------------------------------------------------------------------


def test_a_refusal_may_quote_anything(node: QuietBroker) -> None:
    """Also where a request waited behind another one, so that the disk's word brings it on."""
    for name, begins in (
        ("a" * 65_500, "REPORT has unknown fields"),
        ("\ud800", "REPORT has unknown fields"),
    ):
        end = StagingEnd(node)
        end.begin(0)
        report = rf.frame(reports.REPORT, json.dumps({name: 1}).encode())
        end.send(staging.encode_end(0) + report)
        assert staging.decode_ended(end.expect(staging.STAGE_ENDED)) == 0
        with pytest.raises(Answered, match=begins) as told:
            end.expect(reports.REPORTED)
        assert len(told.value.text) <= rf.ERROR_TEXT_MAX_BYTES
    check(node)


def test_a_fault_of_ours_behind_a_wait_costs_one_connection(
    node: QuietBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fault(handler: ReportRequests, kind: int, payload: bytes) -> None:
        raise FileNotFoundError("went just now")

    monkeypatch.setattr(ReportRequests, "request", fault)
    other, end = StagingEnd(node), StagingEnd(node)
    end.begin(0)
    end.send(staging.encode_end(0) + reports.encode_event_files())
    assert end.session.closed
    assert "internal error" in caplog.text
    assert other.last() == -1
    end.drop()
    check(node)


def test_who_has_begun_a_set_cannot_become_somebody_else(node: QuietBroker) -> None:
    """It would be judged by rights in one virtual host, and published in another."""
    end = StagingEnd(node)
    end.begin(0)
    request = ranges.OpenRequest("guest", "guest", "/", "q", ranges.BROWSE, 0)
    end.send(ranges.encode_open(request))
    with pytest.raises(Answered, match="has logged in already"):
        end.expect(ranges.OPENED)
    assert node.broker.staging.totals()["sets"] == 0


# -- anything, at any time -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_asked_in_whatever_order(seed: int) -> None:
    """Every request in every state, some damaged: answered or refused, and all stays sound."""
    rng = random.Random(seed)
    node = QuietBroker()
    declare(node, "q")
    full = {"x-max-length": 20, "x-overflow": "reject-publish"}
    declare(node, "full", **full)
    ends = [StagingEnd(node) for _ in range(3)]
    known: list[str] = ["amq.staged.none"]

    def request() -> bytes:
        producer, run = rng.choice("ab"), rng.choice(("r1", "r2", "r3"))
        batch = rng.randrange(6)
        route = rng.random() < 0.3
        data = publishes("", rng.choice(("q", "full", "none")), numbers(0, rng.randrange(9)))
        known[1:] = [name for _, name in node.broker.staging.sets]
        sets = rng.sample(known, rng.randrange(len(known) + 1))
        begin = staging.BeginRequest(producer, run, batch, 100_000, route)
        commit = staging.CommitRequest(producer, run, batch, route, rng.randrange(300), sets)
        return rng.choice(
            (
                staging.encode_begin(begin),
                staging.encode_begin(begin),
                staging.encode_block(data),
                staging.encode_block(data),
                staging.encode_block(data[: rng.randrange(len(data) + 1)]),
                staging.encode_end(rng.randrange(9)),
                staging.encode_commit(commit),
                staging.encode_commit(commit),
                staging.encode_abort(sets),
                staging.encode_last(producer),
                staging.encode_publish(data, route, rng.randrange(300)),
                staging.encode_target("", "q"),
                rf.frame(rng.randrange(40, 48), rng.randbytes(rng.randrange(40))),
            )
        )

    for _ in range(400):
        end = rng.choice(ends)
        if rng.random() < 0.05 or end.session.closed:
            end.drop()
            ends.remove(end)
            node.clients.remove(end)
            ends.append(StagingEnd(node))
            continue
        if rng.random() < 0.1:
            node.tick(rng.choice((10, 60, 1000)))
        node.committer.hold = rng.random() < 0.2
        node.committer.finish()
        end.send(request())
        check(node)
