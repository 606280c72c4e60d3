"""Invariant: no bytes of one hostile peer keep the loop busy for long.

The whole broker without its noise; what one read brings is one ``receive``, and it and the turn
after it may take ``bound_ms`` of the thread's processor time, which other load does not change.
``go_on`` and every further turn are steps of their own.  What a peer says is captured and damaged,
or made of what costs a broker most: many small things in one read, long lists, deep patterns.

    python tests/fuzz/run.py --target loop_amqp --minutes 10
"""

from __future__ import annotations

import gc
import random
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.protocols.amqp import session as amqp_session
from penstock.protocols.nsq.layers import SocketLayers
from penstock_ranges import frames as rf
from penstock_ranges import ranges, staging, subscriptions
from tests.fuzz import mutate, targets
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.node_pair import NodePair
from tests.helpers.nsq_pair import NsqBroker
from tests.helpers.range_pair import StagingEnd, publishes
from tests.helpers.raw_nsq import MAGIC, dpub, identify, mpub, pub, sized

READ_MAX_BYTES: Final = 256 * 1024
"""The loop reads no more at once."""
COMPILED_MS: Final = 20.0
INTERPRETED_FACTOR: Final = 15.0
PACE_MS: Final = 6.5
"""What ``pace`` measures on a core that has nothing else to do: the bound is meant for that one."""
TURNS_MAX: Final = 200
"""After each read; a queue of work that is longer goes on beside the next read."""


def bound_ms() -> float:
    is_compiled = not amqp_session.__file__.endswith(".py")
    return COMPILED_MS * (1.0 if is_compiled else INTERPRETED_FACTOR)


def pace() -> float:
    """How many times as long this core takes now: work beside it costs caches and clock speed."""
    since_ns = time.thread_time_ns()
    total = 0
    for number in range(100_000):
        total += number
    return max(1.0, (time.thread_time_ns() - since_ns) / 1e6 / PACE_MS)


class Steps:
    """Runs a broker step by step; ``slowest_ms`` is the slowest of one, ``slowest`` its name."""

    def __init__(self, node: QuietBroker, turns_max: int = TURNS_MAX) -> None:
        self.node = node
        node.worker.hold = node.committer.hold = True
        self.turns_max = turns_max
        self.slowest_ms = 0.0
        self.slowest = ""

    def timed(self, name: str, do: Callable[[], object]) -> None:
        since_ns = time.thread_time_ns()
        do()
        took_ms = (time.thread_time_ns() - since_ns) / 1e6
        if took_ms > self.slowest_ms:
            self.slowest_ms, self.slowest = took_ms, name
        self.node.committer.finish()  # in threads of their own, in a node
        self.node.worker.finish_all()

    def read(self, end: ClientEnd, data: bytes) -> None:
        """One read of a socket, its turn, and the turns after it."""

        def receive() -> None:
            end.session.receive(data, self.node.now_ms)
            self.node.turn.fed(end.session)
            self._turn()

        self.timed(f"receive of {len(data)} bytes and its turn", receive)
        self.rest(end)

    def rest(self, end: ClientEnd) -> None:
        node = self.node
        for _ in range(self.turns_max):
            if end.session.waiting_head or end.session.has_more:
                self.timed("go_on", lambda: end.session.go_on(node.now_ms))
                node.turn.fed(end.session)
            node.turn.blocked_reason()
            end.session.look_at_gate()
            node.flush()
            node.turn.flow.end_turn(node.mono_ms)
            if not node.turn.has_work() and node.worker.idle():
                return
            self.timed("a turn", self._turn)

    def _turn(self) -> None:
        node = self.node
        node.now_ms += 1
        node.mono_ms += 1
        node.turn.begin(node.now_ms, node.mono_ms)
        for stage in node.turn.flow.book.take_freed():
            stage.owner.resume(node.now_ms)
            node.turn.fed(stage.owner)
        node.turn.run(node.now_ms, idle=True)

    def tick(self, end: ClientEnd, ms: int) -> None:
        self.node.now_ms += ms
        self.node.mono_ms += ms
        self.timed("a tick", lambda: end.session.tick(self.node.now_ms))
        self.timed("the turn of a tick", self._turn)
        self.rest(end)


