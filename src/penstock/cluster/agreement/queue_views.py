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

Of a queue that a majority of its copies confirms (docs/design/majority.md) it has two fields more:

    reign        which copies vote, and which one is the master (reigns.py); None = all synchronised
                 copies confirm.  Lives of copies are not in the view, but for the master's
    wanted       the nodes that shall have copies

A view is never changed: each verb makes another one with the next version, and the caller proposes
it on condition that the key is still at the revision it was read at.

Invariants (``check``):
  V1  the master is a member and synced, or there is none and no member either
  V2  synced members are members; no member is named twice
  V3  no member's node is among those that could come back
  V4  of a reign the term and the master are its, and there is no other member; without one no
      copies are wanted
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, final

from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.reigns import Holding, Position, Reign, Vote, first_reign
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
    reign: Reign | None = None
    wanted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.check()

    def news_since(self, before: "QueueView") -> list[CopyNews]:
        """What became of the copies."""
        if self.reign is not None:
            return self._news_of_reign(self.reign, before)
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

    def _news_of_reign(self, reign: Reign, before: "QueueView") -> list[CopyNews]:
        earlier = () if before.reign is None else before.reign.copies
        is_new = self.master not in ("", before.master)
        return [
            *([CopyNews(PROMOTED, node_of(self.master))] if is_new else []),
            *[CopyNews(LEFT, node) for node in earlier if node not in reign.copies],
            *[CopyNews(SYNCHRONISED, node) for node in reign.copies if node not in earlier],
        ]

    # -- changes ---------------------------------------------------------------------------

    def ruled(self, reign: Reign) -> "QueueView":
        """After a vote, an election, or with other copies."""
        present = [reign.master] if reign.master else []
        former = self.former if reign.term == self.term else self.master or self.former
        return self._next(
            term=reign.term,
            master=reign.master,
            members=present,
            synced=present,
            former=former,
            reign=reign,
        )

    def wanting(self, nodes: tuple[str, ...]) -> "QueueView":
        """These shall have copies; the master sees to it, one after the other."""
        return self._next(wanted=nodes)

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
        if self.reign is not None:
            return self.wanting(tuple(one for one in self.wanted if one != node))
        recoverable = {one: had for one, had in self.recoverable.items() if one != node}
        return self._next(recoverable=recoverable)

    def _next(self, **changes: Any) -> "QueueView":
        return replace(self, version=self.version + 1, **changes)

    def mirrors(self) -> list[str]:
        return [member for member in self.members if member != self.master]

    def counts_on(self, node: str) -> bool:
        """What it has may still be of use, in this life or the next."""
        if self.reign is not None:
            return node in self.reign.copies or node in self.wanted
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
        reign = self.reign
        if reign is None:
            assert not self.wanted, "V4"
        else:
            assert (self.term, self.master) == (reign.term, reign.master), "V4"
            assert self.members == [one for one in [self.master] if one], "V4"
            assert not self.recoverable, "V4"
            reign.check()


def first_ruled_view(member: str, nodes: tuple[str, ...], wanted: tuple[str, ...]) -> QueueView:
    """Of a queue that is being declared at that member, with copies at these nodes."""
    reign = first_reign(nodes, member)
    return QueueView(1, 1, member, [member], [member], {}, reign=reign, wanted=wanted)


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
_OF_REIGNS: Final = {"reign", "wanted"}


def view_to_json(view: QueueView) -> str:
    """Releases before majorities read it if it has no reign."""
    value = {key: getattr(view, key) for key in _KEYS}
    if view.reign is not None:
        value |= {"reign": _reign_value(view.reign), "wanted": view.wanted}
    return json.dumps(value, sort_keys=True)


def _reign_value(reign: Reign) -> dict[str, object]:
    """Its term and master are the view's."""
    keys = ("copies", "votes", "is_exact", "ends", "favoured", "is_founded")
    return {key: getattr(reign, key) for key in keys}


def view_from_json(text: str) -> QueueView:
    """Strict: what this release does not know it does not guess."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadView(f"a queue's view is no JSON: {error}") from error
    ruled = value.keys() & _OF_REIGNS if isinstance(value, dict) else set()
    if not isinstance(value, dict) or set(value) - ruled != set(_KEYS) or len(ruled) == 1:
        raise BadView(f"a queue's view has other keys than {', '.join(_KEYS)}")
    for key, kind in _KEYS.items():
        if type(value[key]) is not kind:
            raise BadView(f"{key} of a queue's view is no {kind.__name__}")
    names = [*value["members"], *value["synced"]]
    if not all(isinstance(name, str) and node_of(name) for name in names):
        raise BadView("a queue's view names something that is no member")
    if not set(value["recoverable"].values()) <= {SYNCED, PARTIAL}:
        raise BadView("a queue's view says of a copy neither synced nor partial")
    if ruled:
        value["reign"] = _read_reign(value["term"], value["master"], value["reign"])
        value["wanted"] = _names(value["wanted"])
    try:
        return QueueView(**value)
    except AssertionError as error:
        raise BadView(f"a queue's view contradicts itself: {error}") from error


def _read_reign(term: int, master: str, value: Any) -> Reign:
    try:
        votes = [Vote(str(one), Holding(*map(_position, had))) for one, had in value["votes"]]
        ends = [_position(end) for end in value["ends"]]
        copies, is_exact = _names(value["copies"]), bool(value["is_exact"])
        favoured, is_founded = str(value["favoured"]), bool(value["is_founded"])
        history = tuple(votes), is_exact, tuple(ends)
        reign = Reign(term, copies, master, *history, favoured, is_founded)
    except (KeyError, TypeError, ValueError) as error:
        raise BadView(f"the reign of a queue's view cannot be read: {error!r}") from error
    if json.loads(json.dumps(_reign_value(reign))) != value:
        raise BadView("the reign of a queue's view has other parts than it should")
    return reign


def _position(value: Any) -> Position:
    term, number = value
    if type(term) is not int or type(number) is not int:
        raise ValueError(f"{value} is no position")
    return Position(term, number)


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise BadView("a queue's view has no list of nodes where one is due")
    return tuple(value)
