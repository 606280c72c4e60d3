"""Backends of users for tests: they answer when a test says so."""

from __future__ import annotations

from penstock.broker.rules.judges import Account, Backend, Credentials, Inquiry, Judge, Question
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.errors import AccessRefused, Undecided
from penstock.core.pending import Ticket


class SlowJudge(Judge):
    """Allows what is not in ``denied``; a question waits for ``answer``, if ``holds``."""

    def __init__(self) -> None:
        self.holds = False
        self.denied: set[tuple[str, str]] = set()  # kind, name
        self.asked: list[Question] = []
        self.known: set[Question] = set()
        self.lost = False
        self.ticket = Ticket()
        self.renewal: Inquiry | None = None

    def check(self, question: Question) -> None:
        if question not in self.known:
            self.asked.append(question)
            if self.holds:
                self.known.add(question)
                self.ticket = Ticket()
                raise Undecided(self.ticket)
        elif not self.ticket.done and self.holds:
            raise Undecided(self.ticket)
        if (question.kind, question.name) in self.denied:
            raise AccessRefused(" by a test")

    def answer(self) -> None:
        self.ticket.answer()

    def look(self, now_ms: MonoMs) -> bool:
        lost, self.lost = self.lost, False
        return lost

    def renew(self, secret: str) -> Inquiry | None:
        return self.renewal


class SlowBackend(Backend):
    """Knows ``ann`` with any password but "no"; a log-in waits for its inquiry, if ``holds``."""

    def __init__(self, judge: Judge | None = None, name: str = "slow") -> None:
        self.name = name
        self.judge = judge or SlowJudge()
        self.holds = False
        self.expires_at_ms = WallMs(0)
        self.tags: list[str] = []
        self.asked: list[Credentials] = []
        self.inquiry = Inquiry()

    def authenticate(self, asked: Credentials) -> Inquiry:
        self.asked.append(asked)
        self.inquiry = Inquiry()
        if not self.holds:
            self.answer()
        return self.inquiry

    def answer(self) -> None:
        asked = self.asked[-1]
        if asked.name != "ann" or asked.password == "no":
            self.inquiry.deny(f"{self.name} says no")
        else:
            self.inquiry.allow(Account("ann", self.tags, self.judge, self.expires_at_ms))
