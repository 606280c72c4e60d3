"""``QueueView``: the members with copies of a queue, one JSON value of the coordinator per queue.

    version      grows by one with each change of the record
    term         of the present master; 0 = there has been none yet
    master       the member (``name/incarnation``) that is the master; "" = the queue is down
    former       the member that was master in the last term before that had one; "" = none
    members      all that have a copy and hear of it, the eldest first, the master among them
    synced       those of them that have everything; the master is always one
    heard_all    the master had everything and heard all of its predecessor's operations: a copy
                 that heard them too goes on as it is, any other begins anew (replica.py)
    recoverable  node name -> what it had when it was last a member: "synced" or "partial"
    graceful     the last master went on purpose

A view is never changed: each verb makes another one with the next version, and the caller proposes
it on condition that the key is still at the revision it was read at.

Invariants (``check``):
  V1  the master is a member and synced, or there is none and no member either
  V2  synced members are members; no member is named twice
  V3  no member's node is among those that could come back
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, final

from penstock.core.errors import PenstockError

SYNCED: Final = "synced"
PARTIAL: Final = "partial"


PROMOTED: Final = "promoted"
WENT_DOWN: Final = "down"
LEFT: Final = "left"
JOINED: Final = "joined"
SYNCHRONISED: Final = "synchronised"
FELL_BEHIND: Final = "behind"
CHANGES: Final = {
    PROMOTED: "{} is the master",
    WENT_DOWN: "it is down",
    LEFT: "{} has no copy that counts",
    JOINED: "{} mirrors it, and fetches what it lacks",
    SYNCHRONISED: "{} is synchronised",
    FELL_BEHIND: "{} is not waited for",
}
"""What becomes of a copy, as events and metrics name it, and in words for the log."""


class CopyNews(NamedTuple):
    """``change`` is one of ``CHANGES``; ``node`` has the copy, "" = none has."""

    change: str
    node: str

    def __str__(self) -> str:
        return CHANGES[self.change].format(self.node)


class BadView(PenstockError):
    """What the coordinator has under this key is no view of a queue."""


def node_of(member: str) -> str:
    """The name of the node of which this member is a life."""
    return member.rpartition("/")[0]


@final
@dataclass(frozen=True, slots=True)
class QueueView:
    version: int
    term: int
    master: str
    members: list[str]
    synced: list[str]
    recoverable: dict[str, str]
    former: str = ""
    heard_all: bool = False
    graceful: bool = False

    def __post_init__(self) -> None:
        self.check()

    def news_since(self, before: "QueueView") -> list[CopyNews]:
        """What became of the copies."""
        if self.master == "":
            return [CopyNews(WENT_DOWN, "")] if before.master else []
        out = {*map(node_of, before.members)} - {*map(node_of, self.members)}
        new = [one for one in self.members if one not in (*before.members, *self.synced)]
        synced = [one for one in self.synced if one not in (*before.synced, self.master)]
        behind = [one for one in before.synced if one in self.members and one not in self.synced]
        return [
            *([CopyNews(PROMOTED, node_of(self.master))] if self.master != before.master else []),
            *[CopyNews(LEFT, node) for node in sorted(out)],
            *[CopyNews(JOINED, node_of(one)) for one in new],
            *[CopyNews(SYNCHRONISED, node_of(one)) for one in synced],
            *[CopyNews(FELL_BEHIND, node_of(one)) for one in behind],
        ]

    # -- changes ---------------------------------------------------------------------------

    def with_member(self, member: str) -> "QueueView":
        """A mirror joins, the youngest."""
        assert self.master != ""
        recoverable = {
            node: had for node, had in self.recoverable.items() if node != node_of(member)
        }
        return self._next(members=[*self.members, member], recoverable=recoverable)

    def with_synced(self, member: str) -> "QueueView":
        """It has everything, and all that was confirmed without it is on its disk."""
        return self._next(synced=[*self.synced, member])

    def behind(self, member: str) -> "QueueView":
        """A mirror that hears of everything, and may lack what is confirmed from now on."""
        assert member != self.master
        return self._next(synced=[one for one in self.synced if one != member])

    def without(self, member: str, *, keeps_data: bool = True) -> "QueueView":
        """A mirror that is dead, not to be reached, or (without data) not wanted any more."""
        assert member != self.master
        recoverable = dict(self.recoverable)
        if keeps_data:
            # What it had is of no use once the others have gone on without it.
            recoverable[node_of(member)] = PARTIAL
        members = [one for one in self.members if one != member]
        synced = [one for one in self.synced if one != member]
        return self._next(members=members, synced=synced, recoverable=recoverable)

    def promoted(
        self, member: str, *, heard_all: bool, graceful: bool, keeps_data: bool = True
    ) -> "QueueView":
        """Another master, in the next term; the former one is out, and keeps what it has or not.

        Members that are not synced and did not hear everything begin anew, so none is synced but
        the master when ``heard_all`` is False.
        """
        assert member != self.master
        # The queue goes on without those that are not here: what they had is of no use alone.
        recoverable = {node: PARTIAL for node in self.recoverable if node != node_of(member)}
        members = [one for one in self.members if one not in (self.master, member)]
        synced = [one for one in self.synced if one in members and heard_all]
        if self.master != "" and keeps_data:
            recoverable[node_of(self.master)] = PARTIAL
        return self._next(
            term=self.term + 1,
            master=member,
            members=[member, *members],
            synced=[member, *synced],
            recoverable=recoverable,
            former=self.master or self.former,
            heard_all=heard_all,
            graceful=graceful,
        )

    def handed_over(self, member: str) -> "QueueView":
        """A synced mirror is master in the next term, and the former one is its youngest mirror."""
        assert member in self.synced
        assert member != self.master
        others = [one for one in self.members if one not in (self.master, member)]
        synced = [one for one in self.synced if one not in (self.master, member)]
        return self._next(
            term=self.term + 1,
            master=member,
            members=[member, *others, self.master],
            synced=[member, *synced],
            former=self.master,
            heard_all=True,
            graceful=True,
        )

    def alone(self) -> "QueueView":
        """The master goes on in a new term without mirrors: one that joins begins with nothing."""
        partial = {node_of(mirror): PARTIAL for mirror in self.mirrors()}
        return self._next(
            term=self.term + 1,
            members=[self.master],
            synced=[self.master],
            recoverable=self.recoverable | partial,
            former="",
            heard_all=False,
            graceful=False,
        )

    def went_down(self, *, graceful: bool) -> "QueueView":
        """There is no master; the members that were synced have all there is."""
        had = {one: SYNCED if one in self.synced else PARTIAL for one in self.members}
        return self._next(
            master="",
            members=[],
            synced=[],
            recoverable=self.recoverable | {node_of(one): had[one] for one in had},
            former=self.master,
            heard_all=False,
            graceful=graceful,
        )

    def forgot(self, node: str) -> "QueueView":
        """That node never comes back."""
        recoverable = {one: had for one, had in self.recoverable.items() if one != node}
        return self._next(recoverable=recoverable)

    def _next(self, **changes: Any) -> "QueueView":
        return replace(self, version=self.version + 1, **changes)

    def mirrors(self) -> list[str]:
        return [member for member in self.members if member != self.master]

    def counts_on(self, node: str) -> bool:
        """What it has may still be of use, in this life or the next."""
        if node in self.recoverable:
            return True
        return any(node_of(member) == node for member in self.members)

    def check(self) -> None:
        if self.master == "":
            assert not self.members, "V1"
        else:
            assert self.master in self.members, "V1"
            assert self.master in self.synced, "V1"
        assert set(self.synced) <= set(self.members), "V2"
        assert len(set(self.synced)) == len(self.synced), "V2"
        assert len({node_of(member) for member in self.members}) == len(self.members), "V2"
        assert not {node_of(member) for member in self.members} & set(self.recoverable), "V3"


def first_view(member: str) -> QueueView:
    """Of a queue that was declared just now."""
    return QueueView(1, 1, member, [member], [member], {})


# -- JSON ----------------------------------------------------------------------------------

_KEYS: Final = {
    "version": int,
    "term": int,
    "master": str,
    "former": str,
    "members": list,
    "synced": list,
    "recoverable": dict,
    "heard_all": bool,
    "graceful": bool,
}


def view_to_json(view: QueueView) -> str:
    return json.dumps({key: getattr(view, key) for key in _KEYS}, sort_keys=True)


def view_from_json(text: str) -> QueueView:
    """Strict: what this release does not know it does not guess."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadView(f"a queue's view is no JSON: {error}") from error
    if not isinstance(value, dict) or set(value) != set(_KEYS):
        raise BadView(f"a queue's view has other keys than {', '.join(_KEYS)}")
    for key, kind in _KEYS.items():
        if type(value[key]) is not kind:
            raise BadView(f"{key} of a queue's view is no {kind.__name__}")
    names = [*value["members"], *value["synced"]]
    if not all(isinstance(name, str) and node_of(name) for name in names):
        raise BadView("a queue's view names something that is no member")
    if not set(value["recoverable"].values()) <= {SYNCED, PARTIAL}:
        raise BadView("a queue's view says of a copy neither synced nor partial")
    try:
        return QueueView(**value)
    except AssertionError as error:
        raise BadView(f"a queue's view contradicts itself: {error}") from error
