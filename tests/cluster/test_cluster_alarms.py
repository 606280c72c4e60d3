"""An alarm of one node is known to all, as long as that node lives."""

from __future__ import annotations

import pytest

from penstock.cluster.agreement.cluster_alarms import ALARMS, ClusterAlarms
from penstock.cluster.agreement.coordinator import Event
from penstock.cluster.agreement.membership import OVER
from penstock.core.errors import Corrupt
from tests.cluster.test_membership import FIRST, Hall, Node
from tests.simulation.sim_coordinator import TTL_MS


class Member(Node):
    """``short_of``: what this node says."""

    def __init__(self, hall: Hall, name: str) -> None:
        super().__init__(hall, name)
        self.short_of: list[str] = []
        self.alarms = ClusterAlarms(self.handle, self.membership)
        self.proposals = 0

    def tick(self) -> None:
        self.handle.tick(self.hall.now_ms)
        events = self.handle.take_events()
        self.membership.hear(events)
        self.membership.tick(self.hall.now_ms, self.hall.wall_ms())
        self.alarms.hear(events)
        self.alarms.tell(self.short_of, self.hall.now_ms)
        self.alarms.check()
        if self.membership.state == OVER:
            self.membership.rejoin(f"{next(self.hall.lives):x}")


class Nodes(Hall):
    def member(self, name: str) -> Member:
        member = Member(self, name)
        self.nodes.append(member)
        self.wait(lambda: member.membership.may_act(self.now_ms))
        return member


@pytest.fixture
def hall() -> Nodes:
    print(f"PENSTOCK_MEMBERSHIP_SEED={FIRST}")
    return Nodes(FIRST, loss=0.1)


def test_an_alarm_is_known_to_every_node_and_over_when_it_ends(hall: Nodes) -> None:
    a, b, c = (hall.member(name) for name in ("penstock@a", "penstock@b/ü", "c"))
    a.short_of, b.short_of = ["memory"], ["disk", "memory"]
    both = {"penstock@a": ["memory"], "penstock@b/ü": ["disk", "memory"]}
    hall.wait(lambda: c.alarms.elsewhere == both)
    hall.wait(lambda: a.alarms.elsewhere == {"penstock@b/ü": ["disk", "memory"]})
    late = hall.member("d")
    assert late.alarms.elsewhere == both
    a.short_of, b.short_of = [], ["disk"]
    hall.wait(lambda: c.alarms.elsewhere == {"penstock@b/ü": ["disk"]})
    b.short_of = []
    hall.wait(lambda: all(node.alarms.elsewhere == {} for node in (a, b, c, late)))


def test_a_node_that_dies_blocks_nothing(hall: Nodes) -> None:
    a, b = hall.member("a"), hall.member("b")
    a.short_of = ["memory"]
    hall.wait(lambda: b.alarms.elsewhere == {"a": ["memory"]})
    hall.kill(a)
    hall.wait(lambda: b.alarms.elsewhere == {}, 3 * TTL_MS)


def test_a_node_that_joins_again_says_it_again(hall: Nodes) -> None:
    a, b = hall.member("a"), hall.member("b")
    a.short_of = ["memory"]
    hall.wait(lambda: b.alarms.elsewhere == {"a": ["memory"]})
    former = a.membership.here.incarnation
    hall.nodes.remove(a)  # it stands still until its lease has ended
    hall.wait(lambda: b.alarms.elsewhere == {}, 3 * TTL_MS)
    hall.nodes.append(a)
    hall.wait(lambda: b.alarms.elsewhere == {"a": ["memory"]})
    assert a.membership.here.incarnation != former


@pytest.mark.parametrize(
    "value", ["", "[]", '{"v": 2, "resources": ["disk"]}', '{"v": 1, "resources": []}',
              '{"v": 1, "resources": [1]}', '{"v": 1}']
)  # fmt: skip
def test_what_no_node_writes_is_refused(hall: Nodes, value: str) -> None:
    a = hall.member("a")
    with pytest.raises(Corrupt):
        a.alarms.hear([Event(1, f"{ALARMS}/b", value, True)])
