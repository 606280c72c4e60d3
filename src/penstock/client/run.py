"""Carries out a load plan: declares, starts the processes, keeps the time, adds up.

The run is measured between two looks at the shared counters and at the broker's CPU
time: after the warm-up and at the end of ``duration_s``; a counted run from the start to
the last confirm and delivery.  What happens outside (declaring, warming up, draining,
deleting) does not count.
"""

import json
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final, Self

import penstock
from penstock.client.amqp import Channel, Connection
from penstock.client.endpoint import ClientError, Endpoint
from penstock.client.plan import LoadPlan
from penstock.client.procstat import ProcessGauge
from penstock.client.report import add_up
from penstock.client.shared import STOP_ALL, STOP_PUBLISHING, Counters, SendWindow

SETUP_LIMIT_S: Final = 30.0
START_DELAY_NS: Final = 50_000_000
TICK_S: Final = 0.02
RSS_EVERY_TICKS: Final = 3
FAMILY_EVERY_TICKS: Final = 50
QUIET_S: Final = 0.5
"""A queue that is empty while no consumer has got anything for so long is drained."""
RATE_DRAIN_S: Final = 2.0
ENDING_LIMIT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    at_ns: int
    published: int
    consumed: int
    cpu_user_s: float
    cpu_system_s: float


