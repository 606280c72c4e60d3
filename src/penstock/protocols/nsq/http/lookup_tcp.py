"""nsqlookupd's TCP protocol: nodes register themselves, their topics and channels.

    "  V1", then lines: IDENTIFY (and a size, and JSON), REGISTER, UNREGISTER, PING

Every answer is a size and a text.  All errors end the connection, and with it the node is
forgotten.  Lines, bodies, connections and patience are bounded here, which nsqlookupd leaves to its
peers.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from penstock.broker.lookup import Lookup, LookupNode
from penstock.broker.topology.topics import is_name
from penstock.clocks import wall_ms
from penstock.core.errors import BrokerError
from penstock.core.events.line_limit import LineLimit
from penstock.core.json_reading import json_of
from penstock.gate import Gate
from penstock.protocols.nsq.http.answers import VERSION, go_json
from penstock.protocols.nsq.http.config import NsqConfig
from penstock.protocols.nsq.http.routes import on_loop
from penstock.settings.entry import network_of
from penstock.settings.listener_table import LOOKUP, LOOKUP_TLS
from penstock.tls.options import TlsOptions

V = TypeVar("V", str, int)

MAGIC: Final = b"  V1"
LINE_MAX_BYTES: Final = 16 * 1024
BODY_MAX_BYTES: Final = 64 * 1024
FIRST_WORD_S: Final = 30.0
SEND_S: Final = 5.0
"""So long a peer may not take its answers."""
CONNECTIONS_MAX: Final = 1024
ADDRESS_MAX: Final = CONNECTIONS_MAX // 4
"""Of these from one address, or one network of 64 bits of IPv6: others register, too."""
LINES_MAX: Final = 20
"""Refusals of one address in a minute that are lines of the log."""
SILENCE_S: Final = 600.0
"""A connection that says nothing for so long is closed; nodes ping each 15 s."""

log = logging.getLogger("penstock.nsqlookupd")


class Fatal(Exception):
    """Told to the peer; the connection ends."""


class LookupServer:
    """Serves ``handle`` to each connection; nodes that register are told the two ports."""

    def __init__(
        self,
        lookup: Lookup,
        config: NsqConfig,
        call_on_loop: Callable[..., Future[Any]],
        tcp_port: int = 0,
        http_port: int = 0,
        tls: TlsOptions | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._gate = gate
        self._tls = tls
        self._tcp_port = tcp_port
        self._http_port = http_port
        self._server: asyncio.Server | None = None
        self._lookup = lookup
        self._config = config
        self._call = call_on_loop
        self._peers: dict[asyncio.StreamWriter, str] = {}  # and where each comes from
        self._lines = LineLimit(LINES_MAX)

    async def listen(self, sock: socket.socket) -> None:
        self._server = await asyncio.start_server(self.handle, sock=sock, limit=LINE_MAX_BYTES)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("peername")
        protocol = LOOKUP if self._tls is None else LOOKUP_TLS
        gate = self._gate
        place = network_of(name[0])
        of_address = sum(one == place for one in self._peers.values())
        is_full = len(self._peers) >= CONNECTIONS_MAX or of_address >= ADDRESS_MAX
        if is_full or (gate and gate.admit(protocol, name[0])):
            writer.close()
            return
        self._peers[writer] = place
        try:
            if self._tls is None or await self._is_secured(writer, self._tls):
                await self._serve(_Peer(name), reader, writer)
        except asyncio.CancelledError:
            return  # the node stops, and its registry with it
        finally:
            if gate is not None:
                gate.left(name[0])

    async def _is_secured(self, writer: asyncio.StreamWriter, tls: TlsOptions) -> bool:
        """After the handshake; False: it failed, and the connection is closed."""
        try:
            await writer.start_tls(tls.context, ssl_handshake_timeout=FIRST_WORD_S)
            tls.login(writer.get_extra_info("ssl_object"))
        except (OSError, ValueError) as error:
            tls.failed(writer.get_extra_info("peername")[0], error)
            self._peers.pop(writer, None)
            writer.close()
            return False
        return True

    async def _serve(
        self, peer: "_Peer", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await self._talk(peer, reader, writer)
        except Fatal as error:
            if self._lines.allows(peer.host, time.monotonic()):
                log.info("nsqlookupd: %s: %s", peer.address, error)
            with suppress(OSError, TimeoutError):
                await _send(writer, str(error))
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            log.debug("nsqlookupd: %s is gone: %s", peer.address, error)
        finally:
            self._peers.pop(writer, None)
            if peer.node is not None:
                with suppress(TimeoutError):
                    await on_loop(self._call, partial(self._lookup.forget, peer.node))
            writer.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._peers):
            writer.close()

    async def _talk(
        self, peer: "_Peer", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(FIRST_WORD_S):
            magic = await reader.readexactly(len(MAGIC))
        if magic != MAGIC:
            raise Fatal("E_BAD_PROTOCOL")
        while True:
            async with asyncio.timeout(SILENCE_S):
                line = await reader.readline()
            if not line.endswith(b"\n"):
                return
            words = line.decode("utf-8", "replace").strip().split(" ")
            await _send(writer, await self._answer(peer, words, reader))

    async def _answer(self, peer: "_Peer", words: list[str], reader: asyncio.StreamReader) -> str:
        verb = words[0]
        if verb == "PING":
            if peer.node is not None:
                await on_loop(self._call, partial(peer.node.heard, wall_ms()))
            return "OK"
        if verb == "IDENTIFY":
            return await self._identify(peer, reader)
        if verb in ("REGISTER", "UNREGISTER"):
            if peer.node is None:
                raise Fatal("E_INVALID client must IDENTIFY")
            topic, channel = _names(verb, words[1:])
            act = self._lookup.register if verb == "REGISTER" else self._lookup.unregister
            try:
                await on_loop(self._call, partial(act, peer.node, topic, channel))
            except BrokerError as error:
                raise Fatal(f"E_INVALID {verb} {error}") from error
            return "OK"
        raise Fatal(f"E_INVALID invalid command {verb}")

    async def _identify(self, peer: "_Peer", reader: asyncio.StreamReader) -> str:
        if peer.node is not None:
            raise Fatal("E_INVALID cannot IDENTIFY again")
        # The connection has its node before the registry does: if it ends, the node is forgotten.
        node = peer.identify(await _body(reader))
        await on_loop(self._call, partial(self._lookup.identify, node, wall_ms()))
        return go_json(
            {
                "broadcast_address": self._config.broadcast_address,
                "hostname": self._config.hostname,
                "http_port": self._http_port,
                "tcp_port": self._tcp_port,
                "version": VERSION,
            }
        )


class _Peer:
    """One connection, and who it said to be."""

    def __init__(self, name: Any) -> None:
        host, port = name[0], name[1]
        self.host: str = host
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.node: LookupNode | None = None

    def identify(self, body: bytes) -> LookupNode:
        """Raises Fatal."""
        self.node = _node(self.address, body)
        return self.node


async def _body(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(FIRST_WORD_S):
            size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
            if not 0 <= size <= BODY_MAX_BYTES:
                raise Fatal("E_BAD_BODY IDENTIFY failed to read body")
            return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        what = "body" if error.expected != 4 else "body size"
        raise Fatal(f"E_BAD_BODY IDENTIFY failed to read {what}") from error


def _node(address: str, body: bytes) -> LookupNode:
    """Raises Fatal; names are read whatever their case, as Go does."""
    try:
        found = json_of(body)
    except ValueError:
        found = ""
    if found is None:
        found = {}  # as Go reads null
    if not isinstance(found, dict):
        raise Fatal("E_BAD_BODY IDENTIFY failed to decode JSON body")
    fields = {key.lower(): value for key, value in found.items() if value is not None}
    node = LookupNode(
        address,
        hostname=_field(fields, "hostname", ""),
        broadcast_address=_field(fields, "broadcast_address", ""),
        tcp_port=_field(fields, "tcp_port", 0),
        http_port=_field(fields, "http_port", 0),
        version=_field(fields, "version", ""),
    )
    if not (node.broadcast_address and node.tcp_port and node.http_port and node.version):
        raise Fatal("E_BAD_BODY IDENTIFY missing fields")
    return node


def _field(fields: dict[str, object], name: str, default: V) -> V:
    value = fields.get(name, default)
    if type(value) is not type(default):
        raise Fatal("E_BAD_BODY IDENTIFY failed to decode JSON body")
    return value


def _names(verb: str, words: list[str]) -> tuple[str, str]:
    if not words:
        raise Fatal(f"E_INVALID {verb} insufficient number of params")
    topic, channel = words[0], words[1] if len(words) > 1 else ""
    if not is_name(topic):
        raise Fatal(f"E_BAD_TOPIC {verb} topic name '{topic}' is not valid")
    if channel != "" and not is_name(channel):
        raise Fatal(f"E_BAD_CHANNEL {verb} channel name '{channel}' is not valid")
    return topic, channel


async def _send(writer: asyncio.StreamWriter, text: str) -> None:
    data = text.encode("utf-8", "replace")
    writer.write(len(data).to_bytes(4, "big") + data)
    async with asyncio.timeout(SEND_S):
        await writer.drain()
