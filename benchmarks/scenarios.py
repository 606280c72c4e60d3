"""What is compared: each scenario is a command line of ``penstock bench`` and one figure of it.

Where a consumer takes part, ``--in-flight`` bounds what is published and not yet consumed,
so that a broker is judged in a steady state and not by how fast it can pile up a backlog;
the bound is the same for both brokers and wide enough not to throttle either.  Publish-only
scenarios are counted, not timed, so that both brokers end with the same backlog.  The
``unbounded`` ones leave all flow control to the broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONSUMED: Final = "consume_rate"
PUBLISHED: Final = "publish_rate"
LATENCY: Final = "latency_us"

ACK_100: Final = "--prefetch 1000 --ack-every 100"
ACK_EACH: Final = "--prefetch 100 --ack-every 1"
SAFE: Final = "--persistent --durable --confirm 1000"
VARIED: Final = "--varied --size-range 16:65536"
RATE: Final = 5000


@dataclass(frozen=True)
class Scenario:
    """``figure`` is what the table shows; ``count`` 0 = timed."""

    name: str
    title: str
    options: str
    figure: str = CONSUMED
    count: int = 0

    def arguments(self, seconds: float, warmup: float) -> list[str]:
        if self.count:
            return [*self.options.split(), "--count", str(self.count)]
        timing = ["--duration", f"{seconds:g}", "--warmup", f"{warmup:g}"]
        return [*self.options.split(), *timing]


SCENARIOS: Final = [
    Scenario("auto-ack-16", "auto-ack, 16 B", "--size 16 --in-flight 20000"),
    Scenario("auto-ack-1k", "auto-ack, 1 KB", "--size 1024 --in-flight 4000"),
    Scenario(
        "ack-100-16",
        "prefetch 1000, ack every 100, 16 B",
        f"--size 16 --in-flight 20000 {ACK_100}",
    ),
    Scenario(
        "ack-100-1k",
        "prefetch 1000, ack every 100, 1 KB",
        f"--size 1024 --in-flight 4000 {ACK_100}",
    ),
    Scenario(
        "ack-each-16",
        "prefetch 100, ack each, 16 B",
        f"--size 16 --in-flight 4000 {ACK_EACH}",
    ),
    Scenario(
        "ack-each-1k",
        "prefetch 100, ack each, 1 KB",
        f"--size 1024 --in-flight 4000 {ACK_EACH}",
    ),
    Scenario("unbounded-auto-ack-16", "auto-ack, 16 B, unbounded", "--size 16"),
    Scenario("unbounded-auto-ack-1k", "auto-ack, 1 KB, unbounded", "--size 1024"),
    Scenario(
        "unbounded-ack-each-1k",
        "prefetch 100, ack each, 1 KB, unbounded",
        f"--size 1024 {ACK_EACH}",
    ),
    Scenario(
        "safe-through-1k",
        "persistent, confirm window 1000, consumed (ack 100), 1 KB",
        f"--size 1024 --in-flight 4000 {SAFE} {ACK_100}",
    ),
    Scenario(
        "safe-publish-1k",
        "persistent, confirm window 1000, publish only, 1 KB",
        f"--size 1024 --consumers 0 {SAFE}",
        figure=PUBLISHED,
        count=150_000,
    ),
    Scenario(
        "latency-1k",
        f"latency at {RATE} msg/s, auto-ack, 1 KB",
        f"--size 1024 --rate {RATE}",
        figure=LATENCY,
    ),
    Scenario("varied-auto-ack", "varied, auto-ack", f"{VARIED} --in-flight 2000"),
    Scenario(
        "varied-ack-100",
        "varied, prefetch 1000, ack every 100",
        f"{VARIED} --in-flight 2000 {ACK_100}",
    ),
    Scenario(
        "varied-ack-each",
        "varied, prefetch 100, ack each",
        f"{VARIED} --in-flight 2000 {ACK_EACH}",
    ),
    Scenario(
        "varied-safe-through",
        "varied, persistent, confirm window 1000, consumed (ack 100)",
        f"{VARIED} --in-flight 2000 {SAFE} {ACK_100}",
    ),
    Scenario(
        "varied-safe-publish",
        "varied, persistent, confirm window 1000, publish only",
        f"{VARIED} --consumers 0 {SAFE}",
        figure=PUBLISHED,
        count=30_000,
    ),
    Scenario(
        "varied-latency",
        f"varied, latency at {RATE} msg/s, auto-ack",
        f"{VARIED} --rate {RATE}",
        figure=LATENCY,
    ),
]


def chosen(names: str) -> list[Scenario]:
    """The scenarios named, comma separated; a prefix chooses all that begin with it."""
    if not names:
        return SCENARIOS
    found: list[Scenario] = []
    for name in names.split(","):
        matching = [scenario for scenario in SCENARIOS if scenario.name.startswith(name)]
        if not matching:
            known = ", ".join(scenario.name for scenario in SCENARIOS)
            raise SystemExit(f"no scenario begins with {name!r}; there are: {known}")
        found += [scenario for scenario in matching if scenario not in found]
    return found
