"""Policies: settings that reach queues and exchanges by their names, not by their declaration.

In: policies and operator policies of one virtual host, as somebody with the right to do so gives
them, and the name of a queue or exchange.  Out: which of them applies, and for a queue one
``QueueSettings`` object in which arguments, policy and operator policy have become one.

Of all policies whose pattern is found in the name the one with the highest priority applies, alone
(of equals the first by name).  Operator policies are chosen likewise, from their own list.  Then:

    message-ttl, expires, max-length,        the smallest of argument, policy and
    max-length-bytes, delivery-limit         operator policy
    overflow, queue-mode, dead-letter-*,     the argument, else the policy; operators have no say
    alternate-exchange, queue-master-locator
    queue-version                            has no effect: both versions of RabbitMQ's storage are
                                             the same here

    nsq-publish-mode                         the policy alone, for exchanges that are topics
    nsq-on-disconnect                        the policy alone, for queues that are channels

    ha-*                                     the policy alone, for queues that can be mirrored:
                                             those that are durable and not exclusive

What a policy may say is checked key by key with RabbitMQ's words.  Keys that RabbitMQ knows and
this release has no use for (quorum queues, streams) are refused by name, as ``NotImplementedYet``:
a policy that does nothing would be believed.

``PolicyBook.epoch`` moves with every change: whoever remembers what holds remembers it with that.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.rules.arguments import QUEUE_VERSIONS
from penstock.broker.rules.erlang_terms import term
from penstock.broker.rules.ha_policy import HA_KEYS, NO_MIRRORS, HaPolicy, read_ha_policy
from penstock.core import patterns
from penstock.core.errors import NotImplementedYet, PreconditionFailed
from penstock.queues.limits import DROP_HEAD, QueueLimits
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Exchange
from penstock.routing.headers import is_integer
from penstock.settings.cluster import MASTER_LOCATORS

APPLY_TO: Final = ("queues", "exchanges", "all")
VALUE_MAX: Final = 1 << 53
"""What JSON carries exactly; no queue needs more."""
OPERATOR_KEYS: Final = (
    "delivery-limit",
    "expires",
    "max-length",
    "max-length-bytes",
    "message-ttl",
)
_LOWEST: Final = {
    "consumer-timeout": 1,
    "delivery-limit": 0,
    "expires": 1,
    "max-length": 0,
    "max-length-bytes": 0,
    "message-ttl": 0,
}
MASTER_LOCATOR: Final = "queue-master-locator value"
_WHAT: Final = {
    "alternate-exchange": "alternate exchange name",
    "consumer-timeout": "consumer timeout",
    "dead-letter-exchange": "dead letter exchange name",
    "dead-letter-routing-key": "dead letter routing key",
    "delivery-limit": "delivery limit",
    "expires": "queue expiry",
    "max-length": "maximum length",
    "max-length-bytes": "maximum length in bytes",
    "message-ttl": "message TTL",
    "nsq-on-disconnect": "choice for what a lost consumer held",
    "nsq-publish-mode": "publish mode of a topic",
    "overflow": "overflow value",
    "queue-master-locator": MASTER_LOCATOR,
    "queue-mode": "queue-mode value",
    "queue-version": "queue-version value",
}
"""Every key of a policy but those of mirrors, and what RabbitMQ calls its value."""
POLICY_KEYS: Final = tuple(_WHAT)
_WORDS: Final = {
    "nsq-on-disconnect": ("timeout", "requeue"),
    "nsq-publish-mode": ("durable", "fast"),
    "overflow": ("drop-head", "reject-publish", "reject-publish-dlx"),
    "queue-master-locator": MASTER_LOCATORS,
    "queue-mode": ("default", "lazy"),
}
RABBITMQ_ONLY_KEYS: Final = (
    "dead-letter-strategy",
    "initial-cluster-size",
    "max-age",
    "max-in-memory-bytes",
    "max-in-memory-length",
    "queue-leader-locator",
    "stream-max-segment-size-bytes",
)


@final
class Policy:
    """A policy or an operator policy."""

    def __init__(
        self,
        name: str,
        pattern: str,
        apply_to: str,
        priority: int,
        definition: dict[str, object],
    ) -> None:
        self.name = name
        self.pattern = pattern
        self.apply_to = apply_to
        self.priority = priority
        self.definition = definition
        self._ha: HaPolicy | None = None

    def ha(self) -> HaPolicy:
        """What it says of mirrors: of a policy that was checked."""
        if self._ha is None:
            self._ha = read_ha_policy(self.definition)
        return self._ha

    def covers(self, kind: str, name: str) -> bool:
        """``kind``: "queues" or "exchanges"."""
        if self.apply_to != "all" and self.apply_to != kind:
            return False
        return patterns.found(self.pattern, name)


@final
class QueueSettings:
    """What a queue goes by.  -1 = no limit; expires 0 and texts "" = not set."""

    def __init__(self) -> None:
        self.message_ttl_ms: i64 = -1
        self.expires_ms: i64 = 0
        self.max_length: i64 = -1
        self.max_length_bytes: i64 = -1
        self.delivery_limit: i64 = -1
        self.consumer_timeout_ms: i64 = 0
        self.overflow: str = DROP_HEAD
        self.queue_mode: str = "default"
        self.master_locator: str = ""  # in a cluster, when the queue is declared
        self.on_disconnect: str = ""
        # An exchange's name may be empty: None is "not set" here.
        self.dead_letter_exchange: str | None = None
        self.dead_letter_routing_key: str | None = None

    def limits(self) -> QueueLimits:
        return QueueLimits(
            self.max_length,
            self.max_length_bytes,
            self.overflow,
            self.dead_letter_exchange,
            self.dead_letter_routing_key,
            self.delivery_limit,
            self.message_ttl_ms,
            self.expires_ms,
            self.consumer_timeout_ms,
            self.on_disconnect,
        )

    def apply_to(self, queue: Queue) -> bool:
        """Make the queue go by them; True when its idle time counts otherwise than before."""
        changes = queue.limits.expires_ms != self.expires_ms
        queue.set_limits(self.limits())
        queue.backing.set_mode(self.queue_mode == "lazy")
        return changes


@final
class PolicyBook:
    """All policies of a virtual host."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}
        self.epoch: i64 = 0  # the broker's ``policy_epoch`` of its last change

    def queue_policy(self, name: str) -> Policy | None:
        return _best(self.policies, "queues", name)

    def queue_operator_policy(self, name: str) -> Policy | None:
        return _best(self.operator_policies, "queues", name)

    def exchange_policy(self, name: str) -> Policy | None:
        return _best(self.policies, "exchanges", name)

    def queue_settings(self, name: str, arguments: dict[str, object]) -> QueueSettings:
        return effective(arguments, self.queue_policy(name), self.queue_operator_policy(name))

    def ha_policy(self, name: str, durable: bool, exclusive: bool) -> HaPolicy:
        """``NO_MIRRORS`` where there shall be none; a search through the policies' patterns."""
        if exclusive or not durable or len(self.policies) == 0:
            return NO_MIRRORS
        policy = self.queue_policy(name)
        return NO_MIRRORS if policy is None else policy.ha()

    def ha_policy_of(self, queue: Queue) -> HaPolicy:
        return self.ha_policy(queue.name, queue.durable, queue.exclusive)

    def queue_row(self, name: str) -> dict[str, object]:
        """What people who look at a queue are told of its policies."""
        policy = self.queue_policy(name)
        operator = self.queue_operator_policy(name)
        definition: dict[str, object] = {}
        if policy is not None:
            definition.update(policy.definition)
        if operator is not None:
            for key in operator.definition:
                definition[key] = _smallest(key, {}, definition, operator.definition, 0)
        return {
            "policy": None if policy is None else policy.name,
            "operator_policy": None if operator is None else operator.name,
            "effective_policy_definition": definition,
        }

    def apply_to_exchanges(self, exchanges: list[Exchange]) -> None:
        """Make them go by their arguments and what holds."""
        for exchange in exchanges:
            exchange.alternate = self.alternate_exchange(exchange.name, exchange.arguments)
            policy = self.exchange_policy(exchange.name)
            mode = None if policy is None else _text(policy.definition.get("nsq-publish-mode"))
            exchange.publish_mode = mode or ""

    def alternate_exchange(self, name: str, arguments: dict[str, object]) -> str | None:
        """Where an exchange's unroutable messages go; None = nowhere."""
        if len(self.policies) == 0 or "alternate-exchange" in arguments:
            return _text(arguments.get("alternate-exchange"))
        policy = self.exchange_policy(name)
        return None if policy is None else _text(policy.definition.get("alternate-exchange"))