def judge(play: Callable[[], Steps]) -> None:
    """Raises Broken for a step that is slow three times: caches may be cold, or shared."""
    for _attempt in range(3):
        gc.collect()
        gc.disable()  # what the process beside the broker has made is none of its costs
        try:
            steps = play()
        finally:
            gc.enable()
        allowed_ms = bound_ms() * pace()
        if steps.slowest_ms <= allowed_ms:
            return
    raise targets.Broken(f"{steps.slowest} took {steps.slowest_ms:.0f} ms of {allowed_ms:.0f} ms")


def pieces(rng: random.Random, data: bytes) -> Iterator[bytes]:
    """As sockets give it: mostly as much as one read takes."""
    size = rng.choice((READ_MAX_BYTES, READ_MAX_BYTES, 16_384, 1000))
    for at in range(0, min(len(data), 8 * size), size):
        yield data[at : at + size]


def filled(parts: Callable[[int], bytes], most: int) -> bytes:
    """Parts 0, 1, 2 ..., as many as fit."""
    out = bytearray()
    number = 0
    while len(out) < most:
        out += parts(number)
        number += 1
    return bytes(out)


# -- AMQP --------------------------------------------------------------------------------------


def _method(name: str, channel: int = 1, **fields: Any) -> bytes:
    return codec.method_frame(channel, name, **fields)


def _publish(exchange: str, key: str, body: bytes = b"", **properties: Any) -> bytes:
    method = _method("basic.publish", exchange=exchange, routing_key=key)
    return method + codec.content_frames(1, body, properties)


def _names(number: int) -> str:
    return f"q{number % 3000}"


STREAM: Final[dict[str, Any]] = {"x-queue-type": "stream"}
QUORUM: Final[dict[str, Any]] = {
    "x-queue-type": "quorum",
    "x-delivery-limit": 2,
    "x-dead-letter-exchange": "amq.fanout",
}


def _read_stream(number: int, offset: object, **arguments: object) -> bytes:
    return _method("basic.qos", prefetch_count=1 + number % 3000) + _method(
        "basic.consume", queue="s0", consumer_tag=f"r{number}", nowait=True,
        arguments={"x-stream-offset": offset, **arguments},
    )  # fmt: skip


def _consume(number: int, queue: str = "q0", **more: Any) -> bytes:
    return _method("basic.consume", queue=queue, consumer_tag=f"c{number}", nowait=True, **more)


def stream_parts(rng: random.Random) -> Callable[[int], bytes]:
    """As ``amqp_parts``, of streams and quorum queues."""
    words = ["first", "last", "next", "1h", "never"]
    values = [f"v{number}" for number in range(rng.choice((1, 3, 200, 5000)))]
    moment = rng.choice((0, 1_699_999_000, 1_700_000_000, 2**40))
    short = STREAM | {"x-max-length-bytes": 1000, "x-stream-max-segment-size-bytes": 1000}
    kinds: list[Callable[[int], bytes]] = [
        lambda n: _method(
            "queue.declare", queue=f"s{n % 300}", nowait=True, durable=True, arguments=STREAM
        ),
        lambda n: _method(
            "queue.declare", queue=f"t{n % 30}", nowait=True, durable=True, arguments=short
        ),
        lambda n: _method("queue.delete", queue=f"s{n % 300}", nowait=True),
        lambda n: _publish("", f"s{n % 300}", b"x"),
        lambda n: _publish("", f"t{n % 30}", b"x" * 900),
        lambda _: _publish("", "s0", b"x" * 300, delivery_mode=2),
        lambda n: _publish("", "s0", b"x", headers={"x-stream-filter-value": f"v{n % 500}"}),
        lambda n: _publish("", "s0", b"", headers={"x-stream-filter-value": "v" * (n % 3000)}),
        lambda n: _read_stream(n, rng.choice(words)),
        lambda n: _read_stream(n, "first"),
        lambda n: _read_stream(n, rng.choice((n, n % 2000, -n))),
        lambda n: _read_stream(n, codec.Typed("l", rng.choice((2**62, -(2**62))))),
        lambda _: _read_stream(rng.randrange(5000), codec.Typed("T", moment)),
        lambda n: _read_stream(n, "first", **{"x-stream-filter": values}),
        lambda n: _read_stream(
            n, n % 2000, **{"x-stream-filter": values[:2], "x-stream-match-unfiltered": True}
        ),
        lambda n: _method("basic.cancel", consumer_tag=f"r{n}", nowait=True),
        lambda n: _method("basic.cancel", consumer_tag=f"r{5000 - n}", nowait=True),
        lambda n: _method("basic.ack", delivery_tag=n + 1),
        lambda n: _method("basic.ack", delivery_tag=n + 1, multiple=True),
        lambda _: _method("basic.nack", delivery_tag=0, multiple=True, requeue=True),
        lambda n: _method(
            "queue.declare", queue=f"y{n % 300}", nowait=True, durable=True, arguments=QUORUM
        ),
        lambda n: _publish("", "y0", b"x", priority=n % 256),
        lambda n: _publish("", f"y{n % 300}", b"x" * 100, delivery_mode=2),
        lambda n: _method("basic.consume", queue="y0", consumer_tag=f"y{n}", nowait=True),
        lambda n: _method("basic.reject", delivery_tag=n + 1, requeue=True),
        lambda _: _method("basic.get", queue="y0"),
        lambda _: _method("queue.purge", queue="y0"),
    ]
    return rng.choice(kinds)