class WorkerProcess:
    def __init__(self, task: dict[str, Any], descriptors: list[int]) -> None:
        self.role: str = task["role"]
        self.result: dict[str, Any] | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.client.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=descriptors,
            env=worker_environment(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to: IO[bytes] = self._process.stdin
        self._from: IO[bytes] = self._process.stdout
        self._heard = b""
        self.tell(task)

    def tell(self, message: dict[str, Any]) -> None:
        try:
            self._to.write(json.dumps(message).encode() + b"\n")
            self._to.flush()
        except BrokenPipeError:
            raise ClientError(f"a {self.role} process ended too early") from None

    def hear(self, limit_s: float) -> str | None:
        """Its next state, None when it says nothing in time; what failed there fails here."""
        until = time.monotonic() + limit_s
        while b"\n" not in self._heard:
            left_s = max(0.0, until - time.monotonic())
            if not select.select([self._from], [], [], left_s)[0]:
                return None
            data = os.read(self._from.fileno(), 65_536)
            if not data:
                raise ClientError(f"a {self.role} process ended without a result")
            self._heard += data
        line, self._heard = self._heard.split(b"\n", 1)
        message = json.loads(line)
        if message["state"] == "failed":
            raise ClientError(message["error"])
        self.result = message.get("result")
        state: str = message["state"]
        return state

    def expect(self, state: str, limit_s: float) -> None:
        said = self.hear(limit_s)
        if said != state:
            raise ClientError(f"a {self.role} process was not {state} within {limit_s:.0f} s")

    def is_done(self) -> bool:
        return self.result is not None or self.hear(0.0) == "done"

    def end(self) -> None:
        if self._process.poll() is None and self.result is None:
            self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._to.close()
        self._from.close()


def worker_environment() -> dict[str, str]:
    """Workers must import this very package, from wherever this process has it."""
    source = str(Path(penstock.__file__).parent.parent)
    path = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


class LoadRun:
    """One run of a plan.  ``pid`` 0 = the broker's process is not watched.

    ``tell``: takes the progress (done, of how much, in words).
    """

    def __init__(
        self,
        plan: LoadPlan,
        pid: int = 0,
        tree: bool = False,
        tell: Callable[[float, float, str], None] | None = None,
    ) -> None:
        self.plan = plan
        self.deadline_passed = False
        self._endpoint = Endpoint.parse(plan.uri)
        self._gauge = ProcessGauge(pid, tree) if pid else None
        self._rss_start_bytes = self._gauge.sample_rss() if self._gauge else 0
        self._counters = Counters.create(plan.publishers + plan.consumers)
        self._rooms = (
            [SendWindow.create() for _ in range(plan.publishers)] if plan.in_flight else []
        )
        self._workers: list[WorkerProcess] = []
        self._ticks = 0
        self._times: dict[str, int] = {}
        self._measured_from: Snapshot | None = None
        self._measured_to: Snapshot | None = None
        self._tell = tell
        """Hears now and then what is done, of how much, and of how many messages."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._counters.ask_to_stop(STOP_ALL)
        for worker in self._workers:
            worker.end()
        for room in self._rooms:
            os.close(room)
        self._counters.close()

    def run(self) -> dict[str, Any]:
        with Connection(self._endpoint) as connection:
            declare(self.plan, connection.channel())
        try:
            self._start_workers()
            self._work()
        finally:
            if self.plan.cleanup:
                self._counters.ask_to_stop(STOP_ALL)
                self._end_workers()
                delete(self.plan, self._endpoint)
        assert self._measured_from is not None
        assert self._measured_to is not None
        results = [(worker.role, worker.result or {}) for worker in self._workers]
        result = add_up(self.plan, results, asdict(self._measured_from), asdict(self._measured_to))
        result["deadline_passed"] = self.deadline_passed
        own = resource.getrusage(resource.RUSAGE_SELF)
        result["generator_cpu_s"] += own.ru_utime + own.ru_stime
        if self._gauge:
            result["broker"] |= {
                "rss_start_mb": self._rss_start_bytes / 1e6,
                "rss_peak_mb": self._gauge.peak_rss_bytes / 1e6,
            }
        return result

    # -- the phases --------------------------------------------------------------------

    def _start_workers(self) -> None:
        plan = self.plan
        roles = ["publisher"] * plan.publishers + ["consumer"] * plan.consumers
        for slot, role in enumerate(roles):
            task = {
                "role": role,
                "number": slot if role == "publisher" else slot - plan.publishers,
                "slot": slot,
                "workers": len(roles),
                "plan": asdict(plan),
                "counters": self._counters.descriptor,
                "rooms": self._rooms,
            }
            descriptors = [self._counters.descriptor, *self._rooms]
            self._workers.append(WorkerProcess(task, descriptors))
        for worker in self._workers:
            worker.expect("ready", SETUP_LIMIT_S)

    def _work(self) -> None:
        publishers = self._workers[: self.plan.publishers]
        consumers = self._workers[self.plan.publishers :]
        if self.plan.count:  # measured as a whole: it may be over before the next look
            self._measured_from = self._look()
        self._set_times()
        for worker in consumers:
            worker.tell(self._times)
        for worker in consumers:
            worker.expect("consuming", SETUP_LIMIT_S)
        self._set_times()  # publishers start only now
        for worker in publishers:
            worker.tell(self._times)
        self._tick_until(self._times["measure_ns"])
        if self._measured_from is None:
            self._measured_from = self._look()
        if self._times["end_ns"]:
            self._tick_until(self._times["end_ns"])
            self._measured_to = self._look()
        self._end(publishers)
        if self._measured_to is None:
            self._measured_to = self._look()
        self._counters.ask_to_stop(STOP_ALL)
        self._end_workers()

    def _set_times(self) -> None:
        plan = self.plan
        start_ns = time.monotonic_ns() + START_DELAY_NS
        measure_ns = start_ns + int(plan.warmup_s * 1e9)
        self._times = {
            "start_ns": start_ns,
            "measure_ns": measure_ns,
            "end_ns": measure_ns + int(plan.duration_s * 1e9) if plan.duration_s else 0,
            "deadline_ns": start_ns + int(plan.limit_s() * 1e9),
        }

    def _end(self, publishers: list[WorkerProcess]) -> None:
        """Wait for publishers, then for what they have sent to be consumed, as far as due."""
        while not all(worker.is_done() for worker in publishers) and not self._late():
            self._tick()
        self._counters.ask_to_stop(STOP_PUBLISHING)
        if self.plan.count and self.plan.consumers:
            self._drain(self.plan.limit_s())
        elif self.plan.rate and self.plan.consumers:
            self._drain(RATE_DRAIN_S)

    def _drain(self, limit_s: float) -> None:
        wanted = self.plan.count if not self.plan.publishers else self._published()
        until_ns = time.monotonic_ns() + int(limit_s * 1e9)
        seen, changed_ns = -1, time.monotonic_ns()
        while not self._late() and time.monotonic_ns() < until_ns:
            self._tick()
            consumed = self._consumed()
            if consumed >= wanted and (self.plan.one_queue_each() or not self.plan.publishers):
                return
            if consumed != seen:
                seen, changed_ns = consumed, time.monotonic_ns()
            elif time.monotonic_ns() - changed_ns > QUIET_S * 1e9 and self._queues_are_empty():
                return

    def _queues_are_empty(self) -> bool:
        with Connection(self._endpoint) as connection:
            channel = connection.channel()
            return all(
                channel.queue_declare(name, passive=True).number("message_count") == 0
                for name in self.plan.queue_names()
            )

    def _end_workers(self) -> None:
        until = time.monotonic() + ENDING_LIMIT_S
        while time.monotonic() < until:
            if all(worker.is_done() for worker in self._workers):
                return
            time.sleep(TICK_S)
        raise ClientError(f"a process did not end within {ENDING_LIMIT_S:.0f} s")

    # -- watching ----------------------------------------------------------------------

    def _published(self) -> int:
        return self._counters.total(0, self.plan.publishers)

    def _consumed(self) -> int:
        return self._counters.total(self.plan.publishers, self.plan.consumers)

    def _look(self) -> Snapshot:
        user_s, system_s = self._gauge.cpu_s() if self._gauge else (0.0, 0.0)
        now_ns = time.monotonic_ns()
        return Snapshot(now_ns, self._published(), self._consumed(), user_s, system_s)

    def _tick_until(self, moment_ns: int) -> None:
        while (left_ns := moment_ns - time.monotonic_ns()) > 0:
            self._tick(min(TICK_S, left_ns / 1e9))

    def _tick(self, nap_s: float = TICK_S) -> None:
        time.sleep(nap_s)
        self._ticks += 1
        if self._gauge and self._ticks % RSS_EVERY_TICKS == 0:
            self._gauge.sample_rss()
        if self._gauge and self._ticks % FAMILY_EVERY_TICKS == 0:
            self._gauge.refresh()
        for worker in self._workers:
            worker.is_done()  # raises what went wrong there
        if self._tell is not None:
            self._tell(*self._how_far(), f"{self._consumed() or self._published()} messages")

    def _how_far(self) -> tuple[float, float]:
        """What is done, and of how much: messages of a counted run, else seconds."""
        plan = self.plan
        if plan.count:
            return (self._consumed() if plan.consumers else self._published()), plan.count
        began_ns, end_ns = self._times["start_ns"], self._times["end_ns"]
        return (time.monotonic_ns() - began_ns) / 1e9, max(0.0, (end_ns - began_ns) / 1e9)

    def _late(self) -> bool:
        if time.monotonic_ns() >= self._times["deadline_ns"]:
            self.deadline_passed = True
        return self.deadline_passed


def declare(plan: LoadPlan, channel: Channel) -> None:
    """Make the entities of the plan; an exchange without a type has to exist already."""
    if plan.exchange:
        kind, passive = plan.exchange_type, not plan.exchange_type
        channel.exchange_declare(plan.exchange, kind, durable=plan.durable, passive=passive)
    for name in plan.queue_names():
        channel.queue_declare(name, durable=plan.durable, arguments=plan.queue_arguments)
    for name, key in plan.queue_bindings():
        channel.queue_bind(name, plan.exchange, key)


def delete(plan: LoadPlan, endpoint: Endpoint) -> None:
    with Connection(endpoint) as connection:
        channel = connection.channel()
        for name in plan.queue_names():
            channel.queue_delete(name)
        if plan.exchange and plan.exchange_type:
            channel.exchange_delete(plan.exchange)