def _best(policies: dict[str, Policy], kind: str, name: str) -> Policy | None:
    best: Policy | None = None
    for policy in policies.values():
        if best is not None and (-policy.priority, policy.name) > (-best.priority, best.name):
            continue
        if policy.covers(kind, name):
            best = policy
    return best


# -- merging -------------------------------------------------------------------------------


def effective(
    arguments: dict[str, object], policy: Policy | None, operator: Policy | None
) -> QueueSettings:
    """Arguments (``x-...``), policy and operator policy, merged as the head of this file says."""
    definition = {} if policy is None else policy.definition
    above = {} if operator is None else operator.definition
    settings = QueueSettings()
    settings.message_ttl_ms = _smallest("message-ttl", arguments, definition, above, -1)
    settings.expires_ms = _smallest("expires", arguments, definition, above, 0)
    settings.max_length = _smallest("max-length", arguments, definition, above, -1)
    settings.max_length_bytes = _smallest("max-length-bytes", arguments, definition, above, -1)
    settings.delivery_limit = _smallest("delivery-limit", arguments, definition, above, -1)
    settings.consumer_timeout_ms = _smallest("consumer-timeout", arguments, definition, above, 0)
    settings.overflow = _first("overflow", arguments, definition) or settings.overflow
    settings.queue_mode = _first("queue-mode", arguments, definition) or settings.queue_mode
    settings.master_locator = _first("queue-master-locator", arguments, definition) or ""
    settings.on_disconnect = _text(definition.get("nsq-on-disconnect")) or ""
    settings.dead_letter_exchange = _first("dead-letter-exchange", arguments, definition)
    settings.dead_letter_routing_key = _first("dead-letter-routing-key", arguments, definition)
    return settings