def amqp_parts(rng: random.Random) -> Callable[[int], bytes]:
    """One kind of thing to say, very often."""
    deep = ".".join(["a"] * 120)
    pattern = ".".join(["#", "a"] * 60)
    keys = [f"k{number}" for number in range(rng.choice((10, 3000)))]
    table: dict[str, Any] = {f"h{number}": number for number in range(rng.choice((1, 500)))}
    kinds: list[Callable[[int], bytes]] = [
        lambda n: _method("queue.declare", queue=_names(n), nowait=True),
        lambda n: _method("queue.declare", queue=_names(n), nowait=True, durable=True),
        lambda n: _method("queue.declare", queue=_names(n), nowait=True, exclusive=True),
        lambda n: _method("queue.delete", queue=_names(n), nowait=True),
        lambda _: _method("queue.purge", queue="q0"),
        lambda n: _method("exchange.declare", exchange=f"x{n}", type="topic", nowait=True),
        lambda n: _method("exchange.delete", exchange=f"x{n}", nowait=True),
        lambda n: _method("exchange.bind", destination=f"x{n + 1}", source=f"x{n}", nowait=True),
        lambda n: _method(
            "queue.bind", queue="q0", exchange="amq.topic", routing_key=f"{pattern}.{n % 50}",
            nowait=True,
        ),
        lambda n: _method(
            "queue.bind", queue="q0", exchange="amq.topic", routing_key=pattern[: 2 * (n % 100)],
            nowait=True,
        ),
        lambda n: _method(
            "queue.bind", queue=_names(n), exchange="amq.fanout", routing_key=str(n), nowait=True
        ),
        lambda n: _method(
            "queue.bind", queue=_names(n), exchange="amq.headers", arguments={**table, "n": n},
            nowait=True,
        ),
        lambda n: _method(
            "queue.unbind", queue=_names(n), exchange="amq.fanout", routing_key=str(n)
        ),
        _consume,
        lambda n: _method("basic.qos", prefetch_count=1 + n % 3) + _consume(n),
        lambda n: _consume(n, arguments={"x-priority": n}),
        lambda n: _consume(n, queue=_names(n)),
        lambda n: _method("basic.cancel", consumer_tag=f"c{n}", nowait=True),
        lambda n: _method("basic.cancel", consumer_tag=f"c{9000 - n}", nowait=True),
        lambda n: _publish("", f"l{n % 2}"),
        lambda _: _method("basic.get", queue="q0"),
        lambda n: _method("basic.ack", delivery_tag=n + 1),
        lambda _: _method("basic.nack", delivery_tag=0, multiple=True, requeue=True),
        lambda _: _method("basic.recover", requeue=True),
        lambda n: _method("channel.open", 1 + n % 2047),
        lambda n: _method("channel.close", 1 + n % 2047, code=1, text="", class_id=0, method_id=0),
        lambda _: _method("tx.select"),
        lambda _: _method("tx.rollback"),
        lambda _: _method("tx.commit"),
        lambda _: _method("confirm.select"),
        lambda _: _publish("", "q0"),
        lambda _: _publish("amq.fanout", ""),
        lambda _: _publish("amq.topic", deep),
        lambda n: _publish("amq.headers", "", headers={**table, "n": n}),
        lambda _: _publish("", "q0", headers={"CC": keys}),
        lambda _: _publish("", "q0", expiration="0", delivery_mode=2),
        lambda _: _publish("", "q0", b"x" * 100, expiration="5"),
        lambda _: codec.encode_frame(codec.BODY, 1, b""),
        lambda _: codec.encode_frame(8, 0, b""),
    ]  # fmt: skip
    return rng.choice(kinds)


