"""Invariant: a running broker outlives any number of broken clients: a normal client goes
on being served, every socket the broker gave up is closed, and its memory stays bounded.

    python -m tests.fuzz.live --url amqp://guest:guest@127.0.0.1:5672 --pid 1234 --seconds 60

Several attackers at once send captured and damaged sessions, whole or in pieces; they read
or do not, close politely, half, or with a reset.  Works against any broker.
"""

import argparse
import random
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.conformance.runner import Bystander
from tests.fuzz import mutate
from tests.fuzz.run import PAGE_BYTES, load_corpus

ATTACKERS = 4
RSS_GROWTH_MAX_BYTES = 96 << 20
SOCKETS_GONE_S = 5.0
LINGER_RESET = struct.pack("ii", 1, 0)


@dataclass
class LiveReport:
    seed: int
    sessions: int = 0
    round_trips: int = 0
    slowest_round_trip_s: float = 0.0
    rss_growth_bytes: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.sessions} sessions, {self.round_trips} round trips beside "
            f"them, the slowest {self.slowest_round_trip_s * 1000:.0f} ms; the broker grew by "
            f"{self.rss_growth_bytes >> 20} MiB; {len(self.failures)} failures"
        )


def assault(url: str, seed: int, seconds: float, pid: int | None = None) -> LiveReport:
    """Attack for a while; the bystander asks for service all the time."""
    report = LiveReport(seed)
    corpus = load_corpus()
    before, descriptors = _rss(pid), _descriptors(pid)
    stop = threading.Event()
    threads = [
        threading.Thread(target=_attack, args=(url, f"{seed}/{n}", corpus, stop, report))
        for n in range(ATTACKERS)
    ]
    bystander = Bystander(url)
    end = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    try:
        while time.monotonic() < end and not report.failures:
            started = time.monotonic()
            bystander.round_trip()
            took = time.monotonic() - started
            report.slowest_round_trip_s = max(report.slowest_round_trip_s, took)
            report.round_trips += 1
            time.sleep(0.02)
    except (AssertionError, OSError) as error:
        report.failures.append(f"the bystander: {error}")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        bystander.close()
    _check_sockets(report, pid, descriptors)
    report.rss_growth_bytes = _rss(pid) - before
    if report.rss_growth_bytes > RSS_GROWTH_MAX_BYTES:
        report.failures.append(f"memory: grew by {report.rss_growth_bytes >> 20} MiB")
    return report


def _rss(pid: int | None) -> int:
    if pid is None:
        return 0
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def _descriptors(pid: int | None) -> int:
    return 0 if pid is None else len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _check_sockets(report: LiveReport, pid: int | None, before: int) -> None:
    """All attackers are gone, so the broker's ends of their sockets must go too.

    A file of its own (a log segment, a directory) may have been opened meanwhile.
    """
    deadline = time.monotonic() + SOCKETS_GONE_S
    while _descriptors(pid) > before + 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    if _descriptors(pid) > before + 4:
        report.failures.append(f"{_descriptors(pid)} descriptors left, {before} before")


def _attack(
    url: str, seed: str, corpus: list[bytes], stop: threading.Event, report: LiveReport
) -> None:
    rng = random.Random(seed)
    inputs = mutate.inputs(rng, corpus)
    while not stop.is_set() and not report.failures:
        try:
            _session(url, rng, next(inputs))
        except ConnectionRefusedError:
            report.failures.append("the broker does not listen any more")
        except OSError:
            pass  # it hung up while we were still talking: its right
        report.sessions += 1


def _session(url: str, rng: random.Random, data: bytes) -> None:
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or 5672)
    with socket.create_connection(address, timeout=5) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reads = rng.randrange(4) > 0
        for part in mutate.splits(rng, data, rng.choice((0, 1, 3, 10))):
            sock.sendall(part)
            if reads and rng.randrange(2):
                sock.settimeout(0.05)
                with suppress(TimeoutError):
                    sock.recv(65536)
                sock.settimeout(5)
        ending = rng.randrange(3)
        if ending == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
        elif ending == 1:
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(0.05)
            with suppress(TimeoutError):
                while sock.recv(65536):
                    pass


def main() -> int:
    parser = argparse.ArgumentParser(description="Throw broken sessions at a running broker.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--pid", type=int, help="the broker's, to watch its memory")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    report = assault(options.url, seed, options.seconds, options.pid)
    for failure in report.failures:
        print(failure)
    print(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
