"""Authentication and access: basic authentication and RabbitMQ's user tags.

    administrator, monitoring   see every connection, channel and node
    policymaker, management     see the virtual hosts they may enter, and their own connections
    (none of these)             may not use the API

A user without a permission on a virtual host cannot look into it, whatever the tags.

One visitor is no user: the *operator*, who shows the token of the node's control file
(``core.control``) from the node's own machine, and may do everything in every virtual host.
"""

import base64
import hmac
from collections.abc import Container, Iterable
from contextvars import ContextVar
from typing import Final, NamedTuple

from penstock.broker.oauth.tokens import bearer_token
from penstock.broker.rules.access import User
from penstock.broker.rules.judges import NAMELESS
from penstock.broker.rules.rights import Rights, covers
from penstock.core.errors import AccessRefused, LoginRefused
from penstock.core.events.book import NODE, Actor
from penstock.settings.listener_table import is_loopback

EVERYTHING: Final = (".*", ".*", ".*")
OPERATOR: Final = "penstockctl"
"""The visitor's name with the control file's token; no user needs to have it."""
IN_EVENTS: Final = "rmq-cli"
"""And in events, as RabbitMQ calls its command line."""

asking_now: ContextVar[Actor] = ContextVar("asking_now", default=NODE)
"""The visitor of this request, as events call it; before the log-in the node."""


class Role(NamedTuple):
    """``tags``: a user with one of them has the role; ``refusal``: RabbitMQ's, of all others."""

    tags: frozenset[str]
    refusal: str

    def check(self, visitor: "Visitor") -> None:
        """Raises AccessRefused for a visitor without it."""
        if self.tags.isdisjoint(visitor.tags):
            raise AccessRefused(self.refusal)


ADMINISTRATOR: Final = Role(frozenset({"administrator"}), "Not administrator user")
MONITORING: Final = Role(frozenset({"administrator", "monitoring"}), "Not monitor user")
POLICYMAKER: Final = Role(
    frozenset({"administrator", "policymaker"}), "User not authorised to access object"
)
API_TAGS: Final = MONITORING.tags | POLICYMAKER.tags | {"management"}


class Visitor:
    """A user as they were when they asked; a copy, since the original is the data loop's.

    ``user``: the original.
    ``external``: the user itself, if another backend has its rights: these are asked on the data
    loop, but for the virtual hosts that it may enter (``entered``).
    """

    def __init__(self, user: User, entered: Iterable[str] = ()) -> None:
        self.name = user.name
        self.tags = tuple(user.tags)
        self.permissions = dict(user.vhosts)
        self._topics = dict(user.topics)
        self.user = user
        self._own_tags = tuple(user.counted.tags)
        self._passwords_lost = user.counted.passwords_lost
        self.external = None if user.judge is None else user
        self._entered = frozenset(entered)

    @property
    def acts_as(self) -> str:
        """The user whose rights hold for what the node does later; "" = its default user."""
        return self.name

    @property
    def event_name(self) -> str:
        return self.name

    @property
    def may_use_api(self) -> bool:
        return not API_TAGS.isdisjoint(self.tags)

    @property
    def may_monitor(self) -> bool:
        return not MONITORING.tags.isdisjoint(self.tags)

    @property
    def is_administrator(self) -> bool:
        return not ADMINISTRATOR.tags.isdisjoint(self.tags)

    def is_still(self, user: User, vhosts: Container[str]) -> bool:
        """Whether the user has the passwords and tags it had, and no right was taken or changed.

        ``user``: the broker's own of that name.
        What was gained, or went with its virtual host, is no difference.  ``vhosts``: those that
        exist.  For use on the data loop.
        """
        return (
            user is self.user.counted
            and user.passwords_lost == self._passwords_lost
            and tuple(user.tags) == self._own_tags
            and all(
                user.vhosts.get(vhost) == patterns
                for vhost, patterns in self.permissions.items()
                if vhost in vhosts
            )
            and all(
                user.topics.get(topic) == patterns
                for topic, patterns in self._topics.items()
                if topic[0] in vhosts
            )
        )

    def may_enter(self, vhost: str) -> bool:
        return vhost in self.permissions or vhost in self._entered

    def may(self, permission: int, vhost: str, queue: str) -> bool:
        """Has the user that permission for the queue?  For use on the data loop."""
        if self.external is not None:
            return Rights(self.external, vhost).may(permission, "queue", queue)
        return covers(self.permissions[vhost][permission], queue)


class _Everywhere(dict[str, tuple[str, str, str]]):
    """Permissions in whatever virtual host is asked for."""

    def __contains__(self, _vhost: object) -> bool:
        return True

    def __missing__(self, _vhost: str) -> tuple[str, str, str]:
        return EVERYTHING


class Operator(Visitor):
    def __init__(self) -> None:
        super().__init__(User(OPERATOR, "", ["administrator"]))
        self.permissions = _Everywhere()

    @property
    def acts_as(self) -> str:
        return ""

    @property
    def event_name(self) -> str:
        return IN_EVENTS

    def rights(self, vhost: str) -> Rights:
        user = User(OPERATOR, "", ["administrator"])
        user.permit(vhost, *EVERYTHING)
        return Rights(user, vhost)


def shows_token(header: str, token: str, remote: str, local: str) -> bool:
    """Is it the operator?  ``remote`` and ``local`` are the two addresses of the connection."""
    scheme, _, shown = header.partition(" ")
    if not token or scheme.lower() != "bearer":
        return False
    on_this_machine = is_loopback(remote) or (remote != "" and remote == local)
    return on_this_machine and hmac.compare_digest(
        shown.strip().encode("utf-8", "surrogateescape"), token.encode()
    )


def login_failed(error: AccessRefused) -> str:
    """The answer to a client that has shown a token: with the reason, as RFC 6750 has it."""
    why = error.told if isinstance(error, LoginRefused) else ""
    return f"Login failed: {why}" if why else "Login failed"


def credentials(header: str) -> tuple[str, str] | None:
    """User and password of an ``Authorization`` header; None = it is none we understand.

    A bearer's token is a password (``broker/oauth``).
    """
    if token := bearer_token(header):
        return NAMELESS, token
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # not base64, not ASCII, or not UTF-8 inside
        return None
    return (user, password) if colon else None
