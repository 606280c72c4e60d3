"""``Joining``: how a node founds a cluster, joins one, or brings what it has to one founded anew.

    turn(events)    ─► all that is agreed on, as soon as this node may go by it

**Founding.**  The first node puts a key bound to its lease, so that it is alone at it, then all it
has, some at a time, and last ``FOUNDED``, which says that there is a cluster and which.  If it dies
before that, the next one begins again; what is there already is put once more.

**Joining.**  What the cluster does not have is deleted here, as it was deleted while this node was
away.  That is true only of the cluster that this node has followed, at no smaller a revision: else
the coordinator has lost its data, and ``HistoryLost`` says so.  A node that never was in a cluster
and has queues of its own belongs to another one (``ForeignData``).

**Bringing.**  After such a loss ``penstock cluster refound`` lets a node found the cluster anew, or
bring what it has to one that another node has founded anew: nothing is deleted for being missing.
Where two nodes bring the same queue, the second one stops and the operator decides which of them
yields: the messages do not say which are newer.  Copies of queues that no node has brought yet are
kept (``keeps_copies``).
"""

import json
from collections.abc import Sequence
from typing import Final, final

from penstock.broker.administration import CLUSTER_ID
from penstock.broker.broker import Broker
from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.coordinator import (
    ABSENT,
    ACCEPTED,
    CHANGED,
    MARK,
    Change,
    Condition,
    Coordinator,
    Entry,
    Event,
    Proposal,
)
from penstock.cluster.agreement.known_keys import FOUNDED
from penstock.cluster.agreement.records_here import records_of
from penstock.core.errors import ForeignData, HistoryLost
from penstock.storage.definitions.followed import YIELDS, load_followed
from penstock.storage.definitions.parameters import ParameterRecord
from penstock.storage.definitions.records import BindingRecord

FOUNDING: Final = "cluster/founding"
PUT_AT_ONCE: Final = 50


def history_lost(why: str) -> HistoryLost:
    return HistoryLost(
        f"the cluster's coordinator has lost data, or others have changed it: {why}. Queues and"
        " messages of this node were kept. Restore the coordinator's data and start again, or, if"
        " they are gone for good, run `penstock cluster refound` on each node before its start"
    )


