"""A small language for rings over perfect links, one message at a time.

    ring abc        a founds a group, b joins on the right of a, c on the right of b; then silence
    a says x        a broadcasts x
    a>b             what a has for b goes there, and b reads it
    run             everything that can happen does: messages, proposals, views
    crash c         c is gone; what it sent is still under way
    died c          the coordinator says so to everybody
    kick c          somebody changed the view: c is dead; nobody has heard of that view
    tell a          a is given the newest view
    join d a        d is in the newest view on the right of a, and d knows
    leave c         c goes when it may

What a member heard is a row of words: ``+d`` (born), ``a:x`` (delivered), ``-c`` (died).
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from penstock.cluster.ring.codec import RingMessage, decode, encode
from penstock.cluster.ring.ready import BIRTH, DEATH
from penstock.cluster.ring.ring import Ring
from penstock.cluster.ring.views import NO_VIEW


class Story:
    def __init__(self) -> None:
        self.rings: dict[str, Ring] = {}
        self.view = NO_VIEW
        self.heard: dict[str, list[str]] = {}
        self.round: dict[str, int] = {}
        self.stopped: dict[str, str] = {}
        self.links: dict[tuple[str, str], deque[RingMessage]] = {}
        self.contents: list[tuple[str, str, str]] = []  # who gave what to whom
        self.messages = 0
        self.now_ms = 0

    def tell_all(self, text: str) -> Story:
        for line in text.split("|"):
            self.do(line.split())
        return self

    def do(self, words: list[str]) -> None:
        match words:
            case ["ring", names]:
                self.found(names)
            case [who, "says", what]:
                self.rings[who].broadcast(what.encode())
            case ["run"]:
                self.run()
            case ["crash", who]:
                del self.rings[who]
            case ["died", who]:
                for ring in self.rings.values():
                    ring.member_died(who)
            case ["kick", who]:
                self.view = self.view.with_dead([who])
            case ["tell", who]:
                self.rings[who].view_changed(self.view)
            case ["join", who, left]:
                self.view = self.view.with_joined(who, left)
                self.start(who).view_changed(self.view)
            case ["leave", who]:
                self.rings[who].leave()
            case [link]:
                self.carry(*link.split(">"))
            case _:
                raise AssertionError(words)

    def start(self, name: str) -> Ring:
        self.rings[name] = Ring(name, 0)
        self.heard[name] = []
        return self.rings[name]

    def found(self, names: str) -> None:
        self.start(names[0]).view_changed(self.view)
        self.run()
        for left, name in pairwise(names):
            self.do(["join", name, left])
            self.run()
        for heard in self.heard.values():
            heard.clear()
        self.contents.clear()
        self.messages = 0

    def take(self, name: str) -> bool:
        """Whether it had anything to say."""
        ring = self.rings[name]
        ready = ring.take()
        ring.check()
        for kind, member, _, payload in ready.delivered:
            word = {BIRTH: f"+{member}", DEATH: f"-{member}"}.get(kind)
            self.heard[name].append(word or f"{member}:{payload.decode()}")
        for receiver, message in ready.messages:
            self.messages += 1
            self.links.setdefault((name, receiver), deque()).append(message)
            for entry in message.entries:
                for item in entry.items:
                    self.contents.append((name, receiver, (item or b"").decode()))
        self.round[name] = ready.went_round
        if ready.stopped:
            self.stopped[name] = ready.stopped
            del self.rings[name]
        proposal = ready.proposal
        accepted = proposal is not None and proposal.version == self.view.version + 1
        if proposal is not None and accepted:
            self.view = proposal
        return accepted or bool(ready.messages)

    def carry(self, sender: str, receiver: str) -> bool:
        if sender in self.rings:
            self.take(sender)
        waiting = self.links.get((sender, receiver), deque())
        moved = bool(waiting)
        while waiting:
            message = decode(b"".join(encode(waiting.popleft())))
            if receiver in self.rings:
                self.rings[receiver].step(sender, message)
                self.rings[receiver].check()
        return moved

    def run(self) -> None:
        for _ in range(1000):
            busy = False
            for name in list(self.rings):
                if name in self.rings:
                    self.rings[name].view_changed(self.view)
                    busy |= self.take(name)
            for link in list(self.links):
                busy |= self.carry(*link)
            if not busy:
                return
        raise AssertionError("it never comes to rest")

    def shown(self) -> str:
        return "".join("†" * (one in self.view.dead) + one for one in self.view.members)
