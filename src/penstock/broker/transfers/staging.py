"""Staging: batches that are published whole or not at all, and once; staged sets and their commit.

A program that works in batches (a Spark query) computes a batch in many tasks, and may compute it
twice: after a crash it starts again from its last checkpoint.  If its tasks published, a crash
would double what they had published.  So they *stage*, and one commit decides:

    stage     task ─► set, a hidden durable queue ─► on disk: "finished"
    commit    driver: (producer, run, batch, sets in order)
                  batch <= the producer's last one   duplicate: the sets are dropped
                  else                               the decision: one row, see below
    publish   the sets' messages go where their addresses lead, in order, some at a time

**The decision** is a transaction of ``definitions.db``: the producer's last batch becomes this
one, and each set gets its place in it.  It is on disk before anything is published, so from there
on the batch will be published, whatever happens; and if the program asks again, because it died
before it noted the answer, it is a duplicate.

**Publishing** a slice is: fetch from the set, publish to the queues, acknowledge in the set.  All
is in one turn, so it lies in one block of the journal (only the turn seals blocks,
``runtime.turn``), and a block is believed whole or not at all.  A crash therefore finds a message
in its set or in its queues.  Two more things must hold for that, since journal and segments reach
the disk at their own times; ``backing.returning`` sees to them (``ack_behind``, ``expect_moved``):
only after the block's sync does a segment of the set lose a record, or one of a queue get it.
Contents in the message store are not copied; their count moves within the same block.  What other
nodes have to say that they have it (mirrors, a master elsewhere) stays in its set until they do:
``batches``.

A consumer that got a message in the instants before that sync may get it again after a crash, as
redelivered.  Readers of ranges do not see it until then (``BackingQueue.firm_seq_id``): what they
note as read they never look at again.

After a start what is left in decided sets is published.  Sets are dropped when they are published
and all of it is on disk; only then is "committed" said.

``delays`` and ``topics`` settle later instead, when what they published is on disk, and may double:
their messages are changed on the way, and a delay that is waited for twice does no harm.  Here a
batch must not double at all.  What a delayed exchange or a topic's backlog does with what was
published into it is theirs again.

**Who may commit.**  A producer is a query, by its name and its user; a run is one start of it.  The
first request of a new run fences the runs before it: a driver of an earlier run that still lives
gets an error, and cannot commit.  The broker keeps ``FENCED_RUNS_MAX`` of them.  It may take a
wrong run for the new one, since it sees only names, but it publishes no batch twice: a batch has
one number, which counts once.

**What ends a set**: its batch is published; a commit of its producer with that or a higher number;
an abort; its connection, before it is finished; its age (``set_ttl_ms``), unless it is decided; a
start, if it was not finished.  Producers are forgotten ``producer_ttl_ms`` after their last batch.

**Waiting.**  A slice is small (``PUBLISHED_AT_ONCE``), one a turn over all batches; those
of different producers take turns.  None is published while the journal is behind, while the disk is
short, or while dead letters wait; under a memory alarm publishing goes on: it takes nothing more,
and consumers are waiting for it.  What is staged lies in queues, so paging, alarms and the
budgets of virtual hosts count it as they count everything.

Invariants (``check``):
  S1  every set has its internal queue, and every such queue its set
  S2  a set has a place exactly while it is in a batch that is being published
  S3  batches of one producer are published in the order of their numbers, up to its last one
  S4  what is not decided is of a batch above its producer's last one
  S5  between turns nothing in a set's queue is delivered, but what is under way to other nodes
"""

from collections.abc import Callable
from typing import Final, NamedTuple, final

from penstock.broker.rules.admission import Admission
from penstock.broker.rules.flow import Flow
from penstock.broker.topology.internal_queues import is_staged
from penstock.broker.topology.vhost import Vhost
from penstock.broker.transfers.batch_claims import BatchClaims
from penstock.broker.transfers.batches import Batches
from penstock.broker.transfers.producers import Key, Producers
from penstock.broker.transfers.staged import (
    DECIDED,
    ENDING,
    FINISHED,
    OPEN,
    Batch,
    RunFenced,
    StagedSet,
)
from penstock.broker.transfers.staged_publisher import StagedPublisher
from penstock.core.clock_types import WallMs
from penstock.core.errors import AccessRefused, NotFound, PreconditionFailed
from penstock.core.message import Address, Message
from penstock.core.turn_part import TurnPart
from penstock.queues.queue import Queue
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import Topology
from penstock.storage.definitions.staging import (
    NO_BATCH,
    UNDECIDED,
    ProducerRecord,
    StagedSetRecord,
)
from penstock.storage.engine.engine import Engine

