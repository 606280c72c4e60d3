"""Answers with the pages: one page is made at a time, and shared for a second.

With 10,000 queues a page takes seconds of the management thread and megabytes.  So requests within
``FRESH_S`` of a page that was made get the same one, and others wait for their turn.

    request ─► the page there is, or the pieces of a new one ─► answer
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from penstock.management.metrics.pages import Pages
from penstock.management.metrics.text import CONTENT_TYPE

FRESH_S: Final = 1.0
SEND_S: Final = 20.0
"""So long a scraper may take to read a page; Prometheus waits 10 s for it."""
Key = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Page, families and virtual hosts."""


class Scrapes:
    """Of both ports."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._turn = asyncio.Lock()
        self._fresh: dict[Key, list[bytes]] = {}

    async def answer(self, request: web.Request, page: str) -> web.StreamResponse:
        """``page``: the last part of the path."""
        query = request.query
        key = page, tuple(query.getall("family", [])), tuple(query.getall("vhost", []))
        pieces = await self._page(key if page == "detailed" else (page, (), ()))
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        try:
            async with asyncio.timeout(SEND_S):
                for piece in pieces if request.method != "HEAD" else ():
                    await response.write(piece)
                await response.write_eof()
        except TimeoutError as error:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("a scraper does not read") from error
        return response

    async def _page(self, key: Key) -> list[bytes]:
        async with self._turn:
            fresh = self._fresh.get(key)
            if fresh is not None:
                return fresh
            made = [piece.encode() async for piece in self._made(key)]
            self._fresh[key] = made
            asyncio.get_running_loop().call_later(FRESH_S, self._fresh.pop, key)
            return made

    def _made(self, key: Key) -> AsyncIterator[str]:
        page, families, vhosts = key
        if page == "metrics":
            return self._pages.overall()
        if page == "per-object":
            return self._pages.each()
        return self._pages.detailed(families, vhosts)
