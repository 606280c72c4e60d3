"""NSQ's services beside the data loop: the HTTP API, nsqlookupd, registration at others.

    nsq_http_port          nsqd's API (``nsq.http.routes``)
    nsqlookupd_tcp_port    nodes that register (``lookup_tcp``)
    nsqlookupd_http_port   who looks up (``lookup_http``)
    nsqlookupd_tcp_addresses   where we register (``lookup_peers``)

All on one thread with an event loop of its own.  Whatever they need of the broker is a short
function handed to the data loop.

``Follower`` lives on the data loop: when topics or channels came or went it puts what the node has
into the registry, some topics a turn, and tells the peers.  Of a new topic it says whether others
are to be asked which channels it has; it holds its messages until they have answered.  A bounded
number of channels is made of what others say, and one that cannot be made does not keep the rest
from coming.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

from aiohttp import web

from penstock.broker.lookup import Lookup, LookupNode
from penstock.broker.topology.topics import Topic, Topics, is_ephemeral
from penstock.clocks import wall_ms
from penstock.core.errors import BrokerError, SettingInvalid
from penstock.core.pending import Pending
from penstock.gate import Gate
from penstock.management.facts.on_loop import AGAIN_S
from penstock.management.facts.sessions import ListenerFacts
from penstock.management.http.browsers import names_in
from penstock.management.http.http_connections import KEEPALIVE_TIMEOUT_S, HttpConnections
from penstock.protocols.nsq.http.admin import NsqAdmin
from penstock.protocols.nsq.http.answers import VERSION, application, server_log
from penstock.protocols.nsq.http.config import NsqConfig, is_address, is_lookup_address
from penstock.protocols.nsq.http.lookup_http import LookupApi
from penstock.protocols.nsq.http.lookup_peers import LookupPeers
from penstock.protocols.nsq.http.lookup_tcp import LookupServer
from penstock.protocols.nsq.http.routes import NsqdApi, on_loop
from penstock.protocols.nsq.http.stats import Row, StatsView, collect
from penstock.protocols.nsq.http.statsd import Statsd
from penstock.protocols.nsq.shared import NsqShared
from penstock.runtime.listener import socket_mode, tcp_socket, unix_socket
from penstock.runtime.loop import Loop
from penstock.settings.listener_table import NSQ, ListenerKind, listener_at, listener_of
from penstock.settings.settings import Settings
from penstock.side_loop import SideLoop
from penstock.tls.options import TlsSet, calling_context

NSQ_SITES: Final = ("nsq_https_port", "nsq_http_port", "nsq_http_unix_socket")
"""The first is named to clients of the others that must use TLS."""
LOOKUP_PAIRS: Final = (
    ("nsqlookupd_http_port", "nsqlookupd_tcp_port"),
    ("nsqlookupd_https_port", "nsqlookupd_tls_port"),
)
"""A TCP port of the registry answers a node that registers with the number of its HTTP port."""
HEALTH_CHECKS: Final = ("/ping",)
"""What is answered when all connections have requests."""
SWITCH_INTERVAL_S: Final = 0.0005
"""See ``management/app.py``: the data loop shall not wait long for the interpreter."""
LOOK_S: Final = 1.0
"""How often it is seen whether the virtual host has been made anew."""
KEYS_PER_S: Final = 20_000
"""So many topics and channels are looked at in one second at most, when many come at once."""
KEYS_AT_ONCE: Final = 1_000
"""So many are looked at in one turn; the channels of one topic all together."""
CHANNELS_MAX: Final = 100
"""So many a new topic gets of what nsqlookupds know: any client can register there."""

log = logging.getLogger("penstock.nsq")


class Follower:
    """The node's own topics, in the registry and at the peers; on the data loop."""

    def __init__(
        self,
        loop: Loop,
        admin: NsqAdmin,
        lookup: Lookup,
        here: LookupNode,
        peers: LookupPeers,
        side: SideLoop,
    ) -> None:
        """``side``: of the services."""
        self._side = side
        self._loop = loop
        self._admin = admin
        self._lookup = lookup
        self._here = here
        self._peers = peers
        self._topics: Topics | None = None
        self._looking = False  # or about to
        self._stale = False  # something changed since the look began
        self._key_count = 0  # topics and channels at the last look
        self._closed = False
        self._asking: set[asyncio.Task[None]] = set()
        self._pending: dict[str, Pending] = {}  # by topics that are being prepared

    def attach(self) -> None:
        """Follow the topics of the virtual host that is there now."""
        vhost = self._admin.find_vhost()
        topics = None if vhost is None else vhost.topics
        if topics is self._topics or self._closed:
            return
        self.detach()
        self._topics = topics
        if topics is not None:
            topics.report_to(self._changed, self._is_new)
        self._changed()

    def detach(self) -> None:
        if self._topics is not None:
            self._topics.report_to(None, None)

    def close(self) -> None:
        self._closed = True
        self.detach()

    def _changed(self) -> None:
        self._stale = True
        if self._looking:
            return
        self._looking = True
        self._later(self._key_count / KEYS_PER_S, self._look)

    def _later(self, delay_s: float, do: Callable[[], None]) -> None:
        """On the data loop, unless the services have stopped by then."""
        self._side.call_later(delay_s, partial(self._loop.call, do))

    def _own_topics(self) -> dict[str, Topic]:
        return {} if self._topics is None else self._topics.topics

    def _look(self) -> None:
        self._stale = False
        self._look_on(list({**self._own_topics(), **dict.fromkeys(self._here.topics)}), {})

    def _look_on(self, names: list[str], wanted: dict[str, list[str]]) -> None:
        """At topics from the end of ``names``; ``wanted``: what was found at the others."""
        topics = self._own_topics()
        left = KEYS_AT_ONCE
        while names and left > 0:
            name = names.pop()
            topic = topics.get(name)
            channels = None if topic is None else list(topic.channels)
            self._lookup.keep(self._here, name, channels)
            if channels is not None:
                wanted[name] = channels
            left -= 1 + len(channels or ())
        if names:
            self._loop.call(partial(self._look_on, names, wanted))
            return
        self._key_count = len(wanted) + sum(map(len, wanted.values()))
        self._side.call(self._peers.tell, wanted)
        self._looking = False
        if self._stale:
            self._changed()

    def _is_new(self, name: str) -> bool:
        """A topic was made: will ``prepared`` be called for it?"""
        kept = (one for one in self._lookup.channels(name) if not is_ephemeral(one))
        known = list(islice(kept, CHANNELS_MAX + 1))
        if self._peers.has_any:
            return self._side.call(self._ask, name, known)
        if known:
            self._loop.call(partial(self._prepared, name, known))
        return len(known) > 0

    def _ask(self, name: str, known: list[str]) -> None:
        async def ask() -> None:
            channels = set(known)
            try:
                channels.update(await self._peers.channels(name))
            except Exception:
                log.exception("asking for the channels of %s failed", name)
            self._loop.call(partial(self._prepared, name, sorted(channels)))

        task = asyncio.get_running_loop().create_task(ask())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def _make(self, topics: Topics, topic: Topic, channel: str) -> object:
        """Pending until a cluster has agreed on it."""
        pending = self._pending.pop(topic.name, None)
        try:
            if pending is not None:
                return pending.resume()
            return topics.new_ask().run(partial(topics.channel, topic, channel))
        except BrokerError as error:
            log.warning("topic %s lacks a channel that others have: %s", topic.name, error)
            return None

    def _prepared(self, name: str, channels: list[str]) -> None:
        topics = self._topics
        topic = None if topics is None else topics.topics.get(name)
        if topics is None or topic is None or not topic.preparing:
            return
        if len(channels) > CHANNELS_MAX:
            text = "topic %s gets %d of the channels that others have, there are more"
            log.warning(text, name, CHANNELS_MAX)
        for place, channel in enumerate(channels[:CHANNELS_MAX]):
            outcome = self._make(topics, topic, channel)
            if isinstance(outcome, Pending):
                self._pending[name] = outcome
                left = channels[place:CHANNELS_MAX]
                self._later(AGAIN_S, partial(self._prepared, name, left))
                return
        topics.prepared(name)


