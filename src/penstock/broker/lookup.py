"""The registry of nsqlookupd: which node has which topic and channel.

In: what nodes say of themselves (``identify``, ``register``, ``ping`` ...) and what people do by
HTTP (``create_topic``, ``tombstone`` ...), each with the time.  Out: answers to who looks something
up.  A node is heard from by its connection: when that ends, ``forget`` it.

    topic T               producers of T
    channel C of T        producers that have it
    nodes                 everybody who identified himself

A key stays when its last producer has gone, so a topic can be looked up while no node has it; only
ephemeral ones go then.  A node that was silent for long is not told to anybody, and one whose
topic was tombstoned is not told to those who look up that topic, for a while: so nobody connects
to it before it has deleted the topic.

The node this registry is part of is in it as well: ``keep`` says what it has, and it is never
silent.

Anybody may register, so there are limits: keys beyond them are refused, but what this node has.

Invariants (``check``):
  R1  who produces a topic or a channel is among the nodes
  R2  who has a channel produces its topic
  R3  a node's topics are those it produces
  R4  the channels are counted
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.errors import PreconditionFailed

SILENT_AFTER_MS: Final[i64] = 300_000
TOMBSTONE_MS: Final[i64] = 45_000
EPHEMERAL: Final = "#ephemeral"
TOPICS_MAX: Final[i64] = 100_000
CHANNELS_MAX: Final[i64] = 500_000


@final
class Node:
    """One nsqd; ``id`` tells its connection from all others."""

    def __init__(self, id_: str, is_here: bool = False) -> None:
        self.id = id_
        self.is_here = is_here  # this very node
        self.remote_address: str = id_
        self.hostname: str = ""
        self.broadcast_address: str = ""
        self.tcp_port: int = 0
        self.http_port: int = 0
        self.version: str = ""
        self.heard_ms: i64 = 0
        self.topics: set[str] = set()  # in the registry

    def is_silent(self, now_ms: i64) -> bool:
        return not self.is_here and now_ms - self.heard_ms > SILENT_AFTER_MS

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

    def __init__(self, node: Node) -> None:
        self.node = node
        self.tombstoned_ms: i64 = 0  # 0 = never

    def is_tombstoned(self, now_ms: i64) -> bool:
        return self.tombstoned_ms > 0 and now_ms - self.tombstoned_ms < TOMBSTONE_MS


@final
class Lookup:
    """See the head of this file; names are valid, whoever calls has looked."""

    def __init__(self, topics_max: i64 = TOPICS_MAX, channels_max: i64 = CHANNELS_MAX) -> None:
        self._topics_max: i64 = topics_max
        self._channels_max: i64 = channels_max
        self._channel_count: i64 = 0
        self._nodes: dict[str, Node] = {}
        self._topics: dict[str, dict[str, Producer]] = {}
        self._channels: dict[str, dict[str, dict[str, Producer]]] = {}  # by topic, by name

    # -- nodes -----------------------------------------------------------------------------

    def identify(self, node: Node, now_ms: i64) -> None:
        node.heard_ms = now_ms
        self._nodes[node.id] = node

    def ping(self, node: Node, now_ms: i64) -> None:
        node.heard_ms = now_ms

    def forget(self, node: Node) -> None:
        """Its connection has ended; keys stay."""
        if self._nodes.pop(node.id, None) is None:
            return
        for topic in node.topics:
            self._topics[topic].pop(node.id, None)
            for producers in self._channels.get(topic, {}).values():
                producers.pop(node.id, None)
        node.topics = set()

    def register(self, node: Node, topic: str, channel: str) -> None:
        """``channel`` = "": the topic alone.  Raises PreconditionFailed beyond the limits."""
        self._check_room(topic, channel)
        self._put(node, topic, channel)

    def _put(self, node: Node, topic: str, channel: str) -> None:
        self._topics.setdefault(topic, {}).setdefault(node.id, Producer(node))
        node.topics.add(topic)
        if channel != "":
            self._make_channel(topic, channel)
            self._channels[topic][channel].setdefault(node.id, Producer(node))

    def unregister(self, node: Node, topic: str, channel: str) -> None:
        """``channel`` = "": the topic, and all of its channels."""
        channels = self._channels.get(topic, {})
        if channel != "":
            producers = channels.get(channel, {})
            producers.pop(node.id, None)
            if len(producers) == 0 and channel.endswith(EPHEMERAL):
                self.delete_channel(topic, channel)
            return
        for producers in channels.values():
            producers.pop(node.id, None)
        producers = self._topics.get(topic, {})
        producers.pop(node.id, None)
        node.topics.discard(topic)
        if len(producers) == 0 and topic.endswith(EPHEMERAL):
            self.delete_topic(topic)

    def keep(self, node: Node, wanted: dict[str, list[str]]) -> None:
        """That node has these topics, each with its channels, and no others."""
        for topic in [one for one in node.topics if one not in wanted]:
            for channel in self.channels(topic):
                self.unregister(node, topic, channel)
            self.unregister(node, topic, "")
        for topic, channels in wanted.items():
            for channel, producers in list(self._channels.get(topic, {}).items()):
                if channel not in channels and node.id in producers:
                    self.unregister(node, topic, channel)
            self._put(node, topic, "")
            for channel in channels:
                self._put(node, topic, channel)

    # -- what people do ----------------------------------------------------------------------

    def create_topic(self, topic: str) -> None:
        """Raises PreconditionFailed beyond the limits, as ``create_channel`` does."""
        self._check_room(topic, "")
        self._topics.setdefault(topic, {})

    def create_channel(self, topic: str, channel: str) -> None:
        self._check_room(topic, channel)
        self._topics.setdefault(topic, {})
        self._make_channel(topic, channel)

    def _make_channel(self, topic: str, channel: str) -> None:
        channels = self._channels.setdefault(topic, {})
        if channel not in channels:
            channels[channel] = {}
            self._channel_count += 1

    def _check_room(self, topic: str, channel: str) -> None:
        if topic not in self._topics and len(self._topics) >= self._topics_max:
            raise PreconditionFailed(f"there are {self._topics_max} topics, which is the limit")
        if channel == "" or channel in self._channels.get(topic, {}):
            return
        if self._channel_count >= self._channels_max:
            raise PreconditionFailed(f"there are {self._channels_max} channels, which is the limit")

    def delete_topic(self, topic: str) -> None:
        """Until a node registers it again."""
        self._channel_count -= len(self._channels.pop(topic, {}))
        for producer in self._topics.pop(topic, {}).values():
            producer.node.topics.discard(topic)

    def delete_channel(self, topic: str, channel: str) -> bool:
        """False when there is none of that name."""
        channels = self._channels.get(topic, {})
        if channels.pop(channel, None) is None:
            return False
        self._channel_count -= 1
        if len(channels) == 0:
            del self._channels[topic]
        return True

    def tombstone(self, topic: str, address: str, now_ms: i64) -> None:
        """``address``: the node's broadcast address, a colon, its HTTP port."""
        for producer in self._topics.get(topic, {}).values():
            node = producer.node
            if f"{node.broadcast_address}:{node.http_port}" == address:
                producer.tombstoned_ms = now_ms

    # -- answers -----------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return sorted(self._topics)

    def has_topic(self, topic: str) -> bool:
        return topic in self._topics

    def channels(self, topic: str) -> list[str]:
        return sorted(self._channels.get(topic, {}))

    def producers(self, topic: str, now_ms: i64) -> list[Node]:
        """To whom a consumer of that topic may connect."""
        return [
            producer.node
            for producer in self._topics.get(topic, {}).values()
            if not producer.node.is_silent(now_ms) and not producer.is_tombstoned(now_ms)
        ]

    def nodes(self, now_ms: i64) -> list[dict[str, object]]:
        """Those heard from, each with its topics and whether they are tombstoned there."""
        found: list[dict[str, object]] = []
        for node in self._nodes.values():
            if node.is_silent(now_ms):
                continue
            facts = node.facts()
            topics = sorted(node.topics)
            facts["tombstones"] = [
                self._topics[one][node.id].is_tombstoned(now_ms) for one in topics
            ]
            facts["topics"] = topics
            found.append(facts)
        return found

    def all_keys(self) -> dict[str, list[Producer]]:
        """Everything, by ``category:key:subkey``, for those who search for a fault."""
        found: dict[str, list[Producer]] = {}
        if self._nodes:
            found["client::"] = [Producer(node) for node in self._nodes.values()]
        for topic in self.topics():
            found[f"topic:{topic}:"] = list(self._topics[topic].values())
        for topic in sorted(self._channels):
            for channel in self.channels(topic):
                producers = self._channels[topic][channel]
                found[f"channel:{topic}:{channel}"] = list(producers.values())
        return found

    # -- invariants --------------------------------------------------------------------------

    def check(self) -> None:
        """Assert R1 to R4."""
        for producers in self._topics.values():
            for id_, producer in producers.items():
                assert self._nodes[id_] is producer.node, "R1"
        for node in self._nodes.values():
            produced = {one for one in self._topics if node.id in self._topics[one]}
            assert node.topics == produced, "R3"
        count = 0
        for topic, channels in self._channels.items():
            count += len(channels)
            for producers in channels.values():
                for id_, producer in producers.items():
                    assert self._nodes[id_] is producer.node, "R1"
                    assert id_ in self._topics[topic], "R2"
        assert count == self._channel_count, "R4"
