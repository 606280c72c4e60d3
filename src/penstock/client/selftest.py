"""Measures the load generator itself, against ``sink`` in place of a broker.

A figure of a broker that comes near these is a figure of the generator.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from penstock.client.plan import LoadPlan
from penstock.client.run import LoadRun, worker_environment

DURATION_S: Final = 2.0
WARMUP_S: Final = 0.5
SIZES_BYTES: Final = (16, 1024)
CONFIRM_WINDOW: Final = 1000


@contextmanager
def sink(kind: str, body_bytes: int) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.client.sink", kind, str(body_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=worker_environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"amqp://127.0.0.1:{int(process.stdout.readline())}/"
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def cases(duration_s: float, warmup_s: float) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(title, kind of sink, fields of the plan)."""
    for size in SIZES_BYTES:
        common = {
            "size_min_bytes": size,
            "size_max_bytes": size,
            "duration_s": duration_s,
            "warmup_s": warmup_s,
        }
        publish = common | {"consumers": 0}
        yield f"publish {size} B, stamped", "discard", publish
        yield f"publish {size} B, no stamp", "discard", publish | {"stamped": False}
        confirm = publish | {"confirm": CONFIRM_WINDOW}
        yield f"publish {size} B, confirm window {CONFIRM_WINDOW}", "discard", confirm
        yield f"consume {size} B", "blast", common | {"publishers": 0}


def measure_all(
    duration_s: float = DURATION_S, warmup_s: float = WARMUP_S
) -> Iterator[tuple[str, dict[str, Any]]]:
    for title, kind, fields in cases(duration_s, warmup_s):
        with sink(kind, fields["size_min_bytes"]) as uri:
            plan = LoadPlan(uri=uri, **fields).check()
            with LoadRun(plan) as run:
                yield title, run.run()
