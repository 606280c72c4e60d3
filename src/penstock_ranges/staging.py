"""Writing batches by way of staged sets: the frames of it, as bytes; no socket here.

How a frame looks is in ``frames``, what sets and commits are in ``staging`` of the broker.  All of
this needs a LOGIN before.  A connection stages one set at a time::

    STAGE_BEGIN  string producer, run; i64 batch, max_bytes; u8 must_route
                 -> STAGE_BEGUN  u8 needed; string set
    STAGE_BLOCK  AMQP frames
                 -> STAGE_TAKEN  u8 taken; string why not
    STAGE_END    i64 messages
                 -> STAGE_ENDED  i64 bytes                  once all of it is on disk
    TXN_COMMIT   string producer, run; i64 batch; u8 must_route; u32 patience_ms;
                 u32 count; string set[count]
                 -> COMMITTED    u8 outcome; i64 messages, unroutable; string why not yet
    TXN_ABORT    u32 count; string set[count]
                 -> ABORTED      u32 count                  of those that were dropped
    TXN_LAST     string producer
                 -> LAST         i64 batch                  -1 = none
    PUBLISH      u8 must_route; u32 patience_ms; AMQP frames
                 -> PUBLISHED    u8 taken; i64 unroutable; string why not
                                                            taken: once all of it is on disk
    TARGET       string exchange, routing key
                 -> TARGETED     u8 where does it lead      refused if one may not publish there

A target leads NOWHERE, to queues whose masters are all HERE (as far as that is known without a
message), or not all of them are (ELSEWHERE).

``needed`` is 0 when the batch is committed already: there is nothing to stage.  ``must_route``
refuses messages that reach no queue.  An *outcome* is DONE, DUPLICATE (that batch was committed
before, and is published) or UNDER_WAY (decided, but not all is published within ``patience_ms``:
ask again).  In a cluster STAGE_BEGIN and TXN_COMMIT are refused (as ``frames`` says of queues
whose master is on another node, or nowhere) where another node has committed the batch and has
not published all of it.

AMQP frames are those of a publisher on channel 1: ``basic.publish`` methods, each with its content.
Blocks need not end where messages do; together they are one stream.  A block that was not
``taken`` (memory or disk is short, in words) may be sent again.
"""

from struct import Struct
from typing import Final, NamedTuple

from penstock_ranges.frames import (
    MalformedFrame,
    check_size,
    frame,
    number,
    string,
    take_number,
    take_string,
)

STAGE_BEGIN: Final = 40
STAGE_BLOCK: Final = 41
STAGE_END: Final = 42
TXN_COMMIT: Final = 43
TXN_ABORT: Final = 44
TXN_LAST: Final = 45
PUBLISH: Final = 46
TARGET: Final = 47
STAGE_BEGUN: Final = 104
STAGE_TAKEN: Final = 105
STAGE_ENDED: Final = 106
COMMITTED: Final = 107
ABORTED: Final = 108
LAST: Final = 109
PUBLISHED: Final = 110
TARGETED: Final = 111

DONE: Final = 0
DUPLICATE: Final = 1
UNDER_WAY: Final = 2

NOWHERE: Final = 0
HERE: Final = 1
ELSEWHERE: Final = 2

CHANNEL: Final = 1
SETS_MAX: Final = 10_000
"""That one commit may name."""
NAME_BYTES_MAX: Final = 255
"""Of producers and runs: they are remembered, many of them."""

_U32 = Struct(">I")
_BEGIN = Struct(">qqB")
_COMMIT = Struct(">qBII")
_COMMITTED = Struct(">Bqq")
_PUBLISH = Struct(">BI")
_PUBLISHED = Struct(">Bq")


class BeginRequest(NamedTuple):
    producer: str
    run: str
    batch: int
    max_bytes: int
    must_route: bool


class CommitRequest(NamedTuple):
    producer: str
    run: str
    batch: int
    must_route: bool
    patience_ms: int
    sets: list[str]


