"""``Endpoints``: the base of all endpoints: the broker, their routes, their answers.

One class answers for one kind of thing (queues, users, limits …).  It names its ``routes``; the
server sends what comes to their endpoints after it has found out who asks (``Visitor``).

Everything the broker knows is read and changed through ``on_loop``, which runs a short function on
the data loop and awaits its result.  What changed something goes through ``change``: it answers
when the change is on disk.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final, NamedTuple, ParamSpec, TypeVar, cast

from aiohttp import web

from penstock.broker.administration import Administration
from penstock.broker.broker import Broker
from penstock.broker.oauth.sign_on import SignOn
from penstock.broker.rules.access import User
from penstock.broker.rules.judges import READ, Source
from penstock.broker.rules.log_ins import HTTP, NO_CREDENTIALS, LogIn
from penstock.broker.rules.rights import Rights, open_to
from penstock.clocks import mono_ms, wall_ms
from penstock.core.errors import AccessRefused, LoginRefused, NotFound
from penstock.core.pending import Pending
from penstock.management.facts.on_loop import AGAIN_S, OnLoop
from penstock.management.facts.sessions import ListenerFacts
from penstock.management.http.access import (
    ADMINISTRATOR,
    EVERYTHING,
    MONITORING,
    POLICYMAKER,
    Operator,
    Role,
    Visitor,
    asking_now,
)
from penstock.management.http.control import NodeControl
from penstock.management.http.listing import BadQuery
from penstock.management.http.lists import Lists, slices
from penstock.management.http.ui_sessions import UiSessions
from penstock.management.metrics.pages import Scrapes
from penstock.management.rows.view import BrokerView
from penstock.management.statistics.completing import Statistics
from penstock.management.statistics.node_facts import NodeFacts
from penstock.settings.listener_table import HTTPS, is_loopback

T = TypeVar("T")
P = ParamSpec("P")
Endpoint = Callable[[web.Request, Visitor], Awaitable[web.StreamResponse | bool | None]]
"""Returns an answer; of a change whether it made something new, or None."""
AnswerGet = Callable[[web.Request, str], Awaitable[web.StreamResponse]]

DIALECT: Final = "3.10.8"
"""The RabbitMQ whose management API this one resembles; tools read it to know what to expect."""


OVER: Final = "The session is over"
EXPIRED: Final = "The session is over: its token has expired"


ROLES: Final[Mapping[str, Role | None]] = {
    "administrator": ADMINISTRATOR,
    "monitoring": MONITORING,
    "policymaker": POLICYMAKER,
    "user": None,
    "open": None,
}
"""``user``: all who may log in; ``open``: without log-in."""


class Route(NamedTuple):
    """A path of the API, and who answers which method; HEAD and OPTIONS come by themselves."""

    path: str
    endpoints: Mapping[str, Endpoint]
    summary: str = ""
    """One line for the document of the API (``openapi``)."""
    role: Role | None = None
    """Of visitors who may use it; None = of all who may log in."""
    writer: Role | None = None
    """The same for all methods but GET, if it is another role."""
    is_open: bool = False
    """Without login: the visitor has no name and no permissions."""

    def role_for(self, method: str) -> Role | None:
        return self.role if method == "GET" else self.writer or self.role


class NotThere(NotFound):
    """Something a request needs is missing; its answer says what."""


class SessionOver(AccessRefused):
    """Its text says why."""


class NotManagement(AccessRefused):
    """The password was right, but the user has none of the tags."""


@dataclass(eq=False)
class Context:
    view: BrokerView
    on_loop: OnLoop
    node: NodeFacts
    version: str
    segment_entries: int
    """Of virtual hosts that are made here."""
    statistics: Statistics
    scrapes: Scrapes
    answer_get: AnswerGet
    """What a GET of the same visitor would be answered now."""
    control: NodeControl
    sign_on: SignOn
    contexts: list[dict[str, object]] = field(default_factory=list)  # none before it listens
    own_listeners: list[ListenerFacts] = field(default_factory=list)  # likewise: with metrics'
    endpoints: "list[Endpoints]" = field(default_factory=list)  # all there are
    sessions: UiSessions = field(default_factory=UiSessions)
    is_serving: bool = True  # until the broker ends

    def __post_init__(self) -> None:
        self.lists = Lists(self.view, self.on_loop)

    @property
    def broker(self) -> Broker:
        return self.view.broker

    async def log_in(self, name: str, password: str, request: web.Request) -> Visitor:
        """Who may use the API.  Raises LoginRefused, and NotManagement."""
        users = self.view.broker.users
        peer = request.remote or ""
        source = Source(HTTP, "HTTP", peer, is_loopback(peer), "", request.secure)
        return await self._logged_in(users.begin(name, password, source), source)

    async def trust(self, name: str, peer: str) -> Visitor:
        """A user that a certificate names; raises what ``log_in`` raises."""
        source = Source(HTTP, "EXTERNAL", peer, is_loopback(peer))
        return await self._logged_in(self.view.broker.users.begin(name, None, source), source)

    async def _logged_in(self, log_in: LogIn, source: Source) -> Visitor:
        users = self.view.broker.users
        try:
            visitor = await self.on_loop(lambda: Visitor(log_in.user()))
        except LoginRefused as error:
            await asyncio.sleep(error.delay_ms / 1000)
            raise
        if not visitor.may_use_api:
            wrong = NotManagement("Not management user")
            await self.on_loop(users.refuse, source, visitor.name, wrong)
            raise wrong
        return await self._entering(visitor)

    async def resume(self, token: str, peer: str) -> Visitor:
        """The visitor of a session of the web UI.  Raises SessionOver, and LoginRefused."""
        before = self.sessions.find(token)
        if before is None:
            raise SessionOver(OVER)
        if before.user.has_expired(wall_ms()):
            raise SessionOver(EXPIRED)  # and again, to each tab that asks
        broker = self.broker
        source = Source(HTTP, "HTTP", peer, is_loopback(peer))

        def look() -> Visitor:
            if before.external is not None:
                broker.users.check_place(before.name, source)
                before.external.look(mono_ms())
                return Visitor(before.external)
            user = broker.users.resume(before.name, source)
            if not before.is_still(user, broker.vhosts):
                raise SessionOver(OVER)
            return Visitor(before.user)

        try:
            visitor = await self._entering(await self.on_loop(look))
        except AccessRefused:
            self.sessions.end(token)
            raise
        self.sessions.used(token, before, visitor)
        return visitor

    async def _entering(self, visitor: Visitor) -> Visitor:
        """With the virtual hosts that it may enter: another backend is asked about each."""
        user = visitor.external
        if user is None:
            return visitor
        entered: list[str] = []
        for some in slices(await self.on_loop(list, self.broker.vhosts), become_rows=False):
            entered += await self.on_loop(open_to, user, some)
        return await self.on_loop(Visitor, user, entered)

    async def refuse(self, request: web.Request) -> None:
        """Note in the log a request without credentials where they are needed."""
        peer = request.remote or ""
        source = Source(HTTP, "HTTP", peer, is_loopback(peer))
        wrong = AccessRefused(NO_CREDENTIALS)
        await self.on_loop(self.view.broker.users.refuse, source, "", wrong)

    def why_closed(self) -> str:
        """Why clients may not come; "" = they may, unless the node is cut off."""
        if not self.is_serving:
            return "not open for clients"
        return "" if self.control.is_open() else "draining"

    def cut_off(self) -> str:
        """Why clients had better go to another node; "" = they need not.  On the data loop."""
        return str(self.view.watch.cluster()["cut_off"])

    def listens(self, listener: ListenerFacts) -> None:
        """The API is reached there, or the metrics."""
        self.own_listeners.append(listener)
        if listener.protocol not in (HTTP, HTTPS):
            return
        self.contexts.append(
            {
                "node": self.view.node_name,
                "description": "Penstock Management",
                "ssl_opts": [],
                "path": "/",
                "ip": listener.host,
                "port": str(listener.port),
            }
        )

    def admit(self, clients: bool) -> None:
        self.is_serving = clients

    def must_be_us(self, node: str) -> None:
        """Raises NotFound for the name of any other node.

        Checks written for RabbitMQ spell the name themselves: rabbit@ and the host.
        """
        own = self.view.node_name
        if node not in (own, "rabbit@" + own.partition("@")[2]):
            raise NotFound(f"no node '{node}'")

    def administration(self) -> Administration:
        """For use on the data loop."""
        return Administration(self.broker, self.segment_entries)


class Endpoints:
    table: ClassVar[str] = ""
    """Its routes, a line each, two spaces between the columns: who may use it (``ROLES``, and with
    a slash who may change something by it), the path (below ``/api/`` if it has no slash in front),
    for each method the function here that answers it, and the summary.
    """
    heading: ClassVar[str] = ""
    """Of its routes in the document of the API; "" = the first part of the path."""
    has_lists: ClassVar[bool] = False
    """Its GETs take columns, order and page."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._view = context.view
        self._broker = context.broker
        self._on_loop = context.on_loop
        self._lists = context.lists

    def routes(self) -> list[Route]:
        rows = self.table.strip().splitlines()
        return [self._route(*re.split(" {2,}", row.strip())) for row in rows]

    def _route(self, roles: str, path: str, answers: str, summary: str = "") -> Route:
        reader, _, writer = roles.partition("/")
        endpoints: dict[str, Endpoint] = {}
        for answer in answers.split():
            method, _, function = answer.partition("=")
            endpoints[method] = getattr(self, function)
        whole = path if path.startswith("/") else f"/api/{path}"
        return Route(
            whole, endpoints, summary, ROLES[reader], ROLES.get(writer), is_open=reader == "open"
        )

    async def begin(self) -> None:
        """The server listens: a resource with work of its own begins it now."""

    async def close(self) -> None:
        """The server stops: a resource with long answers ends them now."""

    async def change(
        self, function: Callable[P, T | Pending], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run it on the data loop; returns when what it changed is on disk.

        In a cluster that is when all have agreed on it.
        """
        changed = await self._agreed(partial(function, *args, **kwargs))
        # Once more around: what was changed is on disk when the loop comes here.
        await self._on_loop(len, "")
        return changed

    async def _agreed(self, function: Callable[[], T | Pending]) -> T:
        ask = self._broker.changes.ask(asking_now.get())
        outcome: object = await self._on_loop(ask.run, function)
        while isinstance(outcome, Pending):
            await asyncio.sleep(AGAIN_S)
            outcome = await self._on_loop(outcome.resume)
        return cast(T, outcome)

    def admin(self) -> Administration:
        return self._context.administration()

    def rights(self, visitor: Visitor, vhost: str) -> Rights:
        """What they may there; for use on the data loop."""
        if not visitor.may_enter(vhost):
            raise AccessRefused("User not authorised to access virtual host")
        if visitor.external is not None:
            return Rights(visitor.external, vhost)
        user = self._broker.users.users.get(visitor.name)
        patterns = visitor.permissions[vhost]
        if user is None or user.vhosts.get(vhost) != patterns:  # not everybody is a user here
            user = User(visitor.name, "", list(visitor.tags))
            user.vhosts[vhost] = patterns
        return Rights(user, vhost)

    async def must_be_there(self, vhost: str, visitor: Visitor) -> None:
        """Raises NotFound without that virtual host, AccessRefused when it is closed to them."""
        if not await self._on_loop(self._view.has_vhost, vhost):
            raise NotFound(f"no vhost '{vhost}'")
        if not visitor.may_enter(vhost):
            raise AccessRefused("User not authorised to access virtual host")

    async def must_take(self, vhost: str) -> None:
        """Raises BadQuery without that virtual host: what is put into it, RabbitMQ refuses so."""
        if not await self._on_loop(self._view.has_vhost, vhost):
            raise BadQuery("vhost_not_found", "not_found", 404)

    async def visible_vhosts(self, visitor: Visitor) -> list[str]:
        names = await self._on_loop(self._view.vhost_names)
        return [name for name in names if visitor.may_enter(name)]

    async def asked_vhosts(self, request: web.Request, visitor: Visitor) -> list[str]:
        """The one in the path, which must exist and be open to the visitor; or all visible."""
        name = request.match_info.get("vhost")
        if name is None:
            return await self.visible_vhosts(visitor)
        await self.must_be_there(name, visitor)
        return [name]

    async def changed_vhost(self, request: web.Request, visitor: Visitor) -> str:
        """The one in the path, for what is put into it; RabbitMQ has other words for this."""
        name = request.match_info["vhost"]
        await self.must_take(name)
        await self.asked_vhosts(request, visitor)
        return name

    async def learn_rights(
        self, visitor: Visitor, vhost: str, ask: Callable[[Rights], None]
    ) -> None:
        """Before a client within the node acts for them: that one cannot wait for a backend."""
        if visitor.external is not None:
            with suppress(AccessRefused):  # it will be refused likewise
                await self._on_loop(lambda: ask(self.rights(visitor, vhost)))

    async def readable_queue(self, request: web.Request, visitor: Visitor) -> tuple[str, str]:
        vhost, name = queue_asked(request, visitor)
        if not await self._on_loop(visitor.may, READ, vhost, name):
            raise AccessRefused(f"access to queue '{name}' in vhost '{vhost}' refused")
        return vhost, name

    def sender(self, visitor: Visitor, vhost: str) -> str | User:
        """Who publishes and gets for them; on the data loop.  Raises AccessRefused.

        A session has a user, so the operator borrows one who may do everything there.
        """
        if not isinstance(visitor, Operator):
            return visitor.external or visitor.name
        for user in self._broker.users.users.values():
            if "administrator" in user.tags and user.vhosts.get(vhost) == EVERYTHING:
                return user.name
        raise AccessRefused(
            f"no administrator has all permissions in vhost '{vhost}': give one"
            " all of them there, or name a user"
        )


def queue_asked(request: web.Request, visitor: Visitor) -> tuple[str, str]:
    """Virtual host and name of the path.  Raises NotFound."""
    vhost, name = request.match_info["vhost"], request.match_info["name"]
    if not visitor.may_enter(vhost):
        raise NotFound(f"vhost {vhost} not found")
    return vhost, name
