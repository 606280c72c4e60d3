"""The pages over HTTP: without login on a port of their own, with one on management's.

The port is bound where management is, so nobody on a network reads it unless `bind` says so.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from aiohttp import web

from penstock.management.access import Visitor
from penstock.management.desk import Desk, Route, must_monitor
from penstock.management.listing import BadQuery
from penstock.management.metrics.pages import Pages
from penstock.management.metrics.text import CONTENT_TYPE

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

INDEX: Final = b"Metrics: /metrics, /metrics/per-object, /metrics/detailed?family=...\n"


class MetricsDesk(Desk):
    """On the management port, for users who may monitor."""

    def routes(self) -> list[Route]:
        return [
            Route("/metrics", {"GET": self.overall}),
            Route("/metrics/per-object", {"GET": self.each}),
            Route("/metrics/detailed", {"GET": self.detailed}),
        ]

    async def overall(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        must_monitor(visitor)
        return await streamed(request, self._pages().overall())

    async def each(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        must_monitor(visitor)
        return await streamed(request, self._pages().each())

    async def detailed(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        must_monitor(visitor)
        return await streamed(request, asked_details(self._pages(), request))

    def _pages(self) -> Pages:
        return Pages(self._context.gathering)


def metrics_application(pages: Pages) -> web.Application:
    """For a port of its own."""

    async def index(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=INDEX, content_type="text/plain")

    async def overall(request: web.Request) -> web.StreamResponse:
        return await streamed(request, pages.overall())

    async def each(request: web.Request) -> web.StreamResponse:
        return await streamed(request, pages.each())

    async def detailed(request: web.Request) -> web.StreamResponse:
        return await streamed(request, asked_details(pages, request))

    application = web.Application(middlewares=[_faults_as_answers])
    application.router.add_get("/", index)
    application.router.add_get("/metrics", overall)
    application.router.add_get("/metrics/per-object", each)
    application.router.add_get("/metrics/detailed", detailed)
    return application


@web.middleware
async def _faults_as_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BadQuery as wrong:
        return web.Response(status=400, text=f"{wrong}\n")
    except TimeoutError:
        return web.Response(status=503, text="the broker did not answer in time\n")


def asked_details(pages: Pages, request: web.Request) -> AsyncIterator[str]:
    query = request.query
    return pages.detailed(query.getall("family", []), query.getall("vhost", []))


async def streamed(request: web.Request, pieces: AsyncIterator[str]) -> web.StreamResponse:
    """What goes wrong before the first piece is an answer of its own."""
    first = await anext(pieces, "")
    response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
    await response.prepare(request)
    if request.method != "HEAD":
        await response.write(first.encode())
        async for piece in pieces:
            await response.write(piece.encode())
    await response.write_eof()
    return response
