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

from typing import Final, NamedTuple

from penstock_ranges.frames import Form, MalformedFrame

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
NAME_BYTES_MAX: Final = 255
"""Of producers and runs: they are remembered, many of them."""


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
    """``trouble``: what publishing waits for, if it is under way."""

    outcome: int
    messages: int
    unroutable: int
    trouble: str


# -- requests --------------------------------------------------------------------------------

_BEGIN = Form[BeginRequest](STAGE_BEGIN, "STAGE_BEGIN", "ssqq?", BeginRequest)
_BLOCK = Form[bytes](STAGE_BLOCK, "STAGE_BLOCK", "r")
encode_block = _BLOCK.encode
_END = Form[int](STAGE_END, "STAGE_END", "q")
encode_end, decode_end = _END.encode, _END.decode
_COMMIT = Form[CommitRequest](TXN_COMMIT, "TXN_COMMIT", "ssq?IN", CommitRequest)
_ABORT = Form[list[str]](TXN_ABORT, "TXN_ABORT", "N")
encode_abort, decode_abort = _ABORT.encode, _ABORT.decode
_LAST = Form[str](TXN_LAST, "TXN_LAST", "s")
encode_last, decode_last = _LAST.encode, _LAST.decode
_PUBLISH = Form[tuple[bool, int, bytes]](PUBLISH, "PUBLISH", "?Ir")
decode_publish = _PUBLISH.decode  # must_route, patience_ms, frames
_TARGET = Form[tuple[str, str]](TARGET, "TARGET", "ss")
encode_target = _TARGET.encode


def encode_begin(request: BeginRequest) -> bytes:
    return _BEGIN.encode(*request)


def decode_begin(payload: bytes) -> BeginRequest:
    request = _BEGIN.decode(payload)
    _check_run("STAGE_BEGIN", request.producer, request.run, request.batch)
    if request.max_bytes < 1:
        raise MalformedFrame(f"STAGE_BEGIN for {request.max_bytes} bytes")
    return request


def encode_commit(request: CommitRequest) -> bytes:
    return _COMMIT.encode(*request)


def decode_commit(payload: bytes) -> CommitRequest:
    request = _COMMIT.decode(payload)
    _check_run("TXN_COMMIT", request.producer, request.run, request.batch)
    return request


def encode_publish(frames: bytes, must_route: bool, patience_ms: int) -> bytes:
    return _PUBLISH.encode(must_route, patience_ms, frames)


def decode_target(payload: bytes) -> tuple[str, str]:
    """(exchange, routing key)"""
    exchange, routing_key = _TARGET.decode(payload)
    if max(len(exchange.encode()), len(routing_key.encode())) > 255:
        raise MalformedFrame("names of exchanges and routing keys have 255 bytes at most")
    return exchange, routing_key


def _check_run(name: str, producer: str, run: str, batch: int) -> None:
    if not producer or not run:
        raise MalformedFrame(f"{name} without a producer or a run")
    if max(len(producer.encode()), len(run.encode())) > NAME_BYTES_MAX:
        raise MalformedFrame(f"names of producers and runs have {NAME_BYTES_MAX} bytes at most")
    if batch < 0:
        raise MalformedFrame(f"batch {batch}: batches are numbered from 0 on")


# -- replies ---------------------------------------------------------------------------------

_BEGUN = Form[tuple[bool, str]](STAGE_BEGUN, "STAGE_BEGUN", "?s")
_TAKEN = Form[tuple[bool, str]](STAGE_TAKEN, "STAGE_TAKEN", "?s")
_ENDED = Form[int](STAGE_ENDED, "STAGE_ENDED", "q")
encode_ended, decode_ended = _ENDED.encode, _ENDED.decode
_COMMITTED = Form[Committed](COMMITTED, "COMMITTED", "Bqqs", Committed)
decode_committed = _COMMITTED.decode
_ABORTED = Form[int](ABORTED, "ABORTED", "I")
encode_aborted, decode_aborted = _ABORTED.encode, _ABORTED.decode
_LAST_BATCH = Form[int](LAST, "LAST", "q")
encode_last_batch, decode_last_batch = _LAST_BATCH.encode, _LAST_BATCH.decode
_PUBLISHED = Form[tuple[bool, int, str]](PUBLISHED, "PUBLISHED", "?qs")
_TARGETED = Form[int](TARGETED, "TARGETED", "B")
encode_targeted, decode_targeted = _TARGETED.encode, _TARGETED.decode


def encode_begun(name: str) -> bytes:
    """No name: it is not needed."""
    return _BEGUN.encode(bool(name), name)


def decode_begun(payload: bytes) -> str:
    return _BEGUN.decode(payload)[1]


def encode_taken(reason: str) -> bytes:
    """No reason: it is taken."""
    return _TAKEN.encode(not reason, reason)


def decode_taken(payload: bytes) -> str:
    return _TAKEN.decode(payload)[1]


def encode_committed(result: Committed) -> bytes:
    return _COMMITTED.encode(*result)


def encode_published(reason: str, unroutable: int) -> bytes:
    return _PUBLISHED.encode(not reason, unroutable, reason)


def decode_published(payload: bytes) -> tuple[str, int]:
    """(why it was not taken, unroutable)"""
    _, unroutable, reason = _PUBLISHED.decode(payload)
    return reason, unroutable
