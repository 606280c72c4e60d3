"""Run cases of NSQ, each against a server configured as the case asks.

Cases of one server run in threads, since most of their time is waiting; each uses names of its
own.  After each a bystander, a consumer that was there before, must still get its message.
"""

from __future__ import annotations

import importlib
import threading
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance_nsq import case
from tests.conformance_nsq.case import PLAIN, Place, World
from tests.conformance_nsq.servers import Family

WORKERS = 8
SERVERS_AT_A_TIME = 3


@dataclass
class Outcome:
    """What one case left: its transcript, and the traceback when it could not finish.

    ``late`` says that something took longer than the case allows.
    """

    lines: list[str] = field(default_factory=list)
    error: str = ""
    late: bool = False


def load_cases() -> dict[str, case.Case]:
    """Import every file of cases; returns the registry."""
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        importlib.import_module(f"tests.conformance_nsq.{path.stem}")
    return case.CASES


class Bystander:
    """A well-behaved consumer that must never notice the others."""

    def __init__(self, place: Place) -> None:
        self._world = World(place)
        self._topic = self._world.name("bystander")
        self._client = self._world.subscriber(self._topic, "c", rdy=1)
        self._lock = threading.Lock()

    def round_trip(self) -> None:
        with self._lock:
            self._world.put(self._topic, b"still here")
            event = self._client.receive_quietly()
            if event.body != b"still here":
                raise AssertionError(f"the bystander was disturbed: {event}")
            self._client.settle("FIN", event)

    def close(self) -> None:
        self._world.close()


def _run_one(place: Place, name: str, bystander: Bystander | None) -> Outcome:
    world = World(place)
    outcome = Outcome()
    try:
        case.CASES[name].tell(world)
        if bystander is not None:
            bystander.round_trip()
    except Exception:
        outcome.error = traceback.format_exc()
    finally:
        world.close()
    outcome.lines, outcome.late = world.transcript(), world.late
    return outcome


@contextmanager
def _bystander(server: str, place: Place) -> Iterator[Bystander | None]:
    if server != PLAIN:
        yield None
        return
    bystander = Bystander(place)
    try:
        yield bystander
    finally:
        bystander.close()


def run_cases(family: Family, names: Iterable[str]) -> dict[str, Outcome]:
    """Run the cases named, some servers at a time; those that wait start first."""
    load_cases()
    by_server: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: not case.CASES[name].slow):
        by_server.setdefault(case.CASES[name].server, []).append(name)
    ordered = sorted(by_server, key=lambda server: -len(by_server[server]))
    with ThreadPoolExecutor(SERVERS_AT_A_TIME) as pool:
        told = pool.map(lambda server: _run_server(family, server, by_server[server]), ordered)
        return {name: outcome for some in told for name, outcome in some.items()}


def _run_server(family: Family, server: str, names: list[str]) -> dict[str, Outcome]:
    with family.serve(server) as place, _bystander(server, place) as bystander:
        return _together(place, names, bystander)


def _together(place: Place, names: list[str], bystander: Bystander | None) -> dict[str, Outcome]:
    with ThreadPoolExecutor(WORKERS) as pool:
        told = pool.map(lambda name: _run_one(place, name, bystander), names)
        outcomes = dict(zip(names, told, strict=True))
    for name in [name for name, outcome in outcomes.items() if outcome.late]:
        outcomes[name] = _run_one(place, name, bystander)  # alone: a busy machine is late once
    return outcomes