def streams(rng: random.Random, _corpus: list[bytes]) -> None:
    """A peer of streams and quorum queues that hold something already, and have readers."""
    said: list[bytes] = []
    for _ in range(rng.randint(1, 2)):
        data = filled(stream_parts(rng), rng.choice((2000, 60_000, READ_MAX_BYTES)))
        said.append(mutate.damaged(rng, data) if rng.randrange(8) == 0 else data)
    if rng.randrange(2):
        said.insert(0, b"".join(_read_stream(number, number) for number in range(1000)))
    blocks = rng.choice((0, 1, 10))
    targets.last_input[:] = [b"".join(said)]
    state = rng.getstate()

    def play() -> Steps:
        rng.setstate(state)
        node = QuietBroker()
        end = node.client()
        for name, arguments in (("s0", STREAM), ("y0", QUORUM)):
            end.call("queue.declare", queue=name, durable=True, arguments=arguments)
            for _ in range(blocks):
                end.send(_publish("", name, b"x" * 20, delivery_mode=2) * 50)
        end.blocked = rng.randrange(3) == 0
        # Each consumer reads all: a life would take minutes, with the same steps.
        return _play(rng, node, end, said, Steps(node, 20))

    judge(play)


def bound_queues(count: int, exchange: str) -> bytes:
    """So many queues that get all that is published there."""
    declared = [_method("queue.declare", queue=_names(n), nowait=True) for n in range(count)]
    where = {"exchange": exchange, "nowait": True}
    return b"".join(
        declared + [_method("queue.bind", queue=_names(n), **where) for n in range(count)]
    )


def amqp(rng: random.Random, corpus: list[bytes]) -> None:
    """A peer that has logged in; what it says is captured and damaged, or amplified."""
    said: list[bytes] = []
    for _ in range(rng.randint(1, 3)):
        if rng.randrange(4) == 0:
            said.append(mutate.damaged(rng, rng.choice(corpus))[8:])
        else:
            most = rng.choice((2000, 60_000, 60_000, READ_MAX_BYTES))
            data = filled(amqp_parts(rng), most)
            said.append(mutate.damaged(rng, data) if rng.randrange(8) == 0 else data)
    has_consumers = rng.randrange(4) == 0
    bound = rng.choice((0, 0, 0, 0, 0, 0, 0, 1000))  # queues
    if rng.randrange(6) == 0:
        said = [_method("tx.select"), *said, _method(rng.choice(("tx.commit", "tx.rollback")))]
    targets.last_input[:] = [b"".join(said)]
    state = rng.getstate()

    def play() -> Steps:
        rng.setstate(state)
        node = QuietBroker()
        end = node.client()
        end.call("queue.declare", queue="q0")
        for name, overflow in (("l0", "drop-head"), ("l1", "reject-publish")):
            limits = {"x-max-length": 1, "x-overflow": overflow}
            end.call("queue.declare", queue=name, arguments=limits)
        for exchange in ("amq.fanout", "amq.headers"):
            end.send(bound_queues(bound, exchange))
        if has_consumers:
            end.send(_method("basic.qos", prefetch_count=1), run=False)
            end.send(filled(lambda n: _consume(n, f"l{n % 2}"), 60_000))
        end.blocked = rng.randrange(3) == 0
        return _play(rng, node, end, said)

    judge(play)


def _play(
    rng: random.Random,
    node: QuietBroker,
    end: ClientEnd,
    said: list[bytes],
    steps: Steps | None = None,
) -> Steps:
    """``steps``: of a node that is not alone."""
    steps = steps or Steps(node)
    for one in said:
        for piece in pieces(rng, one):
            if end.session.closed or end.lost:
                break
            steps.read(end, piece)
        end.received = b""
    steps.tick(end, rng.choice((1, 1000, 20_000)))
    end.lost = True
    steps.timed("the loss of the peer", lambda: end.session.lost(node.now_ms))
    steps.rest(end)
    return steps


# -- NSQ ---------------------------------------------------------------------------------------


