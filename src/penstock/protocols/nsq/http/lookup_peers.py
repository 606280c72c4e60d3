"""This node as a client of other nsqlookupds: it registers there, and asks about new topics.

In: addresses (which may change at any time) and what the node has, topics and their channels.  Out:
connections that say so, with a PING each 15 s; and the channels others know of a topic.

One task per nsqlookupd keeps its connection: it connects, identifies the node, then sends the
difference between what it has said and what holds.  What cannot be reached is tried again, a
second later and then more and more rarely, and says so in the log once.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from ssl import SSLContext, create_default_context
from typing import Any, Final

import aiohttp

from penstock.broker.topology.topics import is_ephemeral, is_name
from penstock.core.json_reading import json_of
from penstock.protocols.nsq.http.config import TLS
from penstock.runtime.http_asking import ASKING, PLAIN, is_host, read_answer

PING_S: Final = 15.0
PATIENCE_S: Final = 1.0
"""For connecting, and for each answer, as nsqd's."""
LOOK_S: Final = 1.0
"""How often it is seen whether the connection still is."""
RETRY_MAX_S: Final = 15.0
ANSWER_MAX_BYTES: Final = 1024 * 1024
"""The interpreter belongs to its reader for so long."""
OK: Final = 200
PORTS_END: Final = 65_536

Topics = dict[str, list[str]]
Pairs = set[tuple[str, str]]

log = logging.getLogger("penstock.nsqlookupd")


class PeerFailed(Exception):
    """It does not do what a nsqlookupd does."""


