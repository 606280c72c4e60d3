"""The records of what a node has, as far as it is a cluster's (``metadata.py`` has their keys).

In: a broker.  Out: records, each behind those that it refers to.  A node that founds a cluster
proposes them; of every other one they are what it has applied.
"""

from collections.abc import Collection

from penstock.broker.administration import limits_of, user_limits_of
from penstock.broker.broker import Broker
from penstock.broker.rules.access import User
from penstock.broker.topology.vhost import Vhost
from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.agreed import ALWAYS_THERE
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Exchange
from penstock.storage.definitions.records import (
    BindingRecord,
    PermissionRecord,
    PolicyRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)


def records_of(broker: Broker, home: str, but: Collection[str] = ()) -> list[md.Record]:
    """``home``: of its queues; ``but``: without these virtual hosts and what is in them."""
    vhosts = [vhost for vhost in broker.vhosts.values() if vhost.name not in but]
    records: list[md.Record] = [*broker.parameters.of_vhost("")]
    records += [VhostRecord(vhost.name, 0, vhost.metadata) for vhost in vhosts]
    for user in broker.users.users.values():
        records += _of_user(user, but)
    limits = [md.LimitsMeta("vhost", vhost.name, limits_of(vhost)) for vhost in vhosts]
    records += [one for one in limits if one.limits]
    for vhost in vhosts:
        records += broker.parameters.of_vhost(vhost.name)
        records += _in_vhost(vhost, home)
    return records + [
        record_of(vhost, exchange, one.destination, one.routing_key, one.arguments)
        for vhost in vhosts
        for exchange in vhost.exchanges.values()
        for one in exchange.bindings()
    ]


def _of_user(user: User, but: Collection[str]) -> list[md.Record]:
    records: list[md.Record] = [UserRecord(user.name, user.password_hash, user.hashing, user.tags)]
    records += [
        PermissionRecord(user.name, vhost, *rights)
        for vhost, rights in user.vhosts.items()
        if vhost not in but
    ]
    records += [
        TopicPermissionRecord(user.name, *place, *patterns)
        for place, patterns in user.topics.items()
        if place[0] not in but
    ]
    limits = user_limits_of(user)
    return [*records, md.LimitsMeta("user", user.name, limits)] if limits else records


def _in_vhost(vhost: Vhost, home: str) -> list[md.Record]:
    """Policies, exchanges and queues."""
    book = vhost.policies
    records: list[md.Record] = [
        PolicyRecord(
            vhost.name,
            kind,
            policy.name,
            policy.pattern,
            policy.apply_to,
            policy.priority,
            policy.definition,
        )
        for kind, policies in (("policy", book.policies), ("operator", book.operator_policies))
        for policy in policies.values()
    ]
    records += [
        exchange_meta(exchange, exchange.arguments)
        for exchange in vhost.exchanges.values()
        if exchange.name not in ALWAYS_THERE
    ]
    return records + [_queue_meta(queue, home) for queue in vhost.queues.values()]


def _queue_meta(queue: Queue, home: str) -> md.QueueMeta:
    return md.QueueMeta(
        queue.vhost,
        queue.name,
        queue.incarnation,
        home,
        queue.durable,
        queue.auto_delete,
        queue.arguments,
        paused=queue.paused,
        user=queue.user,
    )


def exchange_meta(exchange: Exchange, arguments: dict[str, object]) -> md.ExchangeMeta:
    return md.ExchangeMeta(
        exchange.vhost,
        exchange.name,
        exchange.type,
        exchange.durable,
        exchange.auto_delete,
        exchange.internal,
        arguments,
        exchange.user,
    )


def record_of(
    vhost: Vhost,
    exchange: Exchange,
    destination: object,
    routing_key: str,
    arguments: dict[str, object],
) -> BindingRecord:
    """Of a binding that is there."""
    assert isinstance(destination, Exchange | Queue)
    kind = "exchange" if isinstance(destination, Exchange) else "queue"
    return BindingRecord(vhost.name, exchange.name, destination.name, kind, routing_key, arguments)
