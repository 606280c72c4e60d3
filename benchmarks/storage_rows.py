"""The rows of a storage run: what each asks of a broker that was started for it alone.

A row's ``measure`` gets a running broker and returns everything it found as plain values; what
is shown of it is decided in ``storage_page``.  Load comes from ``penstock bench``; only the
acknowledging of a random half is done here, because no generator does that.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from typing import Any, Final

from benchmarks.compare import busy_s, favour
from benchmarks.storage_brokers import Broker, Watch, depth, disk_mb, memory_mb
from penstock.client.amqp import Channel, Connection, Endpoint
from penstock.client.procstat import ProcessGauge
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import encode_method

ROOT: Final = Path(__file__).resolve().parents[1]
QUEUE: Final = "bench.storage"
ACKS: Final = ("--prefetch", "1000", "--ack-every", "100")
KINDS: Final = ("get", "through")

SLOWEST_PER_S: Final = 2000
"""A broker slower than that is broken off."""
GRACE_S: Final = 120.0
LOAD_STARTS_S: Final = 1.0
IDLE_S: Final = 3.0
SPARE_BYTES: Final = 4_000_000_000
PER_MESSAGE_BYTES: Final = 512
"""Room a message may take on the disk beside its body, journal and garbage included."""
STRETCH: Final = 2000
"""Messages per channel where a random half is acknowledged."""
SETTLED_SHARE: Final = 0.002
SETTLE_LIMIT_S: Final = 180.0
SETTLE_LOOK_S: Final = 0.5

Result = dict[str, Any]


@dataclass(frozen=True)
class Amounts:
    """How much is asked of one of the two brokers."""

    fill_count: int
    restart_count: int
    space_count: int
    probe_s: float
    window: int
    size: int
    settle_s: float
    favoured: bool


@dataclass(frozen=True)
class Row:
    """``limited``: Penstock gets the memory limit of the run, else its default."""

    name: str
    title: str
    section: str = ""
    limited: bool = False

    def measure(self, broker: Broker, given: Amounts) -> Result:
        raise NotImplementedError

    def room_bytes(self, given: Amounts) -> int:
        """What it may take of the disk."""
        raise NotImplementedError


# -- load -----------------------------------------------------------------------------------


def queue_words(lazy: bool) -> list[str]:
    words = ["--queue", QUEUE, "--durable"]
    return [*words, "--queue-arg", "x-queue-mode=lazy"] if lazy else words


def fill_words(lazy: bool, size: int, window: int) -> list[str]:
    """Window 0 = no confirms."""
    words = [*queue_words(lazy), "--consumers", "0", "--persistent", "--size", str(size)]
    return [*words, "--confirm", str(window)] if window else words


def counted(count: int) -> list[str]:
    return ["--count", str(count), "--deadline", f"{count / SLOWEST_PER_S + GRACE_S:.0f}"]


def drain_words(lazy: bool) -> list[str]:
    return [*queue_words(lazy), "--publishers", "0", *ACKS]


def environment() -> dict[str, str]:
    """The generator is compiled whatever the broker is."""
    kept = {key: value for key, value in os.environ.items() if key != "PENSTOCK_PURE"}
    return kept | {"PYTHONPATH": str(ROOT / "src")}


class Helper:
    """A program beside the broker: generator or probe, on the generator's cores."""

    def __init__(self, broker: Broker, given: Amounts, words: list[str]) -> None:
        command = ["taskset", "-c", broker.generator_cores, sys.executable, *words]
        self._command = command
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            cwd=ROOT,
            start_new_session=True,
        )
        if given.favoured:
            favour(self._process.pid)

    def result(self) -> Result:
        """Waits for its end; a probe ends because its input does."""
        output, errors = self._process.communicate()
        if self._process.returncode != 0:
            said = (errors or output).strip()
            raise RuntimeError(f"{said} ({shlex.join(self._command[4:])})")
        found: Result = json.loads(output)
        return found

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def generate(broker: Broker, given: Amounts, words: list[str], probing: bool = False) -> Result:
    """One run of ``penstock bench``, watched; with ``probing`` others ask small questions."""
    pid = broker.broker_pid()
    gauge = ProcessGauge(pid, tree=True)
    options = ["--uri", broker.url, "--pid", str(pid), "--tree", "--json", "-"]
    busy_before_s, begin_s, cpu_before_s = busy_s(), time.monotonic(), sum(gauge.cpu_s())
    with Watch(broker) as watch, ExitStack() as stack:
        load = Helper(broker, given, ["-m", "penstock", "bench", *options, *words])
        stack.callback(load.kill)
        probes = []
        if probing:
            time.sleep(LOAD_STARTS_S)
            probes = start_probes(broker, given, stack)
        result = load.result()
        wall_s = time.monotonic() - begin_s
        result["probes"] = {kind: probe.result() for kind, probe in probes}
    broker_s = sum(gauge.cpu_s()) - cpu_before_s
    known_s = broker_s + result["generator_cpu_s"]
    known_s += sum(probe["cpu_s"] for probe in result["probes"].values())
    result["other_cores"] = max(0.0, (busy_s() - busy_before_s - known_s) / wall_s)
    result["options"] = shlex.join(words)
    result["watched"] = watch.result()
    result["confirm"] = result.pop("plan")["confirm"]
    return result


