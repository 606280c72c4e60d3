"""Connections of the HTTP sites: how many there are, and who may keep one without a request.

aiohttp waits an hour for a request that never comes.  Anybody can open connections, before any
log-in, and each is a descriptor that the engine's files then lack.  So what comes to the sites is
bounded over all of them, and closed

    as it comes       when ``CONNECTIONS_MAX`` are there, or a quarter of what the process may open,
                      or, beyond the first few, when descriptors run short: those of the reserve are
                      the engine's (``DESCRIPTORS_RESERVED``)
    after 10 s        when no request's header is complete, however slowly its bytes come; with TLS
                      also when the greeting is not
    after 30 s        when nothing is taken of what is written to it

In: the runner of each site, perhaps its socket, perhaps TLS.  Out: a site that listens.  All of it
on one event loop.  TLS begins when somebody was let in, so who never greets is counted too.
"""

import asyncio
import resource
import socket
from collections.abc import Callable
from ssl import SSLContext
from typing import Any, Final

from aiohttp import web

CONNECTIONS_MAX: Final = 1024
DESCRIPTORS_RESERVED: Final = 64
"""As many as the data loop's, which leaves them to the engine as well (``server/descriptors``)."""
SHARE: Final = 4
"""Of the descriptors for guests HTTP takes one in so many at most."""
ALWAYS: Final = 16
"""So many are let in however few descriptors are left: an operator must get in to see why."""
ACCEPTS_MAX: Final = 64
"""So many asyncio accepts before the first of them can be closed."""
HEADER_TIMEOUT_S: Final = 10.0
WRITE_TIMEOUT_S: Final = 30.0
KEEPALIVE_TIMEOUT_S: Final = 75.0
"""Between two requests, with the second's header; RabbitMQ waits a minute."""


class HttpConnections:
    """Those of all sites together."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.connections_max, self._descriptor_end = bounds(soft)
        self._open: set[Guest] = set()
        self._by_handler: dict[object, Guest] = {}

    @property
    def count(self) -> int:
        return len(self._open)

    def site(self, runner: web.AppRunner, bind: str, port: int) -> web.BaseSite:
        """Of a runner that is set up; to be started."""
        return _Site(self, runner, None, {"host": bind, "port": port})

    def site_at(
        self, runner: web.AppRunner, sock: socket.socket, tls: SSLContext | None
    ) -> web.BaseSite:
        """The same, on a socket that is bound."""
        return _Site(self, runner, tls, {"sock": sock})

    def let_in(self, guest: "Guest", descriptor: int) -> bool:
        count = len(self._open)
        if count >= self.connections_max:
            return False
        if count >= ALWAYS and descriptor >= self._descriptor_end:
            return False  # the kernel gives the lowest number: all below are in use
        self._open.add(guest)
        self._by_handler[guest.handler] = guest
        return True

    def gone(self, guest: "Guest") -> None:
        self._open.discard(guest)
        self._by_handler.pop(guest.handler, None)

    def asked(self, handler: object) -> None:
        """A request's header is complete."""
        guest = self._by_handler.get(handler)
        if guest is not None:
            guest.asked()


def bounds(soft: int) -> tuple[int, int]:
    """How many connections, and below which descriptor, under this limit of open files."""
    if soft == resource.RLIM_INFINITY:
        soft = 2**31
    end = soft - DESCRIPTORS_RESERVED
    return max(ALWAYS, min(CONNECTIONS_MAX, end // SHARE)), end


class Guest(asyncio.Protocol):
    """One connection: aiohttp's handler with clocks around it."""

    def __init__(
        self,
        connections: HttpConnections,
        handler: web.RequestHandler,
        tls: SSLContext | None = None,
    ) -> None:
        self.handler = handler
        self._connections = connections
        self._tls = tls
        self._greeting: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport
        self._is_in = False
        self._has_begun = False
        self._early = b""  # what came with the last of the greeting
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        sock: socket.socket = transport.get_extra_info("socket")
        self._is_in = self._connections.let_in(self, sock.fileno())
        if not self._is_in:
            transport.abort()
        elif self._tls is None:
            self._begin(transport)
        else:
            self._greeting = asyncio.create_task(self._greet(transport, self._tls))

    async def _greet(self, transport: asyncio.Transport, tls: SSLContext) -> None:
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=HEADER_TIMEOUT_S
            )
        except OSError:  # no TLS, none in time, or it hung up
            self._connections.gone(self)
            return
        assert secured is not None
        if self._is_in:
            self._begin(secured)

    def _begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._has_begun = True
        loop = asyncio.get_running_loop()
        self._header_timer = loop.call_later(HEADER_TIMEOUT_S, transport.abort)
        self.handler.connection_made(transport)
        if self._early:
            early, self._early = self._early, b""
            self.handler.data_received(early)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_in:
            return
        self._is_in = False
        self._connections.gone(self)
        if self._has_begun:
            self.asked()
            self._stop_watching()
            self.handler.connection_lost(exc)

    def asked(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def data_received(self, data: bytes) -> None:
        if self._has_begun:
            self.handler.data_received(data)
        elif self._is_in:
            self._early += data

    def eof_received(self) -> None:
        if self._has_begun:
            self.handler.eof_received()

    # -- writing -------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self.handler.pause_writing()
        self._watch(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop_watching()
        self.handler.resume_writing()

    def _watch(self, left_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self._write_timer = loop.call_later(WRITE_TIMEOUT_S, self._must_be_less, left_bytes)

    def _must_be_less(self, before_bytes: int) -> None:
        left_bytes = self._transport.get_write_buffer_size()
        if left_bytes >= before_bytes:
            self._transport.abort()
        else:  # slow, but it reads
            self._watch(left_bytes)

    def _stop_watching(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


class _Site(web.BaseSite):
    def __init__(
        self,
        connections: HttpConnections,
        runner: web.AppRunner,
        tls: SSLContext | None,
        where: dict[str, Any],
    ) -> None:
        super().__init__(runner, ssl_context=tls, backlog=ACCEPTS_MAX)
        self._connections = connections
        self._where = where

    @property
    def name(self) -> str:
        """Which ``BaseSite`` wants."""
        return str(self._where)

    async def start(self) -> None:
        await super().start()
        server = self._runner.server
        assert server is not None
        _tell_when_asked(server, self._connections.asked)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Guest(self._connections, server(), self._ssl_context),
            backlog=self._backlog,
            **self._where,
        )


def _tell_when_asked(server: web.Server, asked: Callable[[object], None]) -> None:
    """A request is made when its header is complete, by what the server has for that."""
    make = server.request_factory

    def make_and_tell(
        message: Any, payload: Any, protocol: web.RequestHandler, writer: Any, task: Any
    ) -> web.BaseRequest:
        asked(protocol)
        return make(message, payload, protocol, writer, task)

    server.request_factory = make_and_tell
