"""Random lives of a mirrored queue: a master, its mirrors, what is between them, and a judge.

Each node has a disk of its own.  Parcels travel in order to every mirror, each as fast as it likes;
questions and chunks of synchronisations travel as they like.  Nodes are killed, lose power, or
die of a disk that fails (``trouble``), and come back with what their disk has; masters die, and the
eldest synchronised mirror goes on with all that any survivor has heard, as the ring promises (K6);
masters hand over, or come back alone.

The judge knows every message by its name, the number its body begins with, and asks:

  a confirmed persistent message is at every master until its acknowledgement was sent
  what was acknowledged, and is on the disk of everybody who counted, never comes back
  a seq_id means one message for ever
  a synchronised replica has the master's set, as of the parcel it applied last
"""

from __future__ import annotations

import random
from collections import Counter

from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.mirrors.backing import MirroredBacking
from penstock.cluster.mirrors.operations import read_parcel
from penstock.cluster.mirrors.replica import Replica, begin_term
from penstock.cluster.mirrors.sync import Joiner, Syncer
from penstock.core.message import ONE_ATTEMPT, Message
from penstock.storage.common.seq_ranges import ranges_of
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.cluster.mirror_tools import Set, set_of
from tests.helpers.sim_files import SimFileSystem

ENTRIES = 16
NODES = 3
FIRST_ID = 3
DISK_VERBS = ("pwrite", "sync", "rename", "remove", "sync_dir", "open_write", "pread", "read")


