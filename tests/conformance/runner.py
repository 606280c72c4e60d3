"""Run conformance cases against one broker, several at a time, and watch a bystander.

Most of a case's time is waiting (the broker delays its answer to a failed login by three
seconds), so cases run in threads; each uses names of its own.  After each case a bystander,
another connection opened before all of them, publishes and gets a message: whatever was
thrown at the broker, it and its other clients go on.
"""

import importlib
import threading
import traceback
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from tests.conformance import case
from tests.helpers.raw_amqp import RawClient, connect

WORKERS = 12


@dataclass
class Outcome:
    """What one case left: its transcript, and the traceback when it could not finish."""

    lines: list[str] = field(default_factory=list)
    error: str = ""


def load_cases() -> dict[str, case.CaseFunction]:
    """Import every file of cases; returns the registry."""
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        importlib.import_module(f"tests.conformance.{path.stem}")
    return case.CASES


class Bystander:
    """A well-behaved client that must never notice the others."""

    def __init__(self, url: str) -> None:
        world = case.World(url)
        self._client: RawClient = connect(url, "bystander")
        self._client.open(user=world.user, password=world.password)
        self._client.open_channel(1)
        self._queue = f"bystander-{token_hex(6)}"
        self._client.call(1, "queue.declare", queue=self._queue, exclusive=True)
        self._lock = threading.Lock()

    def round_trip(self) -> None:
        with self._lock:
            self._client.publish(1, "", self._queue, b"still here")
            got = self._client.call(1, "basic.get", queue=self._queue, no_ack=True)
        if got.body != b"still here":
            raise AssertionError(f"the bystander was disturbed: {got}")

    def close(self) -> None:
        self._client.close_socket()


def _run_one(url: str, name: str, bystander: Bystander) -> Outcome:
    world = case.World(url)
    outcome = Outcome()
    try:
        case.CASES[name](world)
        bystander.round_trip()
    except Exception:
        outcome.error = traceback.format_exc()
    finally:
        world.close()
    outcome.lines = world.transcript()
    return outcome


def run_cases(url: str, names: Iterable[str]) -> dict[str, Outcome]:
    """Run the cases named; those that wait for a timeout of the broker start first."""
    load_cases()
    ordered = sorted(names, key=lambda name: name not in case.SLOW)
    bystander = Bystander(url)
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            outcomes = pool.map(lambda name: _run_one(url, name, bystander), ordered)
            return dict(zip(ordered, outcomes, strict=True))
    finally:
        bystander.close()


def run_delayed_again(
    url: str, outcomes: dict[str, Outcome], wanted: Mapping[str, list[str]]
) -> dict[str, Outcome]:
    """Run cases of times again, twice at most, whose transcripts are not the ones wanted.

    A machine with other work delays a client by more than a queue lives without being used.
    """
    for _ in range(2):
        late = [
            name
            for name, outcome in outcomes.items()
            if name.startswith("time.") and outcome.lines != wanted[name]
        ]
        if not late:
            break
        outcomes = outcomes | run_cases(url, late)
    return outcomes
