"""What a link hands to its owner in a turn, after the owner could take nothing for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from penstock.cluster.remote.link_session import Delivery
from penstock.core.credit import FlowBook
from penstock.protocols.peers.codec.frames import Parcels, PeerReader, preface
from penstock.protocols.peers.link import DELIVER_BYTES, HELD_MAX_BYTES, Member, PeerLink
from penstock.protocols.peers.peers import PeerLimits
from penstock.protocols.peers.session import AHEAD_BYTES, UNCOPIED_BYTES, PeerSession

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


def connected(owner: Owner) -> tuple[PeerLink, PeerSession]:
    peers: Any = SimpleNamespace(
        clock=lambda: 0,
        own=Member("a", "1"),
        cluster="c",
        secret=b"s" * 32,
        limits=PeerLimits(waiting_bytes=HELD_MAX_BYTES),
        introduced=lambda _: None,
    )
    link = PeerLink(peers, Member("b", "1"), cast(Any, owner))
    session = PeerSession(peers, FlowBook(), "b", link)
    link.connected(session, 0)
    session.link = link
    return link, session


def test_what_was_held_for_long_comes_in_slices() -> None:
    owner = Owner()
    link, _ = connected(owner)
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


def parcels_in(said: list[bytes]) -> list[bytes]:
    reader = PeerReader()
    reader.admit()
    (frame,) = reader.receive(preface() + b"".join(said))
    assert isinstance(frame, Parcels)
    return [payload for _, _, _, payload in frame.parcels]


def test_large_parcels_go_to_the_socket_without_a_copy() -> None:
    link, session = connected(Owner())
    session.outlet.gather(can=True)
    payloads = [bytes(UNCOPIED_BYTES), b"small", bytes(2 * UNCOPIED_BYTES)]
    for payload in payloads:
        link.send(1, payload)
    session.fill()
    said = session.outlet.take_ahead()
    assert [one for one in said if len(one) >= UNCOPIED_BYTES] == [payloads[0], payloads[2]]
    assert all(any(one is payload for one in said) for payload in (payloads[0], payloads[2]))
    assert session.output_bytes() == len(session.out) == 0
    assert parcels_in(said) == payloads


def test_output_is_bounded_also_where_nothing_is_copied() -> None:
    link, session = connected(Owner())
    session.outlet.gather(can=True)
    for _ in range(8):
        link.send(1, bytes(AHEAD_BYTES))
    session.fill()
    assert session.output_bytes() < 2 * AHEAD_BYTES + 1024
    assert link.has_outgoing()