def start_probes(broker: Broker, given: Amounts, stack: ExitStack) -> list[tuple[str, Helper]]:
    probes = []
    for kind in KINDS:
        words = [str(ROOT / "benchmarks/probe.py"), "--uri", broker.url, "--kind", kind]
        probe = Helper(broker, given, words)
        stack.callback(probe.kill)
        probes.append((kind, probe))
    return probes


def idle(broker: Broker, given: Amounts) -> Result:
    """What the probes see of a broker that does nothing else."""
    with ExitStack() as stack:
        probes = start_probes(broker, given, stack)
        time.sleep(IDLE_S)
        return {"probes": {kind: probe.result() for kind, probe in probes}}


def wait_for_depth(broker: Broker, wanted: int, limit_s: float) -> float:
    """Seconds until the queue says it has so many messages ready."""
    begin_s = time.monotonic()
    while True:
        found = depth(broker.url, QUEUE)
        waited_s = time.monotonic() - begin_s
        if found == wanted:
            return waited_s
        if waited_s > limit_s:
            raise RuntimeError(f"the queue has {found:,} messages ready, {wanted:,} are due")
        time.sleep(0.02)


def fill(broker: Broker, given: Amounts, words: list[str], count: int) -> Result:
    """Publish ``count`` messages; what is not confirmed is waited for as well."""
    result = generate(broker, given, [*words, *counted(count)])
    result["counted_after_s"] = wait_for_depth(broker, count, GRACE_S)
    publish_s = count / result["publish_rate"] if result["publish_rate"] else 0.0
    result["counted_rate"] = count / max(1e-9, publish_s + result["counted_after_s"])
    result["count"] = count
    result["disk_per_message"] = result["watched"]["disk_end_mb"] * 1e6 / count
    return result


# -- fill and drain ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Fill(Row):
    """Publish without a consumer; with confirms, consume all of it afterwards."""

    section: str = "fill"
    lazy: bool = False
    confirmed: bool = True

    def measure(self, broker: Broker, given: Amounts) -> Result:
        words = fill_words(self.lazy, given.size, given.window if self.confirmed else 0)
        found: Result = {"fill": fill(broker, given, words, given.fill_count)}
        if self.confirmed:
            drain = generate(broker, given, [*drain_words(self.lazy), *counted(given.fill_count)])
            drain["count"] = given.fill_count
            drain["left"] = depth(broker.url, QUEUE)
            found["drain"] = drain
        return found

    def room_bytes(self, given: Amounts) -> int:
        return given.fill_count * (given.size + PER_MESSAGE_BYTES)


# -- restart ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Restart(Row):
    """Kill it with all messages on board, open it; stop it in order, open it again."""

    section: str = "restart"
    lazy: bool = False

    def measure(self, broker: Broker, given: Amounts) -> Result:
        count = given.restart_count
        words = fill_words(self.lazy, given.size, given.window)
        found: Result = {"count": count, "fill": fill(broker, given, words, count)}
        broker.kill()
        broker.awaited = (QUEUE, count)
        found["kill"] = self._opened(broker, given)
        found["stop_s"] = timed(broker.stop)
        found["clean"] = self._opened(broker, given)
        return found

    @staticmethod
    def _opened(broker: Broker, given: Amounts) -> Result:
        seconds = timed(broker.start)
        if given.favoured:
            favour(broker.pid)
        return {"seconds": seconds, "rss_mb": memory_mb(broker.broker_pid(), "VmHWM")}

    def room_bytes(self, given: Amounts) -> int:
        return given.restart_count * (given.size + PER_MESSAGE_BYTES)


def timed(action: Callable[[], object]) -> float:
    begin_s = time.monotonic()
    action()
    return time.monotonic() - begin_s


# -- space ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Space(Row):
    """Acknowledge a random half, put the rest back, and see what the disk gets back."""

    section: str = "space"
    size: int = 1024
    share: float = 1.0

    def measure(self, broker: Broker, given: Amounts) -> Result:
        count = max(2, int(given.space_count * self.share))
        empty_mb = disk_mb(broker.stored)
        words = fill_words(False, self.size, given.window)
        filled = fill(broker, given, words, count)
        with Watch(broker) as watch:
            begin_s = time.monotonic()
            left = count - ack_half(broker.url, count)
            wait_for_depth(broker, left, GRACE_S)
            acked_s = time.monotonic() - begin_s
            settled_s = wait_for_quiet(broker, given.settle_s)
        watched = watch.result()
        used_mb = watched["disk_end_mb"] - empty_mb
        live_mb = left * self.size / 1e6
        return {
            "count": count,
            "size": self.size,
            "left": left,
            "empty_mb": empty_mb,
            "filled_mb": filled["watched"]["disk_end_mb"] - empty_mb,
            "used_mb": used_mb,
            "live_mb": live_mb,
            "amplification": used_mb / live_mb,
            "filled_amplification": (filled["watched"]["disk_end_mb"] - empty_mb)
            / (count * self.size / 1e6),
            "acked_s": acked_s,
            "settled_s": settled_s,
            "fill": filled,
            "watched": watched,
        }

    def room_bytes(self, given: Amounts) -> int:
        count = int(given.space_count * self.share)
        return 2 * count * (self.size + PER_MESSAGE_BYTES)


