"""``make chaos``: a cluster of processes under a load and faults by chance.

    PENSTOCK_CHAOS_S=3600            seconds
    PENSTOCK_CHAOS_SEED=1            the schedule; printed
    PENSTOCK_CHAOS_HISTORIES=DIR     what clients heard goes there when something is found
    PENSTOCK_CLUSTER_CLIENTS, _RATE  as for the cluster's scenarios

Mirrored and quorum queues are loaded alike.  A load lasts for some rounds; then it is judged, and
another begins.  Counts come last.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from random import SystemRandom

import pytest

from tests.cluster.chaos import Chaos, small_disks
from tests.cluster.judge import told
from tests.cluster.load import TOTALS, Load
from tests.cluster.world import World
from tests.helpers import cluster as live_cluster
from tests.helpers import hostile_machine, namespaces
from tests.helpers.hostile_machine import HostileMachine
from tests.helpers.namespaces import PrivateNetwork

SECONDS = float(os.environ.get("PENSTOCK_CHAOS_S", "60"))
SEED = int(os.environ.get("PENSTOCK_CHAOS_SEED", "0")) or SystemRandom().randrange(1 << 32)
HISTORIES = os.environ.get("PENSTOCK_CHAOS_HISTORIES", "")
ROUNDS = 8
SIZE = 3

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(SECONDS + 1800),
]


def keep(load: Load, number: int, world: World) -> None:
    """What clients told of each queue, and what the nodes logged and say of queues."""
    if not HISTORIES:
        return
    Path(HISTORIES).mkdir(parents=True, exist_ok=True)
    texts = {
        f"{queue.replace(':', '.')}.history": "\n".join(account.heard)
        for queue, account in load.accounts.items()
    }
    for place, node in enumerate(world.cluster.nodes):
        texts[f"node{place}.log"] = node.output()
        try:
            texts[f"node{place}.json"] = json.dumps(world.cluster.ask(place, "/api/queues"))
        except Exception as error:  # it may be down
            texts[f"node{place}.json"] = json.dumps(str(error))
    for name, text in texts.items():
        (Path(HISTORIES) / f"{SEED}.{number}.{name}").write_text(text + "\n")


def test_nothing_confirmed_is_lost(tmp_path: Path) -> None:
    for tool in (namespaces, live_cluster, hostile_machine):
        reason = tool.missing_reason()
        if reason is not None:
            pytest.skip(reason)
    print(f"PENSTOCK_CHAOS_SEED={SEED}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nodes and etcd end, too
    faults: Counter[str] = Counter()
    machines = []
    for number in range(SIZE):
        (tmp_path / f"m{number}").mkdir()
        machines.append(HostileMachine(tmp_path / f"m{number}"))
    with (
        small_disks(tmp_path, SIZE),
        PrivateNetwork(live_cluster.LiveCluster.hosts(SIZE)) as network,
        World(
            tmp_path,
            SIZE,
            mirrored=True,
            quorum=True,
            network=network,
            machines=[one.environment for one in machines],
        ) as world,
    ):
        chaos = Chaos(world, machines, SEED)
        end_s = time.monotonic() + SECONDS
        loads = 0
        while time.monotonic() < end_s:
            loads += 1
            with world.load() as load:
                try:
                    for number in range(ROUNDS):
                        print(f"load {loads}, round {number + 1}: {chaos.round(load)}", flush=True)
                    load.finish()
                except BaseException:
                    print(f"load {loads}: {chaos.names}", flush=True)
                    keep(load, loads, world)
                    raise
        faults = chaos.done
    print(f"{loads} loads; {told(faults)}; {told(TOTALS)}")
    assert TOTALS["lost"] == 0
