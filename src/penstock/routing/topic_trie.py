"""Topic exchanges: binding patterns as a tree of words.

A pattern and a routing key are split at dots.  ``*`` in a pattern stands for one word,
``#`` for any number of words, none included; every other word for itself.  Empty words
count (``a..b`` has three words), but the empty key has no word at all, as in RabbitMQ:
``#`` matches it and ``*`` does not.

    patterns  a.*.c   a.#   #.c            (root) ─ a ─ * ─ c●
                                              │      └─ #●
                                              └─ # ─ c●

Matching walks the key once with the list of nodes that its words so far may have
reached, the way a regular expression without backtracking does:

    a word leads from a node to its child of that word and to its ``*`` child;
    a ``#`` node also stays where it is;
    a walk that reaches a node has also reached its ``#`` child (which took no word yet).

Only a ``#`` node can be reached in two ways at one step (by staying, and from its
parent), so a stamp on it keeps the list free of doubles.  So a key of w words over a
tree of n nodes never costs more than w·n, however many ``#`` the patterns have.

Two thousand patterns of a hundred words can still make that a second, so the nodes are counted
(``steps``), and a walk may stop behind a word and go on in another turn.
"""

from typing import cast, final

from mypy_extensions import i64

from penstock.core.steps import steps
from penstock.routing.matcher import Destinations, Matcher, RoutingContext, append_once
from penstock.routing.steps import Walk


@final
class TrieNode:
    """What a pattern has led to so far.

    ``destinations`` are those whose pattern ends here; ``stamp`` is the last step at
    which a match put this node on its list (``#`` nodes only).
    """

    __slots__ = ("destinations", "hash", "is_hash", "stamp", "star", "words")

    def __init__(self, is_hash: bool) -> None:
        self.words: dict[str, TrieNode] = {}
        self.star: TrieNode | None = None
        self.hash: TrieNode | None = None
        self.is_hash: bool = is_hash
        self.destinations: Destinations | None = None
        self.stamp: i64 = 0

    def child(self, word: str) -> "TrieNode | None":
        if word == "*":
            return self.star
        if word == "#":
            return self.hash
        return self.words.get(word)

    def set_child(self, word: str, node: "TrieNode | None") -> None:
        if word == "*":
            self.star = node
        elif word == "#":
            self.hash = node
        elif node is None:
            del self.words[word]
        else:
            self.words[word] = node

    def end_at(self, destination: object) -> None:
        """A pattern of it ends here."""
        if self.destinations is None:
            self.destinations = Destinations()
        self.destinations.add(destination)

    def still_ends_without(self, destination: object) -> bool:
        """Its pattern ends here no more; does another?"""
        destinations = self.destinations
        assert destinations is not None
        destinations.remove(destination)
        if destinations.is_empty():
            self.destinations = None
        return self.destinations is not None

    def is_needed(self) -> bool:
        """Does any pattern end here or lead on from here?"""
        return (
            self.destinations is not None
            or self.star is not None
            or self.hash is not None
            or len(self.words) > 0
        )


def split_words(key: str) -> list[str]:
    return key.split(".") if key else []


@final
class TopicTrie(Matcher):
    """The patterns of one topic exchange."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_copies = True
        self.root: TrieNode = TrieNode(False)
        self.step: i64 = 0  # grows at every step of every match; stamps come from it

    def add(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        node = self.root
        for word in split_words(routing_key):
            following = node.child(word)
            if following is None:
                following = TrieNode(word == "#")
                node.set_child(word, following)
            node = following
        node.end_at(destination)

    def remove(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        words = split_words(routing_key)
        path = self.path(words)
        if path[len(path) - 1].still_ends_without(destination):
            return
        for depth in range(len(words), 0, -1):
            if path[depth].is_needed():
                return
            path[depth - 1].set_child(words[depth - 1], None)

    def path(self, words: list[str]) -> list[TrieNode]:
        """The nodes of a pattern that is in the tree, from the root down."""
        node = self.root
        path = [node]
        for word in words:
            following = node.child(word)
            assert following is not None, words
            node = following
            path.append(node)
        return path

    def match(self, routing_key: str, context: RoutingContext | None, found: list[object]) -> None:
        """Raises PreconditionFailed when ``steps`` are used up, RouteUnfinished as the share is."""
        words = split_words(routing_key)
        at: i64 = 0
        reached: list[TrieNode] = []
        share = None if context is None else context.share
        walk = None if share is None else share.walks.get((id(self), routing_key))
        if walk is None:
            self.step += 1
            self.reach(self.root, reached)
        else:
            at = walk.at
            reached = cast(list[TrieNode], walk.reached)
        while at < len(words):
            self.step += 1
            following: list[TrieNode] = []
            for node in reached:
                self.take_word(node, words[at], following)
            reached = following
            at += 1
            steps.take(len(reached), routing_key)
            if share is not None and (share.is_over() or at == len(words)):
                share.stop(self, routing_key, Walk(at, cast(list[object], reached)))
        collect(reached, found)

    def take_word(self, node: TrieNode, word: str, reached: list[TrieNode]) -> None:
        if node.is_hash:
            self.reach(node, reached)
        star = node.star
        if star is not None:
            self.reach(star, reached)
        following = node.words.get(word)
        if following is not None:
            self.reach(following, reached)

    def reach(self, node: TrieNode, reached: list[TrieNode]) -> None:
        """Put the node and the ``#`` nodes below it on the list, unless they are there."""
        here: TrieNode | None = node
        while here is not None:
            if here.is_hash:
                if here.stamp == self.step:
                    return
                here.stamp = self.step
            reached.append(here)
            here = here.hash


def collect(reached: list[TrieNode], found: list[object]) -> None:
    """The destinations of the nodes a whole key has reached, each once."""
    ends: list[Destinations] = []
    for node in reached:
        destinations = node.destinations
        if destinations is not None:
            ends.append(destinations)
    if len(ends) == 1:
        ends[0].append_to(found)
        return
    batch: list[object] = []
    for destinations in ends:
        destinations.append_to(batch)
    append_once(batch, set(), found)
