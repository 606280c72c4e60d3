"""Counts the calls and files of a message's walks through the interpreted sources.

    PENSTOCK_PURE=1 PYTHONPATH=src:. python tools/trace_walks.py [--files]

A whole broker without sockets (the tests' ``QuietBroker``) does five things: it takes a durable
persistent publish, it runs the turn that delivers, writes and confirms, it takes the
acknowledgement, it runs the turn after that, and an idle turn.  The part of the publish up to the
journal's buffer is counted by itself, too.  Calls are those of Python functions in
``src/penstock``, constructors included; comprehensions do not count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCES = f"{ROOT}/src/penstock/"
IN_THE_BUFFER = ("backing/disk_records.py", "DiskRecords.journalled")
"""The first step of a publish after ``Journal.publish`` has returned."""


class Walk(NamedTuple):
    """``steps``: (file below src/penstock, function), in the order of the calls."""

    name: str
    steps: tuple[tuple[str, str], ...]

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(file for file, _ in self.steps))

    def part_before(self, step: tuple[str, str], name: str) -> Walk:
        """Its steps before ``step``; raises ValueError if the walk does not have it."""
        return Walk(name, self.steps[: self.steps.index(step)])


def record(name: str, run: Callable[[], object]) -> Walk:
    steps: list[tuple[str, str]] = []

    def seen(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCES) and code.co_name[0] != "<":
            steps.append((code.co_filename.removeprefix(SOURCES), code.co_qualname))

    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(None)
    return Walk(name, tuple(steps))


def walks() -> list[Walk]:
    """The five and that part, on a broker that has done all of it before."""
    from penstock.core.clock_types import WallMs
    from tests.helpers import raw_codec as codec
    from tests.helpers.connection_pair import QuietBroker

    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.call("confirm.select")
    client.call("basic.consume", queue="q", consumer_tag="c")

    def publish() -> bytes:
        method = codec.method_frame(1, "basic.publish", exchange="", routing_key="q")
        return method + codec.content_frames(1, b"hello", {"delivery_mode": 2})

    def turn() -> None:
        node.turn.run(WallMs(node.now_ms), False)

    def receive(data: bytes) -> Callable[[], None]:
        def run() -> None:
            client.session.receive(data, WallMs(node.now_ms))
            node.turn.fed(client.session)

        return run

    recorded = []
    for tag in (1, 2):
        ack = codec.method_frame(1, "basic.ack", delivery_tag=tag, multiple=False)
        recorded = [
            record("publish", receive(publish())),
            record("turn of the publish", turn),
            record("acknowledgement", receive(ack)),
            record("turn of the acknowledgement", turn),
        ]
        node.run()
    buffered = recorded[0].part_before(IN_THE_BUFFER, "publish, to the journal's buffer")
    return [buffered, *recorded, record("idle turn", turn)]


def lines(found: Iterable[Walk], *, files: bool) -> Iterable[str]:
    yield f"{'walk':<32} {'calls':>5} {'functions':>9} {'files':>5}"
    for walk in found:
        yield f"{walk.name:<32} {len(walk.steps):>5} {len(set(walk.steps)):>9} {len(walk.files):>5}"
        if files:
            yield from (f"    {file}: {function}" for file, function in walk.steps)


if __name__ == "__main__":
    print("\n".join(lines(walks(), files="--files" in sys.argv)))
