"""Connections of an HTTP site: how many there are, and how long one stays without a request.

aiohttp waits an hour for a request that never comes.  A client can open connections before any
log-in, and each is a descriptor that the engine's files then lack.  So each site has a budget of
its own, and each address a share of it:

    as it comes       when ``connections_max`` are there, or ``address_max`` of one address (of
                      IPv6, one network of 64 bits), or, beyond the first few, when descriptors run
                      short: the connection of that site or address that has been idle longest is
                      closed for it.  Where all have a request, the new connection is one of the
                      ``RESERVE``: it is answered one request, with 503 unless that is a health
                      check; the oldest of the reserve is closed for the next
    after 10 s        when no request's header is complete, however slowly its bytes come; with TLS
                      also when the greeting is not
    after 10 s        when a request's body is not complete and came more slowly than
                      ``BODY_BYTES_PER_S``; the time in which the node does not read does not count
    after 30 s        when nothing is taken of what is written to it

Idle is a connection without a whole request header, or with all its answers.

In: the runner of a site, perhaps its socket, perhaps TLS.  Out: a site that listens.  All of it
on one event loop.  TLS begins when the connection was let in, so one that never greets is counted
too.
"""

import asyncio
import resource
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from aiohttp import StreamReader, web

from penstock.gate import Gate
from penstock.settings.entry import network_of
from penstock.tls.options import TlsOptions