class Committed(NamedTuple):
    """``trouble``: what pouring waits for, if it is under way."""

    outcome: int
    messages: int
    unroutable: int
    trouble: str


# -- requests --------------------------------------------------------------------------------


def encode_begin(request: BeginRequest) -> bytes:
    fixed = _BEGIN.pack(request.batch, request.max_bytes, int(request.must_route))
    return frame(STAGE_BEGIN, string(request.producer) + string(request.run) + fixed)


def decode_begin(payload: bytes) -> BeginRequest:
    producer, run, at = _take_run("STAGE_BEGIN", payload)
    check_size("STAGE_BEGIN", payload[at:], _BEGIN.size)
    batch, max_bytes, must_route = _BEGIN.unpack_from(payload, at)
    _check_batch(batch)
    if max_bytes < 1:
        raise MalformedFrame(f"STAGE_BEGIN for {max_bytes} bytes")
    return BeginRequest(producer, run, batch, max_bytes, must_route != 0)


def encode_block(frames: bytes) -> bytes:
    return frame(STAGE_BLOCK, frames)


def encode_end(messages: int) -> bytes:
    return number(STAGE_END, messages)


def decode_end(payload: bytes) -> int:
    return take_number("STAGE_END", payload)


def encode_commit(request: CommitRequest) -> bytes:
    fixed = _COMMIT.pack(
        request.batch, int(request.must_route), request.patience_ms, len(request.sets)
    )
    names = b"".join(string(name) for name in request.sets)
    return frame(TXN_COMMIT, string(request.producer) + string(request.run) + fixed + names)


def decode_commit(payload: bytes) -> CommitRequest:
    producer, run, at = _take_run("TXN_COMMIT", payload)
    if len(payload) - at < _COMMIT.size:
        raise MalformedFrame("TXN_COMMIT is cut short")
    batch, must_route, patience_ms, count = _COMMIT.unpack_from(payload, at)
    _check_batch(batch)
    sets = _take_sets("TXN_COMMIT", payload, at + _COMMIT.size, count)
    return CommitRequest(producer, run, batch, must_route != 0, patience_ms, sets)


def encode_abort(sets: list[str]) -> bytes:
    names = b"".join(string(name) for name in sets)
    return frame(TXN_ABORT, _U32.pack(len(sets)) + names)


def decode_abort(payload: bytes) -> list[str]:
    if len(payload) < _U32.size:
        raise MalformedFrame("TXN_ABORT is cut short")
    count: int = _U32.unpack_from(payload)[0]
    return _take_sets("TXN_ABORT", payload, _U32.size, count)


def encode_last(producer: str) -> bytes:
    return frame(TXN_LAST, string(producer))


def decode_last(payload: bytes) -> str:
    producer, at = take_string(payload, 0)
    check_size("TXN_LAST", payload[at:], 0)
    return producer


def encode_publish(frames: bytes, must_route: bool, patience_ms: int) -> bytes:
    return frame(PUBLISH, _PUBLISH.pack(int(must_route), patience_ms) + frames)


def decode_publish(payload: bytes) -> tuple[bool, int, bytes]:
    """(must_route, patience_ms, frames)"""
    if len(payload) < _PUBLISH.size:
        raise MalformedFrame("PUBLISH is cut short")
    must_route, patience_ms = _PUBLISH.unpack_from(payload)
    return must_route != 0, patience_ms, payload[_PUBLISH.size :]


def encode_target(exchange: str, routing_key: str) -> bytes:
    return frame(TARGET, string(exchange) + string(routing_key))


def decode_target(payload: bytes) -> tuple[str, str]:
    """(exchange, routing key)"""
    exchange, at = take_string(payload, 0)
    routing_key, at = take_string(payload, at)
    check_size("TARGET", payload[at:], 0)
    if max(len(exchange.encode()), len(routing_key.encode())) > 255:
        raise MalformedFrame("names of exchanges and routing keys have 255 bytes at most")
    return exchange, routing_key