HOUSEKEEPING_MS: Final = 1000
SETS_MAX: Final = 16_384
"""Of a virtual host: each costs a queue."""
SETS_OF_USER_MAX: Final = 4096
"""Of those, so that one user does not keep the others from staging."""
FENCED_RUNS_MAX: Final = 32
DROPPED_AT_ONCE: Final = 64
"""Sets a turn whose time is over: each is a queue to delete."""
DAY_MS: Final = 86_400_000


class StagingLimits(NamedTuple):
    """Of a set and of a producer: how long each is remembered without a word."""

    set_ttl_ms: int = DAY_MS
    producer_ttl_ms: int = 30 * DAY_MS
    message_bytes_max: int = 1 << 27


@final
class Staging(TurnPart):
    """One for a node.  ``told`` are the watchers of sets and batches that have moved."""

    def __init__(
        self,
        vhosts: dict[str, Vhost],
        definitions: Definitions,
        engine: Engine,
        publisher: StagedPublisher,
        admission: Admission,
        letters_wait: Callable[[], bool],
        flow: Flow,
        limits: StagingLimits,
    ) -> None:
        self.set_ttl_ms, self.producer_ttl_ms, self.message_bytes_max = limits
        self.told: list[object] = []
        self.claims: BatchClaims = BatchClaims()
        self.publisher = publisher
        self.batches = Batches(engine, publisher)
        self.sets: dict[tuple[str, str], StagedSet] = {}  # by (virtual host, name)
        self.producers = Producers(definitions)
        super().__init__(self.producers.known)  # each set has its producer there
        self._flow = flow
        self._vhosts = vhosts
        self._definitions = definitions
        self._engine = engine
        self._admission = admission
        self._letters_wait = letters_wait
        self._ending: list[StagedSet] = []
        self._moved: bool = False
        self._kept_at_ms = WallMs(0)

    # -- opening -----------------------------------------------------------------------------

    def claim_in(self, claims: BatchClaims) -> None:
        """From now on batches are claimed there before they are decided."""
        self.claims = claims

    def open(self, topology: Topology) -> None:
        """Sets and batches of the definitions; their internal queues are there, and empty yet."""
        for producer in topology.staged_producers:
            self.producers.load(producer)
        for record in topology.staged_sets:
            vhost = self._vhosts[record.vhost]
            staged = StagedSet(record, vhost, vhost.internal_queues.queues[record.name])
            self.sets[(record.vhost, record.name)] = staged
            staged.resume()

    def adopt(self) -> None:
        """The sets have their messages again: committed batches go on, unfinished sets go."""
        for staged in list(self.sets.values()):
            record = staged.record
            if not record.finished:
                self._drop(staged)
            elif record.place != UNDECIDED:
                self._resume(staged)

    def _resume(self, staged: StagedSet) -> None:
        """Sets come in the order of batches and places."""
        record = staged.record
        batch = self.batches.find(staged.producer, record.batch)
        if batch is None:
            batch = Batch(staged.vhost, staged.producer, record.batch, [], True)
            self.batches.begin(batch)
        batch.sets.append(staged)

    # -- producers ---------------------------------------------------------------------------

    def enter(self, key: Key, run: str, now_ms: WallMs) -> ProducerRecord:
        """A run speaks: it fences those before it.  Raises RunFenced."""
        vhost, user, name = key
        producer = self.producers.known.get(key)
        if producer is None:
            self._make_room(user)
            producer = ProducerRecord(vhost, name, user, run, [], NO_BATCH, now_ms)
            self.producers.put(producer)
        if run in producer.fenced:
            raise RunFenced(
                f"producer '{name}' in vhost '{vhost}' was started again elsewhere: run"
                f" '{producer.run}' has taken over from '{run}'"
            )
        if run != producer.run:
            fenced = [*producer.fenced, producer.run][-FENCED_RUNS_MAX:]
            batch = producer.batch
            producer = ProducerRecord(vhost, name, user, run, fenced, batch, now_ms)
            self.producers.put(producer)
        return producer

    def _make_room(self, user: str) -> None:
        """Who has sets stays."""
        surplus = self.producers.surplus(user)
        busy: set[Key] = set()
        for place, key in enumerate(surplus):
            if place == 0:
                busy = {one.producer for one in self.sets.values()}
            if key not in busy:
                self.producers.forget(key)
                return

    def last_batch(self, key: Key) -> int:
        """-1 = none."""
        producer = self.producers.known.get(key)
        return NO_BATCH if producer is None else producer.batch

    # -- staging -----------------------------------------------------------------------------

    def begin(
        self, vhost: Vhost, user: str, producer: str, run: str, batch: int, now_ms: WallMs
    ) -> StagedSet | None:
        """A new set; None = that batch is committed already."""
        if batch <= self.enter((vhost.name, user, producer), run, now_ms).batch:
            return None
        self._check_room(vhost, user)
        queue = vhost.internal_queues.open_staged()
        record = StagedSetRecord(vhost.name, queue.name, producer, run, batch, user, now_ms)
        staged = StagedSet(record, vhost, queue)
        self.sets[(vhost.name, queue.name)] = staged
        self._definitions.staging.put_set(record)
        return staged

    def _check_room(self, vhost: Vhost, user: str) -> None:
        there = [one for one in self.sets.values() if one.vhost is vhost]
        if len(there) >= SETS_MAX:
            raise PreconditionFailed(f"{SETS_MAX} sets are staged in vhost '{vhost.name}' already")
        if sum(one.record.user == user for one in there) >= SETS_OF_USER_MAX:
            raise PreconditionFailed(
                f"user '{user}' has {SETS_OF_USER_MAX} sets staged in vhost '{vhost.name}' already"
            )

    def stage(
        self, staged: StagedSet, address: Address, run: list[Message], now_ms: WallMs
    ) -> None:
        """More of it."""
        self._require(staged, OPEN)
        staged.take(address, run, now_ms)

    def end(self, staged: StagedSet) -> None:
        """Nothing more comes; it is finished when all of it is on disk."""
        self._require(staged, OPEN)
        staged.end(int(self._engine.journal.position))
        self._ending.append(staged)
        self._moved = True

    def drop(self, staged: StagedSet) -> None:
        """It will not be committed, as far as that is not decided."""
        if staged.is_droppable():
            self._drop(staged)

    def holds(self, vhost: Vhost) -> bool:
        """Is something of it staged?"""
        return any(staged.vhost is vhost for staged in self.sets.values())

    def _require(self, staged: StagedSet, state: int) -> None:
        if staged.state != state:
            raise PreconditionFailed(
                f"staged set '{staged.name}' takes nothing more: it has ended, or was dropped"
                " because its batch was committed or its virtual host is gone"
            )

    def _drop(self, staged: StagedSet) -> None:
        del self.sets[(staged.record.vhost, staged.record.name)]
        staged.leave()
        staged.vhost.internal_queues.close_staged(staged.queue)
        self._definitions.staging.delete_set(staged.record)
        self._tell(staged.watcher)

    # -- deciding ----------------------------------------------------------------------------

    def commit(
        self,
        vhost: Vhost,
        user: str,
        name: str,
        run: str,
        number: int,
        sets: list[str],
        judge: Callable[[StagedSet], None],
        now_ms: WallMs,
    ) -> Batch:
        """Decide; ``judge`` raises if a set may not be published as things are now.

        The batch is done when ``Batch.done`` says so; ``duplicate``: it had been decided before.
        """
        key = (vhost.name, user, name)
        producer = self.enter(key, run, now_ms)
        if number <= producer.batch:
            self.abort(vhost, user, sets)
            return self._decided_before(vhost, key, number)
        chosen = self.finished(vhost, user, name, number, sets)
        for staged in chosen:
            judge(staged)
        self.producers.put(
            ProducerRecord(vhost.name, name, user, run, producer.fenced, number, now_ms)
        )
        batch = Batch(vhost, key, number, chosen, False)
        for place, staged in enumerate(chosen):
            staged.decide(place)
            self._definitions.staging.put_set(staged.record)
        for left in [one for one in self.sets.values() if one.producer == key]:
            if left.state != DECIDED and left.record.batch <= number:
                self._drop(left)
        self.batches.begin(batch)
        return batch

    def finished(
        self, vhost: Vhost, user: str, producer: str, number: int, sets: list[str]
    ) -> list[StagedSet]:
        """Each once; raises NotFound or AccessRefused if one of them cannot be committed."""
        names = dict.fromkeys(sets)
        return [self._finished(vhost, user, one, producer, number) for one in names]

    def _finished(
        self, vhost: Vhost, user: str, name: str, producer: str, number: int
    ) -> StagedSet:
        staged = self.sets.get((vhost.name, name))
        if staged is None or staged.state != FINISHED:
            raise NotFound(
                f"no finished staged set '{name}' in vhost '{vhost.name}': it is dropped when its"
                f" connection breaks before its end, or after {self.set_ttl_ms // 1000} seconds;"
                " run the batch again"
            )
        record = staged.record
        if (record.producer, record.batch, record.user) != (producer, number, user):
            raise AccessRefused(f"staged set '{name}' is of another producer, batch or user")
        return staged

    def _decided_before(self, vhost: Vhost, key: Key, number: int) -> Batch:
        batch = self.batches.find(key, number)
        if batch is None:
            batch = Batch(vhost, key, number, [], False)
            batch.end()
        batch.repeated()
        return batch

    def abort(self, vhost: Vhost, user: str, sets: list[str]) -> int:
        """Drop those that are not decided; returns how many."""
        count = 0
        for name in sets:
            staged = self.sets.get((vhost.name, name))
            if staged is not None and staged.record.user == user and staged.state != DECIDED:
                self._drop(staged)
                count += 1
        return count

    # -- the turn ----------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Would a turn move something, with nothing else happening?"""
        if self._moved or self.batches.have_work():
            return True
        durable = self._engine.journal.durable_position
        return any(staged.position <= durable for staged in self._ending)

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        """What it writes to the definitions is committed in this turn."""
        self._moved = False
        if self._ending:
            self._finish_sets()
        if self.batches.under_way:
            self.batches.settle()
            for staged in self.batches.take_published(DROPPED_AT_ONCE):
                self._drop(staged)
            for batch in self.batches.take_done():
                self.told.extend(batch.watchers)
            if (
                not self._flow.journal_behind
                and not self._letters_wait()
                and not self._disk_is_short()
            ):
                published = self.batches.publish(WallMs(now_ms))
                if published is not None and published.is_published():
                    self.told.extend(published.watchers)
        if not 0 <= now_ms - self._kept_at_ms < HOUSEKEEPING_MS:
            self._kept_at_ms = now_ms
            self._keep_house(WallMs(now_ms))
        return False

    def take_told(self) -> list[object]:
        told = self.told[:]
        self.told.clear()
        return told

    def woken(self, queue: Queue) -> None:
        """The disk has brought something of a set that is being published."""
        if isinstance(queue.releases_to, StagedSet) and queue.releases_to.state == DECIDED:
            queue.releases_to.woken()
            self.batches.go_on()

    def _disk_is_short(self) -> bool:
        return bool(self._admission.alarms.disk or self._admission.is_full())

    def _finish_sets(self) -> None:
        durable = self._engine.journal.durable_position
        left: list[StagedSet] = []
        for staged in self._ending:
            if staged.state != ENDING:
                continue
            if staged.position > durable:
                left.append(staged)
                continue
            staged.finish()
            self._definitions.staging.put_set(staged.record)
            self._tell(staged.watcher)
        self._ending = left

    def _tell(self, watcher: object) -> None:
        if watcher is not None:
            self.told.append(watcher)

    # -- time --------------------------------------------------------------------------------

    def _keep_house(self, now_ms: WallMs) -> None:
        left = DROPPED_AT_ONCE
        busy: set[Key] = set()
        for staged in list(self.sets.values()):
            record = staged.record
            old = staged.state != DECIDED and now_ms - record.began_at_ms > self.set_ttl_ms
            if old and left > 0:
                left -= 1
                self._drop(staged)
            else:
                busy.add(staged.producer)
        for key in self.producers.silent(now_ms, self.producer_ttl_ms):
            if key not in busy:
                self.producers.forget(key)

    # -- looking -----------------------------------------------------------------------------

    def totals(self, vhost: str | None = None) -> dict[str, int]:
        """What lies in sets, of a virtual host or of all."""
        chosen = [one for one in self.sets.values() if vhost in (None, one.record.vhost)]
        return {
            "sets": len(chosen),
            "sets_being_published": sum(one.state == DECIDED for one in chosen),
            "messages": sum(int(one.queue.backing.ready_count()) for one in chosen),
            "bytes": sum(int(one.queue.backing.ready_bytes()) for one in chosen),
        }

    def check(self) -> None:
        """Assert the numbered invariants."""
        queues = {
            (vhost.name, name)
            for vhost in self._vhosts.values()
            for name in vhost.internal_queues.queues
            if is_staged(name)
        }
        assert queues == set(self.sets), "S1"
        under_way: list[StagedSet] = []
        for key, batches in self.batches.under_way.items():
            numbers = [batch.number for batch in batches]
            assert numbers == sorted(set(numbers)), "S3"
            assert numbers[-1] <= self.producers.known[key].batch, "S3"
            for batch in batches:
                under_way.extend(batch.sets)
        assert len(under_way) == len(set(under_way)), "S2"
        for staged in self.sets.values():
            decided = staged in under_way
            assert (staged.record.place != UNDECIDED) == decided, "S2"
            assert (staged.state == DECIDED) == decided, "S2"
            producer = self.producers.known[staged.producer]
            assert decided or staged.record.batch > producer.batch, "S4"
            (backing,) = staged.queue.backing.parts()
            assert backing.tiers.pending.count == 0 or staged.state == DECIDED, "S5"
            backing.check()
