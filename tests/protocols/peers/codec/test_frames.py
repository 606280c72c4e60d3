"""Frames between nodes: clauses of docs/formats/peer.md, any cut, any damage, and the handshake."""

from __future__ import annotations

import os
import random
import re
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.peers.codec import frames as peer
from penstock.protocols.peers.codec.frames import (
    Farewell,
    Frame,
    FrameFault,
    Parcel,
    Parcels,
    PeerReader,
    Wrong,
)
from penstock.protocols.peers.codec.hello import CALLER, LISTENER, Handshake, Hello, decode_hello
from tests.fuzz.targets import peer_frames

PAGE = Path(__file__).parents[4] / "docs/formats/peer.md"
SECRET = b"the secret of the cluster"


def admitted() -> PeerReader:
    reader = PeerReader()
    assert reader.receive(peer.preface()) == []
    reader.admit()
    return reader


def batch(first: int, ack: int, *payloads: bytes) -> list[Parcel]:
    return [(first + place, ack, 7 + place, one) for place, one in enumerate(payloads)]


def only(frames: list[Frame]) -> Frame:
    (one,) = frames
    return one


def refusal(frames: list[Frame]) -> str:
    one = frames[-1]
    assert isinstance(one, FrameFault), one
    return one.text


# -- frames ----------------------------------------------------------------------------------


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=9000)), min_size=1),
        max_size=4,
    ),
    st.lists(st.integers(0, 100_000), max_size=12),
)
def test_what_is_written_is_read_however_it_is_cut(
    batches: list[list[tuple[int, bytes]]], cuts: list[int]
) -> None:
    number, data, expected = 1, b"", []
    for place, one in enumerate(batches):
        parcels = [(number + at, place, stream, body) for at, (stream, body) in enumerate(one)]
        number += len(parcels)
        expected.append(parcels)
        data += b"".join(peer.encode_parcels(parcels))
    reader = admitted()
    got: list[list[Parcel]] = []
    places = sorted(cut % (len(data) + 1) for cut in cuts)
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        for frame in reader.receive(data[start:end]):
            assert isinstance(frame, Parcels), frame
            got.append(frame.parcels)
    assert got == expected


def test_a_bare_acknowledgement_is_a_parcel_with_number_0() -> None:
    frame = only(admitted().receive(b"".join(peer.encode_parcels([(0, 500, 0, b"")]))))
    assert isinstance(frame, Parcels)
    assert (frame.ack, frame.parcels) == (500, [(0, 500, 0, b"")])


def test_large_payloads_are_written_as_they_are() -> None:
    payload = bytes(100_000)
    pieces = peer.encode_parcels(batch(1, 0, payload, payload))
    assert [piece is payload for piece in pieces] == [False, True, True]
    assert len(peer.encode_parcels(batch(1, 0, b"a", b"b"))) == 2


def test_errors_and_goodbyes() -> None:
    for kind in (peer.ERROR, peer.BYE):
        for reader in (admitted(), PeerReader()):
            if not reader.lowest:
                reader.receive(peer.preface())
            frame = only(reader.receive(peer.encode_farewell(kind, 8, "ü" * 1000)))
            assert isinstance(frame, Farewell)
            assert (frame.kind, frame.code, frame.text) == (kind, 8, "ü" * 250)
    assert only(admitted().receive(peer.encode_heartbeat())).kind == peer.HEARTBEAT


def test_one_frame_at_a_time_until_the_peer_has_proven_itself() -> None:
    hello, proof = peer.frame(peer.HELLO, b"h"), peer.frame(peer.PROOF, b"p")
    later = b"".join(peer.encode_parcels(batch(1, 0, b"x" * 5000)))
    reader = PeerReader()
    assert only(reader.receive(peer.preface() + hello + proof + later)).payload == b"h"
    assert reader.paused
    assert only(reader.receive(b"")).payload == b"p"
    reader.admit()
    assert isinstance(only(reader.receive(b"")), Parcels)
    assert not reader.paused


@pytest.mark.parametrize(
    "data, reason",
    [
        (peer.encode_heartbeat(), "HEARTBEAT from a peer that has not proven itself"),
        (peer.encode_parcels([(0, 1, 0, b"")])[0], "ACK from a peer that has not proven itself"),
        (struct.pack(">IIBI", 1 << 20, (1 << 20) ^ 0xFFFFFFFF, 3, 0), "PARCELS from a peer"),
        (struct.pack(">IIBI", 1025, 1025 ^ 0xFFFFFFFF, 1, 0), "HELLO of 1025 bytes, at most 1024"),
        (struct.pack(">IIBI", 0, 0xFFFFFFFF, 9, 0), "a frame of kind 9"),
        (struct.pack(">IIBI", 0, 0xFFFFFFFF, 0, 0), "a frame of kind 0"),
        (struct.pack(">IIBI", 5, 5, 1, 0), "a frame's size, 5, and its complement"),
    ],
)
def test_before_the_proof_little_is_allowed(data: bytes, reason: str) -> None:
    assert reason in refusal(PeerReader().receive(peer.preface() + data))


