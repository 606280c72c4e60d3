"""Random lives of a queue whose confirms need a majority of its copies, and a judge.

Each node has a disk and a group (``StarGroup``); links keep the order and lose nothing between two
lives.  Nodes hear of reigns late, stand still for a while, are killed or lose power, come back with
what their disk has, and vote whether or not the master lives.

The judge knows every message by its name, the number its body begins with, and asks:

  what was confirmed in a term is at each master that begins a later one, until it was acknowledged
  to some master (one that begins late, when a later term has a master, confirms nothing)
  a seq_id means one message for ever
  a copy that says it is complete, and has heard no more, has the master's set as of that parcel
"""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import NamedTuple

from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.agreement.reigns import Position, Reign, first_reign
from penstock.cluster.mirrors.star_group import StarGroup
from penstock.core.confirm_watermark import PendingConfirm, PendingConfirms
from penstock.core.message import Message
from penstock.storage.common.seq_ranges import ranges_of
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.cluster.mirror_tools import Set, set_of
from tests.helpers.sim_files import SimFileSystem

ENTRIES = 16
FIRST_ID = 3


class Published(NamedTuple):
    name: int
    waits: list[PendingConfirm]


class Node:
    """One machine; ``name/life`` is its member while it runs."""

    def __init__(self, name: str, life: MajorityLife) -> None:
        self.name = name
        self.world = life
        self.files = SimFileSystem()
        self.queue_id = FIRST_ID
        self.lives = 0
        self.is_up = False
        self.still = 0  # steps that it does nothing yet
        self.term = 0  # that it began as master
        self.is_old = False  # its disk is a backup's
        self.start()

    @property
    def member(self) -> str:
        return f"{self.name}/{self.lives}"

    @property
    def queue(self) -> VariableQueue:
        return self.opened.queues[self.queue_id]

    def start(self) -> None:
        rng = self.world.rng
        self.lives += 1
        self.opened = OpenEngine(
            self.files,
            {self.queue_id: ENTRIES},
            limits(embed=100, paging=rng.choice([8, 3000, 1 << 40]), journal=9000, entries=40),
            journal_file_bytes=4000,
            store_file_bytes=3000,
            deleted=ranges_of(list(range(FIRST_ID, self.queue_id))),
        )
        self.waits = PendingConfirms()
        self.sealed = 0  # the term of the last vote of this life
        self.published: list[Published] = []
        self.tokens: list[Message] = []
        journal = self.opened.engine.journal
        self.group = StarGroup(
            self.member, "life1", self.queue, journal, {}, ("/", "q"), self.waits, 8
        )
        if self.is_old:
            self.group.positions.distrust()
        self.world.judge_disk(self)
        if self.lives == 1:
            self.group.positions.begin_new()
            self.opened.commit()
        self.is_up = True
        self.seen = len(self.world.reigns) - 1
        self.group.reign_changed(self.world.reigns[self.seen])

    def stop(self, *, power_cut: bool) -> None:
        if power_cut:
            self.files.power_cut(self.world.rng)
        else:
            self.files.kill()
        self.is_up = False

    # -- the group -------------------------------------------------------------------------

    def hear_reign(self) -> None:
        if self.seen < len(self.world.reigns) - 1:
            self.seen += 1
            self.group.reign_changed(self.world.reigns[self.seen])
            self.step_down()

    def step_down(self) -> None:
        if self.term and self.group.mirrored is None:
            self.term = 0
            self.tokens = []
            self.published = []
            self.queue.replica.take_all_back()

    def vote(self) -> None:
        """By what it knows: the coordinator accepts no proposal that another has overtaken."""
        reign, holding = self.world.reigns[self.seen], self.group.holding()
        has_voted = self.name in [one.member.partition("/")[0] for one in reign.votes]
        if holding is None or has_voted:
            return
        self.sealed = reign.term + (reign.master != "")
        self.group.seal(self.sealed)
        self.step_down()
        holding = self.group.holding()
        assert holding is not None
        if self.seen == len(self.world.reigns) - 1:
            self.world.decide(reign.voted(self.member, holding))

    def take(self) -> bool:
        ready = self.group.take(self.world.now_ms, self.world.now_ms)
        self.is_level = ready.mirrors.is_level
        self.group.check()
        mirrored = self.group.mirrored
        if mirrored is not None:
            self.found(is_due=ready.mirrors.may_change)
            if not self.term:
                self.term = int(mirrored.term)
                self.world.judge_master(self)
            if not mirrored.has_operations():
                where = Position(self.term, int(mirrored.number))
                self.world.sets[where] = set_of(self.queue, self.world.now_ms)
        for receiver, pieces in ready.messages:
            link = self.world.links.setdefault((self.member, receiver), deque())
            link.append(b"".join(pieces))
        if self.group.has_lost_copy():
            self.begin_empty()
        return bool(ready.messages)

    def found(self, *, is_due: bool) -> None:
        reigns = self.world.reigns
        if is_due and self.seen == len(reigns) - 1 and not reigns[-1].is_founded:
            reigns.append(reigns[-1].founded())

    def begin_empty(self) -> None:
        self.queue.delete()
        del self.opened.queues[self.queue_id]
        self.queue_id += 1
        self.opened.queues[self.queue_id] = VariableQueue(
            self.opened.engine, self.queue_id, True, ENTRIES
        )
        self.group.begin_again(self.queue)
        self.world.counts["given up"] += 1

    # -- clients ---------------------------------------------------------------------------

    def publish(self) -> None:
        batch = [self.world.new_message() for _ in range(self.world.rng.choice([1, 1, 3, 20]))]
        self.group.note(batch)
        self.queue.publish(batch, self.world.now_ms)
        waits = self.waits.take()
        for one in batch:
            name = self.world.note_place(int(one.seq_id), one.content)
            self.published.append(Published(name, waits))

    def fetch(self) -> None:
        self.tokens += self.queue.fetch(self.world.rng.randint(1, 10), 1 << 30)

    def ack(self) -> None:
        rng = self.world.rng
        some = rng.sample(self.tokens, rng.randint(0, len(self.tokens)))
        self.tokens = [one for one in self.tokens if one not in some]
        some.sort(key=lambda one: int(one.seq_id))
        if some:
            self.world.ended.update(self.world.names[int(one.seq_id)] for one in some)
            self.queue.ack(some)

    def purge(self) -> None:
        held = {int(one.seq_id) for one in self.tokens}
        gone = set(set_of(self.queue, self.world.now_ms)) - held
        self.world.ended.update(self.world.names[seq_id] for seq_id in gone)
        self.queue.purge()

    def confirmed(self) -> None:
        for one in self.published:
            if all(wait.done and not wait.lost for wait in one.waits):
                self.world.confirmed.setdefault(one.name, self.term)


