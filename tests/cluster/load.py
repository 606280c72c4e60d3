"""A load on a cluster: publishers and consumers of several libraries, each a process of its own.

    with Load([Worker("pika", "queue_0", urls), ...]) as load:
        load.run(3)                     seconds, in which nothing else happens
        cluster.nodes[0].kill()
        load.await_confirms(5)          every queue has had one that is newer than this moment
        load.finish()                   publishers stop, what was confirmed is drained, judged

A worker is one publisher and one consumer of one queue, which both know all nodes; the publisher
begins at the first, the consumer at the last.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from tests.cluster.judge import Account, told
from tests.interop import programs

HERE = Path(__file__).parent
RATE = int(os.environ.get("PENSTOCK_CLUSTER_RATE", "100"))
WINDOW = 20
NSQ_WINDOW = 500
"""A writer deals out over all nodes, so one that does not answer must not fill the window."""
BEGIN_S = 120.0
"""Clients start beside many others."""
END_S = 20.0
DRAIN_S = 60.0
RELIEF_S = 20.0
"""What is left by then has no consumer: Java's recovery forgets one for ever that comes to a node
while the home of its queue is down, and is told 404.
"""
LOOK_S = 0.02
TOTALS: Counter[str] = Counter()
"""Of all loads of this run of pytest; printed in its last line (conftest)."""


class Worker(NamedTuple):
    """``client``: pika, pynsq, go or java."""

    client: str
    queue: str
    addresses: Sequence[str]


def command(client: str) -> list[str]:
    """Skips the test when the language is not there."""
    if client in ("pika", "pynsq"):
        return [sys.executable, str(HERE / f"load_{client}.py")]
    program = next(one for one in programs.PROGRAMS if one.name == client)
    reason = programs.missing_reason(program)
    if reason is not None:
        pytest.skip(reason)
    return program.command(programs.built(program))


class Client:
    """One process, and a thread that hands on what it says."""

    def __init__(self, name: str, words: Sequence[str], account: Account) -> None:
        self.name = name
        self.account = account
        self.failure: BaseException | None = None
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                self.account.hear(line.rstrip("\n"))
        except BaseException as error:
            error.add_note("".join(self.process.stdout))  # the rest, if it was a traceback
            self.failure = error

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure
        last = "\n".join(self.account.heard[-30:])
        assert self.process.poll() is None, (
            f"{self.name} has left: {self.process.returncode}\n{last}"
        )

    def tell_to_end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def await_end(self) -> None:
        code = self.process.wait(END_S)
        self._thread.join(END_S)
        if self.failure is not None:
            raise self.failure
        assert code == 0, f"{self.name} left with exit code {code}"
        assert self.name in self.account.ended, f"{self.name} did not come to its end"

    def close(self) -> None:
        """Also after a failure: nothing is left open."""
        self.process.kill()
        self.process.wait()
        self._thread.join(END_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Load:
    """See the head of this file."""

    def __init__(self, workers: Sequence[Worker], rate: int = RATE) -> None:
        self.accounts: dict[str, Account] = {}
        self.publishers: list[Client] = []
        self.consumers: list[Client] = []
        self._commands = {one.client: command(one.client) for one in workers}
        self._workers = workers
        self._rate = rate

    def __enter__(self) -> Self:
        try:
            for number, worker in enumerate(self._workers):
                self._begin(number, worker)
            self._await_beginning()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        for client in self.publishers + self.consumers:
            client.close()

    def _begin(self, number: int, worker: Worker) -> None:
        is_nsq = worker.client == "pynsq"
        account = self.accounts.setdefault(
            worker.queue, Account(worker.queue, keeps_order=not is_nsq, marks=not is_nsq)
        )
        program, addresses = self._commands[worker.client], worker.addresses
        name = f"c{number}"
        words = [*program, "load-consume", ",".join(addresses[::-1]), worker.queue, name]
        self.consumers.append(Client(name, words, account))
        name = f"p{number}"
        words = [*program, "load-publish", ",".join(addresses), worker.queue, name]
        window = NSQ_WINDOW if is_nsq else WINDOW
        self.publishers.append(Client(name, [*words, str(self._rate), str(window)], account))

    def _await_beginning(self) -> None:
        end_s = time.monotonic() + BEGIN_S
        while not all(one.confirmed and one.received for one in self.accounts.values()):
            self.check()
            assert time.monotonic() < end_s, f"the load does not begin: {self.told()}"
            time.sleep(LOOK_S)

    # -- while it goes on ------------------------------------------------------------------

    def check(self) -> None:
        for client in self.publishers + self.consumers:
            client.check()

    def run(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.check()
            time.sleep(LOOK_S)

    def await_confirms(self, timeout_s: float, queues: Sequence[str] = ()) -> None:
        """Of something published from now on, each of the queues (all) has had a confirm."""
        known = {queue: set(self.accounts[queue].confirmed) for queue in queues or self.accounts}
        time.sleep(0.2)  # what is on its way now may have been confirmed before
        for queue in known:
            known[queue] |= set(self.accounts[queue].confirmed)
        end_s = time.monotonic() + timeout_s

        def silent() -> list[str]:
            return [one for one in known if not self.accounts[one].confirmed.keys() - known[one]]

        while silent():
            self.check()
            assert time.monotonic() < end_s, (
                f"nothing is confirmed in {silent()}, for {timeout_s:g} s: {self.told()}"
            )
            time.sleep(LOOK_S)

    # -- the end ---------------------------------------------------------------------------

    def finish(self) -> None:
        """No queue may keep anything from its consumers now."""
        for client in self.publishers:
            client.check()
            client.tell_to_end()
        for client in self.publishers:
            client.await_end()
        self._drain()
        for client in self.consumers:
            client.tell_to_end()
        for client in self.consumers:
            client.await_end()
        print(self.told())
        for account in self.accounts.values():
            TOTALS.update(account.counts())
            account.judge()

    def _drain(self) -> None:
        end_s = time.monotonic() + DRAIN_S
        relief_s = time.monotonic() + RELIEF_S
        while any(account.missing() for account in self.accounts.values()):
            now_s = time.monotonic()
            if now_s > end_s:
                return  # the judge says what is missing
            if now_s > relief_s:
                relief_s = end_s + 1
                self._relieve()
            for client in self.consumers:
                client.check()
            time.sleep(LOOK_S)

    def _relieve(self) -> None:
        for worker in self._workers:
            account = self.accounts[worker.queue]
            if worker.client != "pynsq" and account.missing():
                name = f"relief of {worker.queue}".replace(" ", "_")
                print(f"{worker.queue}: its consumer is gone, another one takes what is left")
                words = [*command("pika"), "load-consume", ",".join(worker.addresses)]
                self.consumers.append(Client(name, [*words, worker.queue, name], account))

    def gap_ms(self, since_ms: int = 0) -> int:
        return max(account.gap_ms(since_ms) for account in self.accounts.values())

    def told(self) -> str:
        return "\n".join(
            f"{account.queue}: {told(account.counts())}, longest gap {account.gap_ms()} ms"
            for account in self.accounts.values()
        )
