"""What a node makes of what nsqlookupds say of a new topic, on a node without threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.broker.lookup import Lookup, LookupNode
from penstock.broker.topology.topics import Topic, queue_name
from penstock.protocols.nsq.http.admin import NsqAdmin
from penstock.protocols.nsq.http.services import CHANNELS_MAX, KEYS_AT_ONCE, Follower
from tests.helpers.nsq_pair import NsqBroker


class LaterLoop:
    """Does what it is handed when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call(self, function: Callable[[], None]) -> None:
        self.waiting.append(function)

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class Side:
    """The services' own loop, which does at once what it is handed."""

    def call(self, function: Callable[..., object], *arguments: Any) -> bool:
        function(*arguments)
        return True

    def call_later(self, _: float, function: Callable[..., object]) -> None:
        function()


class Followed:
    """A node that follows its own registry."""

    def __init__(self) -> None:
        self.node = NsqBroker()
        self.loop = LaterLoop()
        self.lookup = Lookup()
        self.told: dict[str, list[str]] = {}  # the peers
        self.follower = Follower(
            cast(Any, self.loop),
            NsqAdmin(self.node.nsq, self.node.turn),
            self.lookup,
            LookupNode("here", is_here=True),
            cast(Any, self),
            cast(Any, Side()),
        )
        self.follower.attach()

    has_any = False

    def tell(self, topics: dict[str, list[str]]) -> None:
        self.told = topics

    def new_topic(self, name: str) -> Topic:
        topic = self.node.broker.vhosts["/"].topics.topic(name)
        self.loop.run()
        assert not topic.preparing
        return topic


def test_a_new_topic_gets_so_many_channels_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    followed = Followed()
    for number in range(CHANNELS_MAX + 1):
        followed.lookup.create_channel("t", f"c{number}")
    assert len(followed.new_topic("t").channels) == CHANNELS_MAX
    assert "topic t gets 100 of the channels that others have" in caplog.text


def test_one_channel_that_cannot_be_made_does_not_stop_the_others() -> None:
    followed = Followed()
    for channel in ("a", "b", "c"):
        followed.lookup.create_channel("t", channel)
    # A queue of that name that is no channel.
    vhost, arguments = followed.node.broker.vhosts["/"], {"x-max-priority": 5}
    vhost.declare_queue(queue_name("t", "b"), True, None, False, arguments)
    assert sorted(followed.new_topic("t").channels) == ["a", "c"]


def test_what_the_node_has_is_registered_in_slices() -> None:
    followed = Followed()
    topics = followed.node.broker.vhosts["/"].topics
    for number in range(KEYS_AT_ONCE + 1):
        topics.topic(f"t{number}")
    topics.channel(topics.topics["t0"], "c")
    counts = [0]
    while followed.loop.waiting:
        followed.loop.waiting.pop(0)()
        counts.append(len(followed.lookup.topics()))
    assert counts == [0, KEYS_AT_ONCE, KEYS_AT_ONCE + 1]
    followed.node.broker.vhosts["/"].delete_exchange("nsq.t0", False)
    followed.loop.run()
    assert followed.lookup.producers("t0", 0) == []
    assert len(followed.told) == KEYS_AT_ONCE
