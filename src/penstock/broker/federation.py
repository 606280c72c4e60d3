"""Which exchanges and queues are federated, with which upstreams: what policies and parameters say.

In: virtual hosts and runtime parameters.  Out: a ``FederatedEnd`` for each link.  A policy names an
upstream, a set of them (``all``: each of the virtual host) or a pattern of their names; what a set
says of an upstream stands above what the upstream says itself.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from penstock.broker.parameters import Parameters
from penstock.broker.rules.parameter_values import UPSTREAM, UPSTREAM_SET
from penstock.broker.rules.policies import Policy
from penstock.broker.rules.queue_options import FEDERATION_KEYS
from penstock.broker.topology.vhost import Vhost
from penstock.core import patterns
from penstock.queues.context import queue_type

EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"
ALL: Final = "all"


class FederatedEnd(NamedTuple):
    """An exchange or queue of this broker (``kind``), and an upstream of it.

    ``declared``: what is declared at the upstream where it is missing there.
    """

    vhost: str
    kind: str
    name: str
    upstream: str
    value: dict[str, Any]
    user: str
    declared: dict[str, Any]


def federated_ends(vhost: Vhost, parameters: Parameters) -> list[FederatedEnd]:
    """Of one virtual host; costs a look at each exchange and queue if a policy federates some."""
    book = vhost.policies
    if not any(_federates(policy) for policy in book.policies.values()):
        return []
    ends: list[FederatedEnd] = []
    for exchange in vhost.exchanges.values():
        declared: dict[str, Any] = {
            "type": exchange.type,
            "durable": exchange.durable,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": exchange.arguments,
        }
        policy = book.exchange_policy(exchange.name)
        ends += _ends(vhost, (EXCHANGE, exchange.name), declared, policy, parameters)
    for queue in vhost.queues.values():
        declared = {
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "arguments": queue.arguments,
        }
        policy = book.queue_policy(queue.name, queue_type(queue.arguments))
        if not queue.exclusive:
            ends += _ends(vhost, (QUEUE, queue.name), declared, policy, parameters)
    return ends


def _federates(policy: Policy | None) -> bool:
    return policy is not None and any(key in policy.definition for key in FEDERATION_KEYS)


def _ends(
    vhost: Vhost,
    end: tuple[str, str],
    declared: dict[str, Any],
    policy: Policy | None,
    parameters: Parameters,
) -> Iterator[FederatedEnd]:
    if policy is None or not _federates(policy):
        return
    for chosen in _chosen(policy.definition, vhost.name, parameters):
        record = parameters.find(str(chosen["upstream"]), vhost.name, UPSTREAM)
        if record is None or not isinstance(record.value, dict):
            continue
        value = record.value | {key: one for key, one in chosen.items() if key != "upstream"}
        yield FederatedEnd(vhost.name, *end, record.name, value, record.user, declared)


def _chosen(
    definition: Mapping[str, object], vhost: str, parameters: Parameters
) -> list[dict[str, Any]]:
    """The upstreams that a policy names, with what the set says of each."""
    one = definition.get("federation-upstream")
    if one is not None:
        return [{"upstream": one}]
    set_name = str(definition.get("federation-upstream-set", ""))
    pattern = str(definition.get("federation-upstream-pattern", ""))
    if pattern or set_name == ALL:
        names = [row.name for row in parameters.of_vhost(vhost) if row.component == UPSTREAM]
        return [{"upstream": name} for name in names if patterns.found(pattern, name)]
    record = parameters.find(set_name, vhost, UPSTREAM_SET)
    return list(record.value) if record is not None and isinstance(record.value, list) else []
