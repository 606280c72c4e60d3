"""Permissions of a user in a virtual host: configure, write, read, and topics.

In: the user, the virtual host, an operation on a resource.  Out: nothing, or AccessRefused with
RabbitMQ's text.  A permission is a regular expression searched in the resource's name, so it
binds at neither end unless it says so; the empty one covers the empty name only, which no
resource has (the default exchange is called ``amq.default`` here).

Topic permissions narrow this on topic exchanges, for users that have some for that exchange: the
routing key of a publish needs ``write``, that of a binding ``read``.  ``{username}`` and
``{vhost}`` in such a pattern stand for the names themselves: a name full of dots and stars does
not become a pattern, which is where we are stricter than RabbitMQ.

Nothing here is asked per message.  A publish is checked where its route is found, and remembered
with it (``Link.route``): a change of permissions moves the epoch of the virtual host.
"""

import re
from collections.abc import Iterable
from typing import Final, final

from penstock.broker.rules.access import User
from penstock.broker.rules.judges import CONFIGURE, READ, TOPIC, VHOST, WRITE, Judge, Question
from penstock.core import patterns
from penstock.core.errors import AccessRefused, Undecided
from penstock.routing.exchanges import Exchange

DEFAULT_EXCHANGE: Final = "amq.default"


EVERYTHING: Final = ".*"
NAMES: Final = {CONFIGURE: "configure ", WRITE: "write ", READ: "read "}
UNNAMED: Final = dict.fromkeys(NAMES, "")


def covers(pattern: str, name: str) -> bool:
    """Does a permission's pattern cover a name?  One that could take too long covers none."""
    if pattern == "":
        return name == ""
    if pattern == EVERYTHING:
        return True
    return patterns.found(pattern, name)


def check_enter(user: User, vhost: str) -> None:
    """Raises AccessRefused for a virtual host that the user may not enter; Undecided."""
    refusal = f"access to vhost '{vhost}' refused for user '{user.name}'"
    judge = user.judge
    if judge is not None:
        _ask(judge, Question(VHOST, vhost, address=user.address), refusal)
    elif vhost not in user.vhosts:
        raise AccessRefused(refusal)


def open_to(user: User, vhosts: Iterable[str]) -> list[str]:
    """Those of the virtual hosts that the user may enter; all are asked for before Undecided."""
    entered: list[str] = []
    waiting: Undecided | None = None
    for vhost in vhosts:
        try:
            check_enter(user, vhost)
            entered.append(vhost)
        except AccessRefused:
            continue
        except Undecided as undecided:
            waiting = undecided
    if waiting is not None:
        raise waiting
    return entered


def _ask(judge: Judge, question: Question, refusal: str) -> None:
    try:
        judge.check(question)
    except AccessRefused as error:
        raise AccessRefused(refusal + str(error)) from None


@final
class Rights:
    """One user in one virtual host; asks anew each time, so a change counts at once.

    All but the constructor raise AccessRefused; or Undecided, for a user of another backend.
    ``newer``: as in RabbitMQ 4 a refusal says which right is missing, and ``see`` wants one.
    """

    def __init__(self, user: User, vhost: str, newer: bool = False) -> None:
        self.user = user
        self.vhost = vhost
        self._named: Final = NAMES if newer else UNNAMED

    def configure(self, kind: str, name: str) -> None:
        self._check(CONFIGURE, kind, name)

    def write(self, kind: str, name: str) -> None:
        self._check(WRITE, kind, name)

    def read(self, kind: str, name: str) -> None:
        self._check(READ, kind, name)

    def see(self, kind: str, name: str) -> None:
        """Asked by passive declarations.  RabbitMQ 4 wants any right, 3.10 none."""
        if self._named is UNNAMED:
            return
        for permission in NAMES:
            if self.may(permission, kind, name):
                return
        self._check(CONFIGURE, kind, name)

    def may(self, permission: int, kind: str, name: str) -> bool:
        try:
            self._check(permission, kind, name)
        except AccessRefused:
            return False
        return True

    def bind(self, kind: str, destination: str, source: str) -> None:
        """Binding and unbinding: what may be written into, and what may be read from."""
        self._check(WRITE, kind, destination)
        if destination == "" or source == "":
            raise AccessRefused("operation not permitted on the default exchange")
        self._check(READ, "exchange", source)

    def publish(self, exchange: Exchange | None, name: str, routing_key: str) -> None:
        self._check(WRITE, "exchange", name)
        if exchange is not None and not exchange.internal:
            self.topic(WRITE, exchange, routing_key)

    def topic(self, permission: int, exchange: Exchange | None, routing_key: str) -> None:
        """``permission``: WRITE to publish, READ to bind."""
        if exchange is None or exchange.type != "topic":
            return
        judge = self.user.judge
        patterns = self.user.topics.get((self.vhost, exchange.name))
        if judge is None and patterns is None:
            return
        refusal = (
            f"{self._named[permission]}access to topic '{routing_key}' in exchange"
            f" '{exchange.name}' in vhost '{self.vhost}' refused for user '{self.user.name}'"
        )
        if judge is not None:
            asked = Question(TOPIC, self.vhost, exchange.name, permission, routing_key)
            _ask(judge, asked, refusal)
            return
        assert patterns is not None
        pattern = patterns[0] if permission == WRITE else patterns[1]
        pattern = pattern.replace("{username}", re.escape(self.user.name))
        pattern = pattern.replace("{vhost}", re.escape(self.vhost))
        if not covers(pattern, routing_key):
            raise AccessRefused(refusal)

    def _check(self, permission: int, kind: str, name: str) -> None:
        if name == "" and kind == "exchange":
            name = DEFAULT_EXCHANGE
        judge = self.user.judge
        if judge is not None:
            asked = Question(kind, self.vhost, name, permission)
            _ask(judge, asked, self._refusal(permission, kind, name))
            return
        patterns = self.user.vhosts.get(self.vhost)
        if patterns is None or not covers(patterns[permission], name):
            raise AccessRefused(self._refusal(permission, kind, name))

    def _refusal(self, permission: int, kind: str, name: str) -> str:
        where = f"in vhost '{self.vhost}' refused for user '{self.user.name}'"
        return f"{self._named[permission]}access to {kind} '{name}' {where}"
