"""The management server: HTTP on a thread and an event loop of its own.

The data loop never runs HTTP.  Whatever a request needs from the broker is a short function
handed to ``call_on_loop``, one at a time over all requests, so that ten impatient visitors
cost the broker no more than one.  A broker that does not answer in time makes a request
fail with 503; it never makes it hang.

Answers of errors are RabbitMQ's (bodies and all, as its release 3.10 gives them):

    400  {"error":"bad_request","reason":...}        nonsense in the query, or refused by state
    401  {"error":"not_authorized", ...}             login failed; without credentials: no body
    401  {"error":"not_authorised", ...}             logged in, but not allowed
    403  {"error":"forbidden","reason":...}          a page of another site asks (``browsers``)
    404  {"error":"Object Not Found","reason":"Not Found"}
    405  no body, ``allow`` names what would do
    500  no detail: it is in the log
"""

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, ParamSpec, Protocol, TypeVar

from aiohttp import web

from penstock import __version__
from penstock.broker.oauth.sign_on import OFF, sign_on
from penstock.broker.rules.access import User
from penstock.broker.rules.judges import NAMELESS
from penstock.broker.rules.log_ins import HTTP as OVER_HTTP
from penstock.core.errors import (
    AccessRefused,
    Blocked,
    BrokerError,
    EntryRefused,
    NotFound,
    Unavailable,
    Undecided,
)
from penstock.core.events.book import Actor
from penstock.gate import Gate
from penstock.management.api.metrics import metrics_application
from penstock.management.facts.on_loop import answered
from penstock.management.facts.sessions import ListenerFacts
from penstock.management.http.access import (
    Operator,
    Visitor,
    asking_now,
    credentials,
    login_failed,
    shows_token,
)
from penstock.management.http.bodies import json_response, response_of
from penstock.management.http.browsers import guard, names_in
from penstock.management.http.control import NodeControl
from penstock.management.http.endpoints import Context, NotManagement, NotThere, Route, SessionOver
from penstock.management.http.http_connections import KEEPALIVE_TIMEOUT_S, HttpConnections
from penstock.management.http.listing import BadQuery
from penstock.management.http.request_notes import note_requests, server_logger
from penstock.management.http.ui_files import FOLDER, UiFiles
from penstock.management.http.ui_sessions import SCRIPT_HEADER, shown_token
from penstock.management.metrics.gathering import Gathering
from penstock.management.metrics.pages import Pages, Scrapes
from penstock.management.routes import ENDPOINTS
from penstock.management.rows.view import BrokerView
from penstock.management.statistics.completing import Statistics, asked_now, read_asked
from penstock.management.statistics.node_facts import NodeFacts
from penstock.management.statistics.reading import Reading
from penstock.management.statistics.sampler import StatisticsSampler
from penstock.secrets.sources import revealing
from penstock.settings.listener_table import HTTP, HTTPS, METRICS, METRICS_HTTPS, listener_of
from penstock.settings.settings import Settings
from penstock.side_loop import SideLoop
from penstock.tls.options import TlsSet

T = TypeVar("T")
P = ParamSpec("P")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ANSWER_TIMEOUT_S: Final = 5.0
"""How long a request waits for its turn and the data loop's answer together."""
SWITCH_INTERVAL_S: Final = 0.0005
REALM: Final = 'Basic realm="RabbitMQ Management"'
"""Tools that log in when they are asked to do so for this realm only."""
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
HEALTH_CHECKS: Final = ("/healthz/", "/api/health/checks/")
"""What is answered when all connections have requests."""
_INNER_PARAMETER: Final = re.compile(r"\{(\w+)\}(?=/)")
API_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"

log = logging.getLogger("penstock.management")


class CallOnLoop(Protocol):
    """Runs a function on the data loop; the future is done when it has run."""

    def __call__(self, function: Callable[[], T], /) -> Future[T]: ...


class LoginFailed(Exception):
    """``answer`` has a body only if credentials were given, as in RabbitMQ."""

    def __init__(self, reason: str, error: str = "not_authorized") -> None:
        super().__init__(reason)
        self.error = error


