"""So many connections at a time, and no more."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from penstock.server import nsq_site
from penstock.server.listener import tcp_socket
from penstock.server.nsq_answers import application
from penstock.server.nsq_site import BoundedSite

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def answered(port: int) -> tuple[bytes, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    try:
        async with asyncio.timeout(5):
            return await reader.read(12), writer
    except ConnectionResetError:
        return b"", writer


def test_connections_beyond_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsq_site, "CONNECTIONS_MAX", 2)

    async def fill() -> None:
        runner = web.AppRunner(application({}), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        sock = tcp_socket("127.0.0.1", 0)
        await BoundedSite(runner, sock).start()
        port = runner.addresses[0][1]
        kept = [await answered(port) for _ in range(2)]
        assert [text for text, _ in kept] == [b"HTTP/1.1 404"] * 2
        text, writer = await answered(port)
        assert text == b""
        writer.close()
        kept[0][1].close()
        for _ in range(100):
            text, writer = await answered(port)
            writer.close()
            if text:
                break
            await asyncio.sleep(0.02)
        assert text == b"HTTP/1.1 404"
        kept[1][1].close()
        await runner.cleanup()

    asyncio.run(fill())
