"""``Coordinator``: a small linearizable store of keys, where the cluster agrees.

Keys are paths whose parts are percent-encoded (``queues/%2F/orders``), values are JSON texts.
Every accepted proposal gets a *revision*, one number for the whole store that only grows; a key's
own revision is that of its last change.  A key may be bound to the lease of the member that put it:
it goes when that lease ends.  One proposal touches a key once.

In: proposals, and what time it is.  Out: events, in the order of their revisions, each once, for
everything that changed since the snapshot the member began with, its own changes included.
Nothing here waits: a proposal is done some time later (with the embedded coordinator at once), and
the proposer looks at it in a later turn, or is woken by the events.  Of two proposals
that are pending at once either may happen first.

A member has one lease.  It is kept alive from ``tick``; one that has ended is not renewed: the
member is over (``lease_has_ended``), nothing it proposes is accepted, though it goes on hearing
events.  When its owner has given up what rested on the lease it may ask for another
(``new_lease``), and is a new member then.

What a coordinator promises (one suite of tests asks all of them):
  O1  a proposal is accepted only if all its conditions hold and its member's lease lasts; then
      all its changes happen at once
  O2  ``take_events`` gives every change of every revision, in order, and none twice; to a member
      that was cut off for longer than history is kept, what differs instead: first what is gone,
      the youngest first, then of each key the last change, in the order in which the keys were
      made (so that what rests on something else goes before it and comes after it); revisions
      then ascend for each key only
  O3  when a proposal is done and accepted, its events and all before them are taken, or to be
      taken next; so one that changes nothing is a barrier
  O4  keys bound to a lease are gone some time after ``lease_valid_until_ms`` of their member,
      never before
  O5  what cannot be known (the answer got lost) is *uncertain*: it may have happened, or may yet
      while the lease lasts, and is not reported as refused
  O6  a coordinator that comes back empty, or with an older copy of its data, tells nothing of what
      is missing: ``why_lost`` says so instead
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, final

from penstock.core.clock_types import BootMs

ABSENT: Final = 0
"""As the revision in a condition: the key must not exist."""

PENDING, ACCEPTED, REFUSED, FAILED, UNCERTAIN = range(5)
"""Of a proposal.  FAILED: nothing has happened, and ``error`` says why nothing can at present."""

CHANGES_MAX: Final = 100
"""Of one proposal, and as many conditions; etcd takes 128 unless told otherwise."""
PROPOSAL_MAX_BYTES: Final = 1 << 20
"""Keys and values of one proposal; etcd takes 1.5 MiB unless told otherwise."""


def node_of(member: str) -> str:
    """The name of the node of which this member (``name/incarnation``) is a life."""
    return member.rpartition("/")[0]


class Condition(NamedTuple):
    """The key's last change was this revision."""

    key: str
    revision: int


class Change(NamedTuple):
    """Put a value; without one (None) delete the key, or with ``below`` all that begins with it.

    ``leased``: the key goes when the lease of the proposing member ends.
    """

    key: str
    value: str | None
    leased: bool = False
    below: bool = False


CHANGED: Final = "cluster/changed"
"""Part of each proposal that changes what nodes keep: the key's revision is that of the newest such
change, and no node moves it by coming and going.  A copy of the data from before has a smaller one.
Its value is the user whose request the change was, "" = none.
"""


def mark(user: str) -> Change:
    return Change(CHANGED, user)


MARK: Final = mark("")


class Event(NamedTuple):
    """``value`` None: the key is gone; ``created``: it was not there before."""

    revision: int
    key: str
    value: str | None
    created: bool


class Entry(NamedTuple):
    """A key of a snapshot: ``revision`` is that of its last change, ``made`` of its first."""

    key: str
    value: str
    revision: int
    made: int


@final
class Proposal:
    """What was asked for, and what became of it."""

    __slots__ = ("changes", "conditions", "error", "revision", "state")

    def __init__(self, conditions: Sequence[Condition], changes: Sequence[Change]) -> None:
        self.conditions = list(conditions)
        self.changes = list(changes)
        self.state = PENDING
        self.revision = 0  # of the store, when it was accepted
        self.error = ""

    def decide(self, state: int, revision: int = 0, error: str = "") -> None:
        self.state = state
        self.revision = revision
        self.error = error

    @property
    def done(self) -> bool:
        return self.state != PENDING


def why_unfit(proposal: Proposal) -> str:
    """What no coordinator takes, in a sentence; "" = nothing."""
    changes = proposal.changes
    if len(changes) > CHANGES_MAX or len(proposal.conditions) > CHANGES_MAX:
        return (
            f"{len(changes)} changes under {len(proposal.conditions)} conditions are too many"
            f" for one proposal (limit: {CHANGES_MAX})"
        )
    size = sum(len(one.key.encode()) for one in proposal.conditions)
    for change in changes:
        size += len(change.key.encode()) + len((change.value or "").encode())
    if size > PROPOSAL_MAX_BYTES:
        key = changes[0].key if changes else ""
        return (
            f"a proposal of {size} bytes ({key} ...) is too large for the coordinator"
            f" (limit: {PROPOSAL_MAX_BYTES})"
        )
    return _touched_twice(changes)


def _touched_twice(changes: Sequence[Change]) -> str:
    """Two changes of a key at one revision could not be told apart; etcd takes none such."""
    touched: set[str] = set()
    prefixes = tuple(change.key for change in changes if change.below)
    for change in changes:
        key = change.key
        if key in touched or (not change.below and key.startswith(prefixes)):
            return f"a proposal may not change {key} twice"
        touched.add(key)
    return ""


class Coordinator:
    """The promise of every coordinator; see the top of this file."""

    def snapshot(self) -> list[Entry]:
        """Everything, as it was when this member joined, in the order in which it was made.

        Events begin behind it.
        """
        raise NotImplementedError

    def propose(self, conditions: Sequence[Condition], changes: Sequence[Change]) -> Proposal:
        """One that cannot be decided at present, or at all, has FAILED at once."""
        proposal = Proposal(conditions, changes)
        why = why_unfit(proposal) or self.why_not()
        if why:
            proposal.decide(FAILED, error=why)
        else:
            self.hand_on(proposal)
        return proposal

    def hand_on(self, proposal: Proposal) -> None:
        """To where it is decided."""
        raise NotImplementedError

    def has_news(self) -> bool:
        """There may be events, or proposals of which it is known what became of them."""
        return True

    def take_events(self) -> list[Event]:
        raise NotImplementedError

    def why_lost(self) -> str:
        """Why what this coordinator has now is not the history it told before; "" = it is.

        Then there are no events any more, and every proposal fails.
        """
        raise NotImplementedError

    def lease_valid_until_ms(self) -> BootMs:
        """Until then, by this node's monotonic clock, no member can think that this one is gone.

        It may lie in the past and later in the future again: then the lease lasted.
        """
        raise NotImplementedError

    def lease_has_ended(self) -> bool:
        """It is gone for good, and what was bound to it; see ``new_lease``."""
        raise NotImplementedError

    def new_lease(self) -> None:
        """After one that ended; there is one as soon as ``lease_valid_until_ms`` says so."""
        raise NotImplementedError

    def why_not(self) -> str:
        """Why proposals cannot be decided at present, in a sentence; "" = they can."""
        raise NotImplementedError

    def tick(self, now_ms: BootMs) -> None:
        """Time has passed; called several times per second."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave: the lease is given back, what is bound to it goes at once."""
        raise NotImplementedError