def ack_half(url: str, count: int) -> int:
    """Take all there is, acknowledge a random half, leave the rest; how many were acked.

    The same half for both brokers.  Each channel takes a stretch and keeps what it does not
    acknowledge until the end: RabbitMQ looks for a single ack among all that its channel has
    not acknowledged, so that one channel for everything would take it hours.
    """
    dice = random.Random(count)
    acked = taken = 0
    with Connection(Endpoint.parse(url), timeout_s=GRACE_S) as connection:
        while taken < count:
            stretch = min(STRETCH, count - taken)
            channel = connection.channel()
            tags = take(channel, stretch)
            chosen = [ack_frame(channel, tag) for tag in tags if dice.random() < 0.5]
            connection.send(b"".join(chosen))
            channel.qos(1)  # answered when every ack before it was read
            acked += len(chosen)
            taken += stretch
    return acked


def take(channel: Channel, count: int) -> list[int]:
    """The tags of the next ``count`` messages, which stay unacknowledged."""
    channel.qos(count)
    consumer = channel.consume(QUEUE)
    tags: list[int] = []
    while len(tags) < count:
        delivery = channel.next_delivery(GRACE_S)
        if delivery is None:
            raise RuntimeError(f"{len(tags):,} of {count:,} messages were delivered")
        tags.append(delivery.delivery_tag)
    channel.cancel(consumer)
    return tags


def ack_frame(channel: Channel, tag: int) -> bytes:
    return encode_method(channel.number, m.BASIC_ACK, (tag, False))


def wait_for_quiet(broker: Broker, quiet_s: float) -> float:
    """Seconds until the disk's use began to stay the same for ``quiet_s``."""
    begin_s = changed_s = time.monotonic()
    before_mb = disk_mb(broker.stored)
    while time.monotonic() - changed_s < quiet_s:
        if time.monotonic() - begin_s > SETTLE_LIMIT_S:
            raise RuntimeError(f"the disk's use still changed after {SETTLE_LIMIT_S:.0f} s")
        time.sleep(SETTLE_LOOK_S)
        now_mb = disk_mb(broker.stored)
        if abs(now_mb - before_mb) > SETTLED_SHARE * before_mb:
            before_mb, changed_s = now_mb, time.monotonic()
    return changed_s - begin_s


# -- responsiveness ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Responsiveness(Row):
    """Small questions to another queue while this one is filled, and drained, flat out."""

    section: str = "responsiveness"
    lazy: bool = False

    def measure(self, broker: Broker, given: Amounts) -> Result:
        found: Result = {"idle": idle(broker, given)}
        timing = ["--duration", f"{given.probe_s:g}"]
        words = fill_words(self.lazy, given.size, given.window)
        found["fill"] = generate(broker, given, [*words, *timing], probing=True)
        count = found["fill"]["published"]
        wait_for_depth(broker, count, GRACE_S)
        words = [*drain_words(self.lazy), *counted(count)]
        found["drain"] = generate(broker, given, words, probing=True)
        return found

    def room_bytes(self, given: Amounts) -> int:
        return int(given.probe_s * 400_000) * (given.size + PER_MESSAGE_BYTES)


ROWS: Final[list[Row]] = [
    Fill("fill-lazy-confirm", "lazy", lazy=True),
    Fill("fill-default-confirm", "default", limited=True),
    Fill("fill-lazy-publish", "lazy", lazy=True, confirmed=False),
    Fill("fill-default-publish", "default", limited=True, confirmed=False),
    Restart("restart-default", "default"),
    Restart("restart-lazy", "lazy", lazy=True),
    Space("space-1k", "1 KB"),
    Space("space-8k", "8 KB", size=8192, share=0.2),
    Responsiveness("responsive-lazy", "lazy", lazy=True),
    Responsiveness("responsive-default", "default", limited=True),
]


def chosen_rows(names: str) -> list[Row]:
    """The rows named, comma separated; a beginning chooses all that begin with it."""
    if not names:
        return ROWS
    found: list[Row] = []
    for name in names.split(","):
        matching = [row for row in ROWS if row.name.startswith(name)]
        if not matching:
            known = ", ".join(row.name for row in ROWS)
            raise SystemExit(f"no row begins with {name!r}; there are: {known}")
        found += [row for row in matching if row not in found]
    return found


def lacking_room(row: Row, given: Amounts) -> str:
    """Why a row must not begin; empty when the disk has room for it."""
    free, wanted = disk_usage(tempfile.gettempdir()).free, row.room_bytes(given) + SPARE_BYTES
    if free >= wanted:
        return ""
    return f"{wanted / 1e9:.1f} GB of disk may be needed, {free / 1e9:.1f} GB are free"
