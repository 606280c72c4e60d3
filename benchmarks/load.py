"""What drives a broker: ``penstock bench``, probes, and the load programs of this folder."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from benchmarks.brokers import ROOT, Side, Watch, favour

RUN_LIMIT_S: Final = 3600.0
LOAD_STARTS_S: Final = 1.0
PROBES: Final = ("get", "through")

Result = dict[str, Any]


def environment() -> dict[str, str]:
    """The generator is compiled, if it can be, whatever the broker is."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    path = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(path)}


class Program:
    """A Python program beside the broker on its generator's cores; prints one JSON object.

    Its input ends when the result is asked for, which is what a probe waits for.
    """

    def __init__(self, side: Side, *words: str) -> None:
        self._words = words
        self.process = subprocess.Popen(
            ["taskset", "-c", side.generator_cores, sys.executable, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            cwd=ROOT,
            start_new_session=True,
        )
        if side.favoured:
            favour(self.process.pid)

    def result(self) -> Result:
        output, errors = self.process.communicate(timeout=RUN_LIMIT_S)
        if self.process.returncode != 0:
            said = (errors or output).strip().rpartition("\n")[2]
            raise RuntimeError(f"{said} ({shlex.join(self._words)})")
        found: Result = json.loads(output)
        return found

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextmanager
def running(side: Side, *words: str) -> Iterator[Program]:
    program = Program(side, *words)
    try:
        yield program
    finally:
        program.kill()


def loading(side: Side, module: str, **given: Any) -> Any:
    """A load program of this folder, which takes its options as one JSON object."""
    return running(side, "-m", f"benchmarks.{module}", json.dumps({"uri": side.url, **given}))


def probe(side: Side, kind: str, **given: Any) -> Any:
    """It asks ``kind`` of small question until its result is asked for."""
    return loading(side, "probe", kind=kind, **given)


def bench(
    side: Side, words: Sequence[str], *, url: str = "", probing: bool = False, disk: bool = False
) -> Result:
    """One run of ``penstock bench``; ``url``: of a tunnel to the broker.

    ``probing``: others ask small questions meanwhile.  ``disk``: what it takes of it is watched.
    """
    pid = side.pid
    watched = ("--pid", str(pid), "--tree") if pid else ()
    options = ["--uri", url or side.url, *watched, "--json", "-"]
    with Watch(pid, side.stored if disk else None) as watch, ExitStack() as stack:
        load = stack.enter_context(running(side, "-m", "penstock", "bench", *options, *words))
        probes = {}
        if probing:
            time.sleep(LOAD_STARTS_S)
            probes = {
                kind: stack.enter_context(loading(side, "probe", kind=kind)) for kind in PROBES
            }
        result = load.result()
        result["probes"] = {kind: one.result() for kind, one in probes.items()}
    known_s = result["generator_cpu_s"] + sum(one["cpu_s"] for one in result["probes"].values())
    result["other_cores"] = watch.other_cores(known_s)
    result["watched"] = watch.result()
    result["wrong"] = wrongs(result)
    del result["plan"]
    return result


def wrongs(result: Result) -> list[str]:
    """What would make a figure worthless."""
    plan = result["plan"]
    counts = ("out_of_order", "redelivered", "foreign", "nacked")
    found = [f"{name} {result[name]:,}" for name in counts if result[name]]
    if plan["confirm"] and result["confirmed"] < result["published"]:
        found.append(f"confirmed {result['confirmed']:,} of {result['published']:,}")
    if plan["count"]:
        kind = "published" if plan["publishers"] else "consumed"
        if result[kind] != plan["count"]:
            found.append(f"{kind} {result[kind]:,} of {plan['count']:,}")
    return found
