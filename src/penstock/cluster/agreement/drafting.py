"""A change of the topology as a draft: the keys of the coordinator, with their conditions.

In: the broker as it is, what is agreed, and a change that has passed all checks.  Out: a ``Draft``.

Every proposal changes some key under the condition that this key is as it was.  So it happens
once at most, however late it arrives, and a node may propose it again after a lost answer.

An exchange that deletes itself goes with its last binding, in the same proposal.  So that two
nodes that take its last two bindings cannot both leave it behind, each change of the bindings from
it writes it again, unchanged (``_touch``), under the condition that it is as it was.
"""

from typing import final

from penstock.broker.administration import CLUSTER_ID
from penstock.broker.rules.access import User
from penstock.broker.topology.changes import Plain
from penstock.broker.topology.vhost import Vhost
from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.agreed import Agreed, ends_of
from penstock.cluster.agreement.batch_homes import BATCHES
from penstock.cluster.agreement.coordinator import ABSENT, CHANGES_MAX
from penstock.cluster.agreement.draft import Draft
from penstock.cluster.agreement.mirror_keys import OF_A_MIRRORED_QUEUE, VIEWS, mirror_keys
from penstock.cluster.agreement.queue_views import QueueView, view_to_json
from penstock.cluster.agreement.records_here import exchange_meta, record_of
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Exchange
from penstock.storage.definitions.parameters import ParameterRecord
from penstock.storage.definitions.records import (
    BindingRecord,
    PermissionRecord,
    PolicyRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)

SOURCES_AT_ONCE = CHANGES_MAX // 4
"""Exchanges that go with a queue in one proposal; of more the rest goes a little later."""
IN_A_VHOST = (
    md.PERMISSIONS, md.TOPIC_PERMISSIONS, md.POLICIES, md.OPERATOR_POLICIES, md.PARAMETERS,
    md.EXCHANGES, md.QUEUES, md.BINDINGS,
)  # fmt: skip


