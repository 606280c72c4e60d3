"""Definitions in RabbitMQ's JSON on their way out: all of a broker, or one virtual host.

Out: users with their hashes and tags, virtual hosts, permissions, topic permissions, global
parameters, parameters (operator policies and limits), policies, exchanges, queues, bindings, as
RabbitMQ's management API gives them.  Exclusive queues and what every broker has are not in it,
nor is the exchange of the log, which a broker makes itself: no import takes an ``amq.*``.  Bindings
to it are, and find it again where the log goes to an exchange, too.

Work is done in steps, so that a broker that serves clients is not held up by ten thousand queues:
what is declared meanwhile may be in it or not, and a queue that is deleted meanwhile may be there
without its bindings, or they without it.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Any, Final

from penstock.broker.administration import limits_of, user_limits_of
from penstock.broker.broker import Broker
from penstock.broker.definitions.importing import OF_A_VHOST, TYPES_CHANGED, Json
from penstock.broker.rules.access import User
from penstock.broker.rules.arguments import with_default_type
from penstock.broker.rules.policies import Policy
from penstock.broker.topology.vhost import Vhost
from penstock.queues.context import CLASSIC
from penstock.queues.queue import Queue
from penstock.routing.exchanges import PREDECLARED, Exchange
from penstock.storage.definitions.parameters import ParameterRecord
from penstock.storage.definitions.records import NO_METADATA, VhostMetadata

ALWAYS_THERE: Final = frozenset(name for name, _, _ in PREDECLARED)
NAMED_ANYWAY: Final = ("parameters", "policies")
"""Rows that say their virtual host in the export of one, too."""
Rows = Iterable[Json]


class _Part:
    """Some of a section: what it is about, and what makes rows of each."""

    def __init__(
        self,
        section: str,
        items: Sequence[Any],
        rows_of: Callable[[Any], Rows],
        vhost: Vhost | None = None,
    ) -> None:
        self.section = section
        self.vhost = vhost
        self._items = iter(items)
        self._rows_of = rows_of

    def next_rows(self) -> Rows | None:
        """Of the next thing; None = there is none."""
        item = next(self._items, None)
        return None if item is None else self._rows_of(item)


def export_definitions(broker: Broker, dialect: str, version: str, vhost_name: str = "") -> Json:
    """All of it at once; ``dialect`` and so on as in ``DefinitionsExport``."""
    work = DefinitionsExport(broker, dialect, version, vhost_name)
    while not work.run(1 << 20):
        pass
    return work.exported


class DefinitionsExport:
    """``exported`` is whole when ``run`` says so."""

    def __init__(self, broker: Broker, dialect: str, version: str, vhost_name: str = "") -> None:
        """``dialect``: the release of RabbitMQ that reads it; with a name that virtual host only.

        Raises NotFound.
        """
        self._changed: list[str] = []
        self._only_one = vhost_name != ""
        self._parts: list[_Part] = []
        self.exported: Json = {"rabbit_version": dialect}
        if vhost_name:
            vhosts = [broker.vhost(vhost_name)]
        else:
            vhosts = list(broker.vhosts.values())
            self.exported |= {
                "rabbitmq_version": dialect,
                "product_name": "Penstock",
                "product_version": version,
            }
            self._plan_everybody(broker, vhosts)
        for section in OF_A_VHOST:
            self.exported[section] = []
        for vhost in vhosts:
            self._plan_vhost(vhost, broker.parameters.of_vhost(vhost.name))

    def _plan_everybody(self, broker: Broker, vhosts: list[Vhost]) -> None:
        users = list(broker.users.users.values())
        self._parts += [
            _Part("users", users, lambda user: [user_row(user)]),
            _Part("permissions", users, permission_rows),
            _Part("topic_permissions", users, topic_rows),
            _Part("vhosts", vhosts, _vhost_rows),
            _Part("global_parameters", broker.parameters.of_vhost(""), _global_rows),
        ]
        for part in self._parts:
            self.exported[part.section] = []

    def _plan_vhost(self, vhost: Vhost, parameters: list[ParameterRecord]) -> None:
        book = vhost.policies
        exchanges = list(vhost.exchanges.values())
        self._parts += [
            _Part("parameters", list(book.operator_policies.values()), _operator_rows, vhost),
            _Part("parameters", [vhost], _limit_rows, vhost),
            _Part("parameters", parameters, _parameter_rows, vhost),
            _Part("policies", list(book.policies.values()), _policy_rows, vhost),
            _Part("exchanges", exchanges, self._exchange_rows, vhost),
            _Part("queues", list(vhost.queues.values()), partial(self._queue_rows, vhost), vhost),
            _Part("bindings", exchanges, self._plan_bindings, vhost),
        ]

    def run(self, steps: int) -> bool:
        """So many rows more; True when all are there."""
        while steps > 0 and self._parts:
            part = self._parts[0]
            rows = part.next_rows()
            if rows is None:
                self._parts.remove(part)
                continue
            self._take(part, rows)
            steps -= 1
        if not self._parts and self._changed:
            self.exported[TYPES_CHANGED] = self._changed
        return not self._parts

    def _take(self, part: _Part, rows: Rows) -> None:
        for row in rows:
            if part.vhost is not None and (not self._only_one or part.section in NAMED_ANYWAY):
                row["vhost"] = part.vhost.name
            self.exported[part.section].append(row)

    # -- rows ----------------------------------------------------------------------------

    def _exchange_rows(self, exchange: Exchange) -> Rows:
        if exchange.name in ALWAYS_THERE or exchange.name.startswith("amq."):
            return []
        what = f"exchange '{exchange.name}' in vhost '{exchange.vhost}'"
        return [
            {
                "name": exchange.name,
                "type": exchange.type,
                "durable": exchange.durable,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": _plain(exchange.arguments, what, self._changed),
            }
        ]

    def _queue_rows(self, vhost: Vhost, queue: Queue) -> Rows:
        """Where the default is another type, a classic queue says what it is."""
        if queue.exclusive or queue.deleted:
            return []
        what = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        default = CLASSIC if vhost.metadata.default_queue_type else ""
        arguments = with_default_type(queue.arguments, default, True, False, False)
        return [
            {
                "name": queue.name,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                "arguments": _plain(arguments, what, self._changed),
            }
        ]

    def _plan_bindings(self, exchange: Exchange) -> Rows:
        """An exchange may have thousands: they are taken next, in steps of their own."""

        def rows(binding: Any) -> Rows:
            return self._binding_rows(exchange.name, binding)

        bindings = _Part("bindings", list(exchange.bindings()), rows, self._parts[0].vhost)
        self._parts.insert(0, bindings)
        return []

    def _binding_rows(self, source: str, binding: Any) -> Rows:
        target = binding.destination
        if isinstance(target, Queue) and (target.exclusive or target.deleted):
            return []
        name: str = target.name
        return [
            {
                "source": source,
                "destination": name,
                "destination_type": "queue" if isinstance(target, Queue) else "exchange",
                "routing_key": binding.routing_key,
                "arguments": _plain(binding.arguments, f"binding to '{name}'", self._changed),
            }
        ]


def user_row(user: User) -> Json:
    """As the management API shows it, too; likewise the next ones."""
    return {
        "name": user.name,
        "password_hash": user.hashes[0].text,  # the newer one: RabbitMQ's users have one
        "hashing_algorithm": user.hashes[0].hashing,
        "tags": list(user.tags),
        "limits": user_limits_of(user),
    }


def permission_rows(user: User) -> list[Json]:
    return [
        {"user": user.name, "vhost": vhost, "configure": c, "write": w, "read": r}
        for vhost, (c, w, r) in user.vhosts.items()
    ]


def topic_rows(user: User) -> list[Json]:
    return [
        {"user": user.name, "vhost": vhost, "exchange": exchange, "write": w, "read": r}
        for (vhost, exchange), (w, r) in user.topics.items()
    ]


def _vhost_rows(vhost: Vhost) -> Rows:
    row: Json = {"name": vhost.name}
    if vhost.metadata != NO_METADATA:
        row["metadata"] = metadata_row(vhost.metadata)
    return [row]


def metadata_row(metadata: VhostMetadata) -> Json:
    """As the management API shows it, too."""
    row: Json = {"description": metadata.description, "tags": list(metadata.tags)}
    if metadata.default_queue_type:
        row["default_queue_type"] = metadata.default_queue_type
    if metadata.protected_from_deletion:
        row["protected_from_deletion"] = True
    return row


def _global_rows(parameter: ParameterRecord) -> Rows:
    return [{"name": parameter.name, "value": parameter.value}]


def _parameter_rows(parameter: ParameterRecord) -> Rows:
    row = {"component": parameter.component, "name": parameter.name, "value": parameter.value}
    return [row]


def _operator_rows(policy: Policy) -> Rows:
    return [{"component": "operator_policy", "name": policy.name, "value": policy_value(policy)}]


def _limit_rows(vhost: Vhost) -> Rows:
    limits = limits_of(vhost)
    if not limits:
        return []
    return [{"component": "vhost-limits", "name": "limits", "value": limits}]


def _policy_rows(policy: Policy) -> Rows:
    return [{"name": policy.name} | policy_value(policy)]


def policy_value(policy: Policy) -> Json:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


def _plain(value: Any, what: str, changed: list[str]) -> Any:
    """What JSON can carry; what becomes something else on the way is named."""
    if isinstance(value, dict):
        return {key: _plain(item, what, changed) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, what, changed) for item in value]
    if isinstance(value, bytes):
        changed.append(f"{what}: bytes became text")
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, Decimal) or (isinstance(value, float) and not isfinite(value)):
        changed.append(f"{what}: number {value} became text")
        return str(value)
    return value
