"""The registry of nsqlookupd: who has what, who is silent, what is tombstoned."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.broker.lookup import SILENT_AFTER_MS, TOMBSTONE_MS, Lookup, LookupNode
from penstock.core.errors import PreconditionFailed

NOW_MS = 1_000_000


def node(number: int = 1, *, is_here: bool = False) -> LookupNode:
    made = LookupNode(f"10.0.0.{number}:5{number}", is_here)
    made.broadcast_address = f"host{number}"
    made.tcp_port, made.http_port, made.version = 4150, 4151, "1.3.0"
    return made


def known(lookup: Lookup, number: int = 1) -> LookupNode:
    made = node(number)
    lookup.identify(made, NOW_MS)
    return made


def test_a_channel_registers_its_topic_as_well() -> None:
    lookup = Lookup()
    one = known(lookup)
    lookup.register(one, "t", "c")
    assert lookup.topics() == ["t"]
    assert lookup.channels("t") == ["c"]
    assert lookup.producers("t", NOW_MS) == [one]


def test_a_key_outlives_its_producers_unless_it_is_ephemeral() -> None:
    lookup = Lookup()
    one = known(lookup)
    for topic in ("t", "e#ephemeral"):
        lookup.register(one, topic, "c")
        lookup.register(one, topic, "x#ephemeral")
        lookup.unregister(one, topic, "c")
        lookup.unregister(one, topic, "x#ephemeral")
        assert lookup.channels(topic) == ["c"]
        lookup.unregister(one, topic, "")
    assert lookup.topics() == ["t"]
    assert lookup.producers("t", NOW_MS) == []
    assert lookup.has_topic("t")


def test_who_leaves_is_forgotten_everywhere() -> None:
    lookup = Lookup()
    one, two = known(lookup, 1), known(lookup, 2)
    for each in (one, two):
        lookup.register(each, "t", "c")
    lookup.forget(one)
    assert lookup.producers("t", NOW_MS) == [two]
    assert lookup.nodes(NOW_MS) == [two]
    lookup.check()


def test_who_is_silent_is_told_to_nobody_until_it_is_heard_again() -> None:
    lookup = Lookup()
    one = known(lookup)
    lookup.register(one, "t", "")
    assert lookup.producers("t", NOW_MS + SILENT_AFTER_MS) == [one]
    late_ms = NOW_MS + SILENT_AFTER_MS + 1
    assert lookup.producers("t", late_ms) == []
    assert lookup.nodes(late_ms) == []
    one.heard(late_ms)
    assert lookup.producers("t", late_ms) == [one]


def test_this_node_is_never_silent() -> None:
    lookup = Lookup()
    here = node(9, is_here=True)
    lookup.identify(here, NOW_MS)
    lookup.register(here, "t", "")
    assert lookup.producers("t", NOW_MS + 10 * SILENT_AFTER_MS) == [here]


def test_a_tombstone_hides_one_producer_of_one_topic_for_a_while() -> None:
    lookup = Lookup()
    one, two = known(lookup, 1), known(lookup, 2)
    for topic in ("t", "u"):
        lookup.register(one, topic, "")
        lookup.register(two, topic, "")
    lookup.tombstone("t", "host1:4151", NOW_MS)
    assert lookup.producers("t", NOW_MS) == [two]
    assert lookup.producers("u", NOW_MS) == [one, two]
    assert one.topics == {"t", "u"}
    assert lookup.tombstones(one, ["t", "u", "gone"], NOW_MS) == [True, False, False]
    assert lookup.producers("t", NOW_MS + TOMBSTONE_MS) == [one, two]


def test_both_times_can_be_set() -> None:
    lookup = Lookup(silent_after_ms=2000, tombstone_ms=1000)
    one = known(lookup)
    lookup.register(one, "t", "")
    lookup.tombstone("t", "host1:4151", NOW_MS)
    assert lookup.producers("t", NOW_MS + 999) == []
    assert lookup.tombstones(one, ["t"], NOW_MS + 999) == [True]
    assert lookup.producers("t", NOW_MS + 1000) == [one]
    assert lookup.producers("t", NOW_MS + 2000) == [one]
    assert lookup.producers("t", NOW_MS + 2001) == []
    assert lookup.nodes(NOW_MS + 2001) == []


def test_people_make_and_delete_keys() -> None:
    lookup = Lookup()
    one = known(lookup)
    lookup.create_channel("t", "c")
    assert (lookup.topics(), lookup.channels("t")) == (["t"], ["c"])
    assert not lookup.delete_channel("t", "other")
    assert lookup.delete_channel("t", "c")
    lookup.register(one, "t", "d")
    lookup.delete_topic("t")
    lookup.delete_topic("nobody")
    assert (lookup.topics(), lookup.channels("t")) == ([], [])


def test_a_node_keeps_what_it_says_and_nothing_else() -> None:
    lookup = Lookup()
    one, two = known(lookup, 1), known(lookup, 2)
    lookup.register(two, "t", "c")
    lookup.keep(one, "t", ["c", "x#ephemeral"])
    lookup.keep(one, "u", [])
    assert sorted(lookup.channels("t")) == ["c", "x#ephemeral"]
    lookup.keep(one, "t", [])
    lookup.keep(one, "u", None)
    lookup.keep(one, "v", ["d"])
    assert lookup.channels("t") == ["c"], "the other has it, the ephemeral one is gone"
    assert lookup.producers("u", NOW_MS) == []
    assert lookup.producers("v", NOW_MS) == [one]
    lookup.keep(one, "t", None)
    assert lookup.producers("t", NOW_MS) == [two]


class Counted(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_keeping_a_topic_costs_as_much_as_its_channels() -> None:
    lookup = Lookup()
    one = known(lookup)
    for _ in range(2):
        lookup.keep(one, "t", [Counted(f"c{number}") for number in range(1_000)])
    assert Counted.compared < 10_000


def test_all_keys_are_shown() -> None:
    lookup = Lookup()
    assert lookup.some_keys(100) == {}
    one = known(lookup)
    lookup.register(one, "t", "c")
    assert list(lookup.some_keys(100)) == ["client::", "topic:t:", "channel:t:c"]


def test_keys_beyond_the_limits_are_refused_but_for_what_this_node_has() -> None:
    lookup = Lookup(topics_max=2, channels_max=2)
    one, here = known(lookup, 1), known(lookup, 9)
    lookup.register(one, "t", "c")
    lookup.register(one, "u", "d")
    for topic, channel in (("v", ""), ("t", "x"), ("v", "c")):
        with pytest.raises(PreconditionFailed):
            lookup.register(one, topic, channel)
        with pytest.raises(PreconditionFailed):
            lookup.create_channel(topic, channel or "c")
    lookup.register(one, "u", "d")
    lookup.keep(here, "v", ["c"])
    assert sorted(lookup.topics()) == ["t", "u", "v"]
    for topic in ("t", "u"):
        lookup.delete_topic(topic)
    lookup.register(one, "w", "c")
    lookup.check()


def test_keys_without_a_producer_make_room_the_oldest_first() -> None:
    lookup = Lookup(topics_max=3, channels_max=3)
    one, two = known(lookup, 1), known(lookup, 2)
    lookup.create_channel("made", "c")
    lookup.register(two, "left", "d")
    lookup.register(one, "used", "e")
    lookup.forget(two)
    lookup.register(one, "new", "f")
    assert sorted(lookup.topics()) == ["left", "new", "used"]
    lookup.create_channel("newer", "g")
    assert sorted(lookup.topics()) == ["new", "newer", "used"]
    assert lookup.channels("left") == []
    lookup.register(one, "newer", "g")
    with pytest.raises(PreconditionFailed):
        lookup.create_topic("newest")
    lookup.check()


def test_one_node_and_all_nodes_register_so_many_keys_at_most() -> None:
    lookup = Lookup(node_keys_max=3, registrations_max=4)
    one, two = known(lookup, 1), known(lookup, 2)
    lookup.register(one, "t", "c")
    lookup.register(one, "t", "d")
    lookup.register(one, "t", "d")
    with pytest.raises(PreconditionFailed, match="a node registers at most 3 keys"):
        lookup.register(one, "t", "e")
    lookup.register(two, "t", "")
    with pytest.raises(PreconditionFailed, match="all nodes register at most 4 keys"):
        lookup.register(two, "t", "c")
    lookup.forget(one)
    lookup.register(two, "t", "c")
    lookup.check()


def test_the_registry_of_a_node_is_bounded_so() -> None:
    lookup = Lookup()
    one = known(lookup)
    for number in range(20_000):
        lookup.register(one, f"t{number}", "")
    with pytest.raises(PreconditionFailed, match="a node registers at most 20000 keys"):
        lookup.register(one, "t", "")


def test_the_debug_answer_ends_with_so_many_producers() -> None:
    lookup = Lookup()
    one = known(lookup)
    for number in range(100):
        lookup.register(one, f"t{number}", "c")
    assert len(lookup.some_keys(50)) <= 50
    assert len(lookup.some_keys(150)) > 50


def test_channels_of_an_ephemeral_topic_go_with_it() -> None:
    lookup = Lookup()
    one = known(lookup)
    lookup.register(one, "e#ephemeral", "c")
    lookup.unregister(one, "e#ephemeral", "")
    assert lookup.channels("e#ephemeral") == []
    assert lookup.some_keys(100).keys() == {"client::"}


topics = st.sampled_from(["a", "b", "e#ephemeral"])
channels = st.sampled_from(["", "c", "d", "x#ephemeral"])
numbers = st.integers(1, 3)


class LookupMachine(RuleBasedStateMachine):
    """Against sets of pairs: who says he has what."""

    def __init__(self) -> None:
        super().__init__()
        self.lookup = Lookup()
        self.nodes = {number: node(number) for number in range(1, 4)}
        self.here: set[int] = set()
        self.topics: set[tuple[int, str]] = set()

    @rule(number=numbers)
    def identify(self, number: int) -> None:
        if number not in self.here:
            self.here.add(number)
            self.lookup.identify(self.nodes[number], NOW_MS)

    @rule(number=numbers)
    def leave(self, number: int) -> None:
        self.here.discard(number)
        self.topics = {pair for pair in self.topics if pair[0] != number}
        self.lookup.forget(self.nodes[number])

    @rule(number=numbers, topic=topics, channel=channels)
    def register(self, number: int, topic: str, channel: str) -> None:
        if number in self.here:
            self.topics.add((number, topic))
            self.lookup.register(self.nodes[number], topic, channel)

    @rule(number=numbers, topic=topics, channel=channels)
    def unregister(self, number: int, topic: str, channel: str) -> None:
        if channel == "":
            self.topics.discard((number, topic))
        self.lookup.unregister(self.nodes[number], topic, channel)

    @rule(topic=topics, channel=channels)
    def delete(self, topic: str, channel: str) -> None:
        if channel != "":
            self.lookup.delete_channel(topic, channel)
            return
        self.lookup.delete_topic(topic)
        self.topics = {pair for pair in self.topics if pair[1] != topic}

    @rule(number=numbers, topic=topics, wanted=st.none() | st.lists(channels.filter(bool)))
    def keep(self, number: int, topic: str, wanted: list[str] | None) -> None:
        if number in self.here:
            self.topics.discard((number, topic))
            self.topics |= set() if wanted is None else {(number, topic)}
            self.lookup.keep(self.nodes[number], topic, wanted)

    @invariant()
    def agrees(self) -> None:
        self.lookup.check()
        for topic in self.lookup.topics():
            found = {one.id for one in self.lookup.producers(topic, NOW_MS)}
            assert found == {self.nodes[n].id for n, name in self.topics if name == topic}
        assert {topic for _, topic in self.topics} <= set(self.lookup.topics())


TestLookup = LookupMachine.TestCase
