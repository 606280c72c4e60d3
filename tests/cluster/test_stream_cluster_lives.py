"""Random lives of a mirrored stream on whole nodes, simulated: kills, power cuts, stops, pauses,
networks and coordinators that are out of reach, while clients at all nodes publish.

When everything has healed: what was confirmed is in the stream, once and in its publisher's order;
all copies have the same messages at the same offsets; and no reader was given two messages of one
offset, whatever happened in between.

``PENSTOCK_STREAM_NODES_SEEDS`` says how many lives, ``PENSTOCK_STREAM_NODES_SEED`` where to begin.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.protocols.amqp.codec.properties import body_of
from penstock.streams.block_codec import read_records
from penstock.streams.cursor import FIRST, Start, StreamCursor
from tests.cluster.sim_cluster import SimCluster, started
from tests.helpers.connection_pair import ClientEnd
from tests.simulation.cluster_nodes import Machine

SEEDS = int(os.environ.get("PENSTOCK_STREAM_NODES_SEEDS", "2"))
FIRST_SEED = int(os.environ.get("PENSTOCK_STREAM_NODES_SEED", "1"))
NAMES = ("a@h", "b@h", "c@h")
STEPS = 250
TROUBLES = ("kill", "power", "stop", "start", "start", "pause", "cut", "store", "heal")


class Client:
    """Publishes to the stream and reads it, until its node or its connection goes."""

    def __init__(self, life: Life, at: Machine) -> None:
        self.life = life
        self.machine = at
        self.client: ClientEnd = at.client()
        self.name = life.next_client()
        self.open: dict[int, bytes] = {}
        self.count = 0
        self.over = False
        self.client.call("confirm.select")
        self.client.call("basic.qos", prefetch_count=20)
        arguments = {"x-stream-offset": "first"}
        self.client.method(
            1, "basic.consume", queue="s", consumer_tag=self.name, arguments=arguments
        )

    def publish(self) -> None:
        self.count += 1
        body = f"{self.name}:{self.count}".encode()
        self.open[self.count] = body
        self.client.publish("", "s", body, delivery_mode=2, run=False)

    def listen(self) -> None:
        for name, fields in [] if self.over else self.client.methods():
            if name in ("channel.close", "connection.close"):
                self.over = True
                self.life.counts["closed"] += 1
                return
            if name == "basic.deliver":
                offset = fields["properties"]["headers"]["x-stream-offset"]
                self.life.read(int(getattr(offset, "value", offset)), fields["body"])
                self.client.method(1, "basic.ack", delivery_tag=fields["delivery_tag"])
            elif name in ("basic.ack", "basic.nack"):
                last = fields["delivery_tag"]
                for tag in [one for one in self.open if one <= last]:
                    if fields["multiple"] or tag == last:
                        body = self.open.pop(tag)
                        if name == "basic.ack":
                            self.life.confirmed.append(body)


class Life:
    def __init__(self, seed: int, cluster: SimCluster) -> None:
        self.rng = random.Random(seed)
        self.cluster = cluster
        self.machines = cluster.machines
        self.counts: Counter[str] = Counter()
        self.confirmed: list[bytes] = []
        self.seen: dict[int, bytes] = {}
        self.clients: list[Client] = []
        self.made = 0

    def next_client(self) -> str:
        self.made += 1
        return f"c{self.made}"

    def read(self, offset: int, body: bytes) -> None:
        assert self.seen.setdefault(offset, body) == body, f"{offset} means two messages"
        self.counts["read"] += 1

    def live(self) -> None:
        for _ in range(2):
            for _ in range(STEPS):
                self.step()
            self.rest()

    def step(self) -> None:
        rng = self.rng
        self.clients = [
            one for one in self.clients if not one.over and one.machine.runs and not one.client.lost
        ]
        for machine in self.machines:
            here = any(one.machine is machine for one in self.clients)
            if machine.ready and not machine.is_stuck() and not here and rng.random() < 0.2:
                self.join(machine)
        for one in self.clients:
            for _ in range(rng.choice([0, 0, 1, 3])):
                if not one.over and not one.machine.is_stuck():
                    one.publish()
        self.cluster.pass_ms(rng.choice([20, 40, 100]))
        for one in self.clients:
            one.listen()
        if rng.random() < 0.05:
            self.trouble()

    def join(self, machine: Machine) -> None:
        try:
            self.clients.append(Client(self, machine))
        except AssertionError:
            self.counts["refused"] += 1  # its node is cut off, and says so

    def trouble(self) -> None:
        rng, network = self.rng, self.cluster.world.network
        machine = rng.choice(self.machines)
        what = rng.choice(TROUBLES)
        if what == "start" or not machine.runs:
            if not machine.runs:
                machine.start()
        elif what in ("kill", "power"):
            machine.kill(power_cut=what == "power")
        elif what == "stop" and not machine.is_stuck():
            machine.stop()
        elif what == "pause":
            machine.paused_until_ms = self.cluster.world.now_ms + rng.choice([500, 3000, 8000])
        elif what == "cut":
            network.cut_off([machine.name])
        elif what == "store":
            machine.sim.cut_off = True
        else:
            self.heal()
        self.counts[what] += 1

    def heal(self) -> None:
        self.cluster.world.network.heal()
        for machine in self.machines:
            if machine.runs and machine.sim.cut_off:
                machine.sim.cut_off = False

    def rest(self) -> None:
        self.heal()
        for machine in self.machines:
            machine.paused_until_ms = 0
        self.cluster.pass_ms(8000)
        for machine in self.machines:
            for _ in range(5):
                if machine.runs or machine.start():
                    break
        for one in self.clients:
            one.listen()
        self.cluster.until(lambda: self.cluster.synced("s") == list(NAMES))
        self.cluster.pass_ms(2000)
        for one in self.clients:
            one.listen()
        self.judge()

    def judge(self) -> None:
        found = [messages_at(machine) for machine in self.machines]
        assert found[0] == found[1] == found[2], "the copies are not equal"
        truth = found[0]
        assert len(set(truth)) == len(truth), "a message is there twice"
        places = {body: offset for offset, body in enumerate(truth)}
        lost = [body for body in self.confirmed if body not in places]
        assert not lost, f"confirmed, and lost: {lost[:5]}"
        assert all(truth[offset] == body for offset, body in self.seen.items()), "seen, and lost"
        last: dict[bytes, int] = {}
        for body in truth:
            name, _, number = body.partition(b":")
            assert int(number) > last.get(name, 0), "a publisher's order is not kept"
            last[name] = int(number)
        self.counts["rests"] += 1
        self.counts["confirmed"] = len(self.confirmed)


def messages_at(machine: Machine) -> list[bytes]:
    """The bodies in the log of a master or a mirror."""
    vhost = machine.quiet.broker.vhosts["/"]
    copy = vhost.copies.copies.get("s")
    backing: Any = vhost.queues["s"].backing if copy is None else copy.backing
    cursor = StreamCursor(backing.log, Start(FIRST), None, True)
    found: list[bytes] = []
    for _ in range(10_000):
        if cursor.look():
            block = cursor.blocks()[0]
            records = read_records(block.payload, block.head)
            assert records is not None
            assert int(records[0].seq_id) == len(found)
            found += [body_of(one.content) for one in records]
            cursor.pass_to(block.next_offset())
        elif cursor.is_reading():
            machine.quiet.worker.finish_all()
            machine.quiet.run()
        else:
            break
    cursor.close()
    return found


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_confirmed_is_lost_and_copies_are_equal(tmp_path: Path, seed: int) -> None:
    with started(tmp_path, NAMES) as cluster:
        a = cluster.machines[0]
        cluster.put_policy(a, "^s", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        cluster.declare(a, "s", **{"x-queue-type": "stream"})
        cluster.until(lambda: cluster.synced("s") == list(NAMES))
        life = Life(seed, cluster)
        life.live()
        print(dict(life.counts))
        assert life.counts["rests"] == 2
        assert life.counts["confirmed"] > 50
        assert life.counts["read"] > 50