class MajorityLife:
    def __init__(self, seed: int, steps: int = 300, *, nodes: int = 3) -> None:
        self.rng = random.Random(seed)
        self.steps = steps
        self.now_ms = 1_000_000
        self.counts: Counter[str] = Counter()
        self.links: dict[tuple[str, str], deque[bytes]] = {}
        self.names: dict[int, int] = {}  # seq_id -> name, for ever
        self.contents: dict[int, bytes] = {}
        self.confirmed: dict[int, int] = {}  # name -> term
        self.ended: set[int] = set()
        self.sets: dict[Position, Set] = {}
        names = tuple("abcde"[:nodes])
        self.reigns: list[Reign] = [first_reign(names, "a/1")]
        self.nodes = [Node(name, self) for name in names]

    # -- the coordinator -------------------------------------------------------------------

    def decide(self, reign: Reign) -> None:
        reign.check()
        self.reigns.append(reign)
        self.counts["elected" if reign.master else "votes"] += 1

    def lives(self, member: str) -> bool:
        return any(node.is_up and node.member == member for node in self.nodes)

    # -- messages --------------------------------------------------------------------------

    def new_message(self) -> Message:
        name = len(self.contents) + 1
        self.contents[name] = b"%d:" % name + b"x" * self.rng.choice([5, 60, 300])
        return message(self.contents[name])

    def note_place(self, seq_id: int, content: bytes) -> int:
        name = int(content.partition(b":")[0])
        assert content == self.contents[name], f"{name} is damaged"
        assert self.names.setdefault(seq_id, name) == name, f"{seq_id} means two messages"
        return name

    def judge_master(self, node: Node) -> None:
        found = set_of(node.queue, self.now_ms)
        names = {self.note_place(seq_id, content) for seq_id, (content, _, _) in found.items()}
        confirmed = {name for name, term in self.confirmed.items() if term < node.term}
        lost = confirmed - self.ended - names
        assert not lost, f"confirmed and lost: {sorted(lost)[:5]}"
        self.counts["judged"] += 1

    def judge_disk(self, node: Node) -> None:
        """That says it is complete has its last parcel, and nothing of a later one."""
        complete, heard = node.group.positions.holding()
        if complete == heard and complete in self.sets:
            found = set_of(node.queue, self.now_ms)
            assert found == self.sets[complete], f"the disk of {node.name} is not as of {complete}"
            self.counts["disks compared"] += 1

    def compare(self, node: Node) -> None:
        complete, heard = node.group.positions.holding()
        wanted = self.sets.get(complete)
        if node.group.replica is None or wanted is None or complete != heard:
            return
        found = set_of(node.queue, self.now_ms)
        assert found == wanted, f"{node.name} is no copy as of {complete}"
        self.counts["compared"] += 1

    # -- steps -----------------------------------------------------------------------------

    def awake(self) -> list[Node]:
        return [node for node in self.nodes if node.is_up and node.still == 0]

    def masters(self) -> list[Node]:
        return [node for node in self.awake() if node.group.mirrored is not None]

    def carry(self, node: Node, most: int) -> bool:
        moved = False
        for (sender, receiver), waiting in list(self.links.items()):
            if not self.lives(receiver) or not self.lives(sender):
                del self.links[sender, receiver]
            elif receiver == node.member:
                for _ in range(min(most, len(waiting))):
                    node.group.receive(sender, "life1", waiting.popleft())
                    moved = True
        return moved

    def work_at(self, node: Node) -> None:
        how = self.rng.randrange(3)
        if how == 0:
            node.opened.commit()
        elif how == 1:
            node.opened.run_jobs()
        else:
            node.opened.work(self.now_ms)

    def trouble(self, node: Node) -> None:
        how = self.rng.randrange(3)
        if how == 0:
            node.still = self.rng.choice([20, 100])
            self.counts["stood still"] += 1
        elif how == 1:
            self.crash(node)
        elif node.group.mirrored is None or self.rng.random() < 0.3:
            node.vote()

    def crash(self, node: Node) -> None:
        node.confirmed()
        power_cut = self.rng.random() < 0.5
        node.stop(power_cut=power_cut)
        self.counts["crashes"] += 1
        for one in self.nodes:
            if one.is_up:
                one.group.tell_deaths(self.lives)

    def need_a_vote(self, node: Node) -> None:
        """The master's lease has ended, or a vote is under way, or one was refused: it binds."""
        reign = self.reigns[-1]
        is_bound = node.sealed > reign.term
        if node.seen == len(self.reigns) - 1 and (is_bound or not self.lives(reign.master)):
            node.vote()

    def step(self, node: Node) -> None:
        rng = self.rng
        verbs = [node.take] * 4 + [node.hear_reign] * 2
        verbs += [lambda: self.carry(node, rng.choice([1, 3, 20]))] * 4
        verbs += [lambda: self.work_at(node)] * 4
        verbs += [lambda: self.compare(node), lambda: self.need_a_vote(node)]
        if node.group.mirrored is not None and node.term:
            verbs += [node.publish, node.publish, node.fetch, node.ack]
            if rng.random() < 0.03:
                verbs += [node.purge]
        rng.choice(verbs)()
        node.confirmed()

    def live(self) -> None:
        rng = self.rng
        for _ in range(self.steps):
            self.now_ms += rng.choice([1, 20, 300])
            for node in self.nodes:
                node.still = max(0, node.still - 1)
                if not node.is_up and rng.random() < 0.03:
                    node.start()
                    self.counts["came back"] += 1
            for node in self.awake():
                self.step(node)
            if self.awake() and rng.random() < 0.02:
                self.trouble(rng.choice(self.awake()))
        self.come_to_rest()

    def come_to_rest(self) -> None:
        """With all there and awake all copies are equal in the end, and all is confirmed."""
        for node in self.nodes:
            node.still = 0
            if not node.is_up:
                node.start()
        published = 0
        for _ in range(400):
            self.now_ms += 300
            for node in self.nodes:
                node.hear_reign()
                self.need_a_vote(node)
                self.carry(node, 1000)
                node.take()
                node.opened.settle(self.now_ms)
                node.confirmed()
            if self.masters() and published < 3:
                self.masters()[0].publish()
                published += 1
            if published == 3 and self.is_at_rest():
                break
        assert self.is_at_rest(), "it never comes to rest"
        for node in self.nodes:
            self.compare(node)
        self.counts["confirmed"] += len(self.confirmed)

    def is_at_rest(self) -> bool:
        if [node.member for node in self.masters()] != [self.reigns[-1].master]:
            return False
        master = self.masters()[0]
        wanted = set_of(master.queue, self.now_ms)
        return all(one.name in self.confirmed for one in master.published) and all(
            set_of(node.queue, self.now_ms) == wanted for node in self.nodes
        )
