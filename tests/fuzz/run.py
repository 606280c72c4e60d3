"""Invariant: no input crashes, hangs or bloats a target, and none makes it break its word.

    python tests/fuzz/run.py --minutes 10 --seed 7          all targets, one minute after another
    python tests/fuzz/run.py --target decoder --seed 7 --case 1234    one input again

What an input is follows from seed, target and case number alone.  An input that fails is
saved and the command that repeats it is printed.  Targets stand in ``targets.py`` (codecs),
``text_targets.py`` (configurations, keys, answers) and ``engine.py`` (a whole broker in this
process).
"""

import argparse
import faulthandler
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":  # started as a file: the repository's root is not on the path
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root), str(root / "src")]

from tests.fuzz import loop_time, targets, text_targets
from tests.fuzz.engine import Engine

CORPUS = Path(__file__).parent / "corpus"
HANG_S = 30
HANG = Path(tempfile.gettempdir()) / f"fuzz-hang-{os.getpid()}.txt"
SLOW_S = 2.0
"""Of processor time: a machine that does other work makes no input slow."""
ROUND_S = 2.0
RSS_GROWTH_MAX_BYTES = 96 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Report:
    seed: int
    counts: dict[str, int] = field(default_factory=dict)
    slowest_s: float = 0.0
    rss_growth_bytes: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        return (
            f"seed {self.seed}: {sum(self.counts.values())} inputs ({counts}); slowest "
            f"{self.slowest_s * 1000:.0f} ms; memory grew by {self.rss_growth_bytes >> 20} MiB; "
            f"{len(self.failures)} failures"
        )


def load_corpus() -> list[bytes]:
    return [path.read_bytes() for path in sorted(CORPUS.glob("*.bin"))]


def _pool(engine: Engine) -> dict[str, targets.Target]:
    tables = targets.TARGETS | text_targets.TARGETS | loop_time.TARGETS
    return {**tables, "engine": engine.run, "replies": engine.replies}


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def run(
    seed: int, seconds: float, names: list[str] | None = None, round_s: float = ROUND_S
) -> Report:
    """Give every target its turn, again and again, until the time is over."""
    corpus = load_corpus()
    report = Report(seed)
    with Engine() as engine:
        pool = _pool(engine)
        others = [name for name in pool if name not in loop_time.TARGETS]
        chosen = {name: pool[name] for name in names or others}
        report.counts = dict.fromkeys(chosen, 0)
        end = time.monotonic() + seconds
        baseline = 0
        while time.monotonic() < end and chosen:
            for name, target in list(chosen.items()):
                if not _some(report, name, target, corpus, min(end, time.monotonic() + round_s)):
                    del chosen[name]  # one failure tells enough; the others go on
            baseline = baseline or rss_bytes()
            report.rss_growth_bytes = rss_bytes() - baseline
            of_loop_time = loop_time.TARGETS.keys() >= chosen.keys()  # lives, each of its own size
            if report.rss_growth_bytes > RSS_GROWTH_MAX_BYTES and not of_loop_time:
                report.failures.append(f"memory grew without bound: {report}")
                break
    return report


def _some(
    report: Report, name: str, target: targets.Target, corpus: list[bytes], turn_end: float
) -> bool:
    """Inputs until then; False when one failed.  A hang ends the process with status 1; every stack
    is in the file HANG then, since pytest keeps what goes to standard error.

    The watch is a thread: to set it for each input costs more than the input.
    """
    with HANG.open("w") as stacks:
        limit_s = turn_end - time.monotonic() + HANG_S
        faulthandler.dump_traceback_later(limit_s, exit=True, file=stacks)
        try:
            while time.monotonic() < turn_end:
                if not one(report, name, target, report.counts[name], corpus):
                    return False
        finally:
            faulthandler.cancel_dump_traceback_later()
            HANG.unlink()
    return True


def one(
    report: Report, name: str, target: targets.Target, number: int, corpus: list[bytes]
) -> bool:
    """One input; False when it failed."""
    before = len(report.failures)
    rng = random.Random(f"{report.seed}/{name}/{number}")
    started = time.thread_time()
    try:
        target(rng, corpus)
    except Exception as error:
        report.failures.append(_describe(report.seed, name, number, error))
    took = time.thread_time() - started
    report.slowest_s = max(report.slowest_s, took)
    if took > SLOW_S and name not in loop_time.TARGETS:  # which are lives of many steps
        slow = targets.Broken(f"took {took:.1f} s of processor time")
        report.failures.append(_describe(report.seed, name, number, slow))
    report.counts[name] += 1
    return len(report.failures) == before


def _describe(seed: int, name: str, number: int, error: Exception) -> str:
    import traceback

    data = targets.last_input[0] if targets.last_input else b""
    path = Path(tempfile.gettempdir()) / f"fuzz-{name}-{seed}-{number}.bin"
    path.write_bytes(data)
    trace = "".join(traceback.format_exception(error)[-4:])
    return (
        f"{trace}again: python tests/fuzz/run.py --target {name} --seed {seed} --case {number}\n"
        f"input: {len(data)} bytes in {path}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the wire code and a whole broker.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--case", type=int, help="one input of one target, by its number")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    if options.case is None:
        report = run(seed, options.minutes * 60, options.target)
    else:
        report = repeat(seed, options.target[0], options.case)
    for failure in report.failures:
        print(failure)
    print(report)
    return 1 if report.failures else 0


def repeat(seed: int, name: str, case: int) -> Report:
    report = Report(seed, {name: case})
    with Engine() as engine:
        one(report, name, _pool(engine)[name], case, load_corpus())
    report.counts[name] = 1
    return report


if __name__ == "__main__":
    sys.exit(main())
