"""Invariant: whatever bytes come, and however they are cut, a target ends, with the same
result for every cut, with no exception but those it promises, and with memory in
proportion to what was sent, not to what was announced.

A target is a function of (random source, corpus) that makes one input, feeds it, and raises
``Broken`` (or anything else) when the invariant does not hold.  The bytes of the last input
stand in ``last_input`` so that the runner can save them.
"""

import base64
import json
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

from penstock.broker.oauth.servers import oauth_options
from penstock.broker.oauth.tokens import TokenRefused
from penstock.broker.oauth.verifying import ProviderKeys, Verifier
from penstock.core.clock_types import WallMs
from penstock.core.errors import Corrupt
from penstock.protocols.amqp.codec.decoder import AmqpDecoder
from penstock.protocols.amqp.codec.errors import MalformedArguments, UnknownMethod
from penstock.protocols.amqp.codec.events import (
    AckRun,
    ChannelFailed,
    ConnectionFailed,
    Event,
    MethodReceived,
    PublishRun,
)
from penstock.protocols.amqp.codec.methods import decode_method
from penstock.protocols.amqp.codec.properties import decode_properties
from penstock.protocols.amqp.codec.tables import decode_table, encode_table
from penstock.protocols.peers.codec import frames as peer
from penstock.protocols.peers.codec import hello as peer_hello
from penstock.streams import cursor
from penstock.streams.recovery import StreamRecovery
from penstock_ranges import frames as range_frames
from penstock_ranges import ranges, staging, subscriptions
from tests.fuzz import mutate
from tests.helpers import raw_codec as codec
from tests.helpers.sim_files import SimFileSystem
from tests.streams.stream_tools import DIRECTORY as STREAM
from tests.streams.stream_tools import StreamWorld

FRAME_MAX = 131072
MESSAGE_MAX = 1 << 20
Target = Callable[[random.Random, list[bytes]], None]
last_input: list[bytes] = []


class Broken(AssertionError):
    """The invariant does not hold."""


def _remember(data: bytes) -> bytes:
    last_input[:] = [data]
    return data


# The decoder: frames and content --------------------------------------------------------


def flat(events: list[Event]) -> list[tuple[Any, ...]]:
    """Events without their batching: runs are taken apart, message by message, tag by tag."""
    told: list[tuple[Any, ...]] = []
    for event in events:
        channel = int(event.channel)
        if isinstance(event, PublishRun):
            told.extend(_published(channel, event))
        elif isinstance(event, AckRun) and event.multiple:
            told.append(("ack up to", channel, event.last_tag))
        elif isinstance(event, AckRun):
            if event.last_tag - event.first_tag > 100_000:
                raise Broken("a run of more acknowledgements than there were bytes")
            tags = range(event.first_tag, event.last_tag + 1)
            told.extend(("ack", channel, tag) for tag in tags)
        elif isinstance(event, MethodReceived):
            told.append(("method", channel, event.method.name, str(event.method.fields)))
        elif isinstance(event, ChannelFailed):
            told.append(("channel failed", channel, type(event.error), str(event.error)))
        elif isinstance(event, ConnectionFailed):
            violation = event.violation
            told.append(("failed", channel, violation.code, violation.name, violation.text))
        else:
            raise Broken(f"an event nobody knows: {event!r}")
    return told


def _published(channel: int, run: PublishRun) -> Iterator[tuple[Any, ...]]:
    address = run.address
    where = (address.exchange, address.routing_key, address.mandatory)
    for message in run.messages:
        yield ("publish", channel, *where, message.content, message.flags, message.expires_at_ms)


def decode_in_parts(parts: list[bytes]) -> list[tuple[Any, ...]]:
    decoder = open_decoder()
    told: list[tuple[Any, ...]] = []
    for part in parts:
        events = fed(decoder, part)
        if any(isinstance(event, ConnectionFailed) for event in events[:-1]):
            raise Broken("something came after the connection had failed")
        told += flat(events)
    return told


def open_decoder() -> AmqpDecoder:
    """One past its handshake, its user logged in."""
    decoder = AmqpDecoder(FRAME_MAX, MESSAGE_MAX)
    decoder.open(b"guest")
    return decoder


