"""The registry of nsqlookupd: which node has which topic and channel.

In: what nodes say of themselves (``identify``, ``register``, ``ping`` ...) and what operators do by
HTTP (``create_topic``, ``tombstone`` ...), each with the time.  Out: answers to who looks something
up.  A node is heard from by its connection: when that ends, ``forget`` it.

    topic T               producers of T
    channel C of T        producers that have it
    nodes                 each that has identified itself

A key stays when its last producer has gone, so a topic can be looked up while no node has it; only
ephemeral ones go then.  A node that was silent for long is not told to clients, and one whose
topic was tombstoned is not told to those who look up that topic, for a while: so no client connects
to it before it has deleted the topic.

The node this registry is part of is in it as well: ``keep`` says what it has of a topic, and it is
never silent.

No log-in is needed to register, so there are limits: of topics, of channels, of what one node
registers and of what all do.  For a new key beyond them the one that has been without a producer
longest is removed; without such a key it is refused.  What this node has is always taken.

Invariants (``check``):
  R1  who produces a topic or a channel is among the nodes
  R2  who has a channel produces its topic
  R3  a node's topics are those it produces
  R4  channels and registrations are counted
  R5  keys without a producer are known as such
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.errors import PreconditionFailed

SILENT_AFTER_MS: Final[i64] = 300_000
TOMBSTONE_MS: Final[i64] = 45_000
EPHEMERAL: Final = "#ephemeral"
TOPICS_MAX: Final[i64] = 100_000
CHANNELS_MAX: Final[i64] = 500_000
NODE_KEYS_MAX: Final[i64] = 20_000
REGISTRATIONS_MAX: Final[i64] = 500_000
"""Of all nodes together: each is a node under a key."""


@final
class LookupNode:
    """One nsqd; ``id`` tells its connection from all others."""

    def __init__(
        self,
        id_: str,
        is_here: bool = False,
        hostname: str = "",
        broadcast_address: str = "",
        tcp_port: int = 0,
        http_port: int = 0,
        version: str = "",
    ) -> None:
        self.id = id_
        self.is_here = is_here  # this very node
        self.remote_address: str = id_
        self.hostname: str = hostname
        self.broadcast_address: str = broadcast_address
        self.tcp_port: int = tcp_port
        self.http_port: int = http_port
        self.version: str = version
        self.heard_ms = WallMs(0)
        self.topics: set[str] = set()  # in the registry
        self.key_count: i64 = 0  # there, topics and channels

    def heard(self, now_ms: WallMs) -> None:
        """It has said something."""
        self.heard_ms = now_ms

    def facts(self) -> dict[str, object]:
        """As nsqlookupd shows it, in its order."""
        return {
            "remote_address": self.remote_address,
            "hostname": self.hostname,
            "broadcast_address": self.broadcast_address,
            "tcp_port": self.tcp_port,
            "http_port": self.http_port,
            "version": self.version,
        }


@final
class Producer:
    """A node under one key."""

    def __init__(self, node: LookupNode) -> None:
        self.node = node
        self.tombstoned_ms = WallMs(0)  # 0 = never

    def tombstone(self, now_ms: WallMs) -> None:
        self.tombstoned_ms = now_ms


@final
class Lookup:
    """See the head of this file; names are valid: the caller has looked."""

    def __init__(
        self,
        topics_max: i64 = TOPICS_MAX,
        channels_max: i64 = CHANNELS_MAX,
        node_keys_max: i64 = NODE_KEYS_MAX,
        registrations_max: i64 = REGISTRATIONS_MAX,
        silent_after_ms: i64 = SILENT_AFTER_MS,
        tombstone_ms: i64 = TOMBSTONE_MS,
    ) -> None:
        """The times are nsqlookupd's inactive-producer-timeout and tombstone-lifetime."""
        self._silent_after_ms: i64 = silent_after_ms
        self._tombstone_ms: i64 = tombstone_ms
        self._topics_max: i64 = topics_max
        self._channels_max: i64 = channels_max
        self._node_keys_max: i64 = node_keys_max
        self._registrations_max: i64 = registrations_max
        self._channel_count: i64 = 0
        self._registrations: i64 = 0
        # Without a producer, those that have been so longest first.
        self._unused_topics: dict[str, None] = {}
        self._unused_channels: dict[tuple[str, str], None] = {}
        self._nodes: dict[str, LookupNode] = {}
        self._topics: dict[str, dict[str, Producer]] = {}
        self._channels: dict[str, dict[str, dict[str, Producer]]] = {}  # by topic, by name

    # -- nodes -----------------------------------------------------------------------------

    def identify(self, node: LookupNode, now_ms: WallMs) -> None:
        node.heard(now_ms)
        self._nodes[node.id] = node

    def forget(self, node: LookupNode) -> None:
        """Its connection has ended; keys stay."""
        if self._nodes.pop(node.id, None) is None:
            return
        for topic in list(node.topics):
            self._leave(node, topic)

    def register(self, node: LookupNode, topic: str, channel: str) -> None:
        """``channel`` = "": the topic alone.  Raises PreconditionFailed beyond the limits."""
        added: i64 = 0
        if topic not in node.topics:
            added += 1
        if channel != "" and node.id not in self._channels.get(topic, {}).get(channel, {}):
            added += 1
        if added > 0 and node.key_count + added > self._node_keys_max:
            raise PreconditionFailed(f"a node registers at most {self._node_keys_max} keys")
        if added > 0 and self._registrations + added > self._registrations_max:
            raise PreconditionFailed(f"all nodes register at most {self._registrations_max} keys")
        self._make_room(topic, channel)
        self._put(node, topic, channel)

    def _put(self, node: LookupNode, topic: str, channel: str) -> None:
        self._add(node, self._topics.setdefault(topic, {}))
        self._unused_topics.pop(topic, None)
        node.topics.add(topic)
        if channel != "":
            self._make_channel(topic, channel)
            self._add(node, self._channels[topic][channel])
            self._unused_channels.pop((topic, channel), None)

    def _add(self, node: LookupNode, producers: dict[str, Producer]) -> None:
        if node.id not in producers:
            producers[node.id] = Producer(node)
            node.key_count += 1
            self._registrations += 1

    def _drop(self, node: LookupNode, producers: dict[str, Producer]) -> None:
        if producers.pop(node.id, None) is not None:
            node.key_count -= 1
            self._registrations -= 1

    def unregister(self, node: LookupNode, topic: str, channel: str) -> None:
        """``channel`` = "": the topic, and all of its channels."""
        if channel == "":
            self._leave(node, topic)
            if topic.endswith(EPHEMERAL) and len(self._topics.get(topic, {})) == 0:
                self.delete_topic(topic)
            return
        producers = self._channels.get(topic, {}).get(channel)
        if producers is None:
            return
        self._drop(node, producers)
        if len(producers) == 0:
            if channel.endswith(EPHEMERAL):
                self.delete_channel(topic, channel)
            else:
                self._unused_channels.setdefault((topic, channel))

    def _leave(self, node: LookupNode, topic: str) -> None:
        """A topic and all of its channels; the keys stay."""
        for channel, producers in self._channels.get(topic, {}).items():
            self._drop(node, producers)
            if len(producers) == 0:
                self._unused_channels.setdefault((topic, channel))
        node.topics.discard(topic)
        left = self._topics.get(topic)
        if left is not None:
            self._drop(node, left)
            if len(left) == 0:
                self._unused_topics.setdefault(topic)

    def keep(self, node: LookupNode, topic: str, channels: list[str] | None) -> None:
        """That node has these channels of the topic and no others; None: nor has it the topic."""
        wanted = set() if channels is None else set(channels)
        for channel, producers in list(self._channels.get(topic, {}).items()):
            if channel not in wanted and node.id in producers:
                self.unregister(node, topic, channel)
        if channels is None:
            self.unregister(node, topic, "")
            return
        self._put(node, topic, "")
        for channel in channels:
            self._put(node, topic, channel)

    # -- what operators do -------------------------------------------------------------------

    def create_topic(self, topic: str) -> None:
        """Raises PreconditionFailed beyond the limits, as ``create_channel`` does."""
        self._make_room(topic, "")
        self._make_topic(topic)

    def create_channel(self, topic: str, channel: str) -> None:
        self._make_room(topic, channel)
        self._make_topic(topic)
        self._make_channel(topic, channel)

    def _make_topic(self, topic: str) -> None:
        if topic not in self._topics:
            self._topics[topic] = {}
            self._unused_topics[topic] = None

    def _make_channel(self, topic: str, channel: str) -> None:
        channels = self._channels.setdefault(topic, {})
        if channel not in channels:
            channels[channel] = {}
            self._channel_count += 1
            self._unused_channels[(topic, channel)] = None

    def _make_room(self, topic: str, channel: str) -> None:
        """Raises PreconditionFailed when each key there is has a producer."""
        is_new = channel != "" and channel not in self._channels.get(topic, {})
        if is_new and self._channel_count >= self._channels_max:
            unused = next(iter(self._unused_channels), None)
            if unused is None:
                most = self._channels_max
                raise PreconditionFailed(f"there are {most} channels, which is the limit")
            self.delete_channel(unused[0], unused[1])
        if topic not in self._topics and len(self._topics) >= self._topics_max:
            oldest = next(iter(self._unused_topics), None)
            if oldest is None:
                raise PreconditionFailed(f"there are {self._topics_max} topics, which is the limit")
            self.delete_topic(oldest)

    def delete_topic(self, topic: str) -> None:
        """Until a node registers it again."""
        for channel in list(self._channels.get(topic, {})):
            self.delete_channel(topic, channel)
        producers = self._topics.pop(topic, {})
        for producer in list(producers.values()):
            producer.node.topics.discard(topic)
            self._drop(producer.node, producers)
        self._unused_topics.pop(topic, None)

    def delete_channel(self, topic: str, channel: str) -> bool:
        """False when there is none of that name."""
        channels = self._channels.get(topic, {})
        producers = channels.pop(channel, None)
        if producers is None:
            return False
        for producer in list(producers.values()):
            self._drop(producer.node, producers)
        self._unused_channels.pop((topic, channel), None)
        self._channel_count -= 1
        if len(channels) == 0:
            del self._channels[topic]
        return True

    def tombstone(self, topic: str, address: str, now_ms: WallMs) -> None:
        """``address``: the node's broadcast address, a colon, its HTTP port."""
        for producer in self._topics.get(topic, {}).values():
            node = producer.node
            if f"{node.broadcast_address}:{node.http_port}" == address:
                producer.tombstone(now_ms)

    # -- answers -----------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """In no order: to sort very many takes a while, which the data loop does not have."""
        return list(self._topics)

    def has_topic(self, topic: str) -> bool:
        return topic in self._topics

    def channels(self, topic: str) -> list[str]:
        """In no order."""
        return list(self._channels.get(topic, {}))

    def producers(self, topic: str, now_ms: WallMs) -> list[LookupNode]:
        """To whom a consumer of that topic may connect."""
        return [
            producer.node
            for producer in self._topics.get(topic, {}).values()
            if not (self._is_silent(producer.node, now_ms) or self.is_tombstoned(producer, now_ms))
        ]

    def nodes(self, now_ms: WallMs) -> list[LookupNode]:
        """Those heard from."""
        return [node for node in self._nodes.values() if not self._is_silent(node, now_ms)]

    def tombstones(self, node: LookupNode, topics: list[str], now_ms: WallMs) -> list[bool]:
        """Of each of these topics: is it tombstoned at that node?"""
        found = []
        for topic in topics:
            producer = self._topics.get(topic, {}).get(node.id)
            found.append(producer is not None and self.is_tombstoned(producer, now_ms))
        return found

    def is_tombstoned(self, producer: Producer, now_ms: WallMs) -> bool:
        at_ms = producer.tombstoned_ms
        return at_ms > 0 and now_ms - at_ms < self._tombstone_ms

    def _is_silent(self, node: LookupNode, now_ms: WallMs) -> bool:
        return not node.is_here and now_ms - node.heard_ms > self._silent_after_ms

    def some_keys(self, most: i64) -> dict[str, list[Producer]]:
        """By ``category:key:subkey``, for those who search for a fault; with at most so many
        producers, and keys without one among as many.
        """
        found: dict[str, list[Producer]] = {}
        left: i64 = most
        if self._nodes:
            found["client::"] = [Producer(node) for node in self._nodes.values()]
            left -= len(self._nodes)
        for topic, producers in self._topics.items():
            if left <= 0:
                return found
            found[f"topic:{topic}:"] = list(producers.values())
            left -= len(producers) + 1
        for topic, channels in self._channels.items():
            for channel, producers in channels.items():
                if left <= 0:
                    return found
                found[f"channel:{topic}:{channel}"] = list(producers.values())
                left -= len(producers) + 1
        return found

    # -- invariants --------------------------------------------------------------------------

    def check(self) -> None:
        """Assert R1 to R5."""
        registrations = 0
        for topic, producers in self._topics.items():
            registrations += len(producers)
            assert (len(producers) == 0) == (topic in self._unused_topics), "R5"
            for id_, producer in producers.items():
                assert self._nodes[id_] is producer.node, "R1"
        for node in self._nodes.values():
            produced = {one for one in self._topics if node.id in self._topics[one]}
            assert node.topics == produced, "R3"
        count = 0
        for topic, channels in self._channels.items():
            count += len(channels)
            for channel, producers in channels.items():
                registrations += len(producers)
                assert (len(producers) == 0) == ((topic, channel) in self._unused_channels), "R5"
                for id_, producer in producers.items():
                    assert self._nodes[id_] is producer.node, "R1"
                    assert id_ in self._topics[topic], "R2"
        assert count == self._channel_count, "R4"
        assert registrations == self._registrations, "R4"
        assert registrations == sum(int(node.key_count) for node in self._nodes.values()), "R4"
        assert len(self._unused_topics) <= len(self._topics), "R5"
        assert len(self._unused_channels) <= count, "R5"