def _smallest(
    key: str,
    arguments: dict[str, object],
    definition: dict[str, object],
    above: dict[str, object],
    absent: int,
) -> int:
    found = absent
    is_set = False
    for value in (arguments.get("x-" + key), definition.get(key), above.get(key)):
        if isinstance(value, int) and (not is_set or value < found):
            found = value
            is_set = True
    return found


def _first(key: str, arguments: dict[str, object], definition: dict[str, object]) -> str | None:
    argument = arguments.get("x-" + key)
    return _text(definition.get(key) if argument is None else argument)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# -- what is refused -----------------------------------------------------------------------


def check_policy(policy: Policy, operator: bool) -> None:
    """Raises PreconditionFailed or NotImplementedYet."""
    try:
        patterns.check(policy.pattern)
    except patterns.Refused as error:
        raise PreconditionFailed(
            f"pattern should be regular expression but is invalid: {error}"
        ) from None
    if policy.apply_to not in APPLY_TO:
        raise PreconditionFailed(
            f"apply-to '{policy.apply_to}' unrecognised; should be 'queues', 'exchanges' or 'all'"
        )
    if len(policy.definition) == 0:
        raise PreconditionFailed("no policy provided")
    for key in policy.definition:
        check_is_built(key)
    _check_definition(policy.definition, operator)


def check_is_built(key: str) -> None:
    if key in RABBITMQ_ONLY_KEYS:
        raise NotImplementedYet(f"policy setting '{key}'")


def _check_definition(definition: dict[str, object], operator: bool) -> None:
    """In RabbitMQ's order: each value, what is said of mirrors, and last what nobody knows."""
    known = OPERATOR_KEYS if operator else POLICY_KEYS
    unknown: list[str] = []
    for key in sorted(definition):
        if key in known:
            _check_value(key, definition[key])
        elif operator or key not in HA_KEYS:
            unknown.append(f"{{{term(key)},{term(definition[key])}}}")
    if not operator:
        read_ha_policy(definition)
    if unknown:
        raise PreconditionFailed(f"[{','.join(unknown)}] are not recognised policy settings")


def _check_value(key: str, value: object) -> None:
    lowest = _LOWEST.get(key)
    if lowest is not None:
        good = (
            isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= VALUE_MAX
        )
    elif key == "queue-version":
        good = is_integer(value) and value in QUEUE_VERSIONS
    else:
        words = _WORDS.get(key)
        good = isinstance(value, str) and (words is None or value in words)
    if not good:
        what = _WHAT[key]
        fault = "invalid" if what == MASTER_LOCATOR else "is not a valid"
        raise PreconditionFailed(f"{term(value)} {fault} {what}")