def fed(decoder: AmqpDecoder, data: bytes) -> list[Event]:
    """What a session does with one read: it lets a decoder that paused go on."""
    events = decoder.receive(data, 1000)
    while decoder.paused:
        events = events + decoder.receive(b"", 1000)
    return events


def decoder(rng: random.Random, corpus: list[bytes]) -> None:
    """Frame splitter and content assembly: same events for every cut."""
    data = _remember(next(mutate.inputs(rng, corpus)))
    if data.startswith(b"AMQP"):
        data = data[8:]
    # Half of the time without the handshake, so that channels are reached at once.
    if rng.randrange(2):
        data = codec.method_frame(1, "channel.open") + data
    whole = decode_in_parts([data])
    for cut in (mutate.splits(rng, data, rng.randint(1, 8)), mutate.bytewise(data[:3000])):
        told = decode_in_parts(cut)
        expected = whole if sum(map(len, cut)) == len(data) else decode_in_parts([b"".join(cut)])
        if told != expected:
            raise Broken(f"cut into {[len(p) for p in cut][:20]}: {told[-3:]} != {expected[-3:]}")


# Methods, tables, properties ------------------------------------------------------------

_METHODS = list(codec.METHOD_IDS.values())


def methods(rng: random.Random, corpus: list[bytes]) -> None:
    """A method payload decodes or is refused with one of two errors."""
    if rng.randrange(2):
        frames, _ = codec.split_frames(rng.choice(corpus)[8:])
        payload = rng.choice(frames).payload
        data = mutate.blind(rng, payload)
    else:
        class_id, method_id = rng.choice(_METHODS)
        tail = rng.randbytes(rng.randrange(30)) + codec.long_string(mutate.random_table(rng))
        data = struct.pack(">HH", class_id, method_id) + tail
    try:
        decode_method(_remember(data))
    except (MalformedArguments, UnknownMethod):
        return


def tables(rng: random.Random, _corpus: list[bytes]) -> None:
    """What a table decodes to can be written and read again as the same."""
    data = codec.long_string(mutate.random_table(rng))
    if rng.randrange(3) == 0:
        data = mutate.blind(rng, data)
    try:
        table, end = decode_table(_remember(data), 0)
    except MalformedArguments:
        return
    if end > len(data):
        raise Broken(f"the table ends at {end}, after {len(data)} bytes")
    try:
        again, _ = decode_table(encode_table(table), 0)
    except ValueError as error:
        if "cannot hold" in str(error) or "fit" in str(error):
            return  # read from a width that is not written (a decimal, an unsigned 64-bit)
        raise
    if repr(again) != repr(table):
        raise Broken(f"{table!r} came back as {again!r}")


def properties(rng: random.Random, corpus: list[bytes]) -> None:
    """A content header is read or refused."""
    frames, _ = codec.split_frames(rng.choice(corpus)[8:])
    headers = [frame.payload for frame in frames if frame.type == codec.HEADER]
    if headers and rng.randrange(2):
        payload = mutate.blind(rng, rng.choice(headers))
    else:
        payload = struct.pack(">HHQH", 60, 0, 1, rng.randrange(65536))
        payload += rng.randbytes(rng.randrange(60))
    payload = payload.ljust(14, b"\0")
    content = _remember(codec.encode_frame(codec.HEADER, 1, payload))
    with suppress(MalformedArguments):
        decode_properties(content)


# The range protocol ---------------------------------------------------------------------

_RANGE_DECODERS: tuple[Callable[[bytes], Any], ...] = (
    ranges.decode_open, ranges.decode_wait, ranges.decode_plan, ranges.decode_range,
    ranges.decode_ack, ranges.decode_ack_some, ranges.decode_opened, ranges.decode_head,
    ranges.decode_group, ranges.decode_grouped,
    ranges.decode_planned, ranges.decode_acked, range_frames.decode_error, ranges.Block,
    range_frames.decode_login, range_frames.decode_welcome,
    subscriptions.decode_subscribe, subscriptions.decode_subscribed, subscriptions.decode_start,
    subscriptions.decode_started, subscriptions.decode_offset_at, subscriptions.decode_offset,
    staging.decode_begin, staging.decode_end, staging.decode_commit, staging.decode_abort,
    staging.decode_last, staging.decode_publish, staging.decode_target, staging.decode_begun,
    staging.decode_taken, staging.decode_ended, staging.decode_committed,
    staging.decode_aborted, staging.decode_last_batch, staging.decode_published,
    staging.decode_targeted,
)  # fmt: skip