def check_addresses(settings: Settings) -> None:
    """Raises SettingInvalid."""
    for address in settings.nsqlookupd_tcp_addresses:
        if not is_lookup_address(address):
            raise SettingInvalid(
                f"nsqlookupd_tcp_addresses has {address!r}; allowed: host:port, such as"
                " 127.0.0.1:4160, or tls://host:port"
            )
    if settings.nsq_statsd_address and not is_address(settings.nsq_statsd_address):
        raise SettingInvalid(
            f"nsq_statsd_address = {settings.nsq_statsd_address!r}; allowed: host:port"
        )
    tcp_port = settings.nsq_broadcast_port_tcp or settings.nsq_port
    http_port = settings.nsq_broadcast_port_http or settings.nsq_http_port
    if settings.nsqlookupd_tcp_addresses and not (tcp_port and http_port):
        raise SettingInvalid(
            "nsqlookupd_tcp_addresses is set, but a node without nsq_port or nsq_http_port cannot"
            " register there, unless nsq_broadcast_port_tcp and nsq_broadcast_port_http are set"
        )


class NsqServices:
    """Runs from ``start`` to ``stop``."""

    def __init__(
        self, settings: Settings, loop: Loop, nsq: NsqShared, tls: TlsSet, gate: Gate
    ) -> None:
        check_addresses(settings)
        self._gate = gate
        self._settings = settings
        self._loop = loop
        self._nsq = nsq
        self._admin = NsqAdmin(nsq, loop.turn)
        targets = settings.nsq_e2e_processing_latency_percentiles
        self._stats = StatsView(loop, self._admin, nsq, targets)
        self.config = NsqConfig(settings, self._stats.started_s, self._follow)
        self.lookup = Lookup(
            silent_after_ms=settings.nsqlookupd_inactive_producer_timeout_ms,
            tombstone_ms=settings.nsqlookupd_tombstone_lifetime_ms,
        )
        self._peers = LookupPeers(self._identity, lambda: calling_context(settings))
        self._follower: Follower | None = None  # of a node that is registered
        self._api = NsqdApi(self._admin, self._stats, self.config, settings, loop.call)
        self.connections: dict[str, HttpConnections] = {}  # by protocol, as in ``listeners``
        self._tls = tls
        self._needs_tls = settings.nsq_tls_required == "yes"
        self._listening: list[ListenerFacts] = []
        self._socket_files: list[str] = []
        self._side = SideLoop("nsq", self._serve)
        self._following: asyncio.Task[None] | None = None

    # -- life ----------------------------------------------------------------------------

    def start(self) -> None:
        """Listen; raises the OSError that prevented it.  The data loop need not turn yet."""
        if not self._is_wanted():
            return
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._side.start()

    def _is_wanted(self) -> bool:
        settings = self._settings
        kinds = map(listener_at, (*NSQ_SITES, *LOOKUP_PAIRS[0], *LOOKUP_PAIRS[1]))
        return any(kind.is_open(settings) for kind in kinds) or bool(settings.nsq_statsd_address)

    def listeners(self) -> list[ListenerFacts]:
        return self._listening

    def announce(self, wanted: bool) -> None:
        """Be registered at the nsqlookupds, or at none while draining; from any thread."""
        self._side.run(self._peers.follow(self.config.lookup_addresses if wanted else []))

    def stop(self) -> None:
        """Stop listening and wait for the thread; may be called twice."""
        if self._nsq.authority is not None:
            self._nsq.authority.close()
        if self._follower is not None:
            self._follower.close()
        self._side.stop()

    async def _serve(self) -> None:
        runners: list[web.AppRunner] = []
        registrars: list[LookupServer] = []
        pushing: asyncio.Task[None] | None = None
        try:
            registrars = await self._listen(runners)
            self._follow_topics()
            await self._peers.follow(self.config.lookup_addresses)
            if self._settings.nsq_statsd_address:
                config = self.config
                place = config.broadcast_address, config.http_port
                statsd = Statsd(self._settings, *place, self._statistics)
                pushing = asyncio.create_task(statsd.run())
            self._side.ready()
            while not await self._side.pause(LOOK_S):
                if self._follower is not None:
                    self._loop.call(self._follower.attach)
        finally:
            if pushing is not None:
                pushing.cancel()
            await self._peers.close()
            for registrar in registrars:
                registrar.close()
            for runner in runners:
                await runner.cleanup()
            for path in self._socket_files:
                with suppress(OSError):
                    os.unlink(path)

    async def _statistics(self, memory: bool) -> Row:
        do = partial(on_loop, self._loop.call)
        return await collect(do, self._stats, "", "", clients=False, memory=memory)

    async def _listen(self, runners: list[web.AppRunner]) -> list[LookupServer]:
        settings = self._settings
        names = names_in(settings.http_host_names)
        nsqd, nsqlookupd = self._api.table(), LookupApi(self.lookup, self._loop.call).table()
        https_port = 0
        for kind in map(listener_at, NSQ_SITES):
            if kind.is_open(settings):
                is_closed = self._needs_tls and kind.tls is None
                login_of = self._connections_of(kind).login_of
                served = application(nsqd, names, https_port if is_closed else None, login_of)
                port = await self._open(runners, kind, served)
                https_port = https_port if kind.tls is None else port
        registrars = []
        for keys in LOOKUP_PAIRS:
            site, place = map(listener_at, keys)
            http_port = 0
            if site.is_open(settings):
                http_port = await self._open(runners, site, application(nsqlookupd, names))
            if place.is_open(settings):
                registrars.append(await self._open_registrar(place, http_port))
        return registrars

    def _connections_of(self, kind: ListenerKind) -> HttpConnections:
        return self.connections.setdefault(
            kind.protocol, HttpConnections(HEALTH_CHECKS, self._gate)
        )

    async def _open_registrar(self, kind: ListenerKind, http_port: int) -> LookupServer:
        host = kind.address(self._settings)
        sock = tcp_socket(host, kind.port(self._settings))
        port = sock.getsockname()[1]
        tls = self._tls.of(kind)
        served = LookupServer(
            self.lookup, self.config, self._loop.call, port, http_port, tls, self._gate
        )
        await served.listen(sock)
        self._listening.append(ListenerFacts(kind.protocol, host, port, tls))
        return served

    async def _open(
        self, runners: list[web.AppRunner], kind: ListenerKind, served: web.Application
    ) -> int:
        runner = web.AppRunner(
            served,
            access_log=None,
            logger=server_log,
            handle_signals=False,
            shutdown_timeout=1.0,
            keepalive_timeout=KEEPALIVE_TIMEOUT_S,
            auto_decompress=False,  # nsqd takes a body as it comes
        )
        runners.append(runner)
        await runner.setup()
        if kind.is_unix:
            host, port = kind.place(self._settings), 0
            sock = unix_socket(host, socket_mode(self._settings))
            self._socket_files.append(host)
        else:
            host = kind.address(self._settings)
            sock = tcp_socket(host, kind.port(self._settings))
            port = int(sock.getsockname()[1])
        tls = self._tls.of(kind)
        site = self._connections_of(kind).site(runner, {"sock": sock}, kind.protocol, tls)
        await site.start()
        self._listening.append(ListenerFacts(kind.protocol, host, port, tls))
        return port

    def _follow_topics(self) -> None:
        """Once the ports are known; without them no client can connect, and it has nothing to
        announce.
        """
        config = self.config
        if config.tcp_port <= 0 or config.http_port <= 0:
            return
        here = LookupNode(
            f"{listener_of(NSQ).address(self._settings)}:{config.tcp_port}",
            True,
            config.hostname,
            config.broadcast_address,
            config.tcp_port,
            config.http_port,
            VERSION,
        )
        follower = Follower(self._loop, self._admin, self.lookup, here, self._peers, self._side)

        def begin() -> None:
            self.lookup.identify(here, wall_ms())
            follower.attach()

        self._follower = follower
        self._loop.call(begin)

    # -- nsqlookupds of others ---------------------------------------------------------------

    def _identity(self) -> dict[str, object]:
        config = self.config
        return {
            "version": VERSION,
            "tcp_port": config.tcp_port,
            "http_port": config.http_port,
            "hostname": config.hostname,
            "broadcast_address": config.broadcast_address,
        }

    def _follow(self, addresses: list[str]) -> None:
        """Changed by a request, on the loop of the services."""
        self._following = asyncio.get_running_loop().create_task(self._peers.follow(addresses))
