"""Mirrored queues as JSON-able dicts: RabbitMQ's fields of a queue, and our own.

``queue_fields`` are those of a row of ``/api/queues``: ``slave_nodes``,
``synchronised_slave_nodes`` and ``recoverable_slaves``, and while mirrors fetch what they lack the
state ``syncing`` with ``sync_messages``.  A queue without mirrors has the third alone, which is
null.  ``member_fields`` are those of quorum queues: ``leader``, ``members``, ``online``.
``mirrors_row`` is what ``/api/penstock/mirrors`` tells; ``count_copies`` adds up what each
node has.

Called on the data loop; see ``view``.
"""

from collections.abc import Callable, Sequence

from penstock.broker.mirrors import (
    DOWN,
    MASTER,
    SYNCING,
    WAITING,
    CopyFacts,
    MirrorFacts,
    RingFacts,
    SyncProgress,
)
from penstock.management.facts.rows import Row, Rows
from penstock.queues.queue import Queue

COUNTED = ("masters", "mirrors", "unsynchronised_mirrors")
"""What ``count_copies`` counts of each node."""


class MirrorRows(Rows):
    def names(self, vhost: str) -> list[str]:
        return [name for other, name in self.broker.mirrors.mirrored() if other == vhost]

    def rows(self, vhost_name: str, names: Sequence[str]) -> list[Row]:
        vhost = self.broker.vhosts.get(vhost_name)
        found = {} if vhost is None else vhost.queues
        rows = [self.row(found[name]) for name in names if name in found]
        return [row for row in rows if row is not None]

    def row(self, queue: Queue) -> Row | None:
        """None = it is not mirrored."""
        facts = self.broker.mirrors.facts(queue)
        if facts is None:
            return None
        return {
            "vhost": queue.vhost,
            "name": queue.name,
            "version": facts.version,
            "term": facts.term,
            "mode": facts.mode,
            "state": facts.state,
            "why": facts.why,
            "master": facts.master() or None,
            "slave_nodes": facts.slave_nodes(),
            "synchronised_slave_nodes": facts.synchronised_slave_nodes(),
            "recoverable": facts.recoverable,
            "members": list(facts.members),
            "copies": [_copy_row(copy) for copy in facts.copies],
            "ring": None if facts.ring is None else _ring_row(facts.ring),
        }

    def count_copies(self, pairs: Sequence[tuple[str, str]], totals: dict[str, Row]) -> int:
        """Add what each node has of these queues to its totals; returns how many are down."""
        down = 0
        for vhost_name, name in pairs:
            facts = self._facts_of(vhost_name, name)
            if facts is None:
                continue
            down += facts.state in (DOWN, WAITING)
            for copy in facts.copies:
                row = totals.setdefault(copy.node, dict.fromkeys(COUNTED, 0))
                _add(row, "masters" if copy.role == MASTER else "mirrors")
                if not copy.synced:
                    _add(row, "unsynchronised_mirrors")
        return down

    def those_that(
        self, holds: Callable[[MirrorFacts], bool], pairs: Sequence[tuple[str, str]]
    ) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for vhost_name, name in pairs:
            facts = self._facts_of(vhost_name, name)
            if facts is not None and holds(facts):
                found.append((vhost_name, name))
        return found

    def _facts_of(self, vhost_name: str, name: str) -> MirrorFacts | None:
        vhost = self.broker.vhosts.get(vhost_name)
        queue = None if vhost is None else vhost.queues.get(name)
        return None if queue is None else self.broker.mirrors.facts(queue)


def queue_fields(facts: MirrorFacts | None) -> Row:
    """Of a queue's row; they go over what it has."""
    if facts is None:
        return {"recoverable_slaves": None}
    row: Row = {
        "slave_nodes": facts.slave_nodes(),
        "synchronised_slave_nodes": facts.synchronised_slave_nodes(),
        "recoverable_slaves": facts.recoverable_slaves(),
    }
    row["node"] = facts.master() or facts.complete_node()
    if facts.state in (DOWN, WAITING):
        row["state"] = DOWN
    elif facts.state == SYNCING:
        row["state"] = SYNCING
        done = [copy.sync.done for copy in facts.copies if copy.sync is not None]
        if done:
            row["sync_messages"] = min(done)
    return row


def member_fields(facts: MirrorFacts | None, node: str) -> Row:
    """Of a quorum queue; ``node``: that of one without copies.  "" = it has no leader."""
    if facts is None:
        return {"leader": node, "members": [node], "online": [node]}
    return {"leader": facts.master(), "members": list(facts.members), "online": facts.online()}


def _add(row: Row, key: str) -> None:
    value = row[key]
    assert isinstance(value, int)
    row[key] = value + 1


def _copy_row(copy: CopyFacts) -> Row:
    return {
        "node": copy.node,
        "member": copy.member,
        "role": copy.role,
        "synchronised": copy.synced,
        "applied": copy.applied,
        "durable": copy.durable,
        "behind": copy.behind,
        "sync": None if copy.sync is None else _sync_row(copy.sync),
    }


def _sync_row(sync: SyncProgress) -> Row:
    return {
        "messages": sync.done,
        "messages_total": sync.total,
        "bytes": sync.sent_bytes,
        "rate": sync.rate,
        "eta_ms": None if sync.eta_ms < 0 else sync.eta_ms,
    }


def _ring_row(ring: RingFacts) -> Row:
    return {
        "version": ring.version,
        "members": [{"name": name, "dead": name in ring.dead} for name in ring.members],
        "left": ring.left or None,
        "right": ring.right or None,
        "kept_bytes": ring.kept_bytes,
        "full": ring.full,
    }
