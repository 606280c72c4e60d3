"""A store that is served: the process that holds it goes and comes back, and hears nonsense."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from penstock.cluster.agreement.coordinator import ACCEPTED, FAILED, UNCERTAIN, Change
from penstock.cluster.agreement.store_client import ServedCoordinator, StoreLine, StoreUnavailable
from penstock.cluster.agreement.store_service import LINE_MAX_BYTES, StoreService, to_line
from penstock.core.errors import Corrupt
from penstock.node.coordination.etcd_lease import boot_ms
from penstock.node.coordination.local_coordinator import local_coordinator
from penstock.node.coordination.server import CoordinationServer
from penstock.storage.definitions.coordination import CoordinationStore
from tests.cluster.coordinator_worlds import Copy, ServedWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ServedWorld]:
    made = ServedWorld(tmp_path)
    yield made
    made.close()


class Line(StoreLine):
    """Of a member that is told by the test what happens to it."""

    def __init__(self) -> None:
        self.sent = bytearray()

    def news(self) -> list[bytes | str | None]:
        return []

    def write(self, data: bytes) -> None:
        self.sent += data


def put(key: str, value: str = "1", *, leased: bool = False) -> Change:
    return Change(key, value, leased=leased)


def test_the_holder_goes_and_comes_back(world: ServedWorld) -> None:
    one = world.join("a/1")
    copy = Copy(one)
    world.done(one, [], [put("mine", leased=True)])
    world.server.stop()
    world.wait(lambda: one.why_not() != "")
    assert "the process that holds the coordinator's store cannot be reached" in one.why_not()
    assert one.propose([], [put("k")]).state == FAILED
    world.server = world.serve()
    world.wait(lambda: one.why_not() == "")
    # A store that is opened gives every lease its time anew.
    assert world.done(one, [], [put("late")]).state == ACCEPTED
    assert not one.lease_has_ended()
    copy.take()
    assert copy.keys == {"mine": "1", "late": "1"}


def test_while_the_holder_is_away_the_lease_runs_out(world: ServedWorld) -> None:
    one = world.join("a/1")
    world.done(one, [], [put("mine", leased=True)])
    world.server.stop()
    world.wait(lambda: boot_ms() > one.lease_valid_until_ms(), 3 * world.ttl_ms)
    assert not one.lease_has_ended()
    world.server = world.serve()
    world.wait(lambda: one.lease_valid_until_ms() > boot_ms())


def test_an_answer_that_did_not_come_is_uncertain() -> None:
    member = ServedCoordinator("a/1", Line(), 0)
    assert member.propose([], []).error.endswith("it has not answered yet")
    member.connected()
    member.receive(to_line({"snapshot": [], "revision": 0, "ttl_ms": 900}))
    member.receive(to_line({"granted": 7}))
    asked = member.propose([], [put("k")])
    assert not asked.done
    member.disconnected("gone")
    assert (asked.state, asked.error) == (UNCERTAIN, "the answer got lost: gone")


def test_who_was_away_for_longer_than_history_gets_the_difference(tmp_path: Path) -> None:
    store = CoordinationStore(str(tmp_path / "coordination.db"), 0, history_kept=3)
    service = StoreService(store, 3000)
    line = Line()
    sent = line.sent
    member = ServedCoordinator("a/1", line, 0)
    copy = Copy(member, may_differ=True)
    visitor = service.enter()

    def exchange() -> None:
        while sent or visitor.output:
            said = bytes(sent)
            sent.clear()
            service.receive(visitor, said, 0)
            heard = bytes(visitor.output)
            visitor.output.clear()
            member.receive(heard)

    member.connected()
    exchange()
    for key in ("kept", "gone", "changed"):
        member.propose([], [put(key)])
    exchange()
    copy.take()
    service.leave(visitor)
    member.disconnected("gone")
    lease = store.grant(3000, 0)
    store.transact(lease, [], [("gone", None, False, False)])
    for number in range(5):
        store.transact(lease, [], [("changed", str(number), False, False)])
    store.commit()
    visitor = service.enter()
    member.connected()
    exchange()
    assert member.propose([], [put("after")]).state == 0
    exchange()
    copy.take()
    assert copy.keys == {"kept": "1", "changed": "4", "after": "1"}
    assert ("gone", None) in [(key, value) for _, key, value in copy.log]
    store.close()


def test_a_member_that_is_killed(world: ServedWorld) -> None:
    program = (
        "import sys, time\n"
        "from penstock.cluster.agreement.coordinator import Change\n"
        "from penstock.node.coordination.etcd_lease import boot_ms\n"
        "from penstock.node.coordination.local_coordinator import local_coordinator\n"
        "member = local_coordinator(sys.argv[1], 'child')\n"
        "member.start()\n"
        "asked = member.propose([], [Change('child', '1', leased=True)])\n"
        "while True:\n"
        "    member.tick(boot_ms())\n"
        "    time.sleep(0.01)\n"
    )
    one = world.join("a/1")
    copy = Copy(one)
    child = subprocess.Popen([sys.executable, "-c", program, world.path], env=dict(os.environ))
    try:
        world.wait(lambda: bool(copy.take()) or "child" in copy.keys, 20_000)
        world.spend(2 * world.ttl_ms)
        assert not copy.take()
    finally:
        child.kill()
        child.wait()
    killed_s = time.monotonic()
    world.wait(lambda: bool(copy.take()) or "child" not in copy.keys)
    assert time.monotonic() - killed_s < world.ttl_ms / 1000 + 1


def test_nobody_else_may_open_the_socket(world: ServedWorld) -> None:
    assert stat.S_IMODE(os.stat(world.path).st_mode) == 0o600


def test_nobody_serves(tmp_path: Path) -> None:
    member = local_coordinator(str(tmp_path / "none.sock"), "a/1")
    with pytest.raises(StoreUnavailable, match=r"none\.sock.*No such file"):
        member.start(patience_s=0.1)


def test_a_file_that_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "coordination.db").write_bytes(b"no database at all" * 100)
    server = CoordinationServer(str(tmp_path / "coordination.db"), str(tmp_path / "s"))
    with pytest.raises(Corrupt, match="not a readable SQLite file"):
        server.start()


@pytest.mark.parametrize(
    "said",
    [
        b"x\n",
        b"[]\n",
        b"{}\n",
        b'{"n": 1}\n',
        b'{"n": 1, "lease": 1, "if": [1], "do": []}\n',
        b'{"keep": "x"}\n',
        b"x" * (LINE_MAX_BYTES + 1),
    ],
    ids=["not JSON", "no object", "nothing", "half", "conditions", "no number", "too long"],
)
def test_nonsense_costs_the_connection_and_nothing_else(tmp_path: Path, said: bytes) -> None:
    store = CoordinationStore(str(tmp_path / "coordination.db"), 0)
    service = StoreService(store, 3000)
    bad, good = service.enter(), service.enter()
    with pytest.raises(Corrupt):
        service.receive(bad, b'{"grant": true}\n' + said, 0)
    service.leave(bad)
    service.receive(good, b'{"hello": "a", "above": null}\n{"grant": true}\n', 0)
    assert b'"granted"' in good.output
    store.check()
    store.close()


def test_nonsense_over_the_socket(world: ServedWorld) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(world.path)
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert sock.recv(100) == b""
    one = world.join("a/1")
    assert world.done(one, [], [put("k")]).state == ACCEPTED


def test_a_disk_that_fails_ends_the_service(world: ServedWorld) -> None:
    one = world.join("a/1")
    world.server._service._store._db.execute("PRAGMA query_only = ON")
    lost = one.propose([], [put("k")])
    world.wait(lambda: lost.done)
    assert lost.state == UNCERTAIN
    world.spend(500)
    assert "cannot be reached" in one.why_not()


def test_after_the_end_no_request_reaches_the_closed_store(tmp_path: Path) -> None:
    """A member's bytes may arrive between the end of the service and that of its task."""
    server = CoordinationServer(str(tmp_path / "file"), str(tmp_path / "socket"))
    server.start()
    server.stop()
    writer = Mock(spec=asyncio.StreamWriter)

    async def visit_late() -> None:
        late = asyncio.StreamReader()
        late.feed_data(to_line({"grant": True}))
        late.feed_eof()
        await server._serve_client(late, writer)

    asyncio.run(visit_late())
    writer.close.assert_called_once()
