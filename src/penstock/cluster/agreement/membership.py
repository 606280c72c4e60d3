"""``Membership``: the known nodes, the live ones, and this node's own membership.

In: events of the coordinator and time.  Out: which nodes came and went, proposals of this node's
own, and for operators: which nodes run or are down, and since when.

    members/<name>   leased: a life of a node, with its incarnation, addresses, version, start
    nodes/<name>     until it is forgotten: when it joined, and since when it is down

A node joins with both at once, on condition that no node of its name lives.  If one does, it is
its own former life, whose lease has not ended yet, or another process with the same name: what
is still there when a lease's time is over twice is another process, and the join is refused.  A
former life of this very process is waited for as long as it takes: only news of its end is late.
What went down is noted by the eldest living member, so that a node which starts later knows it
too.  A node whose lease has ended is over; it may join again, as a new member (``rejoin``).

``hear`` gets all events and takes those that are about these keys.
  M1  a node that lives is known
  M2  this node has joined exactly when the living member of its name is this life
  M3  a node that lives is not noted as down
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final
from urllib.parse import unquote

from penstock.cluster.agreement.coordinator import (
    ABSENT,
    PENDING,
    Change,
    Condition,
    Coordinator,
    Event,
    Proposal,
    node_of,
)
from penstock.cluster.agreement.metadata import path
from penstock.core.clock_types import BootMs, WallMs
from penstock.core.errors import Corrupt, NotFound, PreconditionFailed

MEMBERS: Final = "members"
NODES: Final = "nodes"
VERSION: Final = 1
AGAIN_MS: Final = 200
"""A proposal that failed is made again after this time."""

JOINING, JOINED, REFUSED_HERE, OVER = range(4)
"""Of this node.  REFUSED_HERE: ``why_refused``.  OVER: its lease has ended, or it has left."""
UP, DOWN, FORGOTTEN = range(3)
"""What is heard of a node."""


class MemberRecord(NamedTuple):
    """A life of a node.  ``addresses``: protocol to host:port.  ``started_ms``: wall clock."""

    name: str
    incarnation: str
    addresses: dict[str, str]
    version: str
    started_ms: WallMs

    @property
    def member(self) -> str:
        return f"{self.name}/{self.incarnation}"


@final
class KnownNode:
    """``revision``: of its key, 0 = it is not there.  ``member_revision``: the elder has less."""

    __slots__ = ("down_since_ms", "joined_ms", "living", "member_revision", "name", "revision")

    def __init__(self, name: str) -> None:
        self.name = name
        self.revision = 0
        self.joined_ms = WallMs(0)
        self.down_since_ms = WallMs(0)
        self.living: MemberRecord | None = None
        self.member_revision = 0

    def noted(self, revision: int, joined_ms: WallMs, down_since_ms: WallMs) -> None:
        self.revision = revision
        self.joined_ms = joined_ms
        self.down_since_ms = down_since_ms

    def lives(self, living: MemberRecord | None, revision: int) -> None:
        self.living = living
        self.member_revision = revision


class Happening(NamedTuple):
    """``member``: name and incarnation; of what is forgotten the name."""

    kind: int
    member: str


@final
class Membership:
    """``patience_ms``: for a former life to be gone; twice the time of a lease."""

    def __init__(
        self, coordinator: Coordinator, here: MemberRecord, wall_ms: WallMs, patience_ms: int = 6000
    ) -> None:
        self.here = here
        self.nodes: dict[str, KnownNode] = {}
        self.state = JOINING
        self.why_refused = ""
        self._coordinator = coordinator
        self._patience_ms = patience_ms
        self._former: set[str] = set()  # incarnations of this process
        self._wall_ms = wall_ms
        self._since_ms = BootMs(-1)
        self._again_at_ms = BootMs(0)
        self._asked: Proposal | None = None
        self._noted: Proposal | None = None
        for entry in coordinator.snapshot():
            self._hear(entry.key, entry.value, entry.revision)

    # -- events --------------------------------------------------------------------------

    def hear(self, events: Sequence[Event]) -> list[Happening]:
        """What is heard of other nodes and of this one, in order."""
        happenings: list[Happening] = []
        for event in events:
            happening = self._hear(event.key, event.value, event.revision)
            if happening is not None:
                happenings.append(happening)
        return happenings

    def _hear(self, key: str, value: str | None, revision: int) -> Happening | None:
        kind = key.partition("/")[0]
        if kind == MEMBERS:
            return self._hear_member(name_in(key), value, revision)
        if kind == NODES:
            return self._hear_node(name_in(key), value, revision)
        return None

    def _hear_member(self, name: str, value: str | None, revision: int) -> Happening | None:
        if value is None:
            return self._hear_end(name)
        node = self.nodes.setdefault(name, KnownNode(name))
        living = member_from_json(name, value)
        node.lives(living, revision)
        if self.state == JOINING and living.member == self.here.member:
            self.state = JOINED
        return Happening(UP, living.member)

    def _hear_end(self, name: str) -> Happening | None:
        node = self.nodes.get(name)
        if node is None or node.living is None:
            return None
        former = node.living
        node.lives(None, 0)
        if not node.revision:
            del self.nodes[name]
        if former.member == self.here.member and self.state == JOINED:
            self.state = OVER
        return Happening(DOWN, former.member)

    def _hear_node(self, name: str, value: str | None, revision: int) -> Happening | None:
        node = self.nodes.setdefault(name, KnownNode(name))
        if value is None:
            # Its member goes before it; but not always where history became a difference.
            node.noted(0, WallMs(0), WallMs(0))
            if node.living is None:
                del self.nodes[name]
            return Happening(FORGOTTEN, name)
        fields = fields_of(NODES, name, value, {"joined_ms": int, "down_since_ms": int})
        node.noted(revision, **fields)
        return None

    # -- time ----------------------------------------------------------------------------

    def tick(self, now_ms: BootMs, wall_ms: WallMs) -> None:
        """``now_ms``: the coordinator's clock.  ``wall_ms``: what operators read."""
        self._wall_ms = wall_ms
        if self.state == JOINED and self._coordinator.lease_has_ended():
            self.state = OVER
        if self.state == JOINING:
            self._go_on_joining(now_ms)
        elif self.state == JOINED:
            self._note_who_is_down()

    def may_act(self, now_ms: BootMs) -> bool:
        """K4: no other member can think that this one is gone."""
        return self.state == JOINED and now_ms < self._coordinator.lease_valid_until_ms()

    def _go_on_joining(self, now_ms: BootMs) -> None:
        if self._since_ms < 0:
            self._since_ms = now_ms
        if self._coordinator.lease_has_ended():
            self._coordinator.new_lease()  # nothing rests on it yet
            return
        if self._asked is not None and self._asked.state == PENDING:
            return
        if self._coordinator.why_not():
            self._since_ms = now_ms  # nothing is heard: a node that is there may be gone
            return
        other = self.nodes.get(self.here.name)
        if other is not None and other.living is not None:
            if other.living.incarnation in self._former:
                self._since_ms = now_ms
            elif now_ms - self._since_ms > self._patience_ms:
                self._refuse(other.living)
            return
        if now_ms >= self._again_at_ms:
            self._again_at_ms = BootMs(now_ms + AGAIN_MS)
            self._asked = self._join()

    def _join(self) -> Proposal:
        here = self.here
        known = self.nodes.get(here.name)
        member_key, node_key = path(MEMBERS, here.name), path(NODES, here.name)
        joined_ms = known.joined_ms if known is not None and known.revision else self._wall_ms
        return self._coordinator.propose(
            [
                Condition(member_key, ABSENT),
                Condition(node_key, ABSENT if known is None else known.revision),
            ],
            [
                Change(node_key, node_to_json(joined_ms, WallMs(0))),
                Change(member_key, member_to_json(here), leased=True),
            ],
        )

    def _refuse(self, other: MemberRecord) -> None:
        self.state = REFUSED_HERE
        at = ", ".join(sorted(other.addresses.values())) or "an unknown address"
        self.why_refused = (
            f"another process is node {other.name} of this cluster, at {at}:"
            " every node needs a name of its own (node_name)"
        )

    def _note_who_is_down(self) -> None:
        if self._noted is not None and not self._noted.done:
            return
        self._noted = None
        if self.eldest() != self.here.name or self._coordinator.why_not():
            return
        for node in self.nodes.values():
            if node.living is None and node.revision and not node.down_since_ms:
                self._noted = self._note_down(node)
                return

    def _note_down(self, node: KnownNode) -> Proposal:
        node_key = path(NODES, node.name)
        return self._coordinator.propose(
            [Condition(node_key, node.revision), Condition(path(MEMBERS, node.name), ABSENT)],
            [Change(node_key, node_to_json(node.joined_ms, self._wall_ms))],
        )

    # -- what the node's owner asks ----------------------------------------------------------

    def rejoin(self, incarnation: str) -> None:
        """After it was over: as a new member, under a new lease."""
        assert self.state == OVER
        assert incarnation != self.here.incarnation
        here = self.here
        self._former.add(here.incarnation)
        self.here = here._replace(incarnation=incarnation)
        self.state = JOINING
        self._since_ms = BootMs(-1)
        self._asked = None
        self._coordinator.new_lease()

    def leave(self) -> Proposal:
        """An orderly stop.  ``Coordinator.close`` afterwards, with any outcome."""
        node = self.nodes[self.here.name]
        return self._coordinator.propose(
            [Condition(path(MEMBERS, node.name), node.member_revision)],
            [
                Change(path(MEMBERS, node.name), None),
                Change(path(NODES, node.name), node_to_json(node.joined_ms, self._wall_ms)),
            ],
        )

    def forgetting(self, name: str) -> tuple[list[Condition], list[Change]]:
        """Of a node that will not come back; raises NotFound, or PreconditionFailed.

        Refused by the coordinator: it has just come back, or another node forgot it first.
        """
        node = self.nodes.get(name)
        if node is None or not node.revision:
            raise NotFound(f"{name} is not a node of this cluster")
        if name == self.here.name:
            raise PreconditionFailed(f"{name} cannot forget itself: ask another node")
        if node.living is not None:
            raise PreconditionFailed(f"{name} is running: stop it first")
        return (
            [Condition(path(NODES, name), node.revision), Condition(path(MEMBERS, name), ABSENT)],
            [Change(path(NODES, name), None)],
        )

    # -- which nodes there are -----------------------------------------------------------------

    def known(self) -> list[str]:
        return sorted(self.nodes)

    def running(self) -> list[str]:
        return sorted(name for name, node in self.nodes.items() if node.living is not None)

    def lives(self, member: str) -> bool:
        """Of a member, name and incarnation: is it this life of the node?"""
        node = self.nodes.get(node_of(member))
        return node is not None and node.living is not None and node.living.member == member

    def eldest(self) -> str:
        """The node that lives in the cluster for the longest time; "" = none does."""
        found, revision = "", 0
        for name, node in self.nodes.items():
            if node.living is not None and (not found or node.member_revision < revision):
                found, revision = name, node.member_revision
        return found

    def check(self) -> None:
        """M1-M3, between batches of events."""
        for name, node in self.nodes.items():
            assert node.revision > 0, f"M1: {name}"
            assert node.living is None or node.down_since_ms == 0, "M3"
        assert self.state != JOINED or self.lives(self.here.member), "M2"


