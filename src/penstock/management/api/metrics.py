"""The pages over HTTP: on a port of their own for Prometheus, and with a log-in on management's.

The port is bound where management is.  ``/metrics``, which names no queue, needs no log-in there,
as with RabbitMQ's plug-in.  Pages that name queues, connections and virtual hosts are answered to
this machine, to a user who may monitor, or to all where the setting
``prometheus_objects_open`` says so.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from penstock.management.http.access import MONITORING, Visitor
from penstock.management.http.browsers import guard
from penstock.management.http.endpoints import Endpoints
from penstock.management.metrics.pages import Scrapes
from penstock.settings.listener_table import is_loopback

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

BASIC: Final = {"WWW-Authenticate": 'Basic realm="Penstock metrics"'}
LOG_IN: Final = (
    "this page names queues: log in as a user with the tag monitoring, or set"
    " prometheus_objects_open\n"
)
LogIn = Callable[[web.Request], Awaitable[Visitor]]
Refuse = Callable[[web.Request], Awaitable[None]]

PAGES: Final = ("/metrics", "/metrics/per-object", "/metrics/detailed")
INDEX: Final = b"Metrics: /metrics, /metrics/per-object, /metrics/detailed?family=...\n"


class MetricsEndpoints(Endpoints):
    """On the management port, for users who may monitor."""

    table = """
        monitoring  /metrics             GET=page
        monitoring  /metrics/per-object  GET=page
        monitoring  /metrics/detailed    GET=page
    """

    async def page(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        return await self._context.scrapes.answer(request, page_of(request))


def metrics_application(
    scrapes: Scrapes,
    host_names: frozenset[str],
    log_in: LogIn,
    refuse: Refuse,
    is_open: bool,
    errors: Middleware,
) -> web.Application:
    """For a port of its own.  ``host_names``: see ``browsers``; ``log_in``: the user who asks;
    ``refuse``: notes that there was none;
    ``is_open``: no page needs that; ``errors``: makes answers of what both raise.
    """

    async def index(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=INDEX, content_type="text/plain")

    async def overall(request: web.Request) -> web.StreamResponse:
        return await scrapes.answer(request, page_of(request))

    async def of_objects(request: web.Request) -> web.StreamResponse:
        if not is_open and not is_loopback(request.remote or ""):
            if "Authorization" not in request.headers:
                await refuse(request)
                return web.Response(status=401, text=LOG_IN, headers=BASIC)
            MONITORING.check(await log_in(request))
        return await scrapes.answer(request, page_of(request))

    no_other_pages = guard(host_names, lambda why: web.Response(status=403, text=f"{why}\n"))
    application = web.Application(middlewares=[errors, no_other_pages])
    application.router.add_get("/", index)
    for path in PAGES:
        application.router.add_get(path, overall if path == "/metrics" else of_objects)
    return application


def page_of(request: web.Request) -> str:
    return request.path.rstrip("/").rpartition("/")[2]