def nsq_parts(rng: random.Random) -> Callable[[int], bytes]:
    count = rng.choice((1, 100, 20_000))
    nested = b"[" * rng.choice((10, 900, 60_000))
    kinds: list[Callable[[int], bytes]] = [
        lambda _: pub("t", b"x"),
        lambda n: pub(f"t{n}", b"x"),
        lambda n: pub("t", bytes([n % 256]) * 1000),
        lambda n: dpub("t", n % 5000, b"x"),
        lambda _: dpub("t", 1, b"x"),
        lambda n: dpub(f"t{n % 90}", 1, b"x"),
        lambda n: dpub(f"e{n % 10}#ephemeral", 1, b"x"),
        lambda _: mpub("t", [b"x"] * count),
        lambda n: b"SUB t c%d\n" % n,
        lambda _: b"SUB t c\n",
        lambda n: b"RDY %d\n" % (n % 2500),
        lambda n: b"FIN %016x\n" % n,
        lambda n: b"REQ %016x 0\n" % n,
        lambda n: b"TOUCH %016x\n" % n,
        lambda _: b"NOP\n",
        lambda _: b"CLS\n",
        lambda _: b"\n",
        lambda _: b"IDENTIFY\n" + sized(nested),
        lambda n: identify(client_id="x" * n, feature_negotiation=True),
        lambda _: b"AUTH\n" + sized(b"x" * 4000),
    ]
    return rng.choice(kinds)


def nsq_said(rng: random.Random) -> list[bytes]:
    said: list[bytes] = []
    for _ in range(rng.randint(1, 3)):
        data = filled(nsq_parts(rng), rng.choice((2000, 60_000, 60_000, READ_MAX_BYTES)))
        said.append(mutate.damaged(rng, data) if rng.randrange(4) == 0 else data)
    if rng.randrange(2):
        said.insert(rng.randrange(len(said) + 1), b"SUB t c\nRDY 2500\n")
    return said


def nsq(rng: random.Random, _corpus: list[bytes]) -> None:
    said = nsq_said(rng)
    targets.last_input[:] = [MAGIC + b"".join(said)]
    state = rng.getstate()

    def play() -> Steps:
        rng.setstate(state)
        node = NsqBroker()
        return _play(rng, node, node.nsq_client(), said)

    judge(play)