class ManagementServer:
    def __init__(
        self,
        bind: str,
        port: int,
        call_on_loop: CallOnLoop,
        view: BrokerView,
        node: NodeFacts,
        segment_entries: int = 16_384,
        control: NodeControl | None = None,
        token: str = "",
        settings: Settings | None = None,
        host_names: Iterable[str] = (),
        tls: TlsSet | None = None,
        gate: Gate | None = None,
    ) -> None:
        """``segment_entries``: of virtual hosts that an import makes; ``token``: the operator's;
        without ``settings`` it listens at ``bind`` and ``port`` only, without metrics on a port of
        their own; ``host_names``: under which browsers on this machine may ask, besides its own.
        """
        self._settings = settings
        self._tls = tls
        self._gate = gate
        self._listening: list[ListenerFacts] = []
        self._host_names = names_in(host_names)
        self._bind = bind
        self._port = port
        self._call_on_loop = call_on_loop
        self._view = view
        self._token = token
        self._statistics = node.statistics = Statistics(settings)
        self.sampler = StatisticsSampler(
            self._statistics,
            Reading(view.broker, view.watch),
            node,
            self._on_loop,
            "" if settings is None else settings.data_dir,
        )
        gathering = Gathering(
            view,
            self._on_loop,
            node,
            self._statistics,
            self.sampler,
            self._listening,
            self._refused,
        )
        self._context = Context(
            view,
            self._on_loop,
            node,
            __version__,
            segment_entries,
            self._statistics,
            Scrapes(Pages(gathering)),
            self._answer_get,
            control or NodeControl(),
            OFF
            if settings is None
            else sign_on(revealing(settings, "management_oauth", "auth_oauth2")),
        )
        self._objects_open = settings is not None and settings.prometheus_objects_open
        self.connections = HttpConnections(HEALTH_CHECKS, gate)
        self.metrics_connections = HttpConnections((), gate)
        self._context.endpoints.extend(endpoints(self._context) for endpoints in ENDPOINTS)
        self._noted = note_requests(view.broker.events, call_on_loop)
        self._web = self._application()
        self._side = SideLoop("management", self._serve)
        self._turn = asyncio.Lock()
        self._pulse: asyncio.Future[str] | None = None
        self.sampling: asyncio.Task[None] | None = None

    # -- life ----------------------------------------------------------------------------

    def start(self) -> int:
        """Listen; returns the bound port, or raises the OSError that prevented it."""
        # Two threads now want the interpreter: the data loop shall not wait the usual 5 ms
        # for it each time this one is busy.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._side.start()
        return self._listening[0].port

    def set_ready(self, ready: bool) -> None:
        """What ``/healthz/ready`` says: may clients come?  Yes, until the broker drains."""
        self._context.admit(clients=ready)

    def stop(self) -> None:
        """Stop listening and wait for the thread; may be called twice, from any thread."""
        self._side.stop()

    async def _serve(self) -> None:
        runner = _runner(self._web)
        sampling = self.sampling = asyncio.create_task(self.sampler.run())
        metrics = _runner(
            metrics_application(
                self._context.scrapes,
                self._host_names,
                self._visitor,
                self._context.refuse,
                self._objects_open,
                _errors_as_answers,
            )
        )
        try:
            await self._listen(runner, self.connections, (HTTP, HTTPS))
            await self._listen(metrics, self.metrics_connections, (METRICS, METRICS_HTTPS))
            self._side.ready()
            for endpoints in self._context.endpoints:
                await endpoints.begin()
            await self._side.stopping.wait()
        finally:
            sampling.cancel()
            await metrics.cleanup()
            await runner.cleanup()

    async def _listen(
        self, runner: web.AppRunner, connections: HttpConnections, protocols: Sequence[str]
    ) -> None:
        """Where the settings open one of these listeners."""
        await runner.setup()
        settings = self._settings
        for kind in map(listener_of, protocols):
            if settings is None:
                if kind.protocol != HTTP:
                    continue
            elif not kind.is_open(settings):
                continue
            is_given = kind.protocol == HTTP
            bind = self._bind if is_given or settings is None else kind.address(settings)
            port = self._port if is_given or settings is None else kind.port(settings)
            tls = None if self._tls is None else self._tls.of(kind)
            where = {"host": bind, "port": port}
            await connections.site(runner, where, kind.protocol, tls).start()
            port = int(runner.addresses[-1][1])
            self._listening.append(ListenerFacts(kind.protocol, bind, port, tls))
            self._context.listens(self._listening[-1])

    def _refused(self) -> dict[str, int]:
        """Connections, by reason."""
        counts = {} if self._gate is None else dict(self._gate.counts)
        return counts if self._tls is None else counts | {"tls": self._tls.failed_count()}

    def listeners(self) -> list[ListenerFacts]:
        """The management API's first, once it has started."""
        return self._listening

    async def _on_loop(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What it returns; run once more when a backend of users that was asked has answered."""
        while True:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S), self._turn:
                    future = self._call_on_loop(partial(function, *args, **kwargs))
                    # Shielded: giving up here must not cancel under the data loop's hands.
                    found = await asyncio.shield(asyncio.wrap_future(future))
            except Undecided as undecided:
                await answered(undecided.ticket)
                continue
            self._statistics.complete(found)
            return found

    async def _must_turn(self) -> str:
        """Whether the data loop turns, out of turn: the lists of others are no fault of it.

        Returns whether the node is cut off, and why, as the context says it.
        It needs no login, so one question on the loop answers all waiting requests.
        """
        if self._pulse is None or self._pulse.done():
            self._pulse = asyncio.wrap_future(self._call_on_loop(self._context.cut_off))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await asyncio.shield(self._pulse)

    # -- routes --------------------------------------------------------------------------

    def _application(self) -> web.Application:
        open_to_others = frozenset({"/api/login"} if self._context.sign_on.by_provider else ())
        refused = partial(_error, 403, "forbidden")
        no_other_pages = guard(self._host_names, refused, open_to_others)
        middlewares = [self._noted, _errors_as_answers, no_other_pages]
        application = web.Application(middlewares=middlewares)
        application.on_response_prepare.append(_finish_headers)
        application.on_shutdown.append(self._close_endpoints)
        for endpoints in self._context.endpoints:
            for route in endpoints.routes():
                self._route(application, route)
        UiFiles(FOLDER, self._context.sign_on.origins).add_routes(application.router)
        application.router.add_get("/healthz/live", self._live)
        application.router.add_get("/healthz/ready", self._is_ready)
        application.router.add_get("/healthz/startup", self._live)
        return application

    def _route(self, application: web.Application, route: Route) -> None:
        """One path with and without a slash at its end, every method answered."""
        handler = self._for_methods(route)
        # A parameter without a pattern of its own would not match braces, which names may have.
        # Within a path it may be empty, as the name of the default exchange is.
        path = _INNER_PARAMETER.sub(r"{\1:[^/]*}", route.path)
        path = _PARAMETER.sub(r"{\1:[^/]+}", path)
        application.router.add_route("*", path, handler)
        if path != "/":
            application.router.add_route("*", path + "/", handler)

    async def _close_endpoints(self, _application: web.Application) -> None:
        for endpoints in self._context.endpoints:
            await endpoints.close()

    async def _answer_get(self, request: web.Request, path: str) -> web.StreamResponse:
        """What a GET of this path and query, of the same visitor, would be answered now."""
        asked = request.clone(method="GET", rel_url=path)
        found = await self._web.router.resolve(asked)
        if found.handler is request.match_info.handler:
            return _not_found()  # it would ask itself for ever
        asked._match_info = found  # noqa: SLF001 - as the dispatcher of aiohttp does
        return await self._noted(asked, partial(_errors_as_answers, handler=found.handler))

    def _for_methods(self, route: Route) -> Handler:
        endpoints = route.endpoints
        authenticate = _stranger if route.is_open else self._visitor
        reading = ["HEAD", "GET"] if "GET" in endpoints else []
        others = [method for method in endpoints if method != "GET"]
        allow = {"Allow": ", ".join([*reading, *others, "OPTIONS"])}

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.method == "OPTIONS":
                return web.Response(headers=allow)
            method = "GET" if request.method == "HEAD" else request.method
            endpoint = endpoints.get(method)
            if endpoint is None:
                return web.Response(status=405, headers=allow)
            visitor = await authenticate(request)
            asking_now.set(Actor(visitor.event_name, OVER_HTTP, request.remote or ""))
            asked_now.set(read_asked(request.query))
            role = route.role_for(method)
            if role is not None:
                role.check(visitor)
            return response_of(await endpoint(request, visitor))

        return answer

    async def _live(self, request: web.Request) -> web.Response:
        """The data loop turns."""
        await self._must_turn()
        return json_response({"status": "ok"})

    async def _is_ready(self, request: web.Request) -> web.Response:
        cut_off = await self._must_turn()
        reason = self._context.why_closed() or cut_off
        if not reason:
            return json_response({"status": "ok"})
        return json_response({"status": "failed", "reason": reason}, 503)

    # -- who asks ------------------------------------------------------------------------

    async def _visitor(self, request: web.Request) -> Visitor:
        header = request.headers.get("Authorization")
        peer = request.remote or ""
        if header is None and (token := shown_token(request)):
            return await self._of_session(request, token, peer)
        try:
            if header is None and (named := self._named(request)):
                return await self._context.trust(named, peer)
        except EntryRefused as error:
            raise LoginFailed(str(error)) from error
        except AccessRefused as error:
            raise LoginFailed("Login failed") from error
        if header is None:
            await self._context.refuse(request)
            raise LoginFailed("")
        if shows_token(header, self._token, peer, _own_address(request)):
            return Operator()
        given = credentials(header)
        if given is None:
            await self._context.refuse(request)
            raise LoginFailed("Login failed")
        try:
            return await self._context.log_in(*given, request)
        except EntryRefused as error:
            raise LoginFailed(str(error)) from error
        except NotManagement as error:
            raise LoginFailed(str(error), "not_authorised") from error
        except AccessRefused as error:
            raise LoginFailed(
                login_failed(error) if given[0] == NAMELESS else "Login failed"
            ) from error

    def _named(self, request: web.Request) -> str:
        """The user that the client's certificate names, "" = none."""
        sites = (self.connections, self.metrics_connections)
        return next((found for one in sites if (found := one.login_of(request))), "")

    async def _of_session(self, request: web.Request, token: str, peer: str) -> Visitor:
        try:
            return await self._context.resume(token, peer)
        except AccessRefused as error:
            await self._context.refuse(request)
            is_over = isinstance(error, SessionOver)
            raise LoginFailed(str(error) if is_over else "Login failed") from error


def _runner(application: web.Application) -> web.AppRunner:
    return web.AppRunner(
        application,
        access_log=None,
        logger=server_logger("penstock.http"),
        handle_signals=False,
        shutdown_timeout=1.0,
        keepalive_timeout=KEEPALIVE_TIMEOUT_S,
        auto_decompress=False,
    )


async def _stranger(_request: web.Request) -> Visitor:
    return Visitor(User("", "", []))


def _own_address(request: web.Request) -> str:
    """Where this connection arrived; "" when it is gone."""
    name = request.transport.get_extra_info("sockname") if request.transport else None
    return str(name[0]) if isinstance(name, tuple) else ""


@web.middleware
async def _errors_as_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error becomes an answer here; none carries a traceback."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return _not_found()
    except web.HTTPMovedPermanently as error:
        return web.Response(status=301, headers={"Location": str(error.location)})
    except web.HTTPMethodNotAllowed as error:
        return web.Response(status=405, headers={"Allow": error.headers["Allow"]})
    except web.HTTPException as error:
        return _error(error.status, "bad_request", error.reason)
    except LoginFailed as error:
        return _login_failed(request, error)
    except BadQuery as error:
        return _error(error.status, error.error, error.reason)
    except NotThere as error:
        return _error(404, "not_found", str(error))
    except NotFound:
        return _not_found()
    except AccessRefused as error:
        return _error(401, "not_authorised", str(error))
    except Unavailable as error:
        return _error(503, "unavailable", str(error))
    except Blocked as error:
        return _error(503, "unavailable", f"publishing is blocked: {error}")
    except BrokerError as error:
        return _error(400, "bad_request", str(error))
    except ConnectionError:  # to the answer no client listens any more
        return _error(400, "bad_request", "the body is not complete")
    except TimeoutError:
        return _error(503, "unavailable", "the broker did not answer in time")
    except Exception:
        log.exception("%s %s failed", request.method, request.rel_url.raw_path)
        return _error(500, "internal_server_error", "the log of the broker says more")


def _error(status: int, error: str, reason: object) -> web.Response:
    return json_response({"error": error, "reason": reason}, status)


def _not_found() -> web.Response:
    return _error(404, "Object Not Found", "Not Found")


def _login_failed(request: web.Request, error: LoginFailed) -> web.Response:
    """To a script of the UI without the header that makes a browser ask for a password itself."""
    headers = {} if SCRIPT_HEADER in request.headers else {"WWW-Authenticate": REALM}
    if not str(error):
        return web.Response(status=401, headers=headers)
    response = _error(401, error.error, str(error))
    response.headers.update(headers)
    return response


async def _finish_headers(_request: web.Request, response: web.StreamResponse) -> None:
    headers = response.headers
    headers["Server"] = "Penstock"
    headers["Cache-Control"] = "no-cache"
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Vary"] = "accept, accept-encoding, origin"
    headers.setdefault("Content-Security-Policy", API_POLICY)
