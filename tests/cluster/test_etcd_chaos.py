"""Members against a real etcd of three, everything failing by chance: what they were told is true.

``PENSTOCK_ETCD_CHAOS_S`` says for how long, ``PENSTOCK_ETCD_CHAOS_SEED`` repeats the choices.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random, SystemRandom

import pytest

from penstock.cluster.agreement.coordinator import (
    ABSENT,
    ACCEPTED,
    FAILED,
    REFUSED,
    UNCERTAIN,
    Change,
    Condition,
    Coordinator,
    Proposal,
)
from penstock.node.coordination.etcd_coordinator import EtcdCoordinator
from penstock.node.coordination.etcd_http import EtcdOptions
from penstock.node.coordination.etcd_lease import boot_ms
from penstock.node.coordination.etcd_proposals import LEASE_ENDED
from tests.cluster.coordinator_worlds import SECRET, Copy, EtcdWorld
from tests.helpers.bad_line import GOOD, LOSES_ANSWERS, SILENT, BadLine
from tests.helpers.etcd import EtcdServer, EtcdTrio, missing_reason

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]
DURATION_S = float(os.environ.get("PENSTOCK_ETCD_CHAOS_S", "12"))
SEED = int(os.environ.get("PENSTOCK_ETCD_CHAOS_SEED") or SystemRandom().randrange(10**9))
TTL_S = 2
LEASES_MAX = 3
"""In a calm none ends; one that had ended before is found out, and another may be late."""


class Chaos(EtcdWorld):
    """Each member reaches each endpoint over a line of its own."""

    def __init__(self, trio: EtcdTrio, rng: Random) -> None:
        super().__init__(trio.endpoints, lease_ttl_s=TTL_S)
        self.rng = rng
        self.trio = trio
        self.lines: list[list[BadLine]] = []
        self.copies: list[Copy] = []
        self.open: list[tuple[int, Proposal]] = []
        self.done_by: dict[int, list[Proposal]] = {}
        self.counts: Counter[str] = Counter()
        self.numbers = count(1)
        self.broken: EtcdServer | None = None

    def enter(self) -> None:
        lines = [BadLine(server.port) for server in self.trio.members]
        options = EtcdOptions(tuple(line.endpoint for line in lines), SECRET, lease_ttl_s=TTL_S)
        member = EtcdCoordinator(options)
        member.start()
        self.members.append(member)
        self.lines.append(lines)
        self.copies.append(Copy(member, may_differ=True))
        self.done_by[len(self.copies) - 1] = []

    def close(self) -> None:
        for lines in self.lines:
            for line in lines:
                line.state = GOOD
        super().close()
        for lines in self.lines:
            for line in lines:
                line.close()

    # -- one step ------------------------------------------------------------------------

    def act(self) -> None:
        place = self.rng.randrange(len(self.copies))
        copy = self.copies[place]
        choice = self.rng.random()
        if choice < 0.90:
            self.propose(place, copy)
        elif choice < 0.97:
            line = self.rng.choice(self.lines[place])
            line.state = self.rng.choice((GOOD, GOOD, LOSES_ANSWERS, SILENT))
            self.counts["lines"] += 1
        elif choice < 0.985:
            self.break_or_mend()

    def propose(self, place: int, copy: Copy) -> None:
        """A number that everybody raises, and a key that only this proposal makes."""
        number = next(self.numbers)
        raised = int(copy.keys.get("count", "0")) + 1
        before = Condition("count", copy.revisions.get("count", ABSENT))
        changes = [Change("count", str(raised)), Change(f"made/{number}", str(place))]
        changes.append(Change(f"living/{place}", str(number), leased=True))
        asked = copy.member.propose([before], changes)
        asked.error = asked.error or f"made/{number}"
        self.open.append((place, asked))

    def break_or_mend(self) -> None:
        if self.broken is not None:
            if self.broken.process is None:
                self.broken.launch()
            else:
                self.broken.resume()
            self.broken = None
            return
        self.broken = self.rng.choice(self.trio.members)
        if self.rng.random() < 0.5:
            self.broken.kill()
        else:
            self.broken.pause()
        self.counts["etcd broken"] += 1

    def hear(self) -> None:
        for copy in self.copies:
            copy.take()
            if copy.member.lease_has_ended():
                copy.member.new_lease()
                self.counts["leases"] += 1
            if copy.member.lease_valid_until_ms() <= boot_ms():
                self.counts["steps without a lease"] += 1
        still = []
        for place, asked in self.open:
            if asked.done:
                self.done_by[place].append(asked)
                self.counts[("", "accepted", "refused", "failed", "uncertain")[asked.state]] += 1
            else:
                still.append((place, asked))
        self.open = still

    def calm(self) -> None:
        if self.broken is not None:
            self.break_or_mend()
        for lines in self.lines:
            for line in lines:
                line.state = GOOD
        for member in self.trio.members:
            member.wait_until_healthy()
        self.wait(self.is_decided, 30_000)
        for copy in self.copies:
            self.catch_up(copy.member)
            copy.take()

    def catch_up(self, member: Coordinator) -> None:
        """A lease may end unheard: a leader of etcd's that stood still renews what others gave up.

        Whoever proposes then is told, and this one has a new lease the next time.
        """
        for _ in range(LEASES_MAX):
            self.wait(lambda: self.is_well(member), 30_000)
            done = self.done(member, [], [])
            if done.error != LEASE_ENDED:
                break
            self.counts["ended unheard"] += 1
        assert done.state == ACCEPTED, done.error

    def is_decided(self) -> bool:
        self.hear()
        return not self.open

    def is_well(self, member: Coordinator) -> bool:
        """It has answers, and a lease: one that ended unheard may have been replaced."""
        self.hear()
        return member.why_not() == "" and member.lease_valid_until_ms() > boot_ms()


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Chaos]:
    print(f"PENSTOCK_ETCD_CHAOS_SEED={SEED}")
    trio = EtcdTrio(tmp_path / "etcd")
    made: Chaos | None = None
    try:
        trio.start()
        made = Chaos(trio, Random(SEED))
        for _ in range(3):
            made.enter()
        yield made
    finally:
        if made is not None:
            made.close()
        trio.kill()


@pytest.mark.timeout(DURATION_S + 120)
def test_what_members_were_told_is_true(chaos: Chaos) -> None:
    end_ms = boot_ms() + DURATION_S * 1000
    while boot_ms() < end_ms:
        if len(chaos.open) < 6:
            chaos.act()
        chaos.step()
        chaos.hear()
    chaos.calm()
    keys = [copy.keys for copy in chaos.copies]
    assert keys[0] == keys[1] == keys[2], "O2"
    made = {key: int(place) for key, place in keys[0].items() if key.startswith("made/")}
    # One revision each: the number was raised as often as a key was made.
    assert int(keys[0].get("count", "0")) == len(made), "O1"
    told = [asked for proposals in chaos.done_by.values() for asked in proposals]
    accepted = {asked.changes[1].key for asked in told if asked.state == ACCEPTED}
    unsure = {asked.changes[1].key for asked in told if asked.state == UNCERTAIN}
    never = {asked.changes[1].key for asked in told if asked.state in (REFUSED, FAILED)}
    assert accepted <= set(made), "accepted, and has not happened"
    assert not never & set(made), "O5: it has happened, and was called refused or failed"
    assert set(made) <= accepted | unsure
    assert accepted
    print(", ".join(f"{number} {name}" for name, number in sorted(chaos.counts.items())))
