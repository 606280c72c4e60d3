"""``Coordinator``: a small linearizable store of keys, where the cluster agrees.

Keys are paths whose parts are percent-encoded (``queues/%2F/orders``), values are JSON texts.
Every accepted proposal gets a *revision*, one number for the whole store that only grows; a key's
own revision is that of its last change.  A key may be bound to the lease of the member who put it:
it goes when that lease ends.

In: proposals, and what time it is.  Out: events, in the order of their revisions, each once, for
everything that changed since the snapshot the member began with, its own changes included.
Nothing here waits: a proposal is done some time later (with the embedded coordinator at once), and
whoever wants to know looks at it in a later turn, or is woken by the events.

What a coordinator promises (one suite of tests asks all of them):
  O1  a proposal is accepted only if all its conditions hold; then all its changes happen at once
  O2  ``take_events`` gives every change of every revision, in order, and none twice
  O3  a proposal that is done and accepted has its events taken, or to be taken next
  O4  keys bound to a lease are gone some time after ``lease_valid_until_ms`` of who put them,
      never before
  O5  what cannot be known (the answer got lost) is *uncertain*: it may have happened, and is not
      reported as refused
"""

from collections.abc import Sequence
from typing import Final, final

ABSENT: Final = 0
"""As the revision in a condition: the key must not exist."""

PENDING, ACCEPTED, REFUSED, FAILED, UNCERTAIN = range(5)
"""Of a proposal.  FAILED: nothing has happened, and ``error`` says why nothing can at present."""


@final
class Condition:
    """The key's last change was this revision."""

    __slots__ = ("key", "revision")

    def __init__(self, key: str, revision: int) -> None:
        self.key = key
        self.revision = revision


@final
class Change:
    """Put a value; without one (None) delete the key, or with ``below`` all that begins with it.

    ``leased``: the key goes when the lease of the proposing member ends.
    """

    __slots__ = ("below", "key", "leased", "value")

    def __init__(
        self, key: str, value: str | None, *, leased: bool = False, below: bool = False
    ) -> None:
        assert value is None or not below
        self.key = key
        self.value = value
        self.leased = leased
        self.below = below


@final
class Event:
    """``value`` None: the key is gone; ``created``: it was not there before."""

    __slots__ = ("created", "key", "revision", "value")

    def __init__(self, revision: int, key: str, value: str | None, *, created: bool) -> None:
        self.revision = revision
        self.key = key
        self.value = value
        self.created = created


@final
class Entry:
    """A key as the snapshot has it."""

    __slots__ = ("key", "revision", "value")

    def __init__(self, key: str, value: str, revision: int) -> None:
        self.key = key
        self.value = value
        self.revision = revision


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

    @property
    def done(self) -> bool:
        return self.state != PENDING


class Coordinator:
    """The promise of every coordinator; see the top of this file."""

    def snapshot(self) -> list[Entry]:
        """Everything, as it was when this member joined; events begin behind it."""
        raise NotImplementedError

    def propose(self, conditions: Sequence[Condition], changes: Sequence[Change]) -> Proposal:
        raise NotImplementedError

    def take_events(self) -> list[Event]:
        raise NotImplementedError

    def lease_valid_until_ms(self) -> int:
        """Until then, by this node's monotonic clock, nobody can think that this member is gone."""
        raise NotImplementedError

    def why_not(self) -> str:
        """Why proposals cannot be decided at present, in a sentence; "" = they can."""
        raise NotImplementedError

    def tick(self, now_ms: int) -> None:
        """Time has passed; called several times per second."""
        raise NotImplementedError
