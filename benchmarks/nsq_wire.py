"""A load generator for NSQ: whole blocks of commands out, whole blocks of frames in.

Everything is encoded before the clock starts: a publisher sends the same bytes again and again and
counts its answers by their length, a reader knows the size of its frames and takes the ids from
their places, so that the generator is not what is measured.  Options are one JSON object:

    {"what": "publish", "port": 4150, "topic": "t", "count": 100000, "size": 200, "batch": 200}
    {"what": "read", "port": 4150, "topic": "t", "count": 100000, "size": 200, "finish_every": 1}
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import struct
import sys
import time
from typing import Any, Final

OK_FRAME: Final = struct.pack(">ii", 6, 0) + b"OK"
HEAD_BYTES: Final = 8 + 26
RECEIVE_BYTES: Final = 1 << 20
SILENCE_S: Final = 30.0
CHANNEL: Final = "ch"


class WireError(Exception):
    """The broker said something else than it should."""


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def answer(line: socket.socket) -> bytes:
    """One frame's type and data, read without reading more."""
    size = struct.unpack(">i", line.recv(4, socket.MSG_WAITALL))[0]
    return line.recv(size, socket.MSG_WAITALL)


def connect(port: int, **fields: object) -> socket.socket:
    """A connection that has introduced itself; without heartbeats unless told otherwise."""
    line = socket.create_connection(("127.0.0.1", port), timeout=SILENCE_S)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    introduction = {"client_id": "bench", "heartbeat_interval": -1} | fields
    line.sendall(b"  V2IDENTIFY\n" + sized(json.dumps(introduction).encode()))
    if (said := answer(line)) != OK_FRAME[4:]:
        raise WireError(f"IDENTIFY: {said!r}")
    return line


def subscribe(port: int, topic: str) -> socket.socket:
    """A reader with the longest of heartbeats: a run is shorter."""
    line = connect(
        port, heartbeat_interval=60_000, output_buffer_size=65_536, output_buffer_timeout=25
    )
    line.sendall(f"SUB {topic} {CHANNEL}\n".encode())
    if (said := answer(line)) != OK_FRAME[4:]:
        raise WireError(f"SUB: {said!r}")
    return line


def command(topic: str, size: int, batch: int) -> bytes:
    """One PUB, or an MPUB of ``batch`` messages; no two messages of a batch are alike."""
    bodies = [number.to_bytes(8, "big").ljust(size, b"\x55")[:size] for number in range(batch)]
    if batch == 1:
        return f"PUB {topic}\n".encode() + sized(bodies[0])
    messages = b"".join(map(sized, bodies))
    return f"MPUB {topic}\n".encode() + sized(struct.pack(">i", batch) + messages)


def publish(given: argparse.Namespace) -> dict[str, Any]:
    """``count`` messages, no more than ``window`` of them without an answer."""
    line = connect(given.port)
    together = max(1, given.window // 4 // given.batch)
    block = command(given.topic, given.size, given.batch) * together
    wanted = max(1, given.count // given.batch)
    most = max(together, given.window // given.batch)
    sent = answered = 0
    rest = b""
    began = time.perf_counter()
    while answered < wanted:
        while sent < wanted and sent - answered + together <= most:
            line.sendall(block)
            sent += together
        rest += line.recv(RECEIVE_BYTES)
        whole = len(rest) // len(OK_FRAME)
        if not whole and not rest:
            raise WireError("the connection was closed")
        if rest[: whole * len(OK_FRAME)] != OK_FRAME * whole:
            raise WireError(f"not OK: {rest[:100]!r}")
        rest = rest[whole * len(OK_FRAME) :]
        answered += whole
    took_s = time.perf_counter() - began
    return {"messages": answered * given.batch, "seconds": took_s}


def read(given: argparse.Namespace) -> dict[str, Any]:
    """``count`` messages, finished one write each or so many together."""
    line = subscribe(given.port, given.topic)
    frame = struct.Struct(f">8x8xH16s{given.size}x")
    head = struct.pack(">ii", HEAD_BYTES - 4 + given.size, 2)
    line.sendall(b"RDY %d\n" % given.window)
    rest = line.recv(RECEIVE_BYTES)
    began = time.perf_counter()
    count = again = 0
    finished: list[bytes] = []
    while True:
        whole = len(rest) // frame.size
        for attempts, identifier in frame.iter_unpack(rest[: whole * frame.size]):
            again += attempts > 1
            finished.append(b"FIN %b\n" % identifier)
            if len(finished) == given.finish_every:
                line.sendall(b"".join(finished))
                finished.clear()
        if whole and (rest[:8] != head or rest[(whole - 1) * frame.size :][:8] != head):
            raise WireError(f"not a message of {given.size} bytes: {rest[:100]!r}")
        rest = rest[whole * frame.size :]
        count += whole
        if count >= given.count:
            break
        if finished:  # what came with one read is not kept for the next
            line.sendall(b"".join(finished))
            finished.clear()
        data = line.recv(RECEIVE_BYTES)
        if not data:
            raise WireError("the connection was closed")
        rest += data
    took_s = time.perf_counter() - began
    line.sendall(b"".join(finished) + b"CLS\n")
    while line.recv(RECEIVE_BYTES)[-10:] != b"CLOSE_WAIT":
        pass
    return {"messages": count, "seconds": took_s, "redelivered": again}


def main() -> int:
    given = argparse.Namespace(batch=1, window=1000, finish_every=1)
    vars(given).update(json.loads(sys.argv[1]))
    try:
        said = publish(given) if given.what == "publish" else read(given)
    except (WireError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    own = resource.getrusage(resource.RUSAGE_SELF)
    said["rate"] = said["messages"] / said["seconds"]
    said["generator_cpu_s"] = own.ru_utime + own.ru_stime
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