@final
class Joining:
    """``founding``: which cluster it is, once it is joined."""

    def __init__(self, broker: Broker, coordinator: Coordinator, home: str, member: str) -> None:
        self.founding: str = ""
        self.keeps_copies: bool = False
        self._followed = load_followed(broker.definitions.rows)
        self._brings = self._followed is not None and self._followed.revision < 0
        self._broker = broker
        self._coordinator = coordinator
        self._home = home
        self._member = json.dumps(member)
        self._entries = {entry.key: entry for entry in coordinator.snapshot()}
        self._made = max((entry.made for entry in self._entries.values()), default=0)
        self._proposal: Proposal | None = None
        self._to_put: list[md.Record] | None = None  # None: not alone at the founding yet

    def turn(self, events: Sequence[Event]) -> list[Entry] | None:
        """Raises ``HistoryLost`` and ``ForeignData``."""
        self._hear(events)
        if self._proposal is not None and not self._proposal.done:
            return None
        founded = self._entries.get(FOUNDED)
        if founded is None:
            if self._followed is not None and not self._brings:
                raise history_lost("it knows no cluster, and this node was in one")
            self._found()
            return None
        self.founding = str(json.loads(founded.value).get("id", ""))
        if self._brings:
            if self._bring():
                return None
            self.keeps_copies = self._has_unclaimed_copies()
        else:
            self._check_identity()
        return list(self._entries.values())

    def why_waiting(self) -> str:
        """Until ``turn`` has returned what is agreed on."""
        founding = self._entries.get(FOUNDING)
        if FOUNDED in self._entries:
            return "not all that this node brings has been put"
        if founding is not None and founding.value != self._member:
            return f"{json.loads(founding.value)} is founding it and does not end"
        return "not all that this node founds it with has been put"

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.value is None:
                self._entries.pop(event.key, None)
            else:
                known = self._entries.get(event.key)
                if event.created or known is None:
                    # When it was made is not told, but what was made before comes before.
                    self._made += 1
                made = self._made if event.created or known is None else known.made
                self._entries[event.key] = Entry(event.key, event.value, event.revision, made)

    def _check_identity(self) -> None:
        """What is not the cluster's is about to be deleted: was it deleted there?"""
        followed = self._followed
        if followed is None:
            self._check_data()
        elif followed.founding != self.founding:
            raise history_lost("it has another cluster than the one that this node was in")
        elif self.changed() < followed.revision:
            raise history_lost(
                f"its last change is of revision {self.changed()}, and this node has seen"
                f" {followed.revision}"
            )

    def changed(self) -> int:
        """The revision of the newest change that nodes keep."""
        mark = self._entries.get(CHANGED)
        return 0 if mark is None else mark.revision

    def _check_data(self) -> None:
        entry = self._entries.get(md.path(md.GLOBAL_PARAMETERS, CLUSTER_ID))
        agreed = None if entry is None else md.read(entry.key, entry.value)
        theirs = agreed.value if isinstance(agreed, ParameterRecord) else None
        ours = self._broker.parameters.value(CLUSTER_ID)
        vhosts = self._broker.vhosts.values()
        has_queues = any(vhost.queues or vhost.copies.copies for vhost in vhosts)
        if has_queues and ours != theirs:
            raise ForeignData(
                f"the data directory has queues of another cluster ({ours}) than this one"
                f" ({theirs}): they would be deleted; begin with an empty directory"
            )

    # -- bringing --------------------------------------------------------------------------

    def _bring(self) -> bool:
        """Put some of what the cluster lacks; False: it has all of it."""
        self._check_conflicts()
        mine = records_of(self._broker, self._home)
        lacking = [one for one in mine if md.key_of(one) not in self._entries]
        if not lacking or self._coordinator.why_not():
            return bool(lacking)
        some = _first_some(lacking)
        conditions = [Condition(md.key_of(record), ABSENT) for record in some]
        self._proposal = self._coordinator.propose(conditions, [*_puts(some), MARK])
        return True

    def _check_conflicts(self) -> None:
        """Raises ``HistoryLost``: a queue is here and elsewhere, each with messages of its own."""
        if self._followed is not None and self._followed.revision == YIELDS:
            return
        for vhost in self._broker.vhosts.values():
            for queue in vhost.queues.values():
                meta = self._brought(vhost.name, queue.name)
                if meta is None:
                    continue
                if meta.incarnation != queue.incarnation or meta.home != self._home:
                    raise HistoryLost(
                        f"{vhost.queue_text(queue.name)} is on this node and was brought by"
                        f" {meta.home}, too: which has the newer messages is not known. Delete it"
                        f" there and start this node again, or give this node's up with `penstock"
                        " cluster refound --yield`"
                    )

    def _brought(self, vhost: str, name: str) -> md.QueueMeta | None:
        entry = self._entries.get(md.path(md.QUEUES, vhost, name))
        record = None if entry is None else md.read(entry.key, entry.value)
        return record if isinstance(record, md.QueueMeta) else None

    def _has_unclaimed_copies(self) -> bool:
        if self._followed is not None and self._followed.revision == YIELDS:
            return False
        return any(
            self._brought(vhost.name, name) is None
            for vhost in self._broker.vhosts.values()
            for name in vhost.copies.copies
        )

    # -- founding --------------------------------------------------------------------------

    def _found(self) -> None:
        """The next step, as far as the last one has been seen."""
        last, self._proposal = self._proposal, None
        if self._coordinator.why_not():
            return
        mine = self._entries.get(FOUNDING)
        if mine is None:
            # Also when it was ours, and our lease has ended.
            self._to_put = None
            change = Change(FOUNDING, self._member, leased=True)
            self._proposal = self._coordinator.propose([Condition(FOUNDING, ABSENT)], [change])
            return
        if mine.value != self._member:
            return  # another node is at it
        if self._to_put is None:
            self._to_put = records_of(self._broker, self._home)
        elif last is not None and last.state == ACCEPTED:
            del self._to_put[: len(last.changes)]
        puts = _puts(_first_some(self._to_put))
        if not puts:
            founded = json.dumps({"v": 1, "id": json.loads(self._member)}, separators=(",", ":"))
            puts = [Change(FOUNDED, founded), Change(FOUNDING, None), MARK]
        alone = [Condition(FOUNDING, mine.revision)]
        self._proposal = self._coordinator.propose(alone, puts)


def _first_some(records: list[md.Record]) -> list[md.Record]:
    """What bindings rest on is made before them, and seen to be."""
    some = records[:PUT_AT_ONCE]
    if some and not isinstance(some[0], BindingRecord):
        some = [one for one in some if not isinstance(one, BindingRecord)]
    return some


def _puts(records: list[md.Record]) -> list[Change]:
    return [Change(md.key_of(record), md.value_of(record)) for record in records]
