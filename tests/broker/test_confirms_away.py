"""Confirms of what went to other nodes too: yes and no are told once each, and never too early.

``PENSTOCK_SEED`` repeats a life; the seed is printed.
"""

from __future__ import annotations

import os
import random

from penstock.broker.rules.confirms import ConfirmLedger
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import ConfirmWatermark, PendingConfirm, PendingConfirms

FAILED_ONCE: tuple[int, ...] = ()
STEPS = int(os.environ.get("PENSTOCK_CONFIRM_STEPS", "2000"))


class Publisher:
    """A channel, the disk and two other nodes, and what each of them has said."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ledger = ConfirmLedger()
        self.watermarks = [ConfirmWatermark(PendingConfirms()), ConfirmWatermark(PendingConfirms())]
        self.position = 0
        self.durable = 0
        self.needs: list[int] = []  # of each publish, a position
        self.parts: list[list[tuple[PendingConfirm, int]]] = []  # and the numbers it has elsewhere
        self.refused: set[tuple[int, int]] = set()  # (watermark, number)
        self.yes = 0
        self.no: list[int] = []

    def publish(self) -> None:
        count = self.chance.randint(1, 5)
        self.position += self.chance.choice([0, 0, 100])
        position = self.chance.choice([0, self.position])
        ways = [one for one in self.watermarks if self.chance.random() < 0.4]
        waits = [watermark.number(count) for watermark in ways]
        self.needs += [position] * count
        self.parts += [[(wait, int(wait.first) + at) for wait in waits] for at in range(count)]
        if waits:
            self.ledger.published_away(count, position, self.durable, 0, waits)
        else:
            self.ledger.published(count, position, self.durable, WallMs(0))

    def hear(self) -> None:
        way = self.chance.randrange(2)
        watermark = self.watermarks[way]
        if self.chance.random() < 0.05:
            watermark.lose()
            return
        upto = self.chance.randint(int(watermark.reached), int(watermark.numbered))
        for number in range(int(watermark.reached) + 1, upto + 1):
            if self.chance.random() < 0.1:
                self.refused.add((way, number))
                watermark.refuse(number)
        watermark.advance(upto)

    def sync(self) -> None:
        self.durable = self.chance.randint(self.durable, self.position)

    def say(self) -> None:
        """As a channel does: what is denied first, then "up to"."""
        self.ledger.advance(self.durable, WallMs(0))
        denied = self.ledger.take_denied()
        self.no += denied
        before = int(self.ledger.confirmed)
        count = int(self.ledger.take())
        told = range(before + 1, int(self.ledger.confirmed) + 1)
        for number in told:
            assert self.needs[number - 1] <= self.durable
            assert all(wait.done for wait, _ in self.parts[number - 1])
        good = [number for number in told if not self.is_bad(number)]
        assert count == len(good)
        assert int(self.ledger.acked) == (good[-1] if good else int(self.ledger.acked))
        self.yes += count
        assert all(self.is_bad(number) for number in denied)

    def is_bad(self, number: int) -> bool:
        return any(wait.lost or at in wait._refused for wait, at in self.parts[number - 1])


def test_each_publish_is_answered_once_and_rightly() -> None:
    chosen = int(os.environ.get("PENSTOCK_SEED") or random.SystemRandom().randrange(1 << 32))
    for seed in (*FAILED_ONCE, chosen):
        print("PENSTOCK_SEED", seed)
        live(seed)


def live(seed: int) -> None:
    publisher = Publisher(seed)
    for _ in range(STEPS):
        publisher.chance.choice(
            [publisher.publish, publisher.hear, publisher.sync, publisher.say]
        )()
        for watermark in publisher.watermarks:
            watermark.check()
    publisher.durable = publisher.position
    for watermark in publisher.watermarks:
        watermark.advance(watermark.numbered)
    publisher.say()
    assert not publisher.ledger.waiting()
    assert publisher.ledger.unconfirmed_count() == 0
    bad = [number for number in range(1, len(publisher.needs) + 1) if publisher.is_bad(number)]
    assert sorted(publisher.no) == bad
    assert publisher.yes == len(publisher.needs) - len(bad)
    assert bad
    assert publisher.yes > len(bad)


def test_what_was_refused_here_and_there_is_told_once() -> None:
    ledger, watermark = ConfirmLedger(), ConfirmWatermark(PendingConfirms())
    wait = watermark.number(2)
    ledger.published_away(3, 0, 0, 0, [wait])
    wait.only([0, 2])
    ledger.deny(3)  # by a queue that is here
    assert ledger.take_denied() == [3]
    assert ledger.take() == 0
    watermark.refuse(2)  # the same one
    watermark.advance(2)
    ledger.advance(0, WallMs(0))
    assert ledger.take_denied() == []
    assert ledger.take() == 2
    assert ledger.acked == 2