# -- replies ---------------------------------------------------------------------------------


def encode_begun(name: str) -> bytes:
    """No name: it is not needed."""
    return frame(STAGE_BEGUN, bytes((1 if name else 0,)) + string(name))


def decode_begun(payload: bytes) -> str:
    name, at = take_string(payload, 1)
    check_size("STAGE_BEGUN", payload[at:], 0)
    return name


def encode_taken(reason: str) -> bytes:
    """No reason: it is taken."""
    return frame(STAGE_TAKEN, bytes((0 if reason else 1,)) + string(reason))


def decode_taken(payload: bytes) -> str:
    reason, at = take_string(payload, 1)
    check_size("STAGE_TAKEN", payload[at:], 0)
    return reason


def encode_ended(size_bytes: int) -> bytes:
    return number(STAGE_ENDED, size_bytes)


def decode_ended(payload: bytes) -> int:
    return take_number("STAGE_ENDED", payload)


def encode_committed(result: Committed) -> bytes:
    fixed = _COMMITTED.pack(result.outcome, result.messages, result.unroutable)
    return frame(COMMITTED, fixed + string(result.trouble))


def decode_committed(payload: bytes) -> Committed:
    if len(payload) < _COMMITTED.size:
        raise MalformedFrame("COMMITTED is cut short")
    outcome, messages, unroutable = _COMMITTED.unpack_from(payload)
    trouble, at = take_string(payload, _COMMITTED.size)
    check_size("COMMITTED", payload[at:], 0)
    return Committed(outcome, messages, unroutable, trouble)


def encode_aborted(count: int) -> bytes:
    return frame(ABORTED, _U32.pack(count))


def decode_aborted(payload: bytes) -> int:
    check_size("ABORTED", payload, _U32.size)
    count: int = _U32.unpack(payload)[0]
    return count


def encode_last_batch(batch: int) -> bytes:
    return number(LAST, batch)


def decode_last_batch(payload: bytes) -> int:
    return take_number("LAST", payload)


def encode_published(reason: str, unroutable: int) -> bytes:
    return frame(PUBLISHED, _PUBLISHED.pack(0 if reason else 1, unroutable) + string(reason))


def decode_published(payload: bytes) -> tuple[str, int]:
    """(why it was not taken, unroutable)"""
    if len(payload) < _PUBLISHED.size:
        raise MalformedFrame("PUBLISHED is cut short")
    _, unroutable = _PUBLISHED.unpack_from(payload)
    reason, at = take_string(payload, _PUBLISHED.size)
    check_size("PUBLISHED", payload[at:], 0)
    return reason, unroutable


def encode_targeted(leads: int) -> bytes:
    return frame(TARGETED, bytes((leads,)))


def decode_targeted(payload: bytes) -> int:
    check_size("TARGETED", payload, 1)
    return payload[0]


# -- what they are made of -------------------------------------------------------------------


def _take_run(name: str, payload: bytes) -> tuple[str, str, int]:
    """(producer, run, position after them); both have a name."""
    producer, at = take_string(payload, 0)
    run, at = take_string(payload, at)
    if not producer or not run:
        raise MalformedFrame(f"{name} without a producer or a run")
    if max(len(producer.encode()), len(run.encode())) > NAME_BYTES_MAX:
        raise MalformedFrame(f"names of producers and runs have {NAME_BYTES_MAX} bytes at most")
    return producer, run, at


def _take_sets(name: str, payload: bytes, at: int, count: int) -> list[str]:
    if count > SETS_MAX:
        raise MalformedFrame(f"{name} names {count} sets, at most {SETS_MAX} are allowed")
    sets: list[str] = []
    for _ in range(count):
        one, at = take_string(payload, at)
        sets.append(one)
    check_size(name, payload[at:], 0)
    return sets


def _check_batch(batch: int) -> None:
    if batch < 0:
        raise MalformedFrame(f"batch {batch}: batches are numbered from 0 on")
