"""This node at nsqlookupds that misbehave, and addresses that change while they change."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self

import pytest

from penstock.server import lookup_peers
from penstock.server.lookup_peers import LookupPeers

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
