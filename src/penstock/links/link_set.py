"""``LinkSet``: the links of one kind, each as long as its specification is there and the same."""

from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import Final, Generic, TypeVar

from penstock.links.link import Link, Row

STARTED_AT_ONCE: Final = 20

Spec = TypeVar("Spec")


class LinkSet(Generic[Spec]):
    """By key; ``follow`` and ``start_some`` have one caller, the others any thread."""

    def __init__(self, make: Callable[[Spec], Link]) -> None:
        self._make = make
        self._links: dict[Hashable, tuple[Spec, Link]] = {}
        self._waiting: dict[Hashable, Link] = {}  # of these, to be started

    def follow(self, wanted: Mapping[Hashable, Spec]) -> None:
        """These are to run from now on, and no others."""
        for key, (spec, link) in list(self._links.items()):
            if key not in wanted or wanted[key] != spec:
                link.stop(clean=True)
                del self._links[key]
                self._waiting.pop(key, None)
        for key, spec in wanted.items():
            if key not in self._links:
                link = self._waiting[key] = self._make(spec)
                self._links[key] = (spec, link)

    def start_some(self) -> bool:
        """Of those that wait for it; False: the process has no more threads for now."""
        for key, link in list(islice(self._waiting.items(), STARTED_AT_ONCE)):
            if not link.start():
                return False
            del self._waiting[key]
        return True

    def stop(self) -> None:
        """The node stops; they go on when it starts again."""
        for _, link in self._links.values():
            link.stop()

    def restart(self, key: Hashable) -> bool:
        """Connect anew; False: there is no such link here."""
        found = self._links.get(key)
        if found is not None:
            found[1].restart()
        return found is not None

    def rows(self) -> list[tuple[Spec, Row]]:
        return [(spec, link.row()) for spec, link in list(self._links.values())]
