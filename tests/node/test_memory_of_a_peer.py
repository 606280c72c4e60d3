"""One hostile peer that begins much and ends nothing: what the node keeps is within the limit of
memory and a tenth, and gone with the peer.

What is kept is the account of memory, held publishes, output, and the parts of commands that NSQ's
reader has, which the account does not know.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_ranges import frames as rf
from penstock_ranges import ranges, staging
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.nsq_pair import NsqBroker
from tests.helpers.range_pair import StagingEnd, bodies_in, declare, publishes
from tests.helpers.raw_nsq import identify, pub

MIB: Final = 1024 * 1024
LIMIT_BYTES: Final = 16 * MIB  # a tenth is more than one peer may hold of publishes
MOST_BYTES: Final = LIMIT_BYTES * 11 // 10
PIECE: Final = b"z" * 100_000
CHANNELS: Final = 20

NUMBER = st.integers(1, CHANNELS)
COUNT = st.integers(1, 60)
AMQP = st.one_of(
    st.tuples(st.just("begin"), NUMBER, COUNT),
    st.tuples(st.just("part"), NUMBER, COUNT),
    st.tuples(st.just("publish"), NUMBER, COUNT),
    st.tuples(st.just("get"), NUMBER, COUNT),
    st.tuples(st.just("consume"), NUMBER, COUNT),
    st.tuples(st.just("bind"), NUMBER, COUNT),
    st.tuples(st.just("transaction"), NUMBER, COUNT),
    st.tuples(st.just("stream"), NUMBER, COUNT),
    st.tuples(st.just("read"), NUMBER, COUNT),
    st.tuples(st.just("filter"), NUMBER, COUNT),
    st.tuples(st.just("cancel"), NUMBER, COUNT),
    st.tuples(st.just("quorum"), NUMBER, COUNT),
    st.tuples(st.just("block"), NUMBER, COUNT),
    st.tuples(st.just("over"), NUMBER, COUNT),
)
NSQ = st.tuples(
    st.sampled_from(["publish", "part of a publish", "part of many", "identify", "over", "block"]),
    NUMBER,
    COUNT,
)
RANGES = st.tuples(
    st.sampled_from(
        [
            "part of a frame",
            "wait",
            "range",
            "begin",
            "block of a set",
            "part of a content",
            "block",
        ]
    ),
    NUMBER,
    COUNT,
)


class Judge:
    """Adds up what the node keeps for this peer, and compares."""

    def __init__(self, node: QuietBroker, end: ClientEnd) -> None:
        self.node, self.end = node, end
        node.broker.engine.ram.limit_bytes = LIMIT_BYTES
        node.broker.engine.ram.paging_bytes = LIMIT_BYTES // 2

    def send(self, data: bytes) -> None:
        """As the loop does: a peer that is held, or holds much, is not read."""
        session = self.end.session
        if session.closed or self.end.lost or session.gate or session.waiting_head:
            return
        if len(session.out) > 4 * MIB or self.node.turn.blocked_reason():
            return
        if not self.node.broker.flow.may_read_on(session.held_bytes):
            return
        self.end.send(data)
        assert self.kept_bytes() <= MOST_BYTES, self.kept_bytes()

    def kept_bytes(self) -> int:
        session: Any = self.end.session
        ram, flow = self.node.broker.engine.ram, self.node.broker.flow
        kept = ram.used_bytes() + flow.held_bytes + len(session.out)
        kept += self.node.streams.cache.bytes + self.node.streams.cache.held_bytes
        kept += sum(len(part) for part in getattr(getattr(session, "_line", None), "_rest", []))
        assert flow.held_bytes == sum(one.session.held_bytes for one in self.node.clients)
        return int(kept)

    def over(self) -> None:
        """Nothing of it is left, when it is gone."""
        if not self.end.lost:
            self.end.drop()
        self.node.tick(1000)
        assert self.node.broker.flow.held_bytes == 0
        assert self.node.broker.engine.ram.input_bytes == 0
        assert self.node.broker.engine.ram.uncommitted_bytes == 0


def hold(node: QuietBroker) -> None:
    """Publishers wait from now on."""
    node.broker.admission.vhost_reasons["/"] = "over budget"
    node.run()


@settings(deadline=None)
@given(st.lists(AMQP, max_size=25))
def test_of_an_amqp_client(acts: list[tuple[str, int, int]]) -> None:
    node = QuietBroker()
    end = node.client()
    end.call("queue.declare", queue="q")
    for name in ("stream", "quorum"):
        end.call("queue.declare", queue=name, durable=True, arguments={"x-queue-type": name})
    for _ in range(30):
        end.publish("", "stream", PIECE)
    judge = Judge(node, end)
    for number in range(2, CHANNELS + 1):
        end.call("channel.open", number)
    for act, channel, count in acts:
        publish = codec.method_frame(channel, "basic.publish", routing_key="q")
        if act == "begin":
            judge.send(publish + codec.header_frame(channel, count * len(PIECE), {}))
        elif act == "part":
            for _ in range(count):
                judge.send(codec.encode_frame(codec.BODY, channel, PIECE))
        elif act == "publish":
            for _ in range(count):
                judge.send(publish + codec.content_frames(channel, PIECE, {}))
        elif act == "get":
            for _ in range(count):
                judge.send(codec.method_frame(channel, "basic.get", queue="q"))
        elif act == "consume":
            for number in range(count):
                tag, table = f"{channel}-{number}", {"k" * 100: "v" * 10_000}
                judge.send(
                    codec.method_frame(
                        channel, "basic.consume", queue="q", consumer_tag=tag, arguments=table
                    )
                )
        elif act == "bind":
            for number in range(count):
                table = {"x": "v" * 10_000, "n": channel * 100 + number}
                judge.send(
                    codec.method_frame(
                        channel, "queue.bind", queue="q", exchange="amq.headers", arguments=table
                    )
                )
        elif act in ("stream", "quorum"):
            publish = codec.method_frame(channel, "basic.publish", routing_key=act)
            for number in range(count):
                headers = {"x-stream-filter-value": f"{number}" * 1000}
                judge.send(publish + codec.content_frames(channel, PIECE, {"headers": headers}))
            tag = f"quorum {channel}"
            judge.send(
                codec.method_frame(channel, "basic.consume", queue="quorum", consumer_tag=tag)
            )
        elif act in ("read", "filter"):
            judge.send(codec.method_frame(channel, "basic.qos", prefetch_count=1))
            for number in range(count):
                table = {"x-stream-offset": ("first", "last", number, -number)[number % 4]}
                if act == "filter":
                    table["x-stream-filter"] = [f"{one}" * 100 for one in range(10 * count)]
                judge.send(
                    codec.method_frame(
                        channel, "basic.consume", queue="stream",
                        consumer_tag=f"{act} {channel} {number}", arguments=table,
                    )
                )  # fmt: skip
        elif act == "cancel":
            for number in range(count):
                tag = f"read {channel} {number}"
                judge.send(codec.method_frame(channel, "basic.cancel", consumer_tag=tag))
        elif act == "transaction":
            judge.send(codec.method_frame(channel, "tx.select"))
        elif act == "block":
            end.blocked = not end.blocked
        else:
            hold(node)
    node.broker.admission.vhost_reasons.clear()
    judge.over()


@settings(deadline=None)
@given(st.lists(NSQ, max_size=25))
def test_of_an_nsq_client(acts: list[tuple[str, int, int]]) -> None:
    node = NsqBroker()
    end = node.nsq_client()
    judge = Judge(node, end)
    for act, number, count in acts:
        if act == "publish":
            for _ in range(count):
                judge.send(pub(f"t{number}", PIECE))
        elif act == "part of a publish":
            judge.send(b"PUB t\n" + (1_000_000).to_bytes(4, "big") + PIECE[: 1000 * count])
        elif act == "part of many":
            judge.send(b"MPUB t\n" + (5_000_000).to_bytes(4, "big") + (count).to_bytes(4, "big"))
            for _ in range(count):
                judge.send(len(PIECE).to_bytes(4, "big") + PIECE)
        elif act == "identify":
            judge.send(identify(client_id="x" * 1000 * count, hostname="y" * 1000 * number))
        elif act == "block":
            end.blocked = not end.blocked
        else:
            hold(node)
    node.broker.admission.vhost_reasons.clear()
    judge.over()


@settings(deadline=None)
@given(st.lists(RANGES, max_size=25))
def test_of_a_range_client(acts: list[tuple[str, int, int]]) -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    end = StagingEnd(node)
    judge = Judge(node, end)
    for act, number, count in acts:
        if act == "part of a frame":
            judge.send((1000 * count).to_bytes(4, "big") + PIECE[: 500 * count])
        elif act == "wait":
            judge.send(ranges.encode_wait(number, 60_000) * count)
        elif act == "range":
            judge.send(ranges.encode_range(0, number, 1 << 20, True) * count)
        elif act == "begin":
            judge.send(staging.encode_begin(staging.BeginRequest("p", "r", number, 1 << 30, False)))
        elif act == "block of a set":
            frames = codec.method_frame(1, "basic.publish", routing_key="q")
            content = codec.content_frames(1, PIECE, {})
            for _ in range(count):
                judge.send(staging.encode_block(frames + content))
        elif act == "part of a content":
            frames = codec.method_frame(1, "basic.publish", routing_key="q")
            judge.send(staging.encode_block(frames + codec.header_frame(1, 100 * MIB, {})))
            for _ in range(count):
                part = codec.encode_frame(codec.BODY, 1, PIECE)
                judge.send(staging.encode_block(part * (1 + number % 8)))
        else:
            end.blocked = not end.blocked
    judge.over()


def test_a_content_that_a_range_client_never_ends_is_refused() -> None:
    node = QuietBroker()
    declare(node, "q")
    end = StagingEnd(node)
    judge = Judge(node, end)
    end.begin(1)
    frames = codec.method_frame(1, "basic.publish", routing_key="q")
    judge.send(staging.encode_block(frames + codec.header_frame(1, 100 * MIB, {})))
    part = codec.encode_frame(codec.BODY, 1, PIECE)
    sent = 0
    while not end.session.closed:
        assert sent < LIMIT_BYTES
        judge.send(staging.encode_block(part * 10))
        sent += 10 * len(PIECE)
    assert sent > 2 * MIB
    end.hear()
    kind, payload = end.replies[-1]
    assert kind == rf.ERROR
    assert "take too much memory" in rf.decode_error(payload)[1]
    judge.over()


def test_a_content_in_many_blocks_arrives() -> None:
    node = QuietBroker()
    declare(node, "q")
    end = StagingEnd(node)
    body = PIECE * 30
    frames = publishes("", "q", [body])
    half = len(frames) // 2
    end.begin(1)
    for part in (frames[:half], frames[half:]):
        for at in range(0, len(part), 1 << 19):
            assert end.block(part[at : at + (1 << 19)]) == ""
    assert node.broker.engine.ram.input_bytes == 0
    end.end(1)
    end.commit(1, [name for _, name in node.broker.staging.sets])
    assert bodies_in(node, "q") == [body]
