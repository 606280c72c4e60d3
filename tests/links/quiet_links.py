"""Links between two brokers without processes: their sockets and disks fail when a test says so.

A link runs in its own thread as in a node, and both brokers in that thread: a socket hands what it
is given to the session of the broker behind it, and that broker turns until it is idle.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.client.amqp import Connection
from penstock.client.endpoint import ClientError, Endpoint
from penstock.core.amqp_uri import parse_amqp_uri
from penstock.links.dialing import Dialed, Dialer
from penstock.links.federation import LocalBroker
from penstock.links.link import Link, Row, Run
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.sim_files import SimFileSystem

TIMEOUT_S = 0.2
HERE, THERE = "here", "there"


class Trouble:
    """A call of a socket fails, the next but ``after``: that one, or it and all until ``heal``.

    ``late``: what is sent arrives all the same.
    """

    def __init__(self) -> None:
        self.heal()

    def begin(self, after: int, *, once: bool, late: bool) -> None:
        self.after, self.once, self.late = after, once, late
        self.is_on, self.has_come = True, False

    def heal(self) -> None:
        self.is_on = self.has_come = False
        self.after, self.once, self.late = -1, True, False

    def strikes(self) -> bool:
        if not self.is_on:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.has_come = True
        self.is_on = not self.once
        return True


class Side:
    """A broker on a disk in memory, which ends when its disk fails, and starts again."""

    def __init__(self, name: str, definitions: Path) -> None:
        self.name = name
        self.files = SimFileSystem()
        self.failing = ""  # a verb of the disk, for ever
        self.starts = 0
        self._definitions = str(definitions / f"{name}.db")
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.node = QuietBroker(self.files, self._definitions)
        self.node.now_ms += self.starts * 1000

    def has_died(self) -> bool:
        node = self.node
        error: object = node.engine.disk_error() or node.committer.error or node.worker.error
        return error is not None

    def restart(self, rng: random.Random) -> None:
        self.node.definitions.close()
        self.files.power_cut(rng)
        self.start()

    def close(self) -> None:
        self.node.definitions.close()

    def queue(self, name: str) -> Any:
        return self.node.broker.vhosts["/"].queues[name]

    def fill(self, exchange: str, key: str, bodies: list[bytes], **properties: Any) -> None:
        """Confirmed, all of them."""
        client = self.node.client()
        client.call("confirm.select")
        for body in bodies:
            client.publish(exchange, key, body, delivery_mode=2, **properties)
            assert [name for name, _ in client.methods()] == ["basic.ack"]
        client.drop()

    def bodies(self, queue: str) -> list[bytes]:
        """All that is ready, and stays there."""
        client = self.node.client()
        client.consume(queue)
        found = client.bodies()
        client.drop()
        return found


class Line:
    """What a connection takes for its socket."""

    def __init__(self, side: Side, world: World) -> None:
        self._side, self._world, self._node = side, world, side.node
        self._end: ClientEnd = side.node.connect()
        self._fd = os.eventfd(1)  # always readable: a link never waits
        self._timeout_s = 0.0

    def settimeout(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if self._node is self._side.node and not self._end.lost:
                self._end.drop()

    def sendall(self, data: bytes) -> None:
        struck = self._world.trouble.strikes()
        if not struck or self._world.trouble.late:
            self._turn(lambda: self._end.send(data))
        if struck:
            raise ConnectionResetError(104, "reset by the test")

    def recv(self, size: int) -> bytes:
        self._turn(self._node.run)
        data, self._end.received = self._end.received[:size], self._end.received[size:]
        if data and self._world.trouble.strikes():
            raise ConnectionResetError(104, "reset by the test")
        if not data and (self._end.session.closed or self._end.lost):
            return b""
        if not data:
            raise BlockingIOError if self._timeout_s == 0 else TimeoutError
        return data

    def _turn(self, do: Callable[[], object]) -> None:
        side = self._side
        if self._node is not side.node:
            raise ConnectionResetError(104, "its broker has died")
        if side.failing:
            side.files.fail(side.failing)
        do()
        if side.has_died():
            side.restart(self._world.rng)
            raise ConnectionResetError(104, "its broker dies")


class QuietDialer(Dialer):
    """A URI names a side of the world as its host; one without a host is of this node."""

    def __init__(self, world: World) -> None:
        super().__init__(lambda user: None, lambda uri: uri)  # type: ignore[arg-type, return-value]
        self._world = world

    def dial(self, uris: Any, name: str, local_user: str, vhost: str = "/") -> Dialed:
        uri = parse_amqp_uri(uris[0], vhost)
        side = self._world.sides[uri.host or HERE]
        if self._world.trouble.strikes():
            raise ClientError("refused by the test")
        line: Any = Line(side, self._world)
        endpoint = Endpoint(side.name, 1, "guest", "guest", uri.vhost)
        connection = Connection(endpoint, timeout_s=TIMEOUT_S, name=name, sock=line)
        return Dialed(connection, uri.shown(), "guest", uri.vhost)


class Local(LocalBroker):
    """What the node HERE tells its links."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def bindings(self, vhost: str, exchange: str, seen: int) -> tuple[int, list[Any]] | None:
        there = self._side.node.broker.vhosts[vhost]
        epoch = int(there.epoch) + 1000 * self._side.starts
        if epoch == seen:
            return None
        found = there.exchanges[exchange].bindings()
        return epoch, [(one.routing_key, one.arguments) for one in found]

    def wants(self, vhost: str, queue: str) -> bool:
        return True


class Watched:
    """A run of a link that looks after each step whether the story is over."""

    def __init__(self, run: Run, look: Callable[[], None]) -> None:
        self.connections = run.connections
        self.is_blocked, self.facts, self.clean = run.is_blocked, run.facts, run.clean
        self._step, self._look = run.step, look

    def step(self) -> bool:
        done = self._step()
        self._look()
        return done


class WatchedLink(Link):
    def __init__(
        self, name: str, open_run: Callable[[], Run], delay_s: float, rows: list[Row]
    ) -> None:
        super().__init__(name, open_run, delay_s)
        self._rows = rows

    def _terminated(self, why: str) -> None:
        super()._terminated(why)
        self._rows.append(self.row())


class World:
    """Two sides, and one link at a time."""

    def __init__(self, directory: Path, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.trouble = Trouble()
        self.sides = {name: Side(name, directory) for name in (HERE, THERE)}
        self.here, self.there = self.sides[HERE], self.sides[THERE]
        self.dialer = QuietDialer(self)
        self.rows: list[Row] = []  # of the link, whenever it was terminated
        self.runs = 0

    def close(self) -> None:
        for side in self.sides.values():
            side.close()

    def live(
        self,
        open_run: Callable[[], Run],
        is_done: Callable[[], bool],
        between: Callable[[], None] = lambda: None,
    ) -> Link:
        """The life of a link until ``is_done``; ``between`` its runs a test may do something."""
        self.rows, self.runs = [], 0

        def look() -> None:
            if is_done():
                link.stop()

        def opened() -> Run:
            self.runs += 1
            if self.runs == 60:
                link.stop()
                raise ClientError("it does not come to an end")
            if self.runs > 1:
                between()
            return Watched(open_run(), look)

        link = WatchedLink("link of the test", opened, 0.0001, self.rows)
        link.start()
        link._thread.join(60)
        assert not link._thread.is_alive(), self.rows
        return link


@contextlib.contextmanager
def quiet_world(directory: Path, seed: int = 1) -> Iterator[World]:
    world = World(directory, seed)
    try:
        yield world
    finally:
        world.close()