def _range_requests(rng: random.Random) -> bytes:
    request = ranges.OpenRequest("guest", "guest", "/", "q", rng.randrange(3), 7, False)
    return b"".join(
        (
            ranges.encode_open(request),
            ranges.encode_wait(5, 1000),
            ranges.encode_plan(0, 2**62, 10, 1 << 20),
            ranges.encode_range(0, 100, 1 << 20, True),
            ranges.encode_ack(50),
            ranges.encode_ack_some([7, 50]),
            ranges.encode_close(),
            subscriptions.encode_subscribe(rng.randrange(2) == 0, rng.randrange(3), ["a", "b"]),
            subscriptions.encode_start("latest", rng.randrange(100)),
            subscriptions.encode_offset_at(1_700_000_000_000, 0, 100),
            staging.encode_begin(staging.BeginRequest("p", "r", 1, 1 << 20, True)),
            staging.encode_commit(staging.CommitRequest("p", "r", 1, True, 1000, ["a", "b"])),
            staging.encode_abort(["a"]),
            staging.encode_target("e", "k"),
        )
    )


def _split_frames(parts: list[bytes]) -> tuple[list[tuple[int, bytes]], bool]:
    splitter = range_frames.FrameSplitter(range_frames.REQUEST_MAX_BYTES)
    frames: list[tuple[int, bytes]] = []
    try:
        for part in parts:
            frames += splitter.feed(part)
    except range_frames.MalformedFrame:
        return frames, True
    return frames, False


def range_requests(rng: random.Random, _corpus: list[bytes]) -> None:
    """Same frames for every cut; every payload decodes or is refused with ``MalformedFrame``."""
    data = _remember(mutate.blind(rng, _range_requests(rng)))
    whole, failed = _split_frames([data])
    for cut in (mutate.splits(rng, data, rng.randint(1, 6)), mutate.bytewise(data)):
        told, failed_too = _split_frames(cut)
        # In one piece a bad frame hides the good ones before it: the connection ends either way.
        if failed_too != failed or (not failed and told != whole):
            raise Broken(f"cut differently: {told} != {whole}")
        for _kind, payload in told:
            _range_payload(rng, payload)
    _range_payload(rng, rng.randbytes(rng.randrange(60)))


def _range_payload(rng: random.Random, payload: bytes) -> None:
    try:
        rng.choice(_RANGE_DECODERS)(_remember(payload))
    except range_frames.MalformedFrame:
        return


# Frames between nodes -------------------------------------------------------------------


def _peer_session(rng: random.Random) -> bytes:
    hello = peer_hello.Hello("c", "a", "1", bytes(32), 5000)
    said = peer.preface() + peer.frame(peer.HELLO, hello.encode())
    said += peer.frame(peer.PROOF, bytes(40))
    for number in range(rng.randrange(4)):
        count = rng.randint(1, 4)
        bodies = [rng.randbytes(rng.choice((0, 1, 50, 5000))) for _ in range(count)]
        parcels = [(1 + number + at, number, at, body) for at, body in enumerate(bodies)]
        said += b"".join(peer.encode_parcels(parcels)) + peer.encode_heartbeat()
    return said + peer.encode_farewell(peer.BYE, peer.STOPPING, "bye")


def _peer_told(parts: list[bytes]) -> list[str]:
    reader = peer.PeerReader()
    told: list[str] = []
    for part in parts:
        frames = reader.receive(part)
        while frames or reader.paused:
            for frame in frames:
                told.append(_peer_frame(frame))
                if frame.kind == peer.PROOF:
                    reader.admit()
            frames = reader.receive(b"") if reader.paused else []
    return told


def _peer_frame(frame: peer.Frame) -> str:
    if frame.kind == peer.HELLO:
        try:
            peer_hello.decode_hello(frame.payload)
        except peer.Wrong as wrong:
            return f"refused: {wrong.text}"
    names = ("payload", "ack", "parcels", "code", "text")
    return f"{frame.kind} {[getattr(frame, name, None) for name in names]}"


