"""The flow picture of a queue on a simulated disk: states, what moves, and the words."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.backing.description import describe_segments
from penstock.backing.priorities import LOWEST_FIRST, classic_priorities
from penstock.management.rows.forecast_view import in_words, sentence
from penstock.management.rows.heaps_view import Recent
from penstock.management.rows.queue_flow import flow_facts
from penstock.storage.engine.resting_queue import INFINITE
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

ENTRIES = 64
SIZE = 100


class Watched:
    """One queue, and what its picture says."""

    def __init__(self) -> None:
        self.engine = OpenEngine(SimFileSystem(), {1: ENTRIES}, limits(embed=1 << 20))
        self.queue = self.engine.queues[1]
        self.now_ms = 1_700_000_000_000

    def publish(self, count: int) -> None:
        self.queue.publish([message(b"x" * SIZE) for _ in range(count)], self.now_ms)
        self.engine.commit()

    def page(self, target_bytes: int) -> None:
        while self.queue.page(target_bytes, 64):
            self.engine.commit()
            self.engine.run_jobs()

    def fetch(self, count: int) -> int:
        """And acknowledge; how many came."""
        done = 0
        while done < count:
            taken = self.queue.fetch(count - done, 1 << 30)
            if not taken:
                if not self.queue.ready_count():
                    break
                self.engine.run_jobs()
            self.queue.ack(taken)
            done += len(taken)
            self.engine.commit()
        return done

    def second(self) -> None:
        self.now_ms += 1000
        self.queue.tick(self.now_ms)

    def facts(self) -> Any:
        self.queue.check()
        return flow_facts(self.queue)

    def count(self, move: str) -> Any:
        return self.facts()["moves"][move]["count"]


def counts(facts: Any) -> dict[str, int]:
    return {name: state["messages"] for name, state in facts["states"].items()}


def test_a_short_queue_is_in_q4_and_moves_nothing() -> None:
    one = Watched()
    assert (
        one.facts()["sentence"] == "empty: what is published goes through q4 to the next consumer"
    )
    one.publish(10)
    assert one.fetch(4) == 4
    facts = one.facts()
    assert counts(facts) == {"q1": 0, "q2": 0, "delta": 0, "q3": 0, "q4": 6}
    assert facts["states"]["q4"] == {"messages": 6, "bytes": 6 * SIZE, "ram_messages": 6}
    assert facts["sentence"] == "all 6 messages are in memory, none is paged"
    assert not any(move["count"] for move in facts["moves"].values())
    assert (facts["published_to"], facts["served_from"]) == ("q4", "q4")


def test_every_message_that_is_paged_is_counted_on_each_step() -> None:
    one = Watched()
    one.publish(1000)
    one.page(60_000)
    one.publish(500)
    facts = one.facts()
    states = counts(facts)
    assert sum(states.values()) == facts["messages"] == 1500
    assert states["delta"] > 500
    assert states["q1"] == 500
    moves = {name: move["count"] for name, move in facts["moves"].items()}
    assert moves["q4_to_beta"] == states["q3"] + states["delta"]
    assert moves["q3_to_delta"] == moves["beta_to_gamma"] == states["delta"]
    assert moves["q1_to_beta"] == moves["q2_to_delta"] == 0
    one.page(40_000)
    again = one.facts()
    assert again["moves"]["q1_to_beta"]["count"] == 500 - counts(again)["q1"] > 0
    assert sum(counts(again).values()) == 1500
    went = sum(again["moves"][name]["count"] for name in ("q2_to_delta", "q3_to_delta"))
    assert went == counts(again)["delta"]


def test_the_way_back_is_counted_too() -> None:
    one = Watched()
    one.publish(1000)
    one.page(60_000)
    paged = counts(one.facts())["delta"]
    one.queue.set_target(INFINITE)
    one.publish(100)
    assert one.fetch(1100) == 1100
    assert one.count("delta_to_q3") == paged
    assert one.count("q1_to_q4") == 100
    assert counts(one.facts()) == dict.fromkeys(("q1", "q2", "delta", "q3", "q4"), 0)


def test_a_move_is_told_as_a_rate_that_fades() -> None:
    one = Watched()
    one.publish(1000)
    one.page(60_000)
    moved = one.count("q4_to_beta")
    one.second()  # rates begin with the first look after a move
    one.second()
    rate = one.facts()["moves"]["q4_to_beta"]["rate"]
    assert rate == pytest.approx(moved * (1 - 0.5**0.2), rel=0.01)
    for _ in range(5):
        one.second()
    assert one.facts()["moves"]["q4_to_beta"]["rate"] == pytest.approx(rate / 2, rel=0.01)
    for _ in range(120):
        one.second()
    assert one.facts()["moves"]["q4_to_beta"]["rate"] == 0


def test_the_sentence_has_the_numbers_of_the_picture() -> None:
    one = Watched()
    one.second()
    one.publish(2000)
    while one.queue.pager._over_bytes() > 0 and counts(one.facts())["delta"] == 0:
        one.queue.page(60_000, 64)
    one.second()
    one.second()
    facts = one.facts()
    memory = facts["memory"]
    assert memory["bytes"] > memory["target_ram_bytes"] == 60_000
    assert memory["permitted_beta_count"] == one.queue.pager.betas_kept()
    target, held = memory["target_ram_count"], memory["messages"]
    words = f"paging: RAM target {target:,} messages, {held:,} in memory,"
    assert facts["sentence"].startswith(words)
    assert "a second go to delta" in facts["sentence"]
    one.queue.set_target(INFINITE)
    assert "no RAM target" in one.facts()["sentence"]


def test_a_lazy_queue_goes_straight_to_delta() -> None:
    one = Watched()
    one.queue.set_mode(True)
    one.publish(200)
    facts = one.facts()
    assert facts["mode"] == "lazy"
    assert facts["moves"]["publish_to_delta"]["count"] == counts(facts)["delta"] == 200
    assert facts["sentence"] == "lazy: 200 messages rest on disk, 0 are read ahead"


def test_what_is_handed_out_is_told_apart_by_where_its_content_is() -> None:
    one = Watched()
    one.publish(100)
    assert len(one.queue.fetch(60, 1 << 30)) == 60
    one.page(1)
    pending = one.facts()["pending"]
    assert pending["messages"] == 60 == pending["ram_messages"] + pending["disk_messages"]
    assert pending["disk_messages"] == one.count("pending_to_disk") > 0
    assert pending["disk_bytes"] == pending["disk_messages"] * SIZE


def test_the_strip_knows_each_segment() -> None:
    one = Watched()
    one.publish(1000)
    one.page(1)
    segments, left_out = describe_segments(one.queue, 200)
    assert left_out == 0
    assert sum(row["messages"] for row in segments) == counts(one.facts())["delta"]  # type: ignore[misc]
    assert [row["first_seq_id"] for row in segments] == sorted(
        int(row["name"].split(".")[0]) * ENTRIES  # type: ignore[attr-defined]
        for row in segments
    )
    full = segments[-2]
    assert full["published"] == full["entries"] == ENTRIES
    assert (full["acked"], full["delivered"], full["garbage_share"]) == (0, 0, 0.0)
    some, left_out = describe_segments(one.queue, 4)
    assert left_out == len(segments) - 4
    assert some == [*segments[:2], *segments[-2:]]


def test_a_queue_with_priorities_is_the_sum_of_its_parts() -> None:
    engine = OpenEngine(SimFileSystem(), {1: ENTRIES, 2: ENTRIES}, limits(embed=1 << 20))
    backing = classic_priorities([engine.queues[1], engine.queues[2]], LOWEST_FIRST)
    engine.queues[1].publish([message(b"low") for _ in range(3)], 0)
    engine.queues[2].publish([message(b"urgent") for _ in range(2)], 0)
    facts: Any = flow_facts(backing)
    assert facts["messages"] == 5
    assert facts["states"]["q4"] == {"messages": 5, "bytes": 3 * 3 + 2 * 6, "ram_messages": 5}
    assert facts["priorities"] == [{"priority": 0, "messages": 3}, {"priority": 1, "messages": 2}]
    assert facts["next_seq_id"] is None
    assert facts["memory"]["target_ram_count"] is None
    engine.queues[1].page(1000, 1)
    assert flow_facts(backing)["memory"]["target_ram_bytes"] == 1000  # type: ignore[index]


# -- rates that are seen from outside -------------------------------------------------------------


def test_the_first_look_knows_no_rate_and_the_window_slides() -> None:
    recent = Recent()
    assert recent.rates("q", {"n": 100}, 1000) == {"n": None}
    assert recent.rates("q", {"n": 110}, 3000) == {"n": 5.0}
    assert recent.rates("other", {"n": 0}, 3000) == {"n": None}
    for at_ms in range(4000, 30_000, 1000):
        rates = recent.rates("q", {"n": 110}, at_ms)
    assert rates == {"n": 0.0}
    assert recent.rates("q", {"n": 3}, 31_000) == {"n": None}, "another one of that name"


def test_two_visitors_see_the_same_rate() -> None:
    recent = Recent()
    recent.rates("q", {"n": 0}, 0)
    recent.rates("q", {"n": 1000}, 5000)
    assert recent.rates("q", {"n": 1000}, 5001)["n"] == pytest.approx(200, abs=0.1)


# -- the forecast's words -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seconds, words",
    [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (90_000, "1 d 1 h")],
)
def test_seconds_in_words(seconds: int, words: str) -> None:
    assert in_words(seconds) == words


def test_the_sentence_names_what_comes_first() -> None:
    memory: dict[str, Any] = {
        "alarm": False,
        "paging": False,
        "seconds_to_paging": 90,
        "seconds_to_alarm": 300,
    }
    disk: dict[str, Any] = {"alarm": False, "free_bytes": 10, "seconds_to_alarm": None}
    assert sentence(memory, disk) == (
        "At the current rate paging starts in 1 min 30 s. The disk does not fill up."
    )
    memory |= {"paging": True, "seconds_to_paging": 0}
    disk |= {"seconds_to_alarm": 7}
    assert sentence(memory, disk) == (
        "Queues page; as it goes the memory alarm is set in 5 min 0 s."
        " At the current rate the disk alarm is set in 7 s."
    )
    assert "The memory alarm is set" in sentence(memory | {"alarm": True}, disk | {"alarm": True})
