"""nsqlookupd's TCP protocol when something is slow: its peer, or the data loop."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from penstock.broker.lookup import Lookup
from penstock.protocols.nsq.http import lookup_tcp
from penstock.protocols.nsq.http import routes as nsq_http
from penstock.protocols.nsq.http.lookup_tcp import LookupServer

IDENTITY = {"broadcast_address": "h", "tcp_port": 1, "http_port": 2, "version": "1.3.0"}


class Slow:
    """A data loop that has not come to it yet."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def call(self, function: Callable[[], object]) -> Future[Any]:
        self.waiting.append(function)
        return Future()


class Greedy:
    """A peer that takes nothing."""

    def write(self, data: bytes) -> None:
        pass

    async def drain(self) -> None:
        await asyncio.Event().wait()


async def read_all(port: int, words: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(words)
    try:
        async with asyncio.timeout(5):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def talk(server: LookupServer, words: bytes) -> bytes:
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    async with listening:
        return await read_all(listening.sockets[0].getsockname()[1], words)


def test_who_identifies_too_slowly_leaves_no_ghost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsq_http, "PROMPT_S", 0.05)
    slow, lookup = Slow(), Lookup()
    body = json.dumps(IDENTITY).encode()
    words = b"  V1IDENTIFY\n" + len(body).to_bytes(4, "big") + body
    asyncio.run(talk(LookupServer(lookup, cast(Any, None), slow.call), words))
    for function in slow.waiting:
        function()
    assert lookup.nodes(1) == []


def test_a_peer_that_takes_no_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_tcp, "SEND_S", 0.05)

    async def send() -> None:
        async with asyncio.timeout(2):
            with pytest.raises(TimeoutError):
                await lookup_tcp._send(cast(Any, Greedy()), "OK")

    asyncio.run(send())


def test_refusals_of_an_address_are_lines_within_bounds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = LookupServer(Lookup(), cast(Any, None), Slow().call)

    async def knock() -> None:
        for number in range(lookup_tcp.LINES_MAX + 5):
            assert b"E_INVALID" in await talk(server, b"  V1CMD%d\n" % number)

    asyncio.run(knock())
    assert caplog.text.count("nsqlookupd: 127.0.0.1:") == lookup_tcp.LINES_MAX


def test_one_address_does_not_take_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_tcp, "ADDRESS_MAX", 2)
    server = LookupServer(Lookup(), cast(Any, None), Slow().call)

    async def crowd() -> list[bytes]:
        listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with listening:
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            await asyncio.sleep(0.05)
            full = await read_all(port, b"  V2")
            for _, writer in held:
                writer.close()
            await asyncio.sleep(0.05)
            return [full, await read_all(port, b"  V2")]

    assert asyncio.run(crowd()) == [b"", b"\0\0\0\x0eE_BAD_PROTOCOL"]


def test_connections_beyond_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = LookupServer(Lookup(), cast(Any, None), Slow().call)
    assert asyncio.run(talk(server, b"  V2")) == b"\0\0\0\x0eE_BAD_PROTOCOL"
    monkeypatch.setattr(lookup_tcp, "CONNECTIONS_MAX", 0)
    assert asyncio.run(talk(server, b"  V2")) == b""