def peer_frames(rng: random.Random, _corpus: list[bytes]) -> None:
    """Same frames for every cut, a fault included; nothing after a fault."""
    data = _peer_session(rng)
    for _ in range(rng.randrange(3)):
        data = mutate.blind(rng, data)
    whole = _peer_told([_remember(data)])
    if any(one.startswith("0 ") for one in whole[:-1]):
        raise Broken(f"something came after a fault: {whole}")
    for cut in (mutate.splits(rng, data, rng.randint(1, 8)), mutate.bytewise(data[:3000])):
        told = _peer_told(cut)
        expected = whole if sum(map(len, cut)) == len(data) else _peer_told([b"".join(cut)])
        if told != expected:
            raise Broken(f"cut into {[len(part) for part in cut][:20]}: {told} != {expected}")


# Files of streams -----------------------------------------------------------------------


def _stream_file(rng: random.Random) -> bytes:
    """Blocks with right checksums and heads that may say anything."""
    data = b""
    first = 0
    for _ in range(rng.randint(1, 5)):
        records = [rng.randbytes(rng.choice((0, 3, 400))) for _ in range(rng.randint(0, 4))]
        payload = b"".join(struct.pack(">HI", 0, len(one)) + one for one in records)
        kind, count, floor = 1, len(records), 0
        if rng.random() < 0.3:
            kind = rng.choice((2, 3, 4, 0))
            payload = rng.choice((b"", payload, struct.pack(">QQQQ", first, 5, 0, len(data))))
        if rng.random() < 0.2:
            payload = mutate.blind(rng, payload or b"x")
        if rng.random() < 0.1:
            count, floor = rng.choice((0, 1, 2**31 - 1)), rng.choice((0, first, 2**62))
        head = struct.pack(
            ">4sIIIQQQQqqIII",
            rng.choice((b"PSS\x01",) * 30 + (b"PSS\x02",)),
            *(7, kind, count, len(data), rng.choice((0, len(data)))),
            *(floor, first, rng.choice((0, 5, -1)), 5),
            *(0, len(payload), zlib.crc32(payload)),
        )
        data += head + zlib.crc32(head).to_bytes(4, "big") + payload
        first += len(records)
    return data


def stream_files(rng: random.Random, _corpus: list[bytes]) -> None:
    """A start refuses a file with Corrupt, or what it takes is read, or refused with Corrupt."""
    data = _stream_file(rng)
    for _ in range(rng.choice((0, 0, 1, 3))):
        data = mutate.blind(rng, data)
    files = SimFileSystem()
    files.makedirs(STREAM)
    files.pwrite_parts(files.open_write(f"{STREAM}/0.stm"), 0, [_remember(data)])
    world = StreamWorld(files=files)
    recovery = StreamRecovery(STREAM, 7, 0)
    try:
        recovery.run(files)
    except Corrupt:
        return
    world.open(recovery.found)
    world.log.check()
    for start in (cursor.Start(cursor.FIRST), cursor.Start(cursor.TIME, 5)):
        reader = cursor.StreamCursor(world.log, start)
        found = [one.seq_id for one in world.read(reader)]
        if reader.error is not None and not isinstance(reader.error, Corrupt):
            raise reader.error
        ends = not found or found[-1] == world.log.next_offset - 1
        if found != list(range(found[0] if found else 0, len(found) + (found[0] if found else 0))):
            raise Broken(f"gaps: {found}")
        if reader.error is None and not ends:
            raise Broken(f"left out: {found} of {world.log.next_offset}")


# Tokens of OAuth 2 ------------------------------------------------------------------------

_WORDS = (
    *("rabbitmq.", "read:", "write:", "tag:", "*", "/", "%2F", "%", "{vhost}", "{sub}", "{", "}"),
    *("+", " ", "a", "\u00e9", "\ud800", "rabbitmq"),
)
_CLAIMS = (
    *("aud", "iss", "exp", "nbf", "scope", "sub", "client_id", "authorization", "roles"),
    *("permissions", "scopes", "authorization_details", "type", "locations", "actions", "x"),
)
_OAUTH = oauth_options(
    json.dumps(
        {
            "resource_server_id": "rabbitmq",
            "resource_server_type": "a",
            "verify_aud": False,
            "require_exp": False,
            "additional_scopes_key": "roles x.scopes",
            "issuer": "https://a",
        }
    )
)


