"""The disk is full: publishers are held and told, consumers make room, and service goes on.

The promise (``disk/committer.py``, ``runtime/disk/worker.py``): lack of space is waited for.
Meanwhile publishers are not read and those that understand it are told ``connection.blocked``
with ``low on disk``, the log and the management API say why, consumers are served, and nothing
that was confirmed is lost, also when the process is killed while the disk is full.  When
there is room again, because somebody made it or because consumers did, the broker goes on by
itself.

Needs a small file system of its own to fill, and so the right to mount one.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.crash.kill_clients import (
    Deliveries,
    Delivery,
    Gone,
    Line,
    Promises,
    Publishing,
    id_of,
    method_ids,
)
from tests.helpers import raw_codec as codec
from tests.helpers.live_broker import LiveBroker, MemoryAbove
from tests.helpers.management_api import manage, status_of

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

SIZE_KIB = 20 * 1024
ROOM_KIB = 1 << 18
FLAGS: dict[str, object] = {
    "journal-file-size-bytes": 1_048_576,
    "journal-size-limit-bytes": 2_097_152,
    "queue-index-segment-entries": 512,
    "queue-index-max-journal-entries": 512,
    "msg-store-file-size-limit-bytes": 1_048_576,
    "vm-memory-high-watermark": MemoryAbove(18_000_000),
    "vm-memory-high-watermark-paging-ratio": 0.025,
    "disk-free-limit": 0,
}
BODY_BYTES = (3000, 6000)
"""One kind goes into the queue index, the other into the message store."""
BLOCKED = codec.METHOD_IDS["connection.blocked"]
UNBLOCKED = codec.METHOD_IDS["connection.unblocked"]
WAIT_S = 20.0


class SmallDisk:
    """A directory with little room; ``widen`` makes more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        if not self._mount(f"size={SIZE_KIB}k"):
            pytest.skip("mounting a small file system is not allowed here")

    def _mount(self, options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def widen(self) -> None:
        assert self._mount(f"remount,size={ROOM_KIB}k")

    def lay_ballast(self, left_bytes: int = 0) -> None:
        """Fill it up with something that is not the broker's."""
        with (self.path / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while ballast.write(b"x" * 4096):
                pass
        size = (self.path / "ballast").stat().st_size
        with (self.path / "ballast").open("r+b") as ballast:
            ballast.truncate(max(0, size - left_bytes))

    def throw_ballast(self) -> None:
        (self.path / "ballast").unlink()

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    small = SmallDisk(tmp_path / "small")
    yield small
    small.close()


@pytest.fixture
def broker(tmp_path: Path, disk: SmallDisk) -> Iterator[LiveBroker]:
    flags = tuple(str(word) for key in FLAGS for word in (f"--{key}", FLAGS[key]))
    arguments = ("--data-dir", str(disk.path / "data"), *flags)
    under_test = LiveBroker(tmp_path / "broker", arguments).start()
    yield under_test
    if under_test.process is not None and under_test.process.poll() is None:
        under_test.kill()


class Filler:
    """Publishes with confirms, never more than a window ahead, and hears what it is told."""

    def __init__(self, broker: LiveBroker, name: str, queue: str) -> None:
        self.account = Promises()
        self.queue = queue
        self.told: list[tuple[int, int]] = []
        self.line = Line(broker.url, capabilities={"connection.blocked": True})
        self.publishing = Publishing(self.line, name, {queue: self.account})
        self.reader = Deliveries()

    def publish(self, count: int = 1) -> None:
        for number in range(count):
            size = BODY_BYTES[number % 2]
            self.publishing.publish(("", self.queue), (self.queue,), size)

    def hear(self, wait_s: float) -> bool:
        """Take what comes; False = nothing did."""
        frames = self.line.frames(wait_s)
        self.told += [method_ids(f) for f in frames if method_ids(f) in (BLOCKED, UNBLOCKED)]
        for frame in frames:
            if method_ids(frame) == BLOCKED:
                _, fields = codec.decode_method(frame.payload)
                assert fields == {"reason": "low on disk"}
        list(self.reader.take(frames))
        self.publishing.confirmed(self.reader.confirmed_to)
        return bool(frames)

    def blocked(self) -> bool:
        return self.told[-1:] == [BLOCKED]

    def fill(self, pause_s: float = 0.0) -> None:
        """Until the broker says that it is full; ``pause_s`` follows each pair of publishes."""
        for _ in range(20_000):
            self.publish(2)
            time.sleep(pause_s)
            while self.publishing.unconfirmed() > 20 and not self.blocked():
                assert self.hear(WAIT_S), "held without a word"
            if self.blocked():
                return
        raise AssertionError("the disk is never full")

    def fill_for_good(self) -> None:
        """Until nothing changes for 1.2 s: a segment that is written releases a journal file, which
        may be room for one more group."""
        self.fill()
        while self.hear(1.2):
            if not self.blocked():
                self.fill()

    def wait_unblocked(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.blocked():
            assert time.monotonic() < deadline, "still blocked"
            self.hear(1.0)

    def wait_confirmed(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.publishing.unconfirmed():
            assert time.monotonic() < deadline, "confirms are missing"
            self.hear(1.0)


class Reader:
    """Consumes a queue; its acknowledgements are the caller's affair."""

    def __init__(self, broker: LiveBroker, queue: str, prefetch: int) -> None:
        self.line = Line(broker.url)
        self.deliveries = Deliveries()
        self.line.call("basic.qos", prefetch_count=prefetch)
        self.line.send(codec.method_frame(1, "basic.consume", queue=queue, nowait=True))

    def take(self, wait_s: float = WAIT_S) -> list[Delivery]:
        return list(self.deliveries.take(self.line.frames(wait_s)))

    def ack_to(self, tag: int) -> None:
        self.line.send(codec.method_frame(1, "basic.ack", delivery_tag=tag, multiple=True))


def drain(broker: LiveBroker, queue: str, count: int) -> list[tuple[str, int]]:
    """Take and acknowledge so many."""
    reader = Reader(broker, queue, 100)
    found: list[tuple[str, int]] = []
    while len(found) < count:
        deliveries = reader.take()
        assert deliveries, f"after {len(found)} of {count} messages nothing came any more"
        found += [id_of(delivery.body) for delivery in deliveries]
        reader.ack_to(deliveries[-1].tag)
    reader.line.close()
    return found


def declare(broker: LiveBroker, queue: str = "q", **more: Any) -> int:
    line = Line(broker.url)
    fields = line.call("queue.declare", queue=queue, durable=True, **more)
    line.close()
    return int(str(fields["messages"]))


def storage(broker: LiveBroker) -> dict[str, Any]:
    found: dict[str, Any] = manage(f"{broker.http_url}/api/penstock/storage")
    return found


def judge(broker: LiveBroker, filler: Filler, gone: list[tuple[str, int]]) -> None:
    """All that was confirmed and not taken is there, once, in order."""
    account = filler.account
    ids = drain(broker, filler.queue, declare(broker, filler.queue, passive=True))
    assert ids == sorted(set(ids))
    assert not set(gone) & set(ids)
    assert len(account.confirmed) > 50
    assert account.confirmed <= set(ids) | set(gone) <= account.sent


def test_publishers_are_held_and_told_and_go_on_when_there_is_room(
    broker: LiveBroker, disk: SmallDisk
) -> None:
    declare(broker)
    disk.lay_ballast(6 << 20)
    filler = Filler(broker, "p", "q")
    filler.fill_for_good()  # the broker tries again meanwhile, and says nothing new
    assert "publishers wait" in broker.output()
    assert "no space left on device" in broker.output()
    ends = broker.output().count("the disk has space again")
    assert broker.output().count("publishers wait") == ends + 1
    said = storage(broker)["disk"]
    assert said["publishers_wait"]
    assert "no space left on device" in said["stalled"]
    before = len(filler.account.confirmed)
    disk.throw_ballast()
    filler.wait_unblocked()
    deadline = time.monotonic() + WAIT_S
    while broker.output().count("the disk has space again") == ends:
        assert time.monotonic() < deadline, "the log does not say that it is over"
        time.sleep(0.01)
    assert storage(broker)["disk"]["stalled"] is None
    filler.publish(20)
    filler.wait_confirmed()
    assert len(filler.account.confirmed) > before
    filler.line.close()
    judge(broker, filler, [])
    broker.stop()


def test_who_waits_for_a_confirm_hears_why(broker: LiveBroker, disk: SmallDisk) -> None:
    """It sends nothing more before the confirm has come, so nothing of it is read either."""
    declare(broker)
    filler = Filler(broker, "p", "q")
    disk.lay_ballast()
    while not filler.blocked():
        filler.publish()
        while filler.publishing.unconfirmed() and not filler.blocked():
            assert filler.hear(WAIT_S), "held without a word"
    # None, if the disk was full before a publish needed it.
    assert filler.publishing.unconfirmed() <= 1
    disk.throw_ballast()
    filler.wait_unblocked()
    filler.wait_confirmed()
    filler.line.close()
    judge(broker, filler, [])
    broker.stop()


def test_consumers_go_on_and_make_room(broker: LiveBroker) -> None:
    declare(broker)
    filler = Filler(broker, "p", "q")
    filler.fill()
    confirmed = len(filler.account.confirmed)
    gone = drain(broker, "q", confirmed - 10)
    filler.wait_unblocked()
    filler.publish(20)
    filler.wait_confirmed()
    filler.line.close()
    judge(broker, filler, gone)
    broker.stop()


def keep_free(broker: LiveBroker, limit: str) -> None:
    manage(f"{broker.http_url}/api/penstock/disk-free-limit", {"absolute": limit})


def test_the_alarm_comes_before_the_disk_is_full(broker: LiveBroker, disk: SmallDisk) -> None:
    """And goes when consumers have made room."""
    keep_free(broker, "9MB")  # the broker looks at the disk ten times a second
    declare(broker)
    filler = Filler(broker, "p", "q")
    filler.fill(pause_s=0.001)  # a fast machine fills all of this small disk between two looks
    said = storage(broker)
    assert said["alarms"]["disk"]
    assert said["disk"]["stalled"] is None
    assert 0 < said["alarms"]["disk_free_bytes"] < 9_450_000
    assert "disk resource limit alarm set" in broker.output()
    assert "no space left on device" not in broker.output()
    gone = drain(broker, "q", len(filler.account.confirmed))
    filler.wait_unblocked()
    assert "disk resource limit alarm cleared" in broker.output()
    keep_free(broker, "0")
    filler.publish(100)
    filler.wait_confirmed()
    filler.line.close()
    judge(broker, filler, gone)
    broker.stop()


@pytest.mark.parametrize("moment_ms", [0, 30, 700])
def test_killed_while_it_is_full(broker: LiveBroker, disk: SmallDisk, moment_ms: int) -> None:
    declare(broker)
    filler = Filler(broker, "p", "q")
    filler.fill()
    with suppress(Gone):
        filler.publish(6)
        time.sleep(moment_ms / 1000)
    broker.kill()
    with suppress(Gone):
        while filler.hear(1.0):
            pass
    filler.line.sock.close()
    disk.widen()
    broker.start()
    judge(broker, filler, [])
    broker.stop()


def test_transient_messages_that_do_not_fit(broker: LiveBroker, disk: SmallDisk) -> None:
    """Paging needs the disk too: memory fills up behind it, and nothing is lost or reordered."""
    declare(broker)
    filler = Filler(broker, "T", "q")
    filler.fill()
    disk.widen()
    filler.wait_unblocked()
    filler.publish(20)
    filler.wait_confirmed()
    filler.line.close()
    ids = drain(broker, "q", declare(broker, passive=True))
    assert ids == sorted(filler.account.sent)
    broker.stop()


def ask(broker: LiveBroker, method: str, path: str, body: object) -> int:
    """The status of a request to the management API."""
    return status_of(f"{broker.http_url}/api/{path}", body, method)[0]


def check_refused(broker: LiveBroker, text: str, method: str, **fields: Any) -> None:
    """The channel is closed with that text."""
    line = Line(broker.url)
    with pytest.raises(AssertionError, match=text):
        line.call(method, **fields)
    line.sock.close()


def fill_up(broker: LiveBroker, disk: SmallDisk) -> Filler:
    """A queue with messages, and no byte of the disk left."""
    declare(broker)
    declare(broker, "spare")
    filler = Filler(broker, "p", "q")
    filler.fill()
    disk.lay_ballast()
    deadline = time.monotonic() + WAIT_S
    while not (filler.blocked() and storage(broker)["disk"]["stalled"]):
        assert time.monotonic() < deadline, "the disk is not full"
        filler.publish()
        filler.hear(0.2)
    return filler


def test_what_is_new_is_refused_and_nothing_ends_the_broker(
    broker: LiveBroker, disk: SmallDisk
) -> None:
    """Definitions on a full disk (D5 of the review)."""
    filler = fill_up(broker, disk)
    text = "PRECONDITION_FAILED - the disk is full: nothing new can be kept until there is space"
    binding = {"queue": "q", "exchange": "amq.topic", "routing_key": "k"}
    exchange = {"exchange": "e", "type": "topic", "durable": True}
    check_refused(broker, text, "queue.declare", queue="new", durable=True)
    check_refused(broker, text, "exchange.declare", **exchange)
    check_refused(broker, text, "queue.bind", **binding)
    policy = {"pattern": "^zz", "definition": {"max-length": 5}}
    definitions = {"queues": [{"vhost": "/", "name": "i", "durable": True, "arguments": {}}]}
    assert ask(broker, "PUT", "policies/%2F/p", policy) == 503
    assert ask(broker, "PUT", "users/u", {"password": "x", "tags": ""}) == 503
    assert ask(broker, "POST", "definitions", definitions) == 503
    declare(broker)  # equal to what there is
    line = Line(broker.url)
    line.call("queue.declare", queue="transient", durable=False)
    line.call("queue.delete", queue="spare")
    line.close()
    disk.throw_ballast()
    disk.widen()
    filler.wait_unblocked()
    filler.wait_confirmed()
    filler.line.close()
    declare(broker, "new")
    assert ask(broker, "POST", "definitions", definitions) in (201, 204)
    judge(broker, filler, [])
    broker.kill()
    broker.start()
    check_refused(broker, "NOT_FOUND", "queue.declare", queue="spare", passive=True)
    declare(broker, "new", passive=True)
    broker.stop()


def test_a_full_disk_is_enough_for_a_start_that_deletes_a_queue(
    broker: LiveBroker, disk: SmallDisk
) -> None:
    """The reserve has room for one recovery; the deletion makes room for the publishers."""
    filler = fill_up(broker, disk)
    kept = Filler(broker, "k", "spare")
    broker.kill()
    with suppress(Gone):
        while filler.hear(1.0):
            pass
    filler.line.sock.close()
    kept.line.sock.close()
    broker.start()
    judge(broker, filler, [])
    line = Line(broker.url)
    line.call("queue.delete", queue="q")
    line.close()
    disk.throw_ballast()
    kept = Filler(broker, "k", "spare")
    kept.publish(20)
    kept.wait_confirmed()
    kept.line.close()
    broker.stop()
