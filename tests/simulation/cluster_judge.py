"""What must be so in a random life of a cluster (``cluster_lives.py``), at each moment and at rest.

The judge knows every message by its number, with which its body begins:

  CJ1  a persistent message whose confirm was seen is there at rest, unless a client settled it, or
       it was purged, or a copy that was not synchronised was promoted as the policy allows; a
       transient one unless all synchronised copies went down since
  CJ2  a term has one master, and a seq_id means one message for ever
  CJ3  what was gone at rest never comes back
  CJ4  what one publisher publishes is delivered for the first time in this order to each consumer
       (``cluster_clients.py``)
  CJ5  at rest every mirrored queue has a master and the copies its policy wants, all synchronised
       and equal; nothing is left over of queues and copies that are gone

What of this depends on the kind of the queues is a ``QueueKind``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Final, Protocol, cast

from penstock.backing.interface import BackingQueue
from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.mirror_keys import RINGS, SYNC, VIEWS, kind_of, parts_of, place_of
from penstock.cluster.agreement.placement import Placement, wanted_copies
from penstock.cluster.agreement.queue_views import SYNCED, QueueView, view_from_json
from penstock.cluster.ring.views import from_json as ring_from_json
from penstock.protocols.amqp.codec.properties import body_of
from penstock.queues.queue import Queue
from penstock.queues.stream_backing import StreamBacking
from penstock.streams.block_codec import MESSAGES, read_head, read_records, segment_path
from penstock.streams.log import StreamLog
from tests.cluster.mirror_tools import set_of
from tests.helpers.sim_files import SimFileSystem
from tests.simulation.cluster_nodes import Machine, SimWorld

OWN_TERM: Final = 1 << 40


class Judgement(AssertionError):
    """A promise was broken."""


class Sent:
    """What is known of one message."""

    __slots__ = (
        *("body", "confirmed_at", "number", "of_two"),
        *("persistent", "published_at", "publisher", "queue", "settled"),
    )

    def __init__(
        self,
        number: int,
        publisher: int,
        queue: str,
        body: bytes,
        published_at: int,
        *,
        persistent: bool,
    ) -> None:
        self.number = number
        self.publisher = publisher
        self.queue = queue
        self.body = body
        self.persistent = persistent
        self.published_at = published_at  # the store's revision then
        self.confirmed_at = 0  # the same; 0 = it was not
        self.of_two = False  # while two nodes had the queue as theirs, or one a deleted one
        self.settled = False  # a client acknowledged or rejected it, or it may have been purged


class QueueKind(Protocol):
    """What differs between mirrored queues and those that a majority confirms."""

    def arguments_of(self, queue: str) -> dict[str, object]:
        """With which it is declared."""
        ...

    def is_persistent(self, rng: random.Random) -> bool:
        """Of the next message."""
        ...

    def is_down(self, judge: ClusterJudge, name: str) -> bool:
        """It has no master at present."""
        ...

    def is_dead_end(self, judge: ClusterJudge, name: str, view: QueueView) -> bool:
        """Its copies can elect no master."""
        ...

    def why_other_copies(
        self, judge: ClusterJudge, view: QueueView, master: Machine, queue: Queue
    ) -> str:
        """It has other copies than it should; "" = it has not."""
        ...


class MirroredQueues:
    """As a policy says; those of ``streams`` are streams."""

    def __init__(self, streams: tuple[str, ...]) -> None:
        self.streams = streams

    def arguments_of(self, queue: str) -> dict[str, object]:
        return {"x-queue-type": "stream"} if queue in self.streams else {}

    def is_persistent(self, rng: random.Random) -> bool:
        return rng.random() < 0.8

    def is_down(self, judge: ClusterJudge, name: str) -> bool:
        return judge.history.views[name].master == ""

    def is_dead_end(self, judge: ClusterJudge, name: str, view: QueueView) -> bool:
        return False

    def why_other_copies(
        self, judge: ClusterJudge, view: QueueView, master: Machine, queue: Queue
    ) -> str:
        if set(view.synced) != set(view.members):
            return f"{view.synced} of {view.members} are synchronised"
        mirrors = [node_of(one) for one in view.mirrors()]
        placed = judge.placed(master, queue, mirrors)
        if placed.master != master.name or set(placed.mirrors) != set(mirrors):
            return f"it has {mirrors}, and wants {placed}"
        keys = {entry.key for entry in judge.world.store.model.entries()}
        policy = master.quiet.broker.vhosts["/"].policies.ha_policy_of(queue)
        if policy.mode == "" and md.path(RINGS, "/", queue.name) in keys:
            return "it has a ring, and no node is to mirror it"
        return ""


class StoreHistory:
    """Which views followed each other in the store, and what could be lost with that."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.heard = 0
        self.views: dict[str, QueueView] = {}
        self.incarnations: dict[str, str] = {}  # by queue, as the store has it; "" = deleted
        self.losses: dict[str, list[tuple[int, bool]]] = {}  # queue: revision, of persistent ones
        self.log: list[str] = []  # with what the life did

    def say(self, text: str) -> None:
        self.log.append(f"{self.world.now_ms - 1_700_000_000_000} {text}")

    def hear(self) -> None:
        history = self.world.store.model.history
        for event in history[self.heard :]:
            if kind_of(event.key) in (VIEWS, RINGS, SYNC, "drained", "members"):
                self.say(f"{event.revision} {event.key} {event.value}")
            if kind_of(event.key) == VIEWS:
                self._view_changed(place_of(event.key)[1], event.value, event.revision)
            elif kind_of(event.key) == md.QUEUES:
                self._queue_changed(parts_of(event.key)[1], event.value, event.revision)
        self.heard = len(history)

    def _queue_changed(self, name: str, value: str | None, revision: int) -> None:
        """Its node goes on with a deleted one until it hears of that."""
        self.incarnations[name] = "" if value is None else json.loads(value)["incarnation"]
        if value is None:
            self.lost(name, of_persistent=True, revision=revision)

    def _view_changed(self, name: str, value: str | None, revision: int) -> None:
        before = self.views.pop(name, None)
        if value is None:
            return
        view = self.views[name] = view_from_json(value)
        if before is None:
            return
        counts = self.world.counts
        counts["views"] += 1
        if view.reign is not None:
            counts["elections"] += view.master not in ("", before.master)
            return
        if view.master == "":
            self.lost(name, of_persistent=False, revision=revision)
            counts["views without a master"] += 1
        elif before.master == "":
            was = before.recoverable.get(node_of(view.master)) == SYNCED
            self.lost(name, of_persistent=not was, revision=revision)
            counts["returned views"] += 1
        elif before.master != view.master:
            counts["masters changed"] += 1
            if view.master not in before.synced:
                self.lost(name, of_persistent=True, revision=revision)
                counts["unsynchronised promoted"] += 1

    def lost(self, name: str, *, of_persistent: bool, revision: int = 0) -> None:
        revision = revision or self.world.store.model.revision
        self.losses.setdefault(name, []).append((revision, of_persistent))


