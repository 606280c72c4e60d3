"""What a link hands to its owner in a turn, after the owner could take nothing for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from penstock.cluster.remote.link_session import Delivery
from penstock.protocols.peers.codec.frames import Parcels
from penstock.protocols.peers.link import DELIVER_BYTES, HELD_MAX_BYTES, Member, PeerLink

FRAME_BYTES = 256 * 1024
FRAMES = HELD_MAX_BYTES // FRAME_BYTES


class Owner:
    """Takes nothing until it is told to."""

    def __init__(self) -> None:
        self.takes = False
        self.numbers: list[int] = []

    def may_take(self, _: Member) -> bool:
        return self.takes

    def arrived(self, _: Member, deliveries: list[Delivery]) -> None:
        self.numbers += [stream for stream, _ in deliveries]


def test_what_was_held_for_long_comes_in_slices() -> None:
    owner = Owner()
    peers = SimpleNamespace(clock=lambda: 0, own=Member("a", "1"), limits=SimpleNamespace())
    peers.limits.waiting_bytes = HELD_MAX_BYTES
    link = PeerLink(cast(Any, peers), Member("b", "1"), cast(Any, owner))
    link.connected(cast(Any, SimpleNamespace(where="", carrier=None)), 0)
    for number in range(1, FRAMES + 1):
        link.came(Parcels(0, [(number, 0, number, b"x")], FRAME_BYTES))
    link.deliver()
    assert owner.numbers == []
    owner.takes = True
    turns = 0
    while link.has_deliveries():
        before = len(owner.numbers)
        link.deliver()
        turns += 1
        assert 0 < len(owner.numbers) - before <= DELIVER_BYTES // FRAME_BYTES
    assert owner.numbers == list(range(1, FRAMES + 1))
    assert turns >= HELD_MAX_BYTES // DELIVER_BYTES
    link.check()
