"""What statistics cost: the same load on a broker that samples and on one that does not.

    .venv/bin/python benchmarks/sampling.py            rounds in turn, results/DATE-sampling-*.md
    .venv/bin/python benchmarks/sampling.py --memory   only rings of 10,000 queues, and walks

- *brokers*: two run side by side, alike but for the setting ``rates_mode``; a round drives one,
  then the other, and the next round begins with the other, as ``events.py`` does.  Counted is
  the processor time of the whole process per message.  Counters themselves are in both: they are
  no setting.  What they cost is known to the instruction, see ``sampling_count.py``.
- *memory*: 10,000 queues that do something in every interval, sampled for an hour of intervals:
  bytes per queue, and what a walk takes of this process's time.
"""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks import on_and_off  # noqa: E402
from benchmarks.scenarios import chosen  # noqa: E402
from penstock.management.statistics.kinds import QUEUE  # noqa: E402
from penstock.management.statistics.rings import Tracks  # noqa: E402

ROWS = "auto-ack-16,ack-100-1k"
PROMISED = 1.01
QUEUES = 10_000
INTERVAL_S = 5


def main() -> int:
    # Six seconds: one interval and more.
    parser = on_and_off.parser("What statistics cost.", 6.0, ROWS)
    parser.add_argument("--memory", action="store_true", help="only rings, without brokers")
    asked = parser.parse_args()
    kept = rings()
    print(json.dumps(kept, indent=1))
    if asked.memory:
        return 0
    rows = []
    for scenario in chosen(asked.only):
        words = scenario.arguments(asked.seconds, asked.warmup)
        pairs = on_and_off.measured(
            words, asked.rounds, lambda on: ("--rates-mode", "basic" if on else "none")
        )
        rows.append(on_and_off.told(f"brokers: {scenario.title}", pairs))
    on_and_off.write(asked.out, "sampling", rows, page, rings=kept)
    return 0


def rings() -> dict[str, object]:
    """Of queues that take, deliver and acknowledge; and of some that use every counter."""
    found: dict[str, object] = {"queues": QUEUES, "interval_s": INTERVAL_S}
    usual = {"publish", "deliver", "ack", "messages_ready", "messages_unacknowledged"}
    for label, names in (("usual", usual), ("every counter", set(QUEUE.names))):
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        tracks = Tracks(QUEUE, INTERVAL_S)
        keys = [("/", f"queue{number}") for number in range(QUEUES)]
        moved = [int(name in names) for name in QUEUE.names]
        for tick in range(2):
            _walk(tracks, keys, moved, tick)
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        since = time.process_time()
        for tick in range(2, 5):
            _walk(tracks, keys, moved, tick)
        found[label] = {
            "bytes_per_queue": used // QUEUES,
            "ms_per_walk": round((time.process_time() - since) / 3 * 1000, 1),
        }
    return found


def _walk(tracks: Tracks, keys: list[tuple[str, str]], moved: list[int], tick: int) -> None:
    tracks.begin(1_700_000_000 + INTERVAL_S * tick)
    counts = tuple(1000 + one * 1000 * tick if one else 0 for one in moved)
    for key in keys:
        tracks.record(key, counts)
    tracks.end()


def page(report: dict[str, Any]) -> str:
    says = [
        "Processor time of the broker per message with samples over that without, median of rounds",
        f"in turn. Promised: at most {PROMISED}.",
    ]
    lines = [
        "",
        "| queues that | bytes per queue | ms of management per walk over 10,000 |",
        "|---|---|---|",
    ]
    for label in ("usual", "every counter"):
        kept = report["rings"][label]
        lines.append(f"| {label} | {kept['bytes_per_queue']} | {kept['ms_per_walk']} |")
    made = on_and_off.page(report, "What statistics cost", says, "samples")
    return made + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
