"""``Scopes``: what a token may do, in RabbitMQ's notation.

    configure:VHOST/NAME        write:VHOST/NAME        read:VHOST/NAME
    write:VHOST/EXCHANGE/KEY    read:VHOST/EXCHANGE/KEY    routing keys of topic exchanges
    tag:TAG                     a tag of the user

VHOST, NAME and KEY are wildcards: ``*`` is any sequence of characters, also an empty one; a
character after ``%`` is two hexadecimal digits, ``+`` is a space.  ``{vhost}`` is the virtual host
that is asked about, ``{CLAIM}`` the text of a claim.  Both are inserted encoded: a user name full
of stars and slashes does not become a pattern, where RabbitMQ inserts it as it is.  Another scope
grants nothing.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, final
from urllib.parse import quote, unquote_to_bytes

from penstock.broker.rules.judges import CONFIGURE, READ, WRITE

SCOPE_MAX_CHARS: Final = 4096
"""Of one scope, before and after names are inserted; a longer one grants nothing."""
TAG: Final = "tag:"
VHOST: Final = "vhost"
PERMISSIONS: Final = {"configure": CONFIGURE, "write": WRITE, "read": READ}
_WRONG_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_VARIABLE: Final = re.compile(r"\{([^{}.*]*)\}")


class WildcardInvalid(ValueError):
    """A ``%`` without two hexadecimal digits."""


@final
class Wildcard:
    """One pattern.  Raises WildcardInvalid.  Time to match: linear in pattern and name."""

    __slots__ = ("_first", "_last", "_middle")

    def __init__(self, pattern: str) -> None:
        first, *others = [_decoded(part) for part in pattern.split("*")]
        self._first: Final = first
        self._last: Final = others.pop() if others else None
        self._middle: Final = [part for part in others if part]

    def matches(self, name: str) -> bool:
        if self._last is None:
            return name == self._first
        at, end = len(self._first), len(name) - len(self._last)
        if at > end or not (name.startswith(self._first) and name.endswith(self._last)):
            return False
        for part in self._middle:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


class Grant(NamedTuple):
    """Of one virtual host; without ``key`` it grants nothing on routing keys."""

    name: Wildcard
    key: Wildcard | None


@final
class VhostGrants:
    """What the scopes allow in one virtual host."""

    def __init__(self, grants: tuple[list[Grant], list[Grant], list[Grant]]) -> None:
        self._grants: Final = grants  # by permission

    def allows(self, permission: int, name: str) -> bool:
        return any(grant.name.matches(name) for grant in self._grants[permission])

    def allows_topic(self, permission: int, exchange: str, key: str) -> bool:
        """``exchange`` is of the type ``topic``; RabbitMQ asks this besides ``allows``."""
        return any(
            grant.key is not None and grant.name.matches(exchange) and grant.key.matches(key)
            for grant in self._grants[permission]
        )


@final
class Scopes:
    """Of one token, without the prefix of the resource server."""

    def __init__(self, scopes: Sequence[str], claims: Mapping[str, object]) -> None:
        """Of ``claims`` only those are kept that a scope inserts."""
        scopes = [one for one in scopes if len(one) <= SCOPE_MAX_CHARS]
        self.tags: Final = sorted({one.removeprefix(TAG) for one in scopes if one.startswith(TAG)})
        inserted = {name for one in scopes for name in _VARIABLE.findall(one)}
        self._claims: Final = {
            name: value
            for name in inserted
            if isinstance(value := claims.get(name), str) and len(value) <= SCOPE_MAX_CHARS
        }
        self._variable: Final = [one for one in scopes if "{" in one]
        # The others by where they hold, for a token is asked about very many virtual hosts.
        self._fixed: Final[dict[str, tuple[Wildcard, list[str]]]] = {}
        for one in scopes:
            read = None if "{" in one else _read(one)
            if read is not None:
                where = one.partition(":")[2].partition("/")[0]
                self._fixed.setdefault(where, (read[1], []))[1].append(one)

    def may_enter(self, vhost: str) -> bool:
        if any(within.matches(vhost) for within, _ in self._fixed.values()):
            return True
        return any(self._of(one, vhost) for one in self._variable)

    def in_vhost(self, vhost: str) -> VhostGrants | None:
        """None: the token may not enter that virtual host."""
        grants: tuple[list[Grant], list[Grant], list[Grant]] = ([], [], [])
        here = [some for within, some in self._fixed.values() if within.matches(vhost)]
        for scope in [*self._variable, *itertools.chain(*here)]:
            found = self._of(scope, vhost)
            if found is not None:
                grants[found[0]].append(found[1])
        return VhostGrants(grants) if any(grants) else None

    def _of(self, scope: str, vhost: str) -> tuple[int, Grant] | None:
        """What it grants there."""
        read = _read(self._inserted(scope, vhost))
        return (read[0], read[2]) if read is not None and read[1].matches(vhost) else None

    def _inserted(self, scope: str, vhost: str) -> str:
        """The scope with names for its variables; "" where it grants nothing.

        A claim that is missing or no text stands for its own name, as in RabbitMQ.
        """
        if "{" not in scope:
            return scope
        names = {**self._claims, VHOST: vhost}
        if "{" in _VARIABLE.sub("", scope):
            return ""
        scope = _VARIABLE.sub(lambda found: quote(_text(names.get(found[1], found[1])), ""), scope)
        return scope if len(scope) <= SCOPE_MAX_CHARS else ""


def _read(scope: str) -> tuple[int, Wildcard, Grant] | None:
    """The permission, where it holds, and on what; None: it grants nothing."""
    permission, _, resource = scope.partition(":")
    parts = resource.split("/")
    if permission not in PERMISSIONS or len(parts) not in (2, 3):
        return None
    try:
        within, name, *keys = [Wildcard(part) for part in parts]
    except WildcardInvalid:
        return None
    return PERMISSIONS[permission], within, Grant(name, keys[0] if keys else None)


def _text(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _decoded(part: str) -> str:
    if _WRONG_PERCENT.search(part):
        raise WildcardInvalid(part)
    return unquote_to_bytes(part.replace("+", " ")).decode("utf-8", "surrogateescape")