def _parcels(first: int, ack: int, count: int, rest: bytes) -> bytes:
    return peer.frame(peer.PARCELS, struct.pack(">QQI", first, ack, count) + rest)


@pytest.mark.parametrize(
    "data, reason",
    [
        (peer.frame(peer.PARCELS, bytes(19)), "PARCELS of 19 bytes"),
        (_parcels(0, 0, 1, struct.pack(">II", 1, 0)), "from number 0 on"),
        (_parcels(1, 0, 0, b""), "PARCELS that are 0"),
        (_parcels(2**63 - 1, 0, 2, bytes(16)), "from number"),
        (_parcels(1, 2**63, 1, bytes(8)), "as the number of a parcel"),
        (_parcels(1, 0, 2**32 - 1, bytes(8)), "no room for 4294967295"),
        (_parcels(1, 0, 1, struct.pack(">II", 1, 4) + b"abc"), "end before the last one"),
        (_parcels(1, 0, 1, struct.pack(">II", 1, 2) + b"abc"), "1 bytes behind the last one"),
        (peer.frame(peer.ACK, bytes(7)), "ACK of 7 bytes"),
        (peer.frame(peer.ACK, b"\xff" * 8), "as the number of a parcel"),
        (peer.frame(peer.HEARTBEAT, b"x"), "HEARTBEAT of 1 bytes"),
        (peer.frame(peer.HELLO, b""), "HELLO for a second time"),
        (peer.frame(peer.ERROR, b"\0"), "ERROR of 1 bytes"),
        (peer.frame(peer.BYE, bytes(2) + b"\xff"), "text is not UTF-8"),
        (struct.pack(">IIBI", 0, 0xFFFFFFFF, 5, 1), "HEARTBEAT with a wrong checksum"),
    ],
)
def test_what_cannot_be_is_refused_and_ends_the_reading(data: bytes, reason: str) -> None:
    reader = admitted()
    good = peer.encode_heartbeat()
    frames = reader.receive(good + data + good)
    assert len(frames) == 2
    assert reason in refusal(frames)
    assert reader.receive(good) == []


def test_every_damaged_byte_is_noticed() -> None:
    data = b"".join(peer.encode_parcels(batch(1, 5, b"payload", b"")))
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        frames = admitted().receive(bytes(damaged))
        assert frames
        assert isinstance(frames[-1], FrameFault), place


@pytest.mark.parametrize(
    "lowest, highest, fits",
    [(1, 1, True), (1, 9, True), (0, 1, True), (2, 3, False), (0, 0, False), (3, 1, False)],
)
def test_versions(lowest: int, highest: int, fits: bool) -> None:
    reader = PeerReader()
    frames = reader.receive(peer.preface(lowest, highest))
    if fits:
        assert (frames, reader.version()) == ([], 1)
    else:
        fault = only(frames)
        assert isinstance(fault, FrameFault)
        assert fault.code == peer.NO_COMMON_VERSION


def test_announcing_costs_nothing() -> None:
    head = struct.pack(">IIBI", 1 << 30, (1 << 30) ^ 0xFFFFFFFF, 3, 0)
    reader = admitted()
    tracemalloc.start()
    try:
        for data in (head, *[bytes(1000)] * 50):
            assert reader.receive(data) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000


# -- the handshake ---------------------------------------------------------------------------


def hello(name: str, nonce: int, cluster: str = "c") -> Hello:
    return Hello(cluster, name, "1", bytes([nonce]) * 32, 5000)


class Shaken:
    """Both sides of one handshake, up to both having met."""

    def __init__(self, caller_secret: bytes = SECRET, listener_secret: bytes = SECRET) -> None:
        self.caller = Handshake(caller_secret, hello("a", 1), CALLER)
        self.listener = Handshake(listener_secret, hello("b", 2), LISTENER)
        self.listener.meet(*heard(self.caller.introduce()))
        self.caller.meet(*heard(self.listener.introduce()))


def heard(data: bytes) -> tuple[bytes, PeerReader]:
    reader = PeerReader()
    return only(reader.receive(data)).payload, reader


def payload_of(proof: bytes) -> bytes:
    return proof[13:]


def test_both_prove_themselves_and_say_what_they_have() -> None:
    shaken = Shaken()
    assert shaken.listener.believe(payload_of(shaken.caller.prove(17))) == 17
    assert shaken.caller.believe(payload_of(shaken.listener.prove(4))) == 4


def believed(handshake: Handshake, payload: bytes) -> bool:
    try:
        handshake.believe(payload)
    except Wrong:
        return False
    return True


def test_a_proof_is_right_for_its_connection_direction_and_pair_only() -> None:
    """H2"""
    shaken = Shaken()
    by_caller = payload_of(shaken.caller.prove(1))
    by_listener = payload_of(shaken.listener.prove(1))
    assert not believed(shaken.caller, by_caller)  # its own, sent back
    assert not believed(shaken.listener, by_listener)
    other = Shaken()
    other.caller = Handshake(SECRET, hello("a", 9), CALLER)  # another nonce
    other.listener.meet(*heard(other.caller.introduce()))
    assert not believed(other.listener, by_caller)
    for secrets in ((SECRET, b"another secret than that"), (b"another secret than that", SECRET)):
        strange = Shaken(*secrets)
        assert not believed(strange.listener, payload_of(strange.caller.prove(1)))
        assert not believed(strange.caller, payload_of(strange.listener.prove(1)))
    for place in range(len(by_caller)):
        damaged = bytearray(by_caller)
        damaged[place] ^= 1
        assert not believed(shaken.listener, bytes(damaged))
    assert believed(shaken.listener, by_caller)