class Wire:
    """What a layer has below it: bytes that came in."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def recv(self, size: int) -> bytes:
        data, self._data = self._data[:size], self._data[size:]
        if not data:
            raise BlockingIOError
        return data


def deflate(rng: random.Random, _corpus: list[bytes]) -> None:
    """As ``nsq``, packed: a thousand plain bytes may come of one."""
    plain = b"".join(nsq_said(rng)) + rng.choice((b"", b"\n" * 3_000_000, b"NOP\n" * 500_000))
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH)
    if rng.randrange(4) == 0:
        packed = mutate.damaged(rng, packed)
    targets.last_input[:] = [packed]

    def play() -> Steps:
        node = NsqBroker()
        end = node.nsq_client()
        # Not by the helper, whose layers are none.
        end.session.receive(identify(feature_negotiation=True, deflate=True), node.now_ms)
        end.session.out.truncate(0)
        node.nsq.layers = SocketLayers(None)
        layer: Any = end.session.next_carrier(Wire(packed), lambda: None)
        steps = Steps(node)

        def read() -> None:
            data = layer.recv(READ_MAX_BYTES)
            if not data:  # a damaged bit said that the stream is over, and it stays so
                raise ConnectionAbortedError
            end.session.receive(data, node.now_ms)
            node.turn.fed(end.session)
            steps._turn()

        while not end.session.closed:
            try:
                steps.timed("a read that inflates, and its turn", read)
            except (BlockingIOError, ConnectionAbortedError):
                break
            steps.rest(end)
        return steps

    judge(play)


# -- the range protocol ------------------------------------------------------------------------


def range_parts(rng: random.Random) -> Callable[[int], bytes]:
    request = ranges.OpenRequest("guest", "guest", "/", "q", rng.randrange(3), 7, False)
    names = [f"s{number}" for number in range(rng.choice((1, 5000)))]
    seqs = list(range(0, rng.choice((10, 50_000)), 2))
    frames = publishes("", "q", [b"x"] * rng.choice((1, 2000)))
    kinds: list[Callable[[int], bytes]] = [
        lambda _: ranges.encode_open(request),
        lambda _: ranges.encode_wait(5, 0),
        lambda _: ranges.encode_plan(0, 2**62, 10, 1 << 20),
        lambda n: ranges.encode_plan(n, 2**62, 1, 1),
        lambda n: ranges.encode_range(n, n + 100, 1 << 20, True),
        ranges.encode_ack,
        lambda _: ranges.encode_ack_some(seqs),
        lambda n: subscriptions.encode_subscribe(n % 2 == 0, n % 3, names[:200]),
        lambda _: subscriptions.encode_start("latest", 1),
        lambda n: subscriptions.encode_offset_at(1_700_000_000_000, 0, n),
        lambda n: staging.encode_begin(staging.BeginRequest("p", "r", n, 1 << 20, False)),
        lambda _: staging.encode_block(frames),
        staging.encode_end,
        lambda n: staging.encode_commit(staging.CommitRequest("p", "r", n, False, 0, names)),
        lambda _: staging.encode_abort(names),
        lambda _: staging.encode_last("p"),
        lambda _: staging.encode_publish(frames, False, 0),
        lambda _: staging.encode_target("", "q"),
    ]
    return rng.choice(kinds)


def range_frames(rng: random.Random, _corpus: list[bytes]) -> None:
    said: list[bytes] = []
    opened = ranges.encode_open(ranges.OpenRequest("", "", "/", "q", 0, 7, False))
    for _ in range(rng.randint(1, 6)):
        data = filled(range_parts(rng), rng.choice((1, 2000, 60_000, READ_MAX_BYTES)))
        said.append(mutate.damaged(rng, data) if rng.randrange(4) == 0 else data)
    if rng.randrange(2):
        said.insert(0, opened)
    targets.last_input[:] = [rf.MAGIC + b"".join(said)]
    state = rng.getstate()

    def play() -> Steps:
        rng.setstate(state)
        node = QuietBroker()
        client = node.client()
        client.call("queue.declare", queue="q", durable=True)
        client.send(publishes("", "q", [b"x" * 100] * 500))
        return _play(rng, node, StagingEnd(node), said)

    judge(play)


# -- between nodes -----------------------------------------------------------------------------

CROSSINGS_MAX: Final = 50
"""After each read; what is still under way then goes on beside the next one."""


class LinkSteps(Steps):
    """As ``Steps`` of the node with the peer; what goes over the link is a step of each node."""

    def __init__(self, pair: NodePair) -> None:
        super().__init__(pair.here)
        self._ends = pair.ends
        self._steps = [self, Steps(pair.there)]

    def rest(self, end: ClientEnd) -> None:
        super().rest(end)
        for _ in range(CROSSINGS_MAX):
            moved = [self._cross(number) for number in range(2)]
            if not any(moved):
                return
            super().rest(end)

    def _cross(self, number: int) -> bool:
        """What one node has to say is heard by the other, which ends its turns."""
        teller, hearer = self._ends[number], self._ends[1 - number]
        said: list[bytes] = []
        self.timed(
            "the end of a turn with a link",
            lambda: said.append(teller.queues.take_payload(teller.node.now_ms)),
        )
        if not said[0]:
            return False
        steps = self._steps[1 - number]

        def hear() -> None:
            hearer.queues.receive(said[0], hearer.node.now_ms)
            steps._turn()

        self.timed(f"{len(said[0])} bytes of a link, and their turn", hear)
        for _ in range(TURNS_MAX):
            if not hearer.node.turn.has_work() and hearer.node.worker.idle():
                break
            self.timed("a turn of the other node", steps._turn)
        return True


def link(rng: random.Random, corpus: list[bytes]) -> None:
    """As ``amqp``, of a peer whose queue has its master at another node."""
    said = [filled(amqp_parts(rng), rng.choice((2000, 60_000, READ_MAX_BYTES))) for _ in range(3)]
    if rng.randrange(2):
        publishes = filled(lambda _: _publish("", "q0", delivery_mode=2), READ_MAX_BYTES)
        said[:1] = [publishes, _method("basic.consume", queue="q0", nowait=True)]
    targets.last_input[:] = [b"".join(said)]
    state = rng.getstate()

    def play() -> Steps:
        rng.setstate(state)
        pair = NodePair()
        pair.remote("q0")
        end = pair.here.client()
        return _play(rng, pair.here, end, said, LinkSteps(pair))

    judge(play)


TARGETS: Final[dict[str, targets.Target]] = {
    "loop_amqp": amqp,
    "loop_streams": streams,
    "loop_nsq": nsq,
    "loop_deflate": deflate,
    "loop_ranges": range_frames,
    "loop_link": link,
}
