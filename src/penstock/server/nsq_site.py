"""A listening socket of the HTTP API that takes so many connections and no more.

In: a runner, its socket, perhaps TLS.  Out: connections handed to the runner's server; those
beyond ``CONNECTIONS_MAX`` are closed as they come, before anything of them is read.
"""

import asyncio
import socket
from ssl import SSLContext
from typing import Final

from aiohttp import web

CONNECTIONS_MAX: Final = 1024


class TooMany(asyncio.Protocol):
    """Hangs up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class BoundedSite(web.BaseSite):
    """See the head of this file."""

    def __init__(
        self, runner: web.AppRunner, sock: socket.socket, tls: SSLContext | None = None
    ) -> None:
        super().__init__(runner, ssl_context=tls)
        self._sock = sock

    @property
    def name(self) -> str:
        host, port = self._sock.getsockname()[:2]
        return f"{host}:{port}"

    async def start(self) -> None:
        await super().start()
        self._server = await asyncio.get_running_loop().create_server(
            self._take, sock=self._sock, ssl=self._ssl_context, backlog=self._backlog
        )

    def _take(self) -> asyncio.Protocol:
        server = self._runner.server
        if server is None or len(server.connections) >= CONNECTIONS_MAX:
            return TooMany()
        return server()
