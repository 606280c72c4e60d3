"""A mirrored queue or stream at several members, each with a disk of its own, over perfect links.

``World`` is the coordinator and the links; ``Member`` a node's part: its disk, its copy, its group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.mirrors.group import MirrorGroup
from penstock.cluster.mirrors.safety import NOTHING_KNOWN
from penstock.cluster.ring.ring import Ring
from penstock.cluster.ring.views import NO_VIEW
from penstock.core.confirm_watermark import PendingConfirm, PendingConfirms
from tests.backing.engine_tools import OpenEngine, message
from tests.cluster.mirror_tools import set_of
from tests.helpers.sim_files import SimFileSystem


class Member:
    """A node's part in the group: its disk, its copy of the queue, and the group at it."""

    def __init__(self, name: str, world: World, joining: int = 1) -> None:
        self.name = name
        self.world = world
        self.queue = self.open()
        self.active: dict[tuple[str, str], None] = {}
        self.waits = PendingConfirms()
        journal = self.opened.engine.journal
        ring = Ring(f"{name}#{joining}", 0)
        self.group = MirrorGroup(ring, self.queue, journal, self.active, ("/", "q"), self.waits, 8)
        self.published: list[tuple[bytes, list[PendingConfirm]]] = []
        self.mirrors = NOTHING_KNOWN
        ring.view_changed(world.view)

    def open(self) -> Any:
        """Its disk and what is on it; returns its copy."""
        self.opened = OpenEngine(SimFileSystem(), {1: 64})
        return self.opened.queues[1]

    def open_again(self) -> Any:
        """The copy was lost: another one."""
        engine = self.opened.engine
        number = len(self.opened.queues) + 1
        self.opened.queues[number] = VariableQueue(engine, number, True, 64)
        return self.opened.queues[number]

    def work(self) -> None:
        """Of the disk, behind a turn."""
        self.opened.commit()

    def publish(self, content: bytes, *, persistent: bool = True) -> None:
        assert self.group.mirrored is not None
        batch = [message(content, persistent=persistent)]
        self.group.note(batch)
        self.queue.publish(batch, self.world.now_ms)
        self.published.append((content, self.waits.take()))

    def confirmed(self) -> list[bytes]:
        return [
            content
            for content, waits in self.published
            if all(wait.done and not wait.lost for wait in waits)
        ]

    def ack_oldest(self) -> None:
        got = self.queue.fetch(1, 1 << 30)
        if got:
            self.queue.ack(got)

    def contents(self) -> list[bytes]:
        return [content for content, _, _ in set_of(self.queue, self.world.now_ms).values()]

    def take(self, *, is_short: bool = False) -> bool:
        self.active.clear()
        now_ms = self.world.now_ms
        ready = self.group.take(now_ms, now_ms, is_short=is_short)
        self.group.check()
        for receiver, pieces in ready.messages:
            link = self.world.links.setdefault((self.name, receiver), deque())
            link.append((self.group.ring.me, b"".join(pieces)))
        self.mirrors = ready.mirrors
        if self.group.has_lost_copy():
            self.queue = self.open_again()
            self.group.begin_again(self.queue)
            return True
        if ready.view is not None and ready.view.version == self.world.view.version + 1:
            self.world.view = ready.view
            return True
        return bool(ready.messages)


class World:
    def __init__(
        self, names: Sequence[str], make: Callable[[str, World], Member] | None = None
    ) -> None:
        self.now_ms = 0
        self.make = make or Member
        self.view = NO_VIEW
        self.links: dict[tuple[str, str], deque[tuple[str, bytes]]] = {}
        self.members: dict[str, Member] = {}
        self.term = 1
        self.master = names[0]
        self.former = ""
        self.synced = [names[0]]
        for name in names:
            self.add(name)
            self.run()

    def add(self, name: str) -> Member:
        member = self.members[name] = self.make(name, self)
        self.tell(member)
        return member

    def tell(self, member: Member) -> None:
        member.group.queue_view_changed(self.term, self.master, self.former, list(self.synced))

    def tell_all(self) -> None:
        for member in self.members.values():
            self.tell(member)

    def carry(self, sender: str, receiver: str, most: int = 1 << 30) -> bool:
        waiting = self.links.get((sender, receiver), deque())
        moved = bool(waiting)
        while waiting and most > 0:
            most -= 1
            ring_name, data = waiting.popleft()
            if receiver in self.members:
                self.members[receiver].group.receive(sender, ring_name, data)
        return moved

    def run(self) -> None:
        """Until nothing happens any more; complete mirrors become synced."""
        idle = 0
        while idle < 3:  # what is on the disk now is said in the next turn
            busy = False
            for member in self.members.values():
                member.group.ring.view_changed(self.view)
                busy |= member.take()
                member.work()
            for link in list(self.links):
                busy |= self.carry(*link)
            idle = 0 if busy or self.add_synced() else idle + 1

    def add_synced(self) -> bool:
        master = self.members.get(self.master)
        complete = [] if master is None else master.mirrors.complete
        new = [one for one in complete if one in self.members and one not in self.synced]
        self.synced += new
        if new:
            self.tell_all()
        return bool(new)

    def crash(self, name: str) -> None:
        del self.members[name]
        for member in self.members.values():
            member.group.ring.member_died(f"{name}#1")
        self.synced = [one for one in self.synced if one != name]
        self.tell_all()

    def elect(self, name: str) -> None:
        self.term += 1
        self.former, self.master = self.master, name
        self.tell_all()
