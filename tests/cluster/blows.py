"""What befalls one of three nodes that have a quorum queue, while publishers wait for confirms.

``Publisher`` and ``Consumer`` work at one node, ``Scene`` is three brokers of any kind on hosts of
their own, and ``BLOWS`` what can be done to one of them.  ``strike`` does it to the leader's node
or to that of a follower which serves no client, and says how long no confirm came.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.crash.kill_clients import Gone, Line, method_ids
from tests.helpers import raw_codec as codec
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.namespaces import PrivateNetwork

RATE = int(os.environ.get("PENSTOCK_MAJORITY_RATE", "2000"))
SECONDS = float(os.environ.get("PENSTOCK_MAJORITY_SECONDS", "5"))
NODES = 3
QUEUE = "q"
SIZE = 1000
WINDOW = 20_000
PREFETCH = 1000
TICK_S = 0.005
GO_ON_S = 40.0
ACK, NACK = codec.METHOD_IDS["basic.ack"], codec.METHOD_IDS["basic.nack"]


@contextmanager
def line_to(url: str) -> Iterator[Line]:
    """It is dropped in the end."""
    line = Line(url)
    try:
        yield line
    finally:
        line.sock.close()


class Publisher(threading.Thread):
    """At ``url``, which may change.  What was refused, or not answered by a connection that has
    ended, is published again.
    """

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.confirmed: set[int] = set()
        self.times: list[float] = []  # of answers that confirm
        self.refused = 0
        self.lives = 0
        self.at = ""
        self.over = False
        self._next = 0
        self._again: list[int] = []
        self._open: dict[int, int] = {}  # delivery tag ─► number
        self._due = 0.0

    def run(self) -> None:
        while not (self.over and not self._open and not self._again):
            self.lives += 1
            with contextlib.suppress(Gone, OSError), line_to(self.url) as line:
                self._live(line, self.url)
            self._again += self._open.values()
            self._open = {}
            time.sleep(0.05)

    def _live(self, line: Line, url: str) -> None:
        line.call("confirm.select")
        tag, rest, at_s = 0, b"", time.monotonic()
        line.sock.settimeout(5)
        self.at = url
        while self.url == url and not (self.over and not self._open and not self._again):
            now_s = time.monotonic()
            self._due = min(self._due + (now_s - at_s) * RATE, RATE / 10)
            at_s = now_s
            frames = []
            while self._due >= 1 and len(self._open) < WINDOW and (self._again or not self.over):
                self._due -= 1
                tag += 1
                self._open[tag] = self._take()
                frames.append(_publish(self._open[tag]))
            if frames:
                line.send(b"".join(frames))
            if select.select([line.sock], [], [], TICK_S)[0]:
                data = line.sock.recv(1 << 18)
                if not data:
                    raise Gone
                found, rest = codec.split_frames(rest + data)
                self._hear(found)

    def _take(self) -> int:
        if self._again:
            return self._again.pop()
        self._next += 1
        return self._next

    def _hear(self, frames: list[codec.Frame]) -> None:
        for frame in frames:
            if frame.type != codec.METHOD:
                continue
            ids = method_ids(frame)
            if ids not in (ACK, NACK):
                raise Gone
            _, fields = codec.decode_method(frame.payload)
            last = int(fields["delivery_tag"])
            first = min(self._open, default=last) if fields["multiple"] else last
            numbers = [self._open.pop(one) for one in range(first, last + 1) if one in self._open]
            if ids == ACK:
                self.confirmed.update(numbers)
                self.times.append(time.monotonic())
            else:
                self.refused += len(numbers)
                self._again += numbers


def _publish(number: int) -> bytes:
    body = (b"%d " % number).ljust(SIZE, b".")
    method = codec.method_frame(1, "basic.publish", exchange="", routing_key=QUEUE)
    return method + codec.content_frames(1, body, {"delivery_mode": 2})


class Consumer(threading.Thread):
    """Acknowledges all that it receives."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.received: set[int] = set()
        self.twice = 0
        self.lives = 0
        self.over = False

    def run(self) -> None:
        while not self.over:
            self.lives += 1
            with contextlib.suppress(Gone, OSError, AssertionError), line_to(self.url) as line:
                self._live(line, self.url)
            time.sleep(0.1)

    def _live(self, line: Line, url: str) -> None:
        line.call("basic.qos", prefetch_count=PREFETCH)
        line.send(codec.method_frame(1, "basic.consume", queue=QUEUE))
        while self.url == url and not self.over:
            last = 0
            for frame in line.frames(0.2):
                if frame.type == codec.BODY:
                    self._take(int(frame.payload.split(b" ", 1)[0]))
                elif frame.type == codec.METHOD:
                    name, fields = codec.decode_method(frame.payload)
                    if name == "basic.cancel":
                        raise Gone
                    last = int(fields.get("delivery_tag", 0))
            if last > 1:  # its body may not have come yet
                ack = codec.method_frame(1, "basic.ack", delivery_tag=last - 1, multiple=True)
                line.send(ack)

    def _take(self, number: int) -> None:
        self.twice += number in self.received
        self.received.add(number)


