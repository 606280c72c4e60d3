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


def federated_ends(vhost: Vhost, parameters: Parameters) -> Iterator[list[FederatedEnd]]:
    """Of one virtual host: those of an exchange or queue, and those of the next one.

    So the caller may go on in another turn.
    """
    book = vhost.policies
    if not any(_federates(policy) for policy in book.policies.values()):
        return
    chosen = Chosen(vhost.name, parameters)
    for exchange in list(vhost.exchanges.values()):
        declared: dict[str, Any] = {
            "type": exchange.type,
            "durable": exchange.durable,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": exchange.arguments,
        }
        policy = book.exchange_policy(exchange.name)
        yield chosen.ends((EXCHANGE, exchange.name), declared, policy)
    for queue in list(vhost.queues.values()):
        declared = {
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "arguments": queue.arguments,
        }
        policy = book.queue_policy(queue.name, queue_type(queue.arguments))
        yield [] if queue.exclusive else chosen.ends((QUEUE, queue.name), declared, policy)


def _federates(policy: Policy | None) -> bool:
    return policy is not None and any(key in policy.definition for key in FEDERATION_KEYS)


class Chosen:
    """What policies choose in a virtual host: looked up once for all that one of them is for."""

    def __init__(self, vhost: str, parameters: Parameters) -> None:
        self._vhost = vhost
        self._parameters = parameters
        self._known: dict[str, list[tuple[str, dict[str, Any], str]]] = {}

    def ends(
        self, end: tuple[str, str], declared: dict[str, Any], policy: Policy | None
    ) -> list[FederatedEnd]:
        if policy is None or not _federates(policy):
            return []
        if policy.name not in self._known:
            self._known[policy.name] = self._upstreams(policy)
        found = self._known[policy.name]
        return [
            FederatedEnd(self._vhost, *end, name, value, user, declared)
            for name, value, user in found
        ]

    def _upstreams(self, policy: Policy) -> list[tuple[str, dict[str, Any], str]]:
        """Name, value and user of each."""
        found: list[tuple[str, dict[str, Any], str]] = []
        for chosen in _chosen(policy.definition, self._vhost, self._parameters):
            record = self._parameters.find(str(chosen["upstream"]), self._vhost, UPSTREAM)
            if record is not None and isinstance(record.value, dict):
                more = {key: one for key, one in chosen.items() if key != "upstream"}
                found.append((record.name, record.value | more, record.user))
        return found


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