class ClusterJudge:
    """What is known of all messages and queues, and whether it is as it must be."""

    def __init__(self, world: SimWorld, queues: tuple[str, ...], kind: QueueKind) -> None:
        self.world = world
        self.queues = queues
        self.kind = kind
        self.counts = world.counts
        self.history = StoreHistory(world)
        self.sent: list[Sent] = []
        self.gone: set[int] = set()
        self.terms: dict[tuple[str, int], str] = {}
        self.places: dict[tuple[str, int], int] = {}

    @property
    def machines(self) -> list[Machine]:
        return self.world.machines

    # -- what clients did --------------------------------------------------------------------

    def sent_as(self, body: bytes) -> Sent:
        number = int(body.partition(b":")[0])
        sent = self.sent[number - 1]
        if sent.body != body:
            raise Judgement(f"{number} is damaged")
        return sent

    def took_all(self, queue: str) -> None:
        """It was purged, or deleted, at some moment until now."""
        for sent in self.sent:
            if sent.queue == queue:
                sent.settled = True

    def note_unviewed(self, machine: Machine) -> None:
        """Transient messages of queues without a mirror go with their process."""
        for name in self.queues:
            queue = machine.queue(name)
            if queue is not None and not queue.remote and name not in self.history.views:
                self.history.lost(name, of_persistent=False)

    def is_of_two(self, name: str) -> bool:
        queues = [machine.queue(name) for machine in self.machines if machine.runs]
        own = [queue.incarnation for queue in queues if queue is not None and not queue.remote]
        return len(own) > 1 or any(one != self.history.incarnations.get(name) for one in own)

    # -- at each moment ----------------------------------------------------------------------

    def look(self) -> None:
        self.history.hear()
        self._look_at_masters()

    def _look_at_masters(self) -> None:
        for machine in self.machines:
            if not machine.ready:
                continue
            for place, known in machine.cluster.mirrors.mirroring.queues.items():
                group = known.group
                if group is None or group.mirrored is None:
                    continue
                queue = known.queue
                key = (queue.incarnation, int(group.mirrored.term))
                master = machine.cluster.member
                if self.terms.setdefault(key, master) != master:
                    raise Judgement(f"CJ2: {self.terms[key]} and {master} in term {key} of {place}")

    def check(self) -> None:
        for machine in self.machines:
            if machine.ready:
                machine.quiet.check()
                machine.cluster.mirrors.mirroring.check()
                machine.cluster.metadata.applier.check()
                for vhost in machine.quiet.broker.vhosts.values():
                    vhost.copies.check()
                self._look_at_places(machine)
        self.counts["checks"] += 1

    def _look_at_places(self, machine: Machine) -> None:
        for name in self.queues:
            for backing, incarnation in self.backings(machine, name):
                for seq_id, content in self.contents(machine, backing).items():
                    if seq_id < OWN_TERM:
                        continue
                    number = self.sent_as(body_of(content)).number
                    if self.places.setdefault((incarnation, seq_id), number) != number:
                        raise Judgement(f"CJ2: {seq_id} means two messages")

    def backings(self, machine: Machine, name: str) -> list[tuple[BackingQueue, str]]:
        vhost = machine.quiet.broker.vhosts["/"]
        found: list[tuple[BackingQueue, str]] = []
        queue = vhost.queues.get(name)
        if queue is not None and not queue.remote:
            found.append((queue.backing, queue.incarnation))
        copy = vhost.copies.copies.get(name)
        if copy is not None:
            found.append((copy.backing, copy.incarnation))
        return found

    def contents(self, machine: Machine, backing: BackingQueue) -> dict[int, bytes]:
        """Of all messages there, by their numbers."""
        if isinstance(backing, StreamBacking):
            return stream_contents(backing.log, machine.quiet.files)
        found = set_of(cast(VariableQueue, backing), self.world.now_ms)
        return {seq_id: content for seq_id, (content, _, _) in found.items()}

    # -- on the way to rest --------------------------------------------------------------------

    def judge_unanswered(self, open_publishes: dict[int, Sent]) -> None:
        """A confirm may stay away only of a queue that is down."""
        queues = {sent.queue for sent in open_publishes.values()}
        views = self.history.views
        if not any(name in views and self.kind.is_down(self, name) for name in queues):
            raise Judgement(f"{min(open_publishes)} is never answered")

    def unsynchronised(self) -> Iterable[str]:
        """Queues that have a master and a copy that lacks messages."""
        for name, view in self.history.views.items():
            if view.master and len(view.synced) < len(view.members):
                yield name

    def why_no_rest(self) -> str:
        """What of CJ5 is not so yet."""
        for name in self.queues:
            why = self._why_not_whole(name)
            if why:
                return f"{name}: {why}"
        return self._what_is_left_over()

    def _why_not_whole(self, name: str) -> str:
        view = self.history.views.get(name)
        masters = []
        for machine in self.machines:
            queue = machine.queue(name)
            if queue is not None and not queue.remote:
                masters.append(machine)
        if not any(machine.queue(name) is not None for machine in self.machines):
            return "" if view is None else "it is gone, and has a view"
        if view is not None and self.kind.is_dead_end(self, name, view):
            return ""
        if view is not None and view.master == "" and SYNCED not in view.recoverable.values():
            self.counts["down for operators to decide"] += 1
            return ""  # the node that had everything came back without it; K3
        if len(masters) != 1:
            return f"masters at {[machine.name for machine in masters]}"
        master = masters[0]
        queue = master.queue(name)
        assert queue is not None
        if view is None:
            placed = self.placed(master, queue, [])
            return f"it wants {placed}" if placed.mirrors else ""
        if view.master != master.cluster.member:
            return f"the master is {view.master}, the queue is at {master.name}"
        why = self.kind.why_other_copies(self, view, master, queue)
        return why or self._why_not_equal(name, master, view)

    def placed(self, master: Machine, queue: Queue, mirrors: list[str]) -> Placement:
        policy = master.quiet.broker.vhosts["/"].policies.ha_policy_of(queue)
        running = [machine.name for machine in self.machines]
        return wanted_copies(policy, master.name, mirrors, mirrors, running, lambda _n: 0)

    def _why_not_equal(self, name: str, master: Machine, view: QueueView) -> str:
        [(backing, incarnation)] = self.backings(master, name)
        wanted = self._equals(master, backing)
        for machine in self.machines:
            if machine is master:
                continue
            found = self.backings(machine, name)
            if not view.counts_on(machine.name):
                continue
            if len(found) != 1 or found[0][1] != incarnation:
                return f"{machine.name} has no copy"
            if self._equals(machine, found[0][0]) != wanted:
                return f"{machine.name} is no copy"
        return ""

    def _equals(self, machine: Machine, backing: BackingQueue) -> object:
        """The same at all copies."""
        if isinstance(backing, StreamBacking):
            return self.contents(machine, backing)
        return set_of(cast(VariableQueue, backing), self.world.now_ms)

    def _what_is_left_over(self) -> str:
        keys = {entry.key: entry.value for entry in self.world.store.model.entries()}
        for key, value in keys.items():
            kind = kind_of(key)
            if kind in (VIEWS, RINGS, SYNC) and md.path(md.QUEUES, *parts_of(key)) not in keys:
                return f"{key} has no queue"
            if kind in (RINGS, SYNC) and md.path(VIEWS, *parts_of(key)) not in keys:
                return f"{key} has no view"
            if kind == SYNC:
                return f"{key} is there, and all is synchronised"
            if kind == RINGS:
                view = view_from_json(keys[md.path(VIEWS, *parts_of(key))])
                ring = ring_from_json(value)
                here = sorted(one.rpartition("#")[0] for one in ring.live())
                if here != sorted(view.members) and len(view.members) > 1:
                    return f"{key} has {ring.live()} of {view.members}"
        for machine in self.machines:
            why = self._what_is_left_over_at(machine)
            if why:
                return f"{machine.name}: {why}"
        return ""

    def _what_is_left_over_at(self, machine: Machine) -> str:
        broker = machine.quiet.broker
        for vhost in broker.vhosts.values():
            for name in vhost.copies.copies:
                view = self.history.views.get(name)
                if view is None:
                    return f"a copy of {name}, which has no view"
                if view.master and not view.counts_on(machine.name):
                    return f"a copy of {name}, of which it is no member"
        for place, known in machine.cluster.mirrors.mirroring.queues.items():
            if known.leaving:
                return f"{place} is being left"
            group = known.group
            if group is not None and group.waiting_bytes() > 0:
                return f"the ring of {place} is not at rest"
        return ""

    # -- at rest -----------------------------------------------------------------------------------

    def judge(self) -> None:
        self.check()
        for name in self.queues:
            self.judge_queue(name)
        self.counts["judged"] += 1

    def judge_queue(self, name: str) -> None:
        there: set[int] = set()
        for machine in self.machines:
            queue = machine.queue(name)
            if queue is not None and not queue.remote:
                for content in self.contents(machine, queue.backing).values():
                    number = self.sent_as(body_of(content)).number
                    if number in there:
                        raise Judgement(f"{number} is there twice")
                    there.add(number)
        back = there & self.gone
        if back:
            raise Judgement(f"CJ3: {sorted(back)[:5]} are back")
        for sent in self.sent:
            if sent.queue != name:
                continue
            if sent.number in there:
                if sent.confirmed_at:
                    self.counts["kept"] += 1
                continue
            if sent.confirmed_at and not sent.settled and not self._may_be_lost(sent):
                kind = "persistent" if sent.persistent else "transient"
                raise Judgement(f"CJ1: {sent.number} ({kind}) of {name} was confirmed, and is lost")
            self.gone.add(sent.number)

    def _may_be_lost(self, sent: Sent) -> bool:
        """``always`` gives up what the former master goes on to confirm until it hears of that.

        Before its publisher hears of the confirm it may be gone: it counts when it was published.
        """
        losses = self.history.losses.get(sent.queue, [])
        if sent.of_two and losses:
            return True
        for revision, of_persistent in losses:
            if revision >= sent.published_at and (of_persistent or not sent.persistent):
                return True
        return False


def stream_contents(log: StreamLog, files: SimFileSystem) -> dict[int, bytes]:
    """What is in the files of a stream, up to what readers see."""
    found: dict[int, bytes] = {}
    segments = log.segments
    for number in range(len(segments)):
        path = segment_path(log.directory, segments.first(number))
        data = files.read(path) if files.exists(path) else b""
        at = 0
        while at < min(segments.size(number), len(data)):
            head = read_head(data, at, 0, log.stream, path)
            assert head is not None
            payload = data[head.payload_at() : head.end()]
            records = read_records(payload, head) if head.kind == MESSAGES else []
            assert records is not None
            found |= {int(one.seq_id): one.content for one in records}
            at = int(head.end())
    return {offset: one for offset, one in found.items() if offset < log.durable_offset}