# -- values ------------------------------------------------------------------------------------


def name_in(key: str) -> str:
    """The node a key is about; raises Corrupt."""
    kind, _, spelt = key.partition("/")
    name = unquote(spelt, errors="surrogateescape")
    if not name or path(kind, name) != key:
        raise Corrupt(f"the cluster's key {key!r} names no node")
    return name


def node_to_json(joined_ms: WallMs, down_since_ms: WallMs) -> str:
    return json.dumps({"v": VERSION, "joined_ms": joined_ms, "down_since_ms": down_since_ms})


def member_to_json(record: MemberRecord) -> str:
    fields = record._asdict()
    del fields["name"]
    return json.dumps({"v": VERSION, **fields})


def member_from_json(name: str, value: str) -> MemberRecord:
    kinds: dict[str, type] = {
        "incarnation": str,
        "addresses": dict,
        "version": str,
        "started_ms": int,
    }
    fields = fields_of(MEMBERS, name, value, kinds)
    addresses = fields["addresses"]
    if not all(isinstance(one, str) for one in addresses.values()):
        raise Corrupt(f"{MEMBERS}/{name}: addresses are texts, and not {addresses!r}")
    return MemberRecord(name, **fields)


def fields_of(kind: str, name: str, value: str, kinds: dict[str, type]) -> dict[str, Any]:
    """Exactly these, and of a version that is known; raises Corrupt."""
    fields: Any = None
    try:
        fields = json.loads(value)
    except ValueError as error:
        raise Corrupt(f"{kind}/{name}: not JSON: {error}") from error
    if not isinstance(fields, dict) or fields.pop("v", None) != VERSION:
        raise Corrupt(f"{kind}/{name}: not of version {VERSION}")
    if {field: type(one) for field, one in fields.items()} != kinds:
        raise Corrupt(f"{kind}/{name}: fields are not {', '.join(sorted(kinds))}")
    return fields
