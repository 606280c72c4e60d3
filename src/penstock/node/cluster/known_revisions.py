"""``KnownRevisions``: which changes of the cluster's metadata each neighbour has done (K8).

Nodes tell each other two numbers, as often as one of them moves:

    done     everything up to this revision is done here
    wants    up to which revision the others are to be: of the last change that was done here,
             because what is said after it may speak of it; and of what is waited for

    news(done, changed) ─► payload ─► ~link~ ─► heard        ``wanted_by(name)`` ─► catch up to it

They differ because a node that catches up proposes something, and is then at that revision, which
changed nothing.  If others wanted it as well, each would run after the other for ever.

Rejected: only ``done``.  Idle nodes then made etcd write twice in a second.
"""

import struct
from collections.abc import Callable
from typing import Final, final

_NUMBERS: Final = struct.Struct(">QQ")


@final
class KnownRevisions:
    """Of one node, about those it has a link to."""

    def __init__(self) -> None:
        self._done: dict[str, int] = {}
        self._wants: dict[str, int] = {}
        self._said = (0, 0)
        self._asked = 0

    def begun(self, name: str) -> bytes:
        """A new link: what to say first."""
        self._done[name] = self._wants[name] = 0
        return _NUMBERS.pack(*self._said)

    def ended(self, name: str) -> None:
        del self._done[name]
        del self._wants[name]

    def heard(self, name: str, payload: bytes) -> None:
        self._done[name], self._wants[name] = _NUMBERS.unpack(payload)

    def neighbours(self) -> list[str]:
        return list(self._done)

    def wanted_by(self, name: str) -> int:
        return self._wants[name]

    def is_known(self, revision: int, is_connected: Callable[[str], bool]) -> bool:
        """By all nodes that can be heard; those that have not got there are asked to."""
        late = [name for name, done in self._done.items() if done < revision]
        if not any(is_connected(name) for name in late):
            return True
        self._asked = max(self._asked, revision)
        return False

    def is_due(self) -> bool:
        """Are others to be asked for what is waited for?"""
        return self._asked > self._said[1]

    def news(self, done: int, changed: int) -> bytes:
        """To be said to all neighbours; empty = they know."""
        numbers = (done, max(changed, self._asked))
        if numbers == self._said:
            return b""
        self._said = numbers
        return _NUMBERS.pack(*numbers)
