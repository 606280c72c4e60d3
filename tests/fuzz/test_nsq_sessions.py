"""Any commands of several NSQ clients: nothing breaks, nothing is left over, counts agree."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.nsq_pair import NsqBroker, NsqEnd
from tests.helpers.raw_nsq import NsqMessage, dpub, identify, mpub, pub

TOPICS = st.sampled_from(["t", "u", "e#ephemeral"])
BODY = st.binary(min_size=1, max_size=20)
PLAIN = st.one_of(
    st.builds(pub, TOPICS, BODY),
    st.builds(dpub, TOPICS, st.integers(0, 3000), BODY),
    st.builds(mpub, TOPICS, st.lists(BODY, min_size=1, max_size=5)),
    st.sampled_from(
        [
            b"NOP\n",
            b"RDY 0\n",
            b"RDY 1\n",
            b"RDY 7\n",
            b"CLS\n",
            b"SUB t c\n",
            b"SUB t d#ephemeral\n",
            b"SUB e#ephemeral c\n",
            b"FIN 0123456789abcdef\n",
            b"WHAT\n",
        ]
    ),
    st.builds(identify, msg_timeout=st.sampled_from([0, 1000, 2000]), sample_rate=st.just(0)),
)
SETTLING = st.tuples(
    st.sampled_from([b"FIN %s\n", b"REQ %s 0\n", b"REQ %s 1500\n", b"TOUCH %s\n"]),
    st.integers(0, 30),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2), PLAIN),
        st.tuples(st.just("settle"), st.integers(0, 2), SETTLING),
        st.tuples(st.just("tick"), st.just(0), st.integers(1, 2500)),
        st.tuples(st.just("drop"), st.integers(0, 2), st.none()),
        st.tuples(st.just("hold"), st.just(0), st.booleans()),
        st.tuples(st.just("alarm"), st.just(0), st.booleans()),
    ),
    max_size=40,
)


class Players:
    """Three clients; who was hung up on comes again."""

    def __init__(self) -> None:
        self.node = NsqBroker()
        self.ends = [self.node.nsq_client() for _ in range(3)]
        self.seen: list[list[bytes]] = [[], [], []]

    def end(self, number: int) -> NsqEnd:
        if self.ends[number].lost:
            self.node.clients.remove(self.ends[number])
            self.ends[number] = self.node.nsq_client()
            self.seen[number] = []
        return self.ends[number]

    def step(self, kind: str, number: int, what: object) -> None:
        if kind == "send":
            assert isinstance(what, bytes)
            self.end(number).send(what)
        elif kind == "settle":
            assert isinstance(what, tuple)
            keys = self.seen[number] or [b"0123456789abcdef"]
            self.end(number).send(what[0] % keys[what[1] % len(keys)])
        elif kind == "tick":
            assert isinstance(what, int)
            self.node.tick(what)
        elif kind == "drop":
            if not self.ends[number].lost:
                self.ends[number].drop()
        elif kind == "hold":
            self.node.committer.hold = bool(what)
            self.node.committer.finish()
            self.node.run()
        else:
            reasons = self.node.broker.admission.vhost_reasons
            reasons.clear()
            if what:
                reasons["/"] = "over budget"
            self.node.run()

    def look(self) -> None:
        for number, end in enumerate(self.ends):
            for one in end.heard():
                if isinstance(one, NsqMessage):
                    self.seen[number].append(one.id)
        self.node.check()
        for end in self.ends:
            consuming = end.session.consuming
            if not end.lost and consuming.consumer is not None:
                assert consuming.in_flight_count <= consuming.message_count


@settings(deadline=None)
@given(STEPS)
def test_whatever_clients_do(steps: list[tuple[str, int, object]]) -> None:
    players = Players()
    for kind, number, what in steps:
        players.step(kind, number, what)
        players.look()
    players.step("hold", 0, False)
    players.step("alarm", 0, False)
    for end in players.ends:
        if not end.lost:
            end.drop()
    broker = players.node.broker
    assert broker.connection_count == 0
    assert broker.flow.held_bytes == 0
    assert not players.node.nsq.sessions
    players.node.check()
