"""This node at nsqlookupds that misbehave, and addresses that change while they change."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self

import pytest

from penstock.protocols.nsq.http import lookup_peers
from penstock.protocols.nsq.http.lookup_peers import LookupPeers
from penstock.runtime.http_asking import is_host

DEEP = b"[" * 100_000


class Fake:
    """A nsqlookupd that gives each command the next of its answers, "OK" when there is none."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.ended = 0
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while await reader.read(65536):
            answer = self.answers.pop(0) if self.answers else b"{}"
            writer.write(len(answer).to_bytes(4, "big") + answer)
        self.ended += 1
        writer.close()


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - of others, who set no event
            await asyncio.sleep(0.01)


def test_one_that_answers_with_what_is_too_deep_is_tried_again() -> None:
    async def follow() -> None:
        async with Fake(DEEP) as fake:
            peers = LookupPeers(dict)
            await peers.follow([fake.address])
            await until(lambda: fake.connections == 2)
            await peers.close()

    asyncio.run(follow())


def test_closing_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: object) -> None:
        raise RuntimeError("whatever")

    async def follow() -> None:
        peers = LookupPeers(dict)
        await peers.follow(["127.0.0.1:1"])
        await asyncio.sleep(0.01)
        await peers.close()

    monkeypatch.setattr(lookup_peers.LookupPeer, "_run", fail)
    asyncio.run(follow())


def test_the_last_of_several_changes_holds() -> None:
    async def follow() -> None:
        async with Fake() as one, Fake() as two:
            peers = LookupPeers(lambda: json.loads("{}"))
            await peers.follow([one.address])
            await until(lambda: one.connections)
            changes = [[two.address], [], [one.address, two.address], [], [two.address]]
            await asyncio.gather(*(peers.follow(addresses) for addresses in changes))
            await until(lambda: two.connections > two.ended and one.connections == one.ended)
            await asyncio.sleep(0.1)
            assert (one.connections - one.ended, two.connections - two.ended) == (0, 1)
            assert peers.has_any
            await peers.close()

    asyncio.run(follow())


class Web:
    """An HTTP server that gives each request the same answer."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.heard: list[bytes] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.answer)
        writer.close()


def identity(host: str, port: object) -> bytes:
    return json.dumps({"broadcast_address": host, "http_port": port}).encode()


async def channels_by(web: Web, topic: str) -> list[str]:
    async with Fake(identity("127.0.0.1", web.port)) as fake:
        peers = LookupPeers(dict)
        await peers.follow([fake.address])
        await until(lambda: any(peer.http_address for peer in peers._peers.values()))
        found = await peers.channels(topic)
        await peers.close()
    return found


def head(status: str, length: int, more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{more}\r\n".encode()


def test_channels_are_asked_for_by_a_topic_in_the_query_and_uncompressed() -> None:
    async def follow() -> None:
        body = b'{"channels":["archive"]}'
        async with Web(head("200 OK", len(body)) + body) as web:
            assert await channels_by(web, "a&b=c") == ["archive"]
        assert web.heard[0].startswith(b"GET /channels?topic=a%26b%3Dc HTTP/1.1\r\n")
        assert b"Accept-Encoding: identity\r\n" in web.heard[0]

    asyncio.run(follow())


def test_a_redirect_is_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    async def follow() -> None:
        async with Web(b"") as inside:
            there = f"Location: http://127.0.0.1:{inside.port}/\r\n"
            async with Web(head("302 Found", 0, there)) as web:
                assert await channels_by(web, "t") == []
        assert inside.heard == []

    asyncio.run(follow())
    assert "it answers 302" in caplog.text


@pytest.mark.parametrize("more", ["", "Content-Encoding: gzip\r\n"])
def test_a_long_answer_is_not_read_to_its_end(caplog: pytest.LogCaptureFixture, more: str) -> None:
    async def follow() -> None:
        length = lookup_peers.ANSWER_MAX_BYTES + 1
        async with Web(head("200 OK", length, more) + b" " * length) as web:
            assert await channels_by(web, "t") == []

    asyncio.run(follow())
    assert "its answer has more than 1048576 bytes" in caplog.text


@pytest.mark.parametrize(
    "host, port",
    [("user@10.9.9.2", 80), ("10.9.9.2/x?", 80), ("a b", 80), ("h", 65536), ("::1%x/", 1)],
)
def test_a_nsqlookupd_at_what_is_no_host_is_registered_at_and_not_asked(
    caplog: pytest.LogCaptureFixture, host: str, port: int
) -> None:
    async def follow() -> None:
        async with Fake(identity(host, port)) as fake:
            peers = LookupPeers(dict)
            await peers.follow([fake.address])
            await until(lambda: caplog.text)
            assert not any(peer.http_address for peer in peers._peers.values())
            assert fake.connections == 1
            await peers.close()

    asyncio.run(follow())
    assert "it says that it is at" in caplog.text


@pytest.mark.parametrize(
    "text", ["localhost", "nsq_1.example.org", "10.0.0.1", "::1", "fe80::1%eth0", "example.org."]
)
def test_names_and_addresses_are_hosts(text: str) -> None:
    assert is_host(text)


@pytest.mark.parametrize(
    "text", ["", "a/b", "a@b", "a:b", "-a", "a..b", "a?", "[::1]", "fe80::1%a/b", "a" * 64, "ä"]
)
def test_other_texts_are_no_hosts(text: str) -> None:
    assert not is_host(text)