@final
class Drafting:
    """Fills drafts; knows no time and proposes nothing."""

    def __init__(self, agreed: Agreed) -> None:
        self._agreed = agreed

    def _as_it_is(self, draft: Draft, key: str) -> None:
        draft.require(key, self._agreed.revision_of(key))

    # -- exchanges -----------------------------------------------------------------------

    def add_exchange(self, draft: Draft, exchange: Exchange) -> None:
        meta = exchange_meta(exchange, exchange.arguments)
        self._as_it_is(draft, md.path(md.VHOSTS, exchange.vhost))
        draft.require(md.key_of(meta), ABSENT)
        draft.put(md.key_of(meta), md.value_of(meta))

    def put_exchange(self, draft: Draft, exchange: Exchange, arguments: dict[str, object]) -> None:
        meta = exchange_meta(exchange, arguments)
        self._as_it_is(draft, md.key_of(meta))
        draft.put(md.key_of(meta), md.value_of(meta))

    def delete_exchange(self, draft: Draft, vhost: Vhost, exchange: Exchange) -> None:
        for binding in exchange.bindings():
            key = md.key_of(
                record_of(
                    vhost, exchange, binding.destination, binding.routing_key, binding.arguments
                )
            )
            draft.delete_first(key, self._agreed.revision_of(key))
        self._strike(draft, exchange)
        self._leaves(draft, vhost, exchange)

    def _strike(self, draft: Draft, exchange: Exchange) -> None:
        key = md.path(md.EXCHANGES, exchange.vhost, exchange.name)
        self._as_it_is(draft, key)
        draft.delete(key)
        draft.delete_below(md.bindings_to(exchange.vhost, "exchange", exchange.name))

    def _touch(self, draft: Draft, exchange: Exchange) -> None:
        if exchange.auto_delete:
            self.put_exchange(draft, exchange, exchange.arguments)

    def strike_unused(self, draft: Draft, vhost: Vhost, exchange: Exchange) -> None:
        """One that should have gone with its last binding."""
        self._strike(draft, exchange)
        self._leaves(draft, vhost, exchange)

    def _leaves(self, draft: Draft, vhost: Vhost, destination: object) -> None:
        """Exchanges that delete themselves and lead there: they go, or are written again."""
        ahead = [destination]
        gone = {id(destination)}
        left = SOURCES_AT_ONCE
        while ahead:
            target = ahead.pop()
            for exchange in vhost.sources.of(target):
                leads_there = exchange.leads_to(target) and exchange.auto_delete
                if not leads_there or id(exchange) in gone or left == 0:
                    continue
                left -= 1
                if gone.issuperset(exchange.bound):
                    self._strike(draft, exchange)
                    gone.add(id(exchange))
                    ahead.append(exchange)
                else:
                    self._touch(draft, exchange)

    # -- queues --------------------------------------------------------------------------

    def add_queue(self, draft: Draft, meta: md.QueueMeta, view: QueueView | None) -> None:
        """``view``: its first, if it has one from the beginning."""
        self._as_it_is(draft, md.path(md.VHOSTS, meta.vhost))
        draft.require(md.key_of(meta), ABSENT)
        draft.put(md.key_of(meta), md.value_of(meta), leased=md.is_leased(meta))
        if view is not None:
            view_key = md.path(VIEWS, meta.vhost, meta.name)
            draft.require(view_key, ABSENT)
            draft.put(view_key, view_to_json(view))

    def pause_queue(self, draft: Draft, queue: Queue, paused: bool) -> None:
        key = md.path(md.QUEUES, queue.vhost, queue.name)
        meta = self._agreed.queues[key]._replace(paused=paused)
        self._as_it_is(draft, key)
        draft.put(key, md.value_of(meta), leased=md.is_leased(meta))

    def delete_queue(self, draft: Draft, vhost: Vhost, queue: Queue) -> None:
        key = md.path(md.QUEUES, queue.vhost, queue.name)
        self._as_it_is(draft, key)
        draft.delete(key)
        for mirrored in mirror_keys(queue.vhost, queue.name):
            draft.delete(mirrored)
        draft.delete_below(md.bindings_to(queue.vhost, "queue", queue.name))
        self._leaves(draft, vhost, queue)

    # -- bindings ------------------------------------------------------------------------

    def bind(
        self, draft: Draft, record: BindingRecord, exchange: Exchange, destination: object
    ) -> None:
        key = md.key_of(record)
        if self._agreed.revision_of(key) != ABSENT:
            # One that outlived its source.  It goes first: a key is made after what it rests on.
            self._as_it_is(draft, key)
            draft.delete_to_replace(key)
            return
        for end in ends_of(key):
            self._as_it_is(draft, end)
        draft.require(key, ABSENT)
        owned = isinstance(destination, Queue) and destination.owner is not None
        draft.put(key, md.value_of(record), leased=owned)
        self._touch(draft, exchange)

    def unbind(self, draft: Draft, vhost: Vhost, record: BindingRecord, exchange: Exchange) -> None:
        """``record`` is spelt as the binding is."""
        key = md.key_of(record)
        self._as_it_is(draft, key)
        draft.delete(key)
        if exchange.auto_delete and len(exchange.bindings()) == 1:
            self.strike_unused(draft, vhost, exchange)
        else:
            self._touch(draft, exchange)

    # -- everything else -----------------------------------------------------------------

    def touch_user(self, draft: Draft, user: User) -> None:
        """A grant to a user and the user's deletion cannot both succeed unseen."""
        record = UserRecord(user.name, user.password_hash, user.hashing, user.tags)
        if not draft.touches(md.key_of(record)):
            self._as_it_is(draft, md.key_of(record))
            draft.put(md.key_of(record), md.value_of(record))

    def put(self, draft: Draft, record: Plain) -> None:
        key = md.key_of(record)
        for other in _belongs_to(record):
            self._as_it_is(draft, other)
        if isinstance(record, ParameterRecord) and record.name == CLUSTER_ID:
            draft.require(key, ABSENT)  # it is made once
        else:
            self._as_it_is(draft, key)
        draft.put(key, md.value_of(record))

    def put_limits(self, draft: Draft, meta: md.LimitsMeta) -> None:
        key = md.key_of(meta)
        self._as_it_is(draft, md.path(md.USERS if meta.scope == "user" else md.VHOSTS, meta.owner))
        if not meta.limits and self._agreed.revision_of(key) == ABSENT:
            return
        self._as_it_is(draft, key)
        if meta.limits:
            draft.put(key, md.value_of(meta))
        else:
            draft.delete(key)

    def delete(self, draft: Draft, record: Plain, user: User | None) -> None:
        """``user``: the one that goes, if it is one."""
        key = md.key_of(record)
        if self._agreed.revision_of(key) == ABSENT:
            return
        self._as_it_is(draft, key)
        draft.delete(key)
        if isinstance(record, VhostRecord):
            for kind in (*IN_A_VHOST, *OF_A_MIRRORED_QUEUE, BATCHES):
                draft.delete_below(md.below(kind, record.name))
            draft.delete(md.path(md.LIMITS, "vhost", record.name))
        elif user is not None:
            self._leave_nothing_of(draft, user)

    def _leave_nothing_of(self, draft: Draft, user: User) -> None:
        keys = [md.path(md.PERMISSIONS, vhost, user.name) for vhost in user.vhosts]
        keys += [
            md.path(md.TOPIC_PERMISSIONS, vhost, user.name, exchange)
            for vhost, exchange in user.topics
        ]
        for key in keys:
            draft.delete_first(key, self._agreed.revision_of(key))
        draft.delete(md.path(md.LIMITS, "user", user.name))


def _belongs_to(record: Plain) -> list[str]:
    if isinstance(record, PermissionRecord | TopicPermissionRecord):
        return [md.path(md.USERS, record.user), md.path(md.VHOSTS, record.vhost)]
    if isinstance(record, PolicyRecord):
        return [md.path(md.VHOSTS, record.vhost)]
    if isinstance(record, ParameterRecord) and record.vhost:
        return [md.path(md.VHOSTS, record.vhost)]
    assert isinstance(record, UserRecord | VhostRecord | ParameterRecord)
    return []