CONNECTIONS_MAX: Final = 1024
DESCRIPTORS_RESERVED: Final = 64
"""As many as the data loop's, which leaves them to the engine as well (``runtime/descriptors``)."""
SHARE: Final = 10
"""Of the descriptors for clients a site takes one in so many at most: a node has five sites."""
ADDRESS_SHARE: Final = 4
"""Of a site's connections one address has one in so many at most."""
ALWAYS: Final = 16
"""So many are let in however few descriptors are left: an operator must get in to see why."""
RESERVE: Final = 8
ACCEPTS_MAX: Final = 64
"""So many asyncio accepts before the first of them can be closed."""
HEADER_TIMEOUT_S: Final = 10.0
BODY_TIMEOUT_S: Final = 10.0
BODY_BYTES_PER_S: Final = 4096
WRITE_TIMEOUT_S: Final = 30.0
KEEPALIVE_TIMEOUT_S: Final = 75.0
"""Between two requests, with the second's header; RabbitMQ waits a minute."""
NO_ROOM: Final = "this port has as many connections as it may, and all of them have requests\n"

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpConnections:
    def __init__(self, health_checks: Iterable[str] = (), gate: Gate | None = None) -> None:
        """``health_checks``: the beginnings of paths that the reserve answers."""
        self.gate = gate
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.connections_max, self._descriptor_end = bounds(soft)
        self.address_max = max(1, self.connections_max // ADDRESS_SHARE)
        self._health_checks = tuple(health_checks)
        self._open: set[HttpConnection] = set()
        self._of_address: Counter[str] = Counter()
        self._idle: dict[HttpConnection, None] = {}  # the longest idle first
        self._reserve: dict[HttpConnection, None] = {}  # the oldest first
        self._by_handler: dict[object, HttpConnection] = {}
        self._attended: list[web.Server] = []

    @property
    def count(self) -> int:
        return len(self._open) + len(self._reserve)

    def site(
        self, runner: web.AppRunner, where: Mapping[str, Any], protocol: str, tls: TlsOptions | None
    ) -> web.BaseSite:
        """Of a runner that is set up; to be started.

        ``where``: ``host`` and ``port``, or a ``sock`` that is bound.
        """
        return _Site(self, runner, where, protocol, tls)

    def attend(self, server: web.Server) -> None:
        """Hear of each request and of its end, by what the server calls for both."""
        if server in self._attended:  # it has another site here
            return
        self._attended.append(server)
        make, handle = server.request_factory, server.request_handler

        def make_and_tell(
            message: Any, payload: Any, protocol: web.RequestHandler, writer: Any, task: Any
        ) -> web.BaseRequest:
            self.asked(protocol, payload)
            return make(message, payload, protocol, writer, task)

        server.request_factory = make_and_tell
        server.request_handler = lambda request: self.answer(request, handle)

    def let_in(self, connection: "HttpConnection", descriptor: int) -> bool:
        """Count it, and close another for it where that must be; False: there is no room."""
        count = self.count
        # The kernel gives the lowest number: all below are in use.
        is_short = count >= ALWAYS and descriptor >= self._descriptor_end
        is_full = is_short or len(self._open) >= self.connections_max
        if self._of_address[connection.address] >= self.address_max:
            is_full = True
            idle = next((one for one in self._idle if one.address == connection.address), None)
        else:
            idle = next(iter(self._idle), None)
        if not is_full or idle is not None:
            if is_full and idle is not None:
                self._close(idle)
            self._open.add(connection)
            self._of_address[connection.address] += 1
            self._idle[connection] = None
        elif is_short:
            return False
        else:
            if len(self._reserve) >= RESERVE:
                self._close(next(iter(self._reserve)))
            self._reserve[connection] = None
        self._by_handler[connection.handler] = connection
        return True

    def _close(self, connection: "HttpConnection") -> None:
        self.gone(connection)
        connection.close()

    def login_of(self, request: web.BaseRequest) -> str | None:
        """The user that its client's certificate names; see ``HttpConnection.login``."""
        connection = self._by_handler.get(request.protocol)
        return None if connection is None else connection.login

    def gone(self, connection: "HttpConnection") -> None:
        if connection in self._open:
            self._open.remove(connection)
            self._of_address[connection.address] -= 1
            if not self._of_address[connection.address]:
                del self._of_address[connection.address]
        self._idle.pop(connection, None)
        self._reserve.pop(connection, None)
        self._by_handler.pop(connection.handler, None)

    def asked(self, handler: object, body: StreamReader) -> None:
        connection = self._by_handler.get(handler)
        if connection is not None:
            self._idle.pop(connection, None)
            connection.asked(body)

    async def answer(self, request: web.BaseRequest, handle: Handle) -> web.StreamResponse:
        """What the site answers, or, to a connection of the reserve, that there is no room."""
        connection = self._by_handler.get(request.protocol)
        try:
            if connection not in self._reserve:
                return await handle(request)
            if request.path.startswith(self._health_checks):
                response = await handle(request)
            else:
                response = web.Response(status=503, text=NO_ROOM)
            response.force_close()
            return response
        finally:
            if connection in self._open:
                self._idle[connection] = None


def bounds(soft: int) -> tuple[int, int]:
    """How many connections, and below which descriptor, under this limit of open files."""
    if soft == resource.RLIM_INFINITY:
        soft = 2**31
    end = soft - DESCRIPTORS_RESERVED
    return max(ALWAYS, min(CONNECTIONS_MAX, end // SHARE)), end


class HttpConnection(asyncio.Protocol):
    """One connection: aiohttp's handler with clocks around it."""

    def __init__(
        self,
        connections: HttpConnections,
        handler: web.RequestHandler,
        protocol: str,
        tls: TlsOptions | None = None,
    ) -> None:
        self.handler = handler
        self._protocol = protocol
        self._passed_gate = False
        self.address = ""
        self.login: str | None = None
        """The user that its certificate names, "" = none; None: it was not asked for."""
        self._connections = connections
        self._tls = tls
        self._greeting: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport
        self._body: StreamReader
        self._received_bytes = 0
        self._is_in = False
        self._has_begun = False
        self._early = b""  # what came with the last of the greeting
        self._header_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        sock: socket.socket = transport.get_extra_info("socket")
        self.address = network_of((transport.get_extra_info("peername") or ("",))[0])
        self._transport = transport
        gate = self._connections.gate
        self._passed_gate = gate is not None and not gate.admit(self._protocol, self.address)
        is_allowed = gate is None or self._passed_gate
        self._is_in = is_allowed and self._connections.let_in(self, sock.fileno())
        if not self._is_in:
            transport.abort()
        elif self._tls is None:
            self._begin(transport)
        else:
            self._greeting = asyncio.create_task(self._greet(transport, self._tls))

    async def _greet(self, transport: asyncio.Transport, tls: TlsOptions) -> None:
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                tls.context,
                server_side=True,
                ssl_handshake_timeout=HEADER_TIMEOUT_S,
            )
            assert secured is not None
            self.login = tls.login(secured.get_extra_info("ssl_object"))
        except (OSError, ValueError) as error:  # no TLS, none in time, or it hung up
            tls.failed(self.address, error)
            transport.abort()
            self._connections.gone(self)
            return
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
        if self._passed_gate and self._connections.gate is not None:
            self._passed_gate = False
            self._connections.gate.left(self.address)
        if not self._is_in:
            return
        self._is_in = False
        self._connections.gone(self)
        if self._has_begun:
            self._stop(self._header_timer, self._body_timer, self._write_timer)
            self.handler.connection_lost(exc)

    def close(self) -> None:
        """At once; with TLS also before the greeting is complete."""
        self._transport.abort()

    def _stop(self, *timers: asyncio.TimerHandle | None) -> None:
        for timer in timers:
            if timer is not None:
                timer.cancel()

    # -- reading -------------------------------------------------------------------------

    def asked(self, body: StreamReader) -> None:
        """A request's header is complete; its body may not be."""
        self._stop(self._header_timer, self._body_timer)
        self._body = body
        if not body.is_eof():
            self._watch_body()

    def _watch_body(self) -> None:
        self._body_timer = asyncio.get_running_loop().call_later(
            BODY_TIMEOUT_S, self._must_have_come, self._received_bytes
        )

    def _must_have_come(self, before_bytes: int) -> None:
        if self._body.is_eof():
            return
        came_bytes = self._received_bytes - before_bytes
        if self._transport.is_reading() and came_bytes < BODY_BYTES_PER_S * BODY_TIMEOUT_S:
            self._transport.abort()
        else:
            self._watch_body()

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
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
        self._stop(self._write_timer)
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


class _Site(web.BaseSite):
    def __init__(
        self,
        connections: HttpConnections,
        runner: web.AppRunner,
        where: Mapping[str, Any],
        protocol: str,
        tls: TlsOptions | None,
    ) -> None:
        super().__init__(runner, backlog=ACCEPTS_MAX)
        self._protocol = protocol
        self._tls = tls
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
        self._connections.attend(server)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: HttpConnection(self._connections, server(), self._protocol, self._tls),
            backlog=self._backlog,
            **self._where,
        )
