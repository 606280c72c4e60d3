"""Kill the broker at any moment; what it promised must be true when it comes back.

One life after another on one data directory.  In each life publishers publish with confirms
along direct, fan-out, topic, headers and exchange-to-exchange ways, bodies from nothing to
several frames; consumers acknowledge one by one and many at once, give back and drop; a
churner declares and deletes.  Then SIGKILL: in the middle of that, or a moment after SIGTERM,
or while the next process starts.  After each restart every queue is read to its end.

What the broker promises, and this test demands:

* A confirmed persistent message in a durable queue is there until an acknowledgement was sent.
* An acknowledgement counts for good once a confirm has come for a message that was published
  *after* it on the same channel.  Until then the message may come back after a kill: the
  broker does not write while a group is being synced, so even a reply to a later method
  (``basic.qos-ok``) says only that the acknowledgement was understood.  AMQP 0-9-1 has no
  answer to ``basic.ack``, and a consumer must expect redelivery (spec 1.8.3.13).
* What is once missing after a restart stays away.  An unconfirmed message may be there or
  not, but what is found after a restart is as good as confirmed.
* Order in a queue never changes; nothing is there twice; bodies are whole.
* Whatever may have been delivered is marked redelivered: after a kill everything, after a
  clean stop exactly what was handed out before.
* A declaration that was answered is kept, a deletion that was answered too, one that was
  not may be either, but a queue whose deletion is undone has its messages.  Transient
  queues and exchanges, exclusive queues and transient messages are gone.

* A stream keeps offsets, order and whatever was confirmed (``stream_clients``).

There are two shapes of a broker: one whose messages mostly pass through the journal, and one
whose limits are so small that, while it is being killed, queues are paged out, journal files
retire and the message store is rewritten; half of its queues are lazy, and what they hold is
too large for the queue index, or small, or both in turn.

``PENSTOCK_KILLS`` says how many kills a shape gets (25), ``PENSTOCK_KILL_SEED`` repeats a run.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.crash.kill_clients import (
    QUEUES,
    SIZES,
    Acknowledger,
    Churner,
    Deliveries,
    Delivery,
    Id,
    Line,
    Promises,
    Publisher,
    Publishing,
    Worker,
    body_of,
    id_of,
)
from tests.crash.stream_clients import ARGUMENTS, STREAM, StreamAccount
from tests.helpers.broker_process import BrokerFailed
from tests.helpers.live_broker import LiveBroker, MemoryAbove
from tests.helpers.management_api import manage

KILLS = int(os.environ.get("PENSTOCK_KILLS", "25"))
SEED = os.environ.get("PENSTOCK_KILL_SEED") or str(random.SystemRandom().randrange(10**9))
BACKLOG = 150
"""Above this a look acknowledges what is oldest, so that files retire and are removed."""


class Shape:
    """What broker is killed, and with what in it."""

    def __init__(
        self, name: str, limits: dict[str, object], sizes: tuple[int, ...], lazy: tuple[str, ...]
    ) -> None:
        self.name = name
        self._limits = limits
        self.sizes = sizes
        self.lazy = lazy

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(str(word) for key in self._limits for word in (f"--{key}", self._limits[key]))


SHORT_JOURNAL: dict[str, object] = {
    "journal-file-size-bytes": 1_048_576,
    "journal-size-limit-bytes": 2_097_152,
}
PASSING = Shape("passing through", SHORT_JOURNAL, SIZES, ())
RESTING = Shape(
    "resting on disk",
    SHORT_JOURNAL
    | {
        "queue-index-segment-entries": 64,
        "queue-index-max-journal-entries": 64,
        "msg-store-file-size-limit-bytes": 65_536,
        "vm-memory-high-watermark": MemoryAbove(18_000_000),
        "vm-memory-high-watermark-paging-ratio": 0.005,
    },
    (10, 10, 1000, 3000, 8000, 8000, 60_000),
    ("direct-0", "fan-0", "topic-0"),
)

KILLED, CLEAN = "killed", "stopped cleanly"
UNKNOWN = "killed when its last word may have been written"

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(120 + 4 * KILLS)]


class Lives:
    """The broker, the accounts of its queues, and the counts that are printed."""

    def __init__(self, directory: Path, shape: Shape = PASSING) -> None:
        self.shape = shape
        self.broker = LiveBroker(
            directory, (*shape.flags, "--log-level", "error"), ready_timeout_s=30.0
        )
        self.promises = {queue: Promises() for queue in QUEUES}
        self.stream = StreamAccount()
        self.churners: list[Churner] = []
        self.kept: dict[str, int] = {}
        self.counts: dict[str, int] = {}

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    # -- a life ----------------------------------------------------------------------------

    def declare(self) -> None:
        line = Line(self.broker.url)
        for queue in QUEUES:
            arguments = {"x-queue-mode": "lazy"} if queue in self.shape.lazy else {}
            line.call("queue.declare", queue=queue, durable=True, arguments=arguments)
        line.call("queue.declare", queue=STREAM, durable=True, arguments=ARGUMENTS)
        for exchange, kind in (
            ("fan", "fanout"),
            ("relay", "fanout"),
            ("top", "topic"),
            ("heads", "headers"),
            ("churn", "direct"),
        ):
            line.call("exchange.declare", exchange=exchange, type=kind, durable=True)
        line.call("queue.bind", queue="fan-0", exchange="fan")
        line.call("queue.bind", queue="fan-1", exchange="fan")
        line.call("exchange.bind", destination="fan", source="relay")
        line.call("queue.bind", queue="topic-0", exchange="top", routing_key="k.#")
        for queue in ("topic-0", "direct-1"):
            line.call("queue.bind", queue=queue, exchange="heads", arguments={"kind": "known"})
        line.close()

    def live(self, rng: random.Random, life: int) -> list[Worker]:
        """Clients at work; returns when all have begun."""
        url, promises = self.broker.url, self.promises
        workers: list[Worker] = [
            Publisher(url, f"p{life}.{i}", f"{SEED}:{life}:p{i}", promises)
            for i in range(rng.randint(1, 2))
        ]
        workers.append(Publisher(url, f"T{life}", f"{SEED}:{life}:t", promises))
        for i in range(rng.randint(0, 2)):
            acknowledger = Acknowledger(url, f"a{life}.{i}", f"{SEED}:{life}:a{i}", promises)
            acknowledger.queue = rng.choice(QUEUES[:-1])
            workers.append(acknowledger)
        churner = Churner(url, f"c{life}", f"{SEED}:{life}:c", promises)
        churner.modes = ("default", "lazy", "stream") if self.shape.lazy else ("default", "stream")
        self.churners.append(churner)
        workers.append(churner)
        workers += self.stream.workers(url, life, SEED)
        for worker in workers:
            worker.sizes = self.shape.sizes
            worker.start()
        for worker in workers:
            assert worker.ready.wait(20)
        return workers

    def end(self, rng: random.Random) -> str:
        """Kill it, at once or a moment after SIGTERM, or let it stop."""
        process = self.broker.process
        assert process is not None
        ending = KILLED
        if rng.random() < 0.25:
            process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + rng.choice((0.0, 0.005, 0.02, 0.05, 5.0))
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.001)
            code = process.poll()
            if code is not None:
                assert code == 0, self.broker.output()
                self.broker.process = None
                self.count("clean stops")
                return CLEAN
            self.count("kills after SIGTERM")
            ending = UNKNOWN
        self.broker.kill()
        self.count("kills")
        return ending

    def bury(self, workers: list[Worker]) -> None:
        for worker in workers:
            worker.join(20)
            assert not worker.is_alive(), f"{worker.name} hangs"
            if worker.failure is not None:
                raise worker.failure

    def begin(self, rng: random.Random, ending: str) -> str:
        """Start again, perhaps after dying on the way.

        A start takes a second of processor time, whatever is on disk; on a busy machine that may
        be a minute.
        """
        self.broker.may_wait_for_processor = False
        while rng.random() < 0.25:
            self.broker.ready_timeout_s = rng.random() * 0.7
            try:
                self.broker.start()
                self.broker.kill()
            except BrokerFailed as failed:
                if not failed.late:  # else killed by ``start``
                    raise
            self.count("kills")
            self.count("kills while starting")
            ending = UNKNOWN if ending == CLEAN else ending
        self.broker.ready_timeout_s = 30.0
        self.broker.may_wait_for_processor = True
        self.broker.start()
        return ending

    # -- a look at what is left ------------------------------------------------------------

    def look(self, rng: random.Random, ending: str) -> None:
        line = Line(self.broker.url)
        publishing = Publishing(line, f"b{rng.randrange(10**9)}", self.promises)
        found = {queue: self.read(line, queue) for queue in QUEUES}
        for queue, deliveries in found.items():
            self.judge(queue, deliveries, ending)
        settled = {queue: self.settle(line, queue, found[queue]) for queue in QUEUES}
        publishing.publish(("", "barrier"), ("barrier",), 10)
        reader = Deliveries()
        while publishing.unconfirmed():
            list(reader.take(line.frames()))
            publishing.confirmed(reader.confirmed_to)
        self.promises["barrier"].delivered.add((publishing.name, publishing.number))
        for queue, ids in settled.items():
            self.promises[queue].certain.update(ids)
        line.close()
        line = Line(self.broker.url)
        self.count("confirmed in a stream", self.stream.confirmed)
        self.count("looked at in a stream", self.stream.look(line))
        line.close()

    def read(self, line: Line, queue: str) -> list[Delivery]:
        """Everything, in order, without acknowledging it."""
        count = int(str(line.call("queue.declare", queue=queue, passive=True)["messages"]))
        line.send(codec_consume(queue))
        reader = Deliveries()
        found: list[Delivery] = []
        while len(found) < count:
            frames = line.frames()
            assert frames, f"{queue} has {count} messages and gives {len(found)}"
            found += reader.take(frames)
        assert len(found) == count
        assert all(delivery.consumer == queue for delivery in found)
        return found

    def settle(self, line: Line, queue: str, found: list[Delivery]) -> list[Id]:
        """Acknowledge what is oldest when there is much."""
        taken = found[: max(0, len(found) - BACKLOG)]
        account = self.promises[queue]
        ids = [id_of(delivery.body) for delivery in taken]
        account.acked.update(ids)
        for delivery in taken:
            line.send(codec_ack(delivery.tag))
        return ids

    def judge(self, queue: str, deliveries: list[Delivery], ending: str) -> None:
        account = self.promises[queue]
        ids = [id_of(delivery.body) for delivery in deliveries]
        there = set(ids)
        assert len(ids) == len(there), f"{queue}: something is there twice"
        assert not [one for one in ids if one[0].startswith("T")], "a transient message survived"
        self.judge_presence(queue, account, there)
        self.judge_order(queue, account, ids)
        sizes = {*self.shape.sizes}
        for delivery, one in zip(deliveries, ids, strict=True):
            assert delivery.body in (body_of(one, size) for size in sizes), "a body changed"
            if ending == KILLED or one in account.delivered:
                assert delivery.redelivered, f"{queue}: {one} may have been delivered, unmarked"
            elif ending == CLEAN and not account.had_consumer:
                assert not delivery.redelivered, f"{queue}: {one} is marked, nobody had it"
        fresh = Promises()
        fresh.known = ids
        fresh.delivered = set(there)
        fresh.sent = set(there)
        fresh.certain = (account.sent | account.certain) - there
        self.promises[queue] = fresh

    def judge_presence(self, queue: str, account: Promises, there: set[Id]) -> None:
        lasting = {one for one in account.confirmed if not one[0].startswith("T")}
        must = (lasting | set(account.known)) - account.acked
        lost = must - there
        assert not lost, f"{queue}: lost {sorted(lost)[:5]} and {len(lost) - 1} more"
        back = account.certain & there
        assert not back, f"{queue}: came back {sorted(back)[:5]}, {len(back)} in all"
        assert there <= account.sent, f"{queue}: nobody sent {sorted(there - account.sent)[:5]}"
        self.count("confirmed and found", len(must))
        self.count("confirmed", len(lasting))
        self.count("acknowledged", len(account.acked))
        self.count("acknowledged for certain", len(account.certain & account.acked))
        self.count("acknowledged, not for certain, and back", len(account.acked & there))
        self.count("not confirmed and found", len(there - account.confirmed - set(account.known)))

    def judge_order(self, queue: str, account: Promises, ids: list[Id]) -> None:
        place = {one: at for at, one in enumerate(ids)}
        before = [place[one] for one in account.known if one in place]
        assert before == sorted(before), f"{queue}: what was there has changed its order"
        assert len(before) == len([at for at in before if at < len(before)]), (
            f"{queue}: something new stands before something old"
        )
        last: dict[str, int] = {}
        for publisher, number in ids:
            assert last.get(publisher, 0) < number, f"{queue}: {publisher} out of order"
            last[publisher] = number

    # -- declarations ----------------------------------------------------------------------

    def look_at_declarations(self) -> None:
        queues = {entry["name"]: entry["messages"] for entry in self.api("queues")}
        exchanges = {e["name"] for e in self.api("exchanges") if e["name"][:4] not in ("", "amq.")}
        bindings = {
            (entry["source"], entry["destination"])
            for entry in self.api("bindings")
            if entry["source"]
        }
        for churner in self.churners:
            self.judge_declarations(churner, queues, exchanges, bindings)
        self.churners = []
        for name, filled in self.kept.items():
            assert queues.get(name) == filled, f"{name} has {queues.get(name)} of {filled}"
        own = {"fan", "relay", "top", "heads", "churn"}
        assert {n for n in queues if not n.startswith("c")} == {*QUEUES, STREAM}
        assert own <= exchanges
        assert not [n for n in [*queues, *exchanges] if n.endswith(("transient", "exclusive"))]
        assert {
            ("fan", "fan-0"),
            ("fan", "fan-1"),
            ("relay", "fan"),
            ("top", "topic-0"),
        } <= bindings

    def judge_declarations(
        self,
        churner: Churner,
        queues: dict[str, int],
        exchanges: set[str],
        bindings: set[tuple[str, str]],
    ) -> None:
        for name, wanted in churner.wanted.items():
            if wanted is not None:
                assert (name in queues) == wanted, f"queue {name}: {wanted}"
                assert (name in exchanges) == wanted, f"exchange {name}: {wanted}"
            if name in queues:
                # Its deletion may have been under way: then it came back as it was.
                filled = churner.filled[name]
                if wanted is None:
                    self.count("declarations under way and found")
                    assert queues[name] >= filled, f"{name} lost {filled - queues[name]} messages"
                self.kept[name] = queues[name]
            if churner.bound[name] is not None:
                assert ((name, name) in bindings) == churner.bound[name]
                assert (("churn", name) in bindings) == churner.bound[name]
            self.count("declarations judged")

    def api(self, what: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = manage(f"{self.broker.http_url}/api/{what}")
        return found

    def clear(self, rng: random.Random) -> None:
        """Delete most of what the churners left, so that lives stay short."""
        line = Line(self.broker.url)
        # The answer counts no messages of a stream, as RabbitMQ's does not.
        counted = {one["name"] for one in self.api("queues") if one["type"] != "stream"}
        for name in rng.sample(sorted(self.kept), max(0, len(self.kept) - 5)):
            filled = self.kept.pop(name)
            deleted = line.call("queue.delete", queue=name)["messages"]
            assert deleted == (filled if name in counted else 0)
            line.call("exchange.delete", exchange=name)
        line.close()


def codec_consume(queue: str) -> bytes:
    from tests.helpers.raw_codec import METHOD, encode_frame, encode_method

    # nowait: its answer would come among the deliveries.
    payload = encode_method("basic.consume", queue=queue, consumer_tag=queue, nowait=True)
    return encode_frame(METHOD, 1, payload)


def codec_ack(tag: int) -> bytes:
    from tests.helpers.raw_codec import method_frame

    return method_frame(1, "basic.ack", delivery_tag=tag)


@pytest.mark.parametrize("shape", [PASSING, RESTING], ids=lambda shape: shape.name)
def test_kill_at_any_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shape: Shape
) -> None:
    lives = Lives(tmp_path / "broker", shape)
    kill_again_and_again(lives, capsys)
    assert lives.counts["confirmed and found"] > 0
    assert lives.counts["acknowledged for certain"] > 0
    assert lives.counts["confirmed in a stream"] > 0


def kill_again_and_again(lives: Lives, capsys: pytest.CaptureFixture[str]) -> None:
    """``PENSTOCK_KILLS`` times; the counts are printed."""
    began = time.monotonic()
    life = 0
    try:
        lives.broker.start()
        lives.declare()
        while lives.counts.get("kills", 0) < KILLS:
            life += 1
            rng = random.Random(f"{SEED}:{life}")
            workers = lives.live(rng, life)
            time.sleep(rng.random() * rng.choice((0.05, 0.3)))
            ending = lives.end(rng)
            lives.bury(workers)
            ending = lives.begin(rng, ending)
            lives.look_at_declarations()
            lives.look(rng, ending)
            lives.clear(rng)
        lives.broker.stop()
    except BaseException:
        with capsys.disabled():
            print(f"\nfailed in life {life}: PENSTOCK_KILL_SEED={SEED} PENSTOCK_KILLS={KILLS}")
            print(lives.broker.output()[-3000:])
        raise
    finally:
        if lives.broker.process is not None:
            lives.broker.kill()
    took_s = time.monotonic() - began
    with capsys.disabled():
        print(f"\n{lives.shape.name}: {life} lives in {took_s:.0f} s, PENSTOCK_KILL_SEED={SEED}")
        for what, number in sorted(lives.counts.items()):
            print(f"  {number:8,}  {what}")