def _words(rng: random.Random) -> str:
    return "".join(rng.choices(_WORDS, k=rng.choice((0, 1, 3, 8, 40))))


def _json(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(9 if depth else 6)
    if kind < 4:
        return _words(rng)
    if kind < 6:
        return rng.choice((None, True, 0, -1, 1 << 62, 1e308, 1.5, [], {}))
    if kind < 7:
        return [_json(rng, depth - 1) for _ in range(rng.choice((0, 1, 3, 30)))]
    return {rng.choice(_CLAIMS): _json(rng, depth - 1) for _ in range(rng.choice((1, 3, 9)))}


def _part(rng: random.Random, value: object) -> str:
    data = json.dumps(value).encode()
    if rng.random() < 0.2:
        data = mutate.blind(rng, data)
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def oauth_tokens(rng: random.Random, _corpus: list[bytes]) -> None:
    """A password is refused with TokenRefused, or is a user whose scopes can be asked."""
    header = {"alg": rng.choice(("RS256", "none", "")), **_json_object(rng)}
    claims = {"iss": "https://a", **_json_object(rng)}
    text = f"{_part(rng, header)}.{_part(rng, claims)}.AAAA"
    if rng.random() < 0.2:
        text = mutate.blind(rng, text.encode()).decode("utf-8", "surrogateescape")
    _remember(text.encode("utf-8", "surrogateescape"))
    known = ProviderKeys({None: cast(Any, None)}, frozenset({"https://a"}))
    verifier = Verifier(_OAUTH, lambda _name: known, lambda *_: None)
    try:
        user = verifier.user_of(text, WallMs(1_000_000))
    except TokenRefused as refused:
        if len(str(refused)) > 200:
            raise Broken(f"a long reason: {refused}") from refused
        return
    named = _words(rng)[:255].encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    for vhost in ("/", named):
        grants = user.scopes.in_vhost(vhost)
        if grants is not None:
            grants.allows(rng.randrange(3), _words(rng))
            grants.allows_topic(rng.randrange(3), _words(rng), _words(rng))


def _json_object(rng: random.Random) -> dict[str, Any]:
    return {rng.choice((*_CLAIMS, "kid", "crit")): _json(rng, 3) for _ in range(rng.randrange(6))}


# Memory ---------------------------------------------------------------------------------


def memory(rng: random.Random, _corpus: list[bytes]) -> None:
    """Announcing costs nothing: memory follows the bytes that came, with a small factor."""
    data = _remember(_announcements(rng))
    tracemalloc.start()
    try:
        keep = open_decoder()
        for part in mutate.splits(rng, data, 5):
            fed(keep, part)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > 30 * len(data) + 100_000:
        raise Broken(f"{peak} bytes of memory for {len(data)} bytes of input")


def _announcements(rng: random.Random) -> bytes:
    """Frames, bodies, strings and tables that say they are huge, and end at once."""
    out = b""
    for channel in range(1, rng.choice((2, 20, 300))):
        out += codec.method_frame(channel, "channel.open")
        out += codec.method_frame(channel, "basic.publish", routing_key="q")
        out += codec.header_frame(channel, rng.choice((0, MESSAGE_MAX, MESSAGE_MAX + 1)), {})
    size = struct.pack(">I", rng.choice(mutate.SIZES))
    kind = rng.randrange(3)
    if kind == 0:
        out += struct.pack(">BH", rng.choice((1, 2, 3, 8)), 1) + size
    elif kind == 1:
        broken = struct.pack(">HHH", 50, 10, 0) + codec.short_string("q") + b"\x02" + size
        out += codec.method_frame(1000, "channel.open")
        out += codec.encode_frame(codec.METHOD, 1000, broken)
    else:
        inner = codec.short_string("k") + rng.choice((b"S", b"x", b"A", b"F")) + size
        table = codec.long_string(inner)
        broken = struct.pack(">HHH", 50, 10, 0) + codec.short_string("q") + b"\x02" + table
        out += codec.method_frame(1000, "channel.open")
        out += codec.encode_frame(codec.METHOD, 1000, broken)
    return out


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        *(decoder, methods, tables, properties, range_requests, peer_frames),
        *(stream_files, oauth_tokens, memory),
    )
}