class Node:
    """One machine: its disk, and what runs on it."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.queue_id = FIRST_ID
        self.files = SimFileSystem()
        self.opened: OpenEngine | None = None
        self.mirrored: MirroredBacking | None = None
        self.replica: Replica | None = None
        self.joiner: Joiner | None = None
        self.syncer: Syncer | None = None  # at the master, for this mirror
        self.heard = 0  # parcels of the log that have arrived
        self.questions: list[bytes] = []
        self.chunks: list[bytes] = []

    def open(self, rng: random.Random) -> VariableQueue:
        self.opened = OpenEngine(
            self.files,
            {self.queue_id: ENTRIES},
            limits(embed=100, paging=rng.choice([8, 3000, 1 << 40]), journal=9000, entries=40),
            journal_file_bytes=4000,
            store_file_bytes=3000,
            deleted=ranges_of(list(range(FIRST_ID, self.queue_id))),
        )
        return self.queue

    @property
    def engine(self) -> OpenEngine:
        assert self.opened is not None
        return self.opened

    @property
    def queue(self) -> VariableQueue:
        return self.engine.queues[self.queue_id]

    def begin_empty(self) -> None:
        """Its copy is lost: the definitions have deleted it, and another queue is in its place."""
        self.queue.delete()
        del self.engine.queues[self.queue_id]
        self.queue_id += 1
        queue = VariableQueue(self.engine.engine, self.queue_id, True, ENTRIES)
        self.engine.queues[self.queue_id] = queue

    def forget(self) -> None:
        self.mirrored = self.replica = self.joiner = self.syncer = None
        self.questions, self.chunks = [], []


class MirrorLife:
    def __init__(self, seed: int, steps: int = 120, *, trouble: bool = False) -> None:
        self.rng = random.Random(seed)
        self.trouble = trouble
        self.counts: Counter[str] = Counter()
        self.steps = steps
        self.now_ms = 1_000_000
        self.nodes = [Node(name) for name in range(NODES)]
        self.term = 0
        self.log: list[bytes] = []  # the parcels of this term
        self.synced: list[Node] = []  # eldest first; the master waits for them
        self.awaited: dict[Node, int] = {}  # it waits for these too, until they have that parcel
        self.active: dict[tuple[str, str], None] = {}
        self.names: dict[int, int] = {}  # seq_id -> name, for ever
        self.contents: dict[int, bytes] = {}
        self.published = 0
        self.unconfirmed: list[tuple[int, int, list[int]]] = []  # position, number, names
        self.unended: list[tuple[int, int, list[int]]] = []
        self.confirmed: set[int] = set()
        self.ended: set[int] = set()  # an acknowledgement was sent
        self.surely_ended: set[int] = set()
        self.sets: dict[int, Set] = {}  # of the master, by parcel
        self.tokens: list[Message] = []
        self.master = self.nodes[0]
        self.master.open(self.rng)
        self.become_master(self.master)
        for node in self.nodes[1:]:
            node.open(self.rng)
            self.join(node)

    # -- roles -----------------------------------------------------------------------------

    def become_master(self, node: Node) -> None:
        self.term += 1
        self.log = []
        self.sets = {}
        self.awaited = {}
        self.unconfirmed, self.unended, self.tokens = [], [], []
        self.active.clear()
        if node.replica is not None:
            node.replica.promote(self.term)
        else:
            begin_term(node.queue, self.term)
        node.forget()
        node.mirrored = MirroredBacking(node.queue, self.active, ("/", "q"))
        node.mirrored.begin(self.term, 0)
        self.master = node
        self.sets[0] = set_of(node.queue, self.now_ms)

    def join(self, node: Node, replica: Replica | None = None) -> None:
        """It hears everything from here on."""
        node.forget()
        node.replica = replica or Replica(node.queue, node.engine.engine.journal)
        while node.replica.prepare():
            pass
        node.replica.follow(self.term, replica is not None)
        node.joiner = Joiner(node.replica, node.engine.engine.journal)
        node.heard = len(self.log)

    def mirrors(self) -> list[Node]:
        return [node for node in self.nodes if node.replica is not None]

    # -- clients ---------------------------------------------------------------------------

    def publish(self) -> None:
        rng = self.rng
        batch = []
        names = []
        for _ in range(rng.choice([1, 1, 3, 20])):
            self.published += 1
            content = b"%d:" % self.published + b"x" * rng.choice([5, 60, 300])
            persistent = rng.random() < 0.9
            batch.append(message(content, persistent=persistent))
            self.contents[self.published] = content
            if persistent:
                names.append(self.published)
        if rng.random() < 0.2:
            until_ms = self.now_ms + rng.choice([5, 500])
            self.master.queue.publish_delayed(batch, until_ms, self.now_ms)
        else:
            self.master.queue.publish(batch, self.now_ms)
        for one in batch:
            self.note_place(int(one.seq_id), one.content)
        self.promise(self.unconfirmed, names)

    def note_place(self, seq_id: int, content: bytes) -> None:
        name = int(content.partition(b":")[0])
        assert content == self.contents[name], f"{name} is damaged"
        assert self.names.setdefault(seq_id, name) == name, f"{seq_id} means two messages"

    def promise(self, where: list[tuple[int, int, list[int]]], names: list[int]) -> None:
        """Safe when the master's journal and the next parcel are on disk."""
        assert self.master.mirrored is not None
        position = int(self.master.engine.engine.journal.position)
        where.append((position, int(self.master.mirrored.number) + 1, names))

    def fetch(self) -> None:
        self.tokens += self.master.queue.fetch(self.rng.randint(1, 10), 1 << 30)

    def some_tokens(self) -> list[Message]:
        some = self.rng.sample(self.tokens, self.rng.randint(0, len(self.tokens)))
        for one in some:
            self.tokens.remove(one)
        return sorted(some, key=lambda one: int(one.seq_id))

    def gone(self, names: list[int]) -> None:
        self.ended.update(names)
        self.promise(self.unended, names)

    def ack(self) -> None:
        some = self.some_tokens()
        if some:
            self.master.queue.ack(some)
            self.gone([self.names[int(one.seq_id)] for one in some])

    def give_back(self) -> None:
        some = self.some_tokens()
        if not some:
            return
        how = self.rng.randrange(4)
        queue = self.master.queue
        if how == 0:
            queue.requeue(some)
        elif how == 1:
            queue.delay(some, self.now_ms + self.rng.choice([1, 50, 5000]))
        elif how == 2:
            queue.rare().moves.requeue_to_tail(some, self.now_ms)
            for one in some:
                if one.content:
                    self.note_place(int(one.seq_id), one.content)
        else:
            for one in some:
                one.flags += ONE_ATTEMPT
            queue.note_attempts(some)
            self.tokens += some

    def drop(self) -> None:
        queue = self.master.queue
        before = set_of(queue, self.now_ms)
        how = self.rng.randrange(3)
        if how == 0:
            queue.purge()
        elif how == 1:
            queue.drop_below(int(queue.tiers.floor_seq_id()) + self.rng.randint(1, 40))
        else:
            queue.drop_delayed()
        after = set_of(queue, self.now_ms)
        self.gone([self.names[seq_id] for seq_id in before if seq_id not in after])

    # -- the master's turn -----------------------------------------------------------------

    def turn(self) -> None:
        master = self.master
        assert master.mirrored is not None
        master.mirrored.check()
        self.active.clear()
        parcel = master.mirrored.take_operations()
        if parcel is not None:
            self.log.append(parcel)
            self.sets[len(self.log)] = set_of(master.queue, self.now_ms)
        for node in self.mirrors():
            if node.syncer is not None and node.syncer.has_question():
                chunk = node.syncer.take_chunk()
                assert chunk is not None
                node.chunks.append(chunk)
        self.settle_promises()

    def settle_promises(self) -> None:
        durable = int(self.master.engine.engine.journal.durable_position)
        number = len(self.log)
        for node in [*self.synced, *self.awaited]:
            assert node.replica is not None
            number = min(number, int(node.replica.durable_number()))
        for waiting, settled in (
            (self.unconfirmed, self.confirmed),
            (self.unended, self.surely_ended),
        ):
            while waiting and waiting[0][0] <= durable and waiting[0][1] <= number:
                names = waiting.pop(0)[2]
                settled.update(names)
                self.counts["confirmed"] += len(names)

    # -- on the way ------------------------------------------------------------------------

    def deliver(self) -> None:
        mirrors = self.mirrors()
        if mirrors:
            self.hear(self.rng.choice(mirrors), self.rng.choice([1, 1, 3, 20]))

    def hear(self, node: Node, at_most: int) -> None:
        replica, joiner = node.replica, node.joiner
        assert replica is not None
        assert joiner is not None
        while at_most > 0 and node.heard < len(self.log):
            assert replica.apply(read_parcel(self.log[node.heard]))
            node.heard += 1
            at_most -= 1
            joiner.advance()
        replica.check()
        if replica.is_complete():
            wanted = self.sets[int(replica.number)]
            found = set_of(node.queue, self.now_ms)
            wanted = {
                seq_id: (content, kept, until if until > self.now_ms else 0)
                for seq_id, (content, kept, until) in wanted.items()
            }
            assert found == wanted, f"node {node.name} is no copy"
            self.counts["compared"] += 1

    def synchronise(self) -> None:
        for node in self.mirrors():
            self.synchronise_one(node)

    def synchronise_one(self, node: Node) -> None:
        joiner = node.joiner
        assert joiner is not None
        joiner.check()
        if self.rng.random() < 0.03 and joiner.is_waiting():
            joiner.cancel()  # the link broke, and what was on it is lost
            node.questions, node.chunks = [], []
            node.syncer = None
            self.counts["interrupted"] += 1
        question = joiner.next_question()
        if question is not None:
            node.questions.append(question)
        if node.questions and self.rng.random() < 0.7:
            assert self.master.mirrored is not None
            if node.syncer is None:
                batch = self.rng.choice([1, 5, 100])
                node.syncer = Syncer(self.master.mirrored, batch, self.now_ms)
            node.syncer.ask(node.questions.pop(0))
        if node.chunks and self.rng.random() < 0.7:
            joiner.take_chunk(node.chunks.pop(0))
            self.counts["chunks"] += 1
        if node.syncer is not None:
            kept = int(node.syncer.looked_count - node.syncer.sent_count)
            self.counts["kept by those who returned"] += kept
            node.syncer.looked_count = node.syncer.sent_count
        self.maybe_synced(node)

    def maybe_synced(self, node: Node) -> None:
        """It says it is complete: the master waits for it, and when it has all that was confirmed
        without it, adds it to the view.
        """
        replica, joiner = node.replica, node.joiner
        assert replica is not None
        assert joiner is not None
        if node in self.synced:
            return
        if node in self.awaited:
            if replica.durable_number() >= self.awaited[node]:
                del self.awaited[node]
                self.synced.append(node)
                self.counts["synced"] += 1
        elif joiner.is_done():
            assert replica.durable_number() == replica.number
            self.awaited[node] = len(self.log)

    # -- machines --------------------------------------------------------------------------

    def alive(self) -> list[Node]:
        return [node for node in self.nodes if node.opened is not None]

    def work(self) -> None:
        self.work_at(self.rng.choice(self.alive()))

    def fail_disk(self) -> None:
        """A node dies of the first verb that its disk refuses."""
        node = self.rng.choice(self.alive())
        node.files.fail(self.rng.choice(DISK_VERBS), after=self.rng.choice((0, 0, 1, 3)))
        try:
            for _ in range(12):
                self.work_at(node)
        except OSError:
            assert node.files.has_failed
        if not node.files.has_failed:
            node.files.heal()
            return
        self.counts["disks failed"] += 1
        if node is self.master:
            self.lose_master()
        else:
            self.lose(node)

    def work_at(self, node: Node) -> None:
        how = self.rng.randrange(4)
        if how == 0:
            node.engine.commit()
        elif how == 1:
            node.engine.run_jobs()
        elif how == 2:
            node.engine.work(self.now_ms)
        elif node.replica is not None:
            node.replica.tick(self.now_ms)
        else:
            node.queue.release_due(self.now_ms, 100)

    def stop_machine(self, node: Node) -> None:
        if self.rng.random() < 0.5:
            node.files.kill()
        else:
            node.files.power_cut(self.rng)
        node.opened = None
        node.forget()

    def lose_mirror(self) -> None:
        mirrors = self.mirrors()
        if not mirrors:
            return
        self.lose(self.rng.choice(mirrors))

    def lose(self, node: Node) -> None:
        self.stop_machine(node)
        if node in self.synced:
            self.synced.remove(node)
        self.awaited.pop(node, None)
        self.counts["mirrors lost"] += 1

    def come_back(self) -> None:
        for node in self.nodes:
            if node.opened is None:
                node.open(self.rng)
                self.join(node)
                self.counts["came back"] += 1
                return

    def lose_master(self) -> None:
        """The ring delivers to all survivors what any of them has heard, and perhaps more."""
        lost = self.master
        mirrors = self.mirrors()
        heard = max([node.heard for node in mirrors], default=0)
        del self.log[self.rng.randint(heard, len(self.log)) :]
        for node in mirrors:
            self.hear(node, len(self.log))
            node.questions, node.chunks = [], []
            node.syncer = None
        self.stop_machine(lost)
        self.counts["masters lost"] += 1
        heard_all = bool(self.synced)
        if self.synced:
            successor = self.synced.pop(0)
        else:
            successor = lost  # nobody else has everything: it is waited for
            lost.open(self.rng)
            self.counts["masters alone"] += 1
        self.become_master(successor)
        for node in self.mirrors():
            assert node.replica is not None
            node.replica.follow(self.term, heard_all)
            node.heard = 0
            if node.replica.is_lost:
                node.begin_empty()
                self.join(node)
                self.counts["lost copies"] += 1
            elif node.joiner is not None:
                node.joiner.cancel()
        self.judge()

    def hand_over(self) -> None:
        """A graceful stop of being master: it goes on as a mirror."""
        if not self.synced:
            return
        self.master.queue.requeue(self.tokens)
        self.tokens = []
        self.turn()
        for node in self.mirrors():
            self.hear(node, len(self.log))
            node.questions, node.chunks = [], []
            node.syncer = None
        former = self.master
        assert former.mirrored is not None
        former.mirrored.end()
        self.become_master(self.synced.pop(0))
        self.join(former, Replica(former.queue, former.engine.engine.journal, is_whole=True))
        for node in self.mirrors():
            assert node.replica is not None
            node.replica.follow(self.term, True)
            node.heard = 0
            if node.joiner is not None:
                node.joiner.cancel()
        self.counts["handed over"] += 1
        self.judge()

    # -- judging ---------------------------------------------------------------------------

    def judge(self) -> None:
        """What a new master has."""
        found = set_of(self.master.queue, self.now_ms)
        names = set()
        for seq_id, (content, _, _) in found.items():
            self.note_place(seq_id, content)
            name = self.names[seq_id]
            assert name not in names, f"{name} is there twice"
            names.add(name)
        lost = self.confirmed - self.ended - names
        assert not lost, f"confirmed and lost: {sorted(lost)[:5]}"
        back = self.surely_ended & names
        assert not back, f"acknowledged and back: {sorted(back)[:5]}"
        # What was acknowledged in vain is there again, and may be acknowledged once more.
        self.ended -= names
        self.counts["judged"] += 1

    def live(self) -> None:
        rng = self.rng
        steps = [self.publish] * 5 + [self.fetch] * 4 + [self.ack] * 4 + [self.give_back] * 2
        steps += [self.turn] * 8 + [self.deliver] * 10 + [self.synchronise] * 12 + [self.work] * 12
        steps += [self.come_back] * 2 + [self.hand_over]
        rare = [self.lose_mirror, self.lose_master, self.hand_over, self.drop]
        for _ in range(self.steps):
            self.now_ms += rng.choice([0, 1, 10])
            rng.choice(rare if rng.random() < 0.035 else steps)()
            if self.trouble and rng.random() < 0.04:
                self.fail_disk()
        self.lose_master()
        while any(node.opened is None for node in self.nodes):
            self.come_back()
        self.come_to_rest()

    def come_to_rest(self) -> None:
        """With nobody dying, every copy is complete in the end, and all is confirmed."""
        for _ in range(2000):
            self.turn()
            for node in self.nodes:
                node.engine.settle(self.now_ms)
                if node.replica is not None:
                    self.hear(node, 1000)
                    node.replica.tick(self.now_ms)
            for _ in range(5):
                self.synchronise()
            if len(self.synced) == NODES - 1 and not self.unconfirmed and not self.unended:
                break
        assert len(self.synced) == NODES - 1, "a copy never becomes complete"
        assert not self.unconfirmed, "never confirmed"
        self.lose_master()
