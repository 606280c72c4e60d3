"""What every desk of the management server has: the broker to ask, routes to name, answers to give.

A *desk* answers for one kind of thing (queues, users, limits …).  It names its ``routes``; the
server sends what comes to their endpoints after it has found out who asks (``Visitor``).

Everything the broker knows is read and changed through ``on_loop``, which runs a short function on
the data loop and awaits its result.  What changed something goes through ``change``: it answers
when the change is on disk.
"""

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar

from aiohttp import web

from penstock.broker.administration import Administration
from penstock.broker.broker import Broker
from penstock.core.errors import AccessRefused, NotFound
from penstock.management.access import Visitor
from penstock.management.control import NodeControl
from penstock.management.listing import BadQuery
from penstock.management.node_facts import NodeFacts
from penstock.management.view import BrokerView

T = TypeVar("T")
P = ParamSpec("P")
Endpoint = Callable[[web.Request, Visitor], Awaitable[web.StreamResponse]]
AnswerGet = Callable[[web.Request, str], Awaitable[web.StreamResponse]]

DIALECT: Final = "3.10.8"
"""The RabbitMQ whose management API this one resembles; tools read it to know what to expect."""
BODY_MAX_BYTES: Final = 256 * 1024 * 1024
SPELT: Final = {"true": True, "false": False}


class Route(NamedTuple):
    """A path of the API, and who answers which method; HEAD and OPTIONS come by themselves."""

    path: str
    endpoints: dict[str, Endpoint]


class OnLoop(Protocol):
    """Runs a short function on the data loop."""

    def __call__(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...


class Context:
    """What the desks share."""

    def __init__(
        self,
        view: BrokerView,
        on_loop: OnLoop,
        node: NodeFacts,
        version: str,
        segment_entries: int,
        control: NodeControl | None = None,
    ) -> None:
        """``segment_entries``: of virtual hosts that somebody makes."""
        self.control = control or NodeControl()
        self.view = view
        self.on_loop = on_loop
        self.node = node
        self.version = version
        self.segment_entries = segment_entries
        self.contexts: list[dict[str, object]] = []  # set when the port is known
        self.answer_get: AnswerGet  # set by the server: what a GET would be answered

    @property
    def broker(self) -> Broker:
        return self.view.broker

    def administration(self) -> Administration:
        """For use on the data loop."""
        return Administration(self.broker, self.segment_entries)


class Desk:
    """See the head of this file."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._view = context.view
        self._broker = context.broker
        self._on_loop = context.on_loop

    def routes(self) -> list[Route]:
        raise NotImplementedError

    async def close(self) -> None:
        """The server stops: whoever answers for long ends now."""

    async def change(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it on the data loop; returns when what it changed is on disk."""
        changed = await self._on_loop(function, *args, **kwargs)
        # Once more around: what was changed is on disk when the loop comes here.
        await self._on_loop(len, "")
        return changed

    def admin(self) -> Administration:
        return self._context.administration()

    async def must_be_there(self, vhost: str, visitor: Visitor) -> None:
        """Raises NotFound without that virtual host, AccessRefused when it is closed to them."""
        if not await self._on_loop(self._view.has_vhost, vhost):
            raise NotFound(f"no vhost '{vhost}'")
        if not visitor.may_enter(vhost):
            raise AccessRefused("User not authorised to access virtual host")


# -- who may -------------------------------------------------------------------------------


def must_administrate(visitor: Visitor) -> None:
    if not visitor.is_administrator:
        raise AccessRefused("Not administrator user")


def must_monitor(visitor: Visitor) -> None:
    if not visitor.may_monitor:
        raise AccessRefused("Not monitor user")


# -- what they say -------------------------------------------------------------------------


async def json_value(request: web.Request) -> Any:
    """What a request carries; raises BadQuery when it is no JSON."""
    try:
        return json.loads(await request.clone(client_max_size=BODY_MAX_BYTES).read())
    except (ValueError, RecursionError) as error:
        raise BadQuery("bad_request", "not_json") from error


async def json_body(request: web.Request) -> dict[str, Any]:
    """The object a request carries, none being an empty one; raises BadQuery for anything else."""
    asked = await json_value(request) if request.can_read_body else {}
    if not isinstance(asked, dict):
        raise BadQuery("bad_request", "not_json")
    return asked


def flag(value: object) -> bool:
    """A truth, or its name, which is how ``rabbitmqadmin`` sends it."""
    found = SPELT.get(value) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise BadQuery("bad_request", f"not_boolean: {value}")
    return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# -- what they are told --------------------------------------------------------------------


def to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def json_response(value: object, status: int = 200) -> web.Response:
    return web.Response(body=to_json(value), status=status, content_type="application/json")