class Blow(NamedTuple):
    what: str
    whose: str
    longest_ms: float

    def __str__(self) -> str:
        return f"{self.what:>20} of {self.whose:<8} {self.longest_ms:7.0f} ms without a confirm"


class Scene:
    """``nodes`` by host; ``names`` as the brokers have them; ``row``: the queue's, as a node's
    management API has it, {} = it does not answer.
    """

    def __init__(
        self,
        network: PrivateNetwork,
        nodes: Sequence[BrokerProcess],
        names: Sequence[str],
        row: Callable[[int], dict[str, Any]],
        told: Callable[[], str] = str,
    ) -> None:
        self.network = network
        self.nodes = nodes
        self.names = names
        self.row = row
        self.told = told

    # -- what can be seen ------------------------------------------------------------------

    def leader(self) -> int:
        return self.names.index(str(self.row(0)["leader"]))

    def settle(self) -> None:
        """All see all, and one leader."""

        def are_together() -> bool:
            rows = [self.row(one) for one in range(NODES)]
            online = [sorted(row.get("online", [])) for row in rows]
            leaders = {row.get("leader") for row in rows}
            return leaders != {None} and len(leaders) == 1 and all(len(o) == NODES for o in online)

        until(are_together, GO_ON_S, lambda: str([self.row(one) for one in range(NODES)]))

    # -- blows -----------------------------------------------------------------------------

    @contextmanager
    def kill(self, node: int) -> Iterator[None]:
        self.nodes[node].kill()
        try:
            yield
        finally:
            self.nodes[node].start()

    @contextmanager
    def pause(self, node: int) -> Iterator[None]:
        group = self.nodes[node].pid
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(group, signal.SIGCONT)

    @contextmanager
    def cut(self, node: int) -> Iterator[None]:
        self.network.isolate(node)
        try:
            yield
        finally:
            self.network.heal()

    @contextmanager
    def mute(self, node: int) -> Iterator[None]:
        for other in range(self.network.hosts):
            if other != node:
                self.network.cut_one_way(node, other)
        try:
            yield
        finally:
            self.network.heal()


BLOWS: dict[str, Callable[[Scene, int], contextlib.AbstractContextManager[None]]] = {
    "kill -9": Scene.kill,
    "SIGSTOP": Scene.pause,
    "cut": Scene.cut,
    "one-way cut": Scene.mute,
}


def until(is_so: Callable[[], bool], timeout_s: float, told: Callable[[], str]) -> None:
    end_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end_s, told()
        time.sleep(0.1)


def longest_ms(publisher: Publisher, since_s: float) -> float:
    """Without an answer that confirms, from then until now."""
    times = [since_s, *[one for one in list(publisher.times) if one > since_s], time.monotonic()]
    return 1000 * max(later - one for one, later in itertools.pairwise(times))


def strike(
    scene: Scene,
    publisher: Publisher,
    consumer: Consumer,
    what: str,
    whose: str,
    strikes: Callable[[Scene, int], contextlib.AbstractContextManager[None]],
) -> Blow:
    leader = scene.leader()
    here = (leader + 1) % NODES
    for client in (publisher, consumer):
        client.url = scene.nodes[here].url
    until(lambda: publisher.at == publisher.url, GO_ON_S, lambda: "the publisher does not move")
    time.sleep(1)
    target = leader if whose == "leader" else (leader + 2) % NODES
    since_s = time.monotonic()
    with strikes(scene, target):
        time.sleep(SECONDS)
        known = len(publisher.confirmed)
        until(lambda: len(publisher.confirmed) > known, GO_ON_S, scene.told)
        longest = longest_ms(publisher, since_s)
    scene.settle()
    return Blow(what, whose, longest)
