"""``Draft``: the changes of one request, before they become one proposal.

In: conditions and changes, as the request's steps come upon them; some may come twice.  Out: both
as a coordinator takes them: each key once, nothing that a deleted prefix covers, not too many.
What is too much to go at once is begun with what merely hangs on something (``delete_first``);
then the request is done again, and finds less to do.
"""

from typing import Final, final

from penstock.cluster.agreement.coordinator import CHANGES_MAX, Change, Condition


@final
class Draft:
    """Of one request of ``user``, "" = of the node's own; or of several that go together."""

    def __init__(self, user: str = "") -> None:
        self.user: Final = user
        self._conditions: dict[str, int] = {}
        self._changes: dict[str, Change] = {}  # by key
        self._prefixes: dict[str, Change] = {}
        self._first: dict[str, int] = {}  # keys that may go before the others, at this revision
        self.goes_on: bool = False  # see ``delete_to_replace``
        self.incarnations: list[str] = []  # of exclusive queues it declares

    def is_empty(self) -> bool:
        return not self._changes and not self._prefixes

    def touches(self, key: str) -> bool:
        return key in self._changes

    def require(self, key: str, revision: int) -> None:
        """The key's last change was this one, or it does not exist (``ABSENT``)."""
        assert self._conditions.get(key, revision) == revision, key
        self._conditions[key] = revision

    def put(self, key: str, value: str, *, leased: bool = False) -> None:
        self._changes[key] = Change(key, value, leased=leased)

    def delete(self, key: str) -> None:
        self._changes[key] = Change(key, None)

    def delete_to_replace(self, key: str) -> None:
        """Put again by the next proposal of the same request."""
        self.delete(key)
        self.goes_on = True

    def delete_first(self, key: str, revision: int) -> None:
        """It hangs on something else that goes."""
        self.delete(key)
        self._first[key] = revision

    def delete_below(self, prefix: str) -> None:
        self._prefixes[prefix] = Change(prefix, None, below=True)

    def deleted(self) -> list[str]:
        """The keys that are to go."""
        return [key for key, change in self._changes.items() if change.value is None]

    def size(self) -> int:
        """Of the proposal it would be, in what is limited."""
        return max(len(self._conditions), len(self._changes) + len(self._prefixes))

    def is_whole(self) -> bool:
        """Does it fit into one proposal?"""
        return self.size() < CHANGES_MAX or not self._first

    def conditions(self) -> list[Condition]:
        if not self.is_whole():
            return [Condition(key, self._first[key]) for key in self._begun()]
        return [Condition(key, revision) for key, revision in self._conditions.items()]

    def changes(self) -> list[Change]:
        prefixes = tuple(self._prefixes)
        if not self.is_whole():
            return [self._changes[key] for key in self._begun()]
        plain = [change for key, change in self._changes.items() if not key.startswith(prefixes)]
        return [*plain, *self._prefixes.values()]

    def _begun(self) -> list[str]:
        return list(self._first)[: CHANGES_MAX - 1]  # and the mark
