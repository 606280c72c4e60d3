"""Faults of a cluster by a schedule from a seed, under the load of a ``World``.

A fault is a context manager: it does its damage, names it, and ends it when it is left.  A round
of ``Chaos`` is one fault of ``HARD``, often with one of ``GENTLE`` beside it, some seconds long;
then everything is healed, every queue confirms again, and all copies are whole.  The judge of the
load looks at the end of all rounds.

    killed, stopped, paused         one node: SIGKILL, SIGTERM, SIGSTOP
    all killed                      all nodes at once
    isolated                        one node from all others and from etcd; clients reach it
    cut, cut one way                two nodes from each other
    bridge                          one node hears all, the others hear only that one
    split                           each node hears etcd and no other
    etcd away, etcd member          all members stand still; one is killed
    slow disk, full disk            writes take their time; a node's file system has no byte left
    clock                           the wall clock of one node jumps, an hour or a few seconds
    flipped bit                     of a segment of a node that is down, no master of a mirror
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from random import Random

from penstock.cli.failure import FAILED
from tests.cluster.load import Load
from tests.cluster.world import World
from tests.helpers.broker_process import BrokerFailed
from tests.helpers.etcd import EtcdTrio
from tests.helpers.hostile_machine import HostileMachine
from tests.helpers.namespaces import PrivateNetwork

Fault = Callable[["Chaos"], AbstractContextManager[str]]

GO_ON_S = 60.0
FAULT_S = (0.3, 8.0)
PEACE_S = (0.5, 2.0)
BOTH = 0.4
"""How often there is a gentle fault too."""
SLOW_BYTES_PER_S = (20_000.0, 500_000.0)
CLOCK_S = (-3600.0, -5.0, 5.0, 3600.0)
DISK_BYTES = 400 * 1024 * 1024


@contextmanager
def small_disks(directory: Path, size: int) -> Iterator[None]:
    """Each node has a file system of its own, which a fault can fill."""
    with ExitStack() as stack:
        for number in range(size):
            path = directory / f"n{number + 1}"
            path.mkdir(parents=True, exist_ok=True)
            command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
            subprocess.run(command, check=True)
            stack.callback(subprocess.run, ["umount", "-l", str(path)], check=True)
        yield


class Chaos:
    """``done``: how often each fault was; ``names``: those of the round under way.

    ``full``: the node whose disk is full, -1 = none.
    """

    def __init__(self, world: World, machines: list[HostileMachine], seed: int) -> None:
        self.world = world
        self.machines = machines
        self.rng = Random(seed)
        self.done: Counter[str] = Counter()
        self.names: list[str] = []
        self.full = -1

    @property
    def network(self) -> PrivateNetwork:
        assert self.world.network is not None
        return self.world.network

    def node(self) -> int:
        return self.rng.randrange(self.world.size)

    def two(self) -> tuple[int, int]:
        one, other = self.rng.sample(range(self.world.size), 2)
        return one, other

    def round(self, load: Load) -> str:
        """What was done, in words; everything is healed and whole when it returns."""
        load.run(self.rng.uniform(*PEACE_S))
        names = self.names = [self.rng.choice(list(HARD))]
        if self.rng.random() < BOTH:
            names.insert(0, self.rng.choice(list(GENTLE)))
        with ExitStack() as stack:
            said = [stack.enter_context((HARD | GENTLE)[name](self)) for name in names]
            load.run(self.rng.uniform(*FAULT_S))
        self.done.update(names)
        load.await_confirms(GO_ON_S)
        self.world.settle(timeout_s=GO_ON_S)
        return "; ".join(said)


# -- hard ones: one at a time ----------------------------------------------------------------


@contextmanager
def killed(chaos: Chaos) -> Iterator[str]:
    node = chaos.node()
    chaos.world.kill(node)
    yield f"kill -9 of {node}"
    chaos.world.start(node)


@contextmanager
def stopped(chaos: Chaos) -> Iterator[str]:
    node = chaos.node()
    try:
        chaos.world.stop(node)
    except BrokerFailed as failed:  # it cannot write all, and maybe not say so: its log is there
        if node != chaos.full or failed.exit_code != FAILED:
            raise
    yield f"stop of {node}"
    chaos.world.start(node)


@contextmanager
def all_killed(chaos: Chaos) -> Iterator[str]:
    for node in range(chaos.world.size):
        chaos.world.kill(node)
    yield "kill -9 of all"
    chaos.world.cluster.start()


@contextmanager
def paused(chaos: Chaos) -> Iterator[str]:
    node = chaos.node()
    pid = chaos.world.cluster.nodes[node].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield f"pause of {node}"
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def isolated(chaos: Chaos) -> Iterator[str]:
    node = chaos.node()
    chaos.world.isolate(node)
    yield f"{node} cut off"
    chaos.world.heal()


@contextmanager
def cut(chaos: Chaos) -> Iterator[str]:
    one, other = chaos.two()
    chaos.network.cut(one, other)
    yield f"cut between {one} and {other}"
    chaos.world.heal()


@contextmanager
def cut_one_way(chaos: Chaos) -> Iterator[str]:
    one, other = chaos.two()
    chaos.network.cut_one_way(one, other)
    yield f"cut from {one} to {other}"
    chaos.world.heal()


@contextmanager
def bridge(chaos: Chaos) -> Iterator[str]:
    middle = chaos.node()
    others = set(range(chaos.world.size)) - {middle}
    chaos.network.split(*({one} for one in others))
    yield f"only {middle} hears all"
    chaos.world.heal()


@contextmanager
def split(chaos: Chaos) -> Iterator[str]:
    chaos.network.split(*({one} for one in range(chaos.world.size)))
    yield "no node hears another"
    chaos.world.heal()


@contextmanager
def etcd_away(chaos: Chaos) -> Iterator[str]:
    chaos.world.cluster.etcd.pause()
    try:
        yield "etcd stands still"
    finally:
        chaos.world.cluster.etcd.resume()


@contextmanager
def flipped_bit(chaos: Chaos) -> Iterator[str]:
    """The copy is given up and fetched again; the others have all that it had."""
    world = chaos.world
    masters = {world.master(queue) for queue in world.queues if queue not in world.quorum}
    node = chaos.rng.choice(sorted(set(range(world.size)) - masters) or [-1])
    if node < 0:
        yield "no bit flipped: every node is a master"
        return
    world.kill(node)
    world.start(node)  # what only the journal has goes into segments
    world.kill(node)
    segments = (world.cluster.nodes[node].data_dir / "queues").glob("*/*.idx")
    path = max(segments, key=lambda one: one.stat().st_size, default=None)
    if path is None or path.stat().st_size == 0:
        yield f"no bit flipped: nothing rests at {node}"
    else:
        with path.open("r+b") as file:
            at = chaos.rng.randrange(path.stat().st_size)
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << chaos.rng.randrange(8)]))
        yield f"a bit flipped at {node}"
    world.start(node)


# -- gentle ones: beside another, or alone ---------------------------------------------------


@contextmanager
def etcd_member(chaos: Chaos) -> Iterator[str]:
    etcd = chaos.world.cluster.etcd
    assert isinstance(etcd, EtcdTrio)
    number = chaos.rng.randrange(len(etcd.members))
    etcd.members[number].kill()
    try:
        yield f"kill -9 of member {number} of etcd"
    finally:
        etcd.members[number].start()


@contextmanager
def slow_disk(chaos: Chaos) -> Iterator[str]:
    node, bytes_per_s = chaos.node(), chaos.rng.uniform(*SLOW_BYTES_PER_S)
    chaos.machines[node].set(disk_bytes_per_s=bytes_per_s)
    yield f"disk of {node} takes {bytes_per_s:.0f} bytes/s"
    chaos.machines[node].set()


@contextmanager
def clock(chaos: Chaos) -> Iterator[str]:
    """And back."""
    node, offset_s = chaos.node(), chaos.rng.choice(CLOCK_S)
    chaos.machines[node].set(clock_offset_s=offset_s)
    yield f"clock of {node} jumps {offset_s:+g} s"
    chaos.machines[node].set()


@contextmanager
def full_disk(chaos: Chaos) -> Iterator[str]:
    """To the last byte."""
    node = chaos.node()
    ballast = chaos.world.cluster.nodes[node].directory / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
        chaos.full = node
        yield f"disk of {node} is full"
    finally:
        chaos.full = -1
        ballast.unlink()
        time.sleep(1)  # the node looks at its disk once in a while


HARD: dict[str, Fault] = {
    "killed": killed,
    "stopped": stopped,
    "all killed": all_killed,
    "paused": paused,
    "isolated": isolated,
    "cut": cut,
    "cut one way": cut_one_way,
    "bridge": bridge,
    "split": split,
    "etcd away": etcd_away,
    "flipped bit": flipped_bit,
}
GENTLE: dict[str, Fault] = {
    "etcd member": etcd_member,
    "slow disk": slow_disk,
    "clock": clock,
    "full disk": full_disk,
}
