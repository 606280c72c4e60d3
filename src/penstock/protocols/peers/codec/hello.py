"""How two nodes make sure of each other before anything else is said (sans-IO).

    caller     preface, HELLO                    I am this member of this cluster, and a nonce
    listener   preface, HELLO                    the same of itself
    caller     PROOF                             that I know the secret; what I had of your session
    listener   PROOF                             the same
    both       PARCELS, ACK, HEARTBEAT …

A proof is an HMAC-SHA256 under the cluster's secret over its sender's role, all that both have said
before (so both nonces, both names and the versions), and the number it sends along.  The role keeps
a proof from being sent back to its sender; nonces keep it from being of use another time.  The
caller proves first: a stranger that calls gets nothing to guess secrets with.

The number is that of the last parcel taken from the other side's session; the other one goes on
behind it.  It stands in PROOF and not in HELLO because a caller knows which node it calls, but
learns only from that node's HELLO which life of it answers.

A HELLO may be longer in later versions.  What is behind the fields of version 1 is not looked at
here, but it counts for the proof like the rest.

Invariants, judged from outside:
  H1  nothing of a session is sent or taken before both proofs were found right
  H2  a proof is right for one connection, one direction and one pair of members only
"""

import hmac
import struct
from typing import Final, final

from penstock.protocols.peers.codec.frames import (
    HELLO,
    NOT_PROVEN,
    PROOF,
    WRONG_CLUSTER,
    PeerReader,
    Wrong,
    frame,
    preface,
)

NONCE_BYTES: Final = 32
MAC_BYTES: Final = 32
SECRET_MIN_BYTES: Final = 16
NAME_MAX_BYTES: Final = 255
SILENCE_MIN_MS: Final = 100
SILENCE_MAX_MS: Final = 3_600_000
CALLER: Final = b"C"
LISTENER: Final = b"L"

_NUMBER_MAX: Final = (1 << 63) - 1
_U16 = struct.Struct(">H")
_FIXED = struct.Struct(f">{NONCE_BYTES}sQI")
_PROOF = struct.Struct(f">Q{MAC_BYTES}s")
_LABEL: Final = b"penstock nodes 1"


@final
class Hello:
    """The node that speaks.

    ``features``: a bit each of what it can, none so far.  ``silence_ms``: it hangs up when it has
    heard nothing for so long, so the other side says something several times in that time.
    """

    def __init__(
        self,
        cluster: str,
        name: str,
        incarnation: str,
        nonce: bytes,
        silence_ms: int,
        features: int = 0,
    ) -> None:
        assert len(nonce) == NONCE_BYTES
        self.cluster = cluster
        self.name = name
        self.incarnation = incarnation
        self.nonce = nonce
        self.silence_ms = silence_ms
        self.features = features

    def encode(self) -> bytes:
        """The payload."""
        names = b"".join(_string(text) for text in (self.cluster, self.name, self.incarnation))
        return names + _FIXED.pack(self.nonce, self.features, self.silence_ms)


def decode_hello(payload: bytes) -> Hello:
    """Raises ``Wrong``."""
    cluster, at = _take_string(payload, 0)
    name, at = _take_string(payload, at)
    incarnation, at = _take_string(payload, at)
    if len(payload) - at < _FIXED.size:
        raise Wrong("HELLO is cut short")
    nonce, features, silence_ms = _FIXED.unpack_from(payload, at)
    if not (cluster and name and incarnation):
        raise Wrong("HELLO with an empty name")
    if not SILENCE_MIN_MS <= silence_ms <= SILENCE_MAX_MS:
        raise Wrong(f"HELLO that hangs up after {silence_ms} ms")
    return Hello(cluster, name, incarnation, nonce, silence_ms, features)


def _string(text: str) -> bytes:
    data = text.encode()
    assert 0 < len(data) <= NAME_MAX_BYTES, text
    return _U16.pack(len(data)) + data


def _take_string(payload: bytes, at: int) -> tuple[str, int]:
    if len(payload) - at < 2:
        raise Wrong("HELLO is cut short")
    length: int = _U16.unpack_from(payload, at)[0]
    at += 2
    if length > NAME_MAX_BYTES:
        raise Wrong(f"HELLO with a name of {length} bytes, at most {NAME_MAX_BYTES} are allowed")
    if len(payload) - at < length:
        raise Wrong("HELLO is cut short")
    try:
        text = payload[at : at + length].decode()
    except UnicodeDecodeError:
        raise Wrong("HELLO with a name that is not UTF-8") from None
    if not text.isprintable():
        raise Wrong(f"HELLO with the name {text!r}")
    return text, at + length


@final
class Handshake:
    """One side of it.  A method for each step; each raises ``Wrong`` where the peer is refused."""

    def __init__(self, secret: bytes, own: Hello, role: bytes) -> None:
        assert len(secret) >= SECRET_MIN_BYTES
        self._secret = secret
        self._own = own
        self._role = role
        self._said = b""  # by us and by the peer
        self._heard = b""
        self.peer: Hello | None = None

    def introduce(self) -> bytes:
        """Preface and HELLO."""
        payload = self._own.encode()
        self._said = preface() + payload
        return preface() + frame(HELLO, payload)

    def meet(self, payload: bytes, reader: PeerReader) -> Hello:
        """The peer's HELLO: may we talk at all?"""
        peer = decode_hello(payload)
        if peer.cluster != self._own.cluster:
            text = f"this is cluster '{self._own.cluster}', not '{peer.cluster}'"
            raise Wrong(text, WRONG_CLUSTER)
        if peer.nonce == self._own.nonce:
            raise Wrong("HELLO with a nonce that is ours")
        self._heard = preface(reader.lowest, reader.highest) + payload
        self.peer = peer
        return peer

    def prove(self, received: int) -> bytes:
        """PROOF, with the last parcel that was taken from the peer."""
        return frame(PROOF, _PROOF.pack(received, self._mac(self._role, received)))

    def believe(self, payload: bytes) -> int:
        """The peer's PROOF; returns the last parcel that the peer has taken from us."""
        if self.peer is None or not self._said:
            raise Wrong("PROOF before HELLO")
        if len(payload) != _PROOF.size:
            raise Wrong(f"PROOF of {len(payload)} bytes")
        received, mac = _PROOF.unpack(payload)
        other = LISTENER if self._role == CALLER else CALLER
        if received > _NUMBER_MAX or not hmac.compare_digest(mac, self._mac(other, received)):
            raise Wrong("the cluster's secret is another one there", NOT_PROVEN)
        return int(received)

    def _mac(self, role: bytes, received: int) -> bytes:
        by_caller, by_listener = self._said, self._heard
        if self._role == LISTENER:
            by_caller, by_listener = by_listener, by_caller
        parts = [_LABEL, role, struct.pack(">Q", received)]
        for said in (by_caller, by_listener):
            parts.append(struct.pack(">I", len(said)))
            parts.append(said)
        return hmac.digest(self._secret, b"".join(parts), "sha256")