class LookupPeer:
    """One nsqlookupd, and the task that talks to it."""

    def __init__(
        self, address: str, identity: dict[str, object], secured: Callable[[], SSLContext]
    ) -> None:
        self.address = address
        self.secured = secured
        self.http_address = ""  # "" = not connected, or it has not said
        self._identity = identity
        self._wanted: Pairs = set()
        self._said: Pairs = set()
        self._changed = asyncio.Event()
        self._failures = 0
        self._task = asyncio.create_task(self._run())

    def want(self, pairs: Pairs) -> None:
        self._wanted = pairs
        self._changed.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            try:
                await self._stay_connected()
            except Exception as error:  # noqa: BLE001 - whatever it sent, it is tried again
                if self._failures == 0:
                    log.warning(
                        "nsqlookupd %s: %s; trying again", self.address, str(error) or "no answer"
                    )
                self._failures += 1
            await asyncio.sleep(min(RETRY_MAX_S, float(self._failures)))

    async def _stay_connected(self) -> None:
        host, _, port = self.address.removeprefix(TLS).rpartition(":")
        tls = self.secured() if self.address.startswith(TLS) else None
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=tls)
        try:
            writer.write(b"  V1")
            body = json.dumps(self._identity).encode()
            command = b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body
            self._learn(await _command(reader, writer, command))
            if self._failures:
                log.warning("nsqlookupd %s is back", self.address)
            self._failures = 0
            self._said = set()
            while True:
                self._changed.clear()
                await self._say(reader, writer)
                if not await self._is_asked(reader):
                    await _command(reader, writer, b"PING\n")
        finally:
            self.http_address = ""
            writer.close()

    async def _is_asked(self, reader: asyncio.StreamReader) -> bool:
        """Something is to be said; False: nothing was for as long as it takes to a PING."""
        until_s = time.monotonic() + PING_S
        while time.monotonic() < until_s:
            if reader.at_eof():
                raise PeerFailed("it has closed the connection")
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
                    return True
        return False

    def _learn(self, answer: bytes) -> None:
        info = json_of(answer)
        if not isinstance(info, dict):
            raise PeerFailed(f"it answered IDENTIFY with {answer[:100]!r}")
        host, port = info.get("broadcast_address"), info.get("http_port")
        if not host or not port:
            return  # it has no HTTP
        if not (isinstance(host, str) and isinstance(port, int)):
            raise PeerFailed(f"it answered IDENTIFY with {answer[:100]!r}")
        if not is_host(host) or not 0 < port < PORTS_END:
            log.warning(
                "nsqlookupd %s is not asked for channels: it says that it is at %r, port %d",
                *(self.address, host[:100], port),
            )
            return
        self.http_address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _say(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wanted = self._wanted
        # Channels go before their topics, topics come before their channels.
        for pair in sorted(self._said - wanted, key=lambda one: (one[0], one[1] == "")):
            await _command(reader, writer, b"UNREGISTER " + _words(pair))
            self._said.discard(pair)
        for pair in sorted(wanted - self._said):
            await _command(reader, writer, b"REGISTER " + _words(pair))
            self._said.add(pair)


def _words(pair: tuple[str, str]) -> bytes:
    return " ".join(word for word in pair if word).encode() + b"\n"


async def _command(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, command: bytes
) -> bytes:
    writer.write(command)
    async with asyncio.timeout(PATIENCE_S):
        await writer.drain()
        size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
        if not 0 <= size <= ANSWER_MAX_BYTES:
            raise PeerFailed(f"its answer has {size} bytes")
        answer = await reader.readexactly(size)
    if answer.startswith(b"E_"):
        raise PeerFailed(answer.decode("utf-8", "replace"))
    return answer


class LookupPeers:
    """All of them; every method is called on the loop of the services, but ``has_any``."""

    def __init__(
        self,
        identity: Callable[[], dict[str, object]],
        secured: Callable[[], SSLContext] = create_default_context,
    ) -> None:
        """``secured``: for those that are spoken to by TLS."""
        self._secured = secured
        self.has_any = False  # may be read from any thread
        self._identity = identity
        self._peers: dict[str, LookupPeer] = {}
        self._pairs: Pairs = set()
        self._following = asyncio.Lock()  # one change after the other

    async def follow(self, addresses: list[str]) -> None:
        """These, and no others."""
        async with self._following:
            for address in [one for one in self._peers if one not in addresses]:
                await self._peers.pop(address).close()
            for address in addresses:
                if address not in self._peers:
                    peer = LookupPeer(address, self._identity(), self._secured)
                    peer.want(self._pairs)
                    self._peers[address] = peer
            self.has_any = len(self._peers) > 0

    def tell(self, topics: Topics) -> None:
        """What the node has."""
        self._pairs = {(topic, "") for topic in topics}
        for topic, channels in topics.items():
            self._pairs.update((topic, channel) for channel in channels)
        for peer in self._peers.values():
            peer.want(self._pairs)

    async def channels(self, topic: str) -> list[str]:
        """What they know of a topic, without what is ephemeral; who is slow is not waited for."""
        asked = [peer for peer in self._peers.values() if peer.http_address]
        found: set[str] = set()

        async def ask(session: aiohttp.ClientSession, peer: LookupPeer) -> None:
            address, by_tls = peer.http_address, peer.address.startswith(TLS)
            url = f"http{'s' if by_tls else ''}://{address}/channels"  # see ``_learn``
            tls = peer.secured() if by_tls else True
            try:
                async with session.get(url, params={"topic": topic}, ssl=tls, **ASKING) as response:
                    if response.status != OK:
                        raise PeerFailed(f"it answers {response.status}")
                    answer = await read_answer(response, ANSWER_MAX_BYTES)
                    found.update(_names_in(json_of(answer)))
            except Exception as error:  # noqa: BLE001 - whatever it sent, others may know
                log.warning("nsqlookupd %s does not say channels of %s: %s", address, topic, error)

        if asked:
            timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
            async with aiohttp.ClientSession(timeout=timeout, **PLAIN) as session:
                await asyncio.gather(*(ask(session, peer) for peer in asked))
        return sorted(found)

    async def close(self) -> None:
        await self.follow([])


def _names_in(answer: Any) -> list[str]:
    if isinstance(answer, dict) and isinstance(answer.get("data"), dict):
        answer = answer["data"]  # of releases before 1.0
    channels = answer.get("channels") if isinstance(answer, dict) else None
    if not isinstance(channels, list):
        raise PeerFailed("its answer has no channels")
    return [
        one for one in channels if isinstance(one, str) and is_name(one) and not is_ephemeral(one)
    ]