def test_a_proof_before_hello_proves_nothing() -> None:
    handshake = Handshake(SECRET, hello("a", 1), CALLER)
    handshake.introduce()
    assert not believed(handshake, bytes(40))


def test_a_preface_that_somebody_changed_is_noticed() -> None:
    """Nobody between the two can make them speak an older version."""
    shaken = Shaken()
    payload, _ = heard(shaken.listener.introduce())
    changed = PeerReader()
    changed.receive(peer.preface(0, 1))
    shaken.caller.meet(payload, changed)
    assert not believed(shaken.caller, payload_of(shaken.listener.prove(1)))


@pytest.mark.parametrize(
    "payload, reason",
    [
        (b"", "cut short"),
        (b"\0\1c", "cut short"),
        (b"\0\0\0\1a\0\1i" + bytes(44), "an empty name"),
        (b"\1\0" + bytes(300), "a name of 256 bytes"),
        (b"\0\1\xff", "not UTF-8"),
        (b"\0\1\n", "with the name '\\n'"),
        (b"\0\1c\0\1a\0\1i" + bytes(40), "cut short"),
        (b"\0\1c\0\1a\0\1i" + bytes(44), "hangs up after 0 ms"),
    ],
)
def test_a_hello_that_cannot_be_is_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(Wrong, match=re.escape(reason)):
        decode_hello(payload)


def test_a_hello_of_a_later_version_may_be_longer() -> None:
    found = decode_hello(hello("a", 1).encode() + b"something new")
    assert (found.cluster, found.name, found.incarnation) == ("c", "a", "1")
    assert (found.silence_ms, found.features) == (5000, 0)


def test_another_cluster_and_our_own_nonce_are_refused() -> None:
    handshake = Handshake(SECRET, hello("a", 1), CALLER)
    with pytest.raises(Wrong, match="this is cluster 'c', not 'd'"):
        handshake.meet(*heard(peer.preface() + peer.frame(1, hello("b", 2, "d").encode())))
    with pytest.raises(Wrong, match="a nonce that is ours"):
        handshake.meet(*heard(peer.preface() + peer.frame(1, hello("b", 1).encode())))


# -- the page --------------------------------------------------------------------------------


def test_the_example_of_the_page_is_what_is_written() -> None:
    blocks = re.findall(r"```hex\n(.*?)```", PAGE.read_text(), re.DOTALL)
    by_caller, by_listener = (bytes.fromhex("".join(block.split())) for block in blocks)
    secret = b"sixteen letters!"
    caller = Handshake(secret, Hello("c", "a", "1", b"\x11" * 32, 5000), CALLER)
    listener = Handshake(secret, Hello("c", "b", "9", b"\x22" * 32, 5000), LISTENER)
    told = [caller.introduce(), listener.introduce()]
    listener.meet(*heard(told[0]))
    caller.meet(*heard(told[1]))
    told[0] += caller.prove(0)
    told[1] += listener.prove(2)
    told[0] += b"".join(peer.encode_parcels([(3, 0, 7, b"hi"), (4, 0, 8, b"")]))
    told[1] += b"".join(peer.encode_parcels([(0, 4, 0, b"")]))
    told[1] += peer.encode_farewell(peer.BYE, peer.STOPPING, "bye")
    assert told == [by_caller, by_listener]


def test_the_page_names_every_kind_and_code() -> None:
    text = PAGE.read_text()
    for number, name in enumerate(peer.KINDS[1:], 1):
        assert f"| {number} | {name} |" in text
    codes = text.split("2.4 Codes")[1].split("## 3")[0]
    for code in range(peer.MALFORMED, peer.STOPPING + 1):
        assert re.search(rf"^\| {code} \| \w", codes, re.MULTILINE), code


def test_a_reader_written_from_the_page_alone() -> None:
    """Clauses 2 and 4, without the code under test."""
    data = b"".join(peer.encode_parcels(batch(9, 3, b"one", b"two two")))
    size, inverse, kind, crc = struct.unpack(">IIBI", data[:13])
    assert (size + inverse, kind, len(data)) == (0xFFFFFFFF, 3, 13 + size)
    assert zlib.crc32(data[8:9] + data[13:]) == crc
    first, ack, count = struct.unpack(">QQI", data[13:33])
    assert (first, ack, count) == (9, 3, 2)
    assert struct.unpack(">IIII", data[33:49]) == (7, 3, 8, 7)
    assert data[49:] == b"onetwo two"


def test_nothing_by_chance_breaks_the_reader() -> None:
    seed = int(os.environ.get("PENSTOCK_LINK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed {seed}")
    for number in range(300):
        peer_frames(random.Random(f"{seed}/{number}"), [])
