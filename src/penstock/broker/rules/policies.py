"""Policies: settings that reach queues and exchanges by their names, not by their declaration.

In: policies and operator policies of one virtual host, as an administrator gives
them, and the name of a queue or exchange.  Out: which of them applies, and for a queue one
``QueueSettings`` object in which arguments, policy and operator policy have become one.

Of all policies whose pattern is found in the name the one with the highest priority applies, alone
(of equals the first by name).  Operator policies are chosen likewise, from their own list.
``queue_options`` says of each option which value holds; the ``ha-`` keys are for queues that can be
mirrored: those that are durable and not exclusive.  A policy with a key that queues of a type
cannot have (``UNSUITED_KEYS``) does not reach them at all, as in RabbitMQ.

What a policy may say is checked key by key with RabbitMQ's words.

``PolicyBook.epoch`` moves with every change: what is remembered of them carries it.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.rules.erlang_terms import term
from penstock.broker.rules.ha_policy import HA_KEYS, NO_MIRRORS, HaPolicy, read_ha_policy
from penstock.broker.rules.queue_options import (
    ARGUMENTS,
    DEFAULT_DELIVERY_LIMITS,
    FEDERATION_KEYS,
    HIGHER,
    LIMIT,
    LOWER,
    OPERATORS,
    POLICY_KEYS,
    PREFERRED,
    UNSUITED_KEYS,
    Option,
)
from penstock.core import patterns
from penstock.core.errors import PreconditionFailed
from penstock.queues.context import CLASSIC, QUORUM, STREAM, queue_type
from penstock.queues.limits import DROP_HEAD, NO_LIMITS, RETRIES, QueueLimits, RetryDelays
from penstock.queues.queue import Queue
from penstock.queues.stream_start import age_ms
from penstock.routing.exchanges import Exchange
from penstock.routing.headers import is_integer
from penstock.settings.cluster import LEADER_LOCATORS
from penstock.streams.filtering import FILTER_BYTES
from penstock.streams.log import SEGMENT_BYTES, StreamLimits

EXCHANGES: Final = "exchanges"
QUEUES_OF: Final = {CLASSIC: "classic_queues", QUORUM: "quorum_queues", STREAM: "streams"}
APPLY_TO: Final[dict[str, tuple[str, ...]]] = {
    "queues": tuple(QUEUES_OF.values()),
    EXCHANGES: (EXCHANGES,),
    "all": (*QUEUES_OF.values(), EXCHANGES),
    **{kind: (kind,) for kind in QUEUES_OF.values()},
}
"""What a policy may apply to -> which kinds of entities these are."""
UNSUITED: Final = {QUEUES_OF[kind]: keys for kind, keys in UNSUITED_KEYS.items()}
VALUE_MAX: Final = 1 << 53
"""What JSON carries exactly; no queue needs more."""


@final
class Policy:
    """A policy or an operator policy."""

    def __init__(
        self, name: str, pattern: str, apply_to: str, priority: int, definition: dict[str, object]
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
        """``kind``: one of those in ``APPLY_TO``."""
        return (
            kind in APPLY_TO.get(self.apply_to, ())
            and not any(key in self.definition for key in UNSUITED.get(kind, ()))
            and patterns.found(self.pattern, name)
        )


@final
class QueueSettings:
    """What a queue goes by: arguments (``x-...``), policy and operator policy, merged.

    -1 = no limit; ``expires_ms``, ``consumer_timeout_ms`` 0 and texts "" = not set.
    """

    def __init__(
        self,
        arguments: dict[str, object],
        policy: Policy | None = None,
        operator: Policy | None = None,
    ) -> None:
        values = _merged(arguments, policy, operator)
        self.policies: tuple[str, str] = (_name(policy), _name(operator))
        self._are_none = (
            not values and self.policies == ("", "") and queue_type(arguments) == CLASSIC
        )
        self.message_ttl_ms: i64 = _number(values, "message-ttl", -1)
        self.expires_ms: i64 = _number(values, "expires", 0)
        self.max_length: i64 = _number(values, "max-length", -1)
        self.max_length_bytes: i64 = _number(values, "max-length-bytes", -1)
        limit = DEFAULT_DELIVERY_LIMITS[queue_type(arguments)]
        self.delivery_limit: i64 = _number(values, "delivery-limit", limit)
        self.consumer_timeout_ms: i64 = _number(values, "consumer-timeout", 0)
        self.overflow: str = _text(values.get("overflow")) or DROP_HEAD
        self.queue_mode: str = _text(values.get("queue-mode")) or "default"
        # In a cluster, when the queue is declared.
        leader_locator = LEADER_LOCATORS.get(_text(values.get("queue-leader-locator")) or "", "")
        self.master_locator: str = leader_locator or _text(values.get("queue-master-locator")) or ""
        self.at_least_once: bool = values.get("dead-letter-strategy") == "at-least-once"
        self.on_disconnect: str = _text(values.get("nsq-on-disconnect")) or ""
        self.channel_start: str = _text(values.get("nsq-start")) or ""  # when it is made
        self.retry: RetryDelays | None = _retry(values)
        # An exchange's name may be empty: None is "not set" here.
        self.dead_letter_exchange: str | None = _text(values.get("dead-letter-exchange"))
        self.dead_letter_routing_key: str | None = _text(values.get("dead-letter-routing-key"))
        self.stream: StreamLimits | None = None
        if queue_type(arguments) == STREAM:
            self.stream = StreamLimits(
                max(self.max_length_bytes, 0),
                age_ms(values.get("max-age")) or 0,
                _number(values, "stream-max-segment-size-bytes", SEGMENT_BYTES),
                _number(values, "stream-filter-size-bytes", FILTER_BYTES),
            )

    def limits(self) -> QueueLimits:
        if self.stream is not None:
            return QueueLimits(stream=self.stream, policies=self.policies)
        if self._are_none:
            return NO_LIMITS
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
            self.at_least_once,
            self.retry,
            policies=self.policies,
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

    def changed(self, epoch: i64) -> None:
        self.epoch = epoch

    def queue_policy(self, name: str, kind: str = CLASSIC) -> Policy | None:
        """``kind``: the queue's type."""
        return best_policy(self.policies, QUEUES_OF[kind], name)

    def queue_operator_policy(self, name: str, kind: str = CLASSIC) -> Policy | None:
        return best_policy(self.operator_policies, QUEUES_OF[kind], name)

    def exchange_policy(self, name: str) -> Policy | None:
        return best_policy(self.policies, EXCHANGES, name)

    def wants_stream(self, topic: str) -> bool:
        """``topic``: the name of the exchange of a topic of NSQ."""
        policy = self.exchange_policy(topic)
        return policy is not None and policy.definition.get("nsq-topic-type") == STREAM

    def queue_settings(self, name: str, arguments: dict[str, object]) -> QueueSettings:
        kind = queue_type(arguments)
        policies = self.queue_policy(name, kind), self.queue_operator_policy(name, kind)
        return QueueSettings(arguments, *policies)

    def ha_policy(self, name: str, durable: bool, exclusive: bool, kind: str = CLASSIC) -> HaPolicy:
        """``NO_MIRRORS`` where there shall be none; a search through the policies' patterns."""
        if exclusive or not durable or len(self.policies) == 0:
            return NO_MIRRORS
        policy = self.queue_policy(name, kind)
        return NO_MIRRORS if policy is None else policy.ha()

    def ha_policy_of(self, queue: Queue) -> HaPolicy:
        kind = queue_type(queue.arguments)
        return self.ha_policy(queue.name, queue.durable, queue.exclusive, kind)

    def queue_row(self, names: tuple[str, str]) -> dict[str, object]:
        """What the API says of the policies of a queue; ``names``: of its limits."""
        policy, operator = self.policies.get(names[0]), self.operator_policies.get(names[1])
        return {
            "policy": names[0] or None,
            "operator_policy": names[1] or None,
            "effective_policy_definition": _merged({}, policy, operator),
        }

    def apply_to_exchanges(self, exchanges: list[Exchange]) -> None:
        """Make them go by their arguments and what holds."""
        for exchange in exchanges:
            values = _merged(exchange.arguments, self.exchange_policy(exchange.name), None)
            mode = _text(values.get("nsq-publish-mode")) or ""
            exchange.take_settings(_text(values.get("alternate-exchange")), mode)


def best_policy(policies: dict[str, Policy], kind: str, name: str) -> Policy | None:
    """The one of them that applies; ``kind``: one of those in ``APPLY_TO``."""
    best: Policy | None = None
    for policy in policies.values():
        if best is not None and (-policy.priority, policy.name) > (-best.priority, best.name):
            continue
        if policy.covers(kind, name):
            best = policy
    return best


def _name(policy: Policy | None) -> str:
    return "" if policy is None else policy.name


# -- merging -------------------------------------------------------------------------------


def _merged(
    arguments: dict[str, object], policy: Policy | None, operator: Policy | None
) -> dict[str, object]:
    """Key of a policy -> value that holds, of all options that are set."""
    told = _allowed(policy, operator=False)
    for key, value in _allowed(operator, operator=True).items():
        told[key] = _choice(POLICY_KEYS[key].of_operators, told.get(key, value), value)
    values: dict[str, object] = {}
    for key, value in arguments.items():
        option = ARGUMENTS.get(key)
        if option is not None:
            values[option.name] = value
    kind = queue_type(arguments)
    for key, value in told.items():
        values[key] = _choice(POLICY_KEYS[key].merge_in(kind), values.get(key, value), value)
    return values


def _allowed(policy: Policy | None, *, operator: bool) -> dict[str, object]:
    """Of its definition, without what should not be there."""
    definition = {} if policy is None else policy.definition
    return {key: value for key, value in definition.items() if _is_allowed(key, operator)}


def _choice(rule: str, known: object, value: object) -> object:
    """Of two values the one that holds; a number below 0 is no limit."""
    if rule in (PREFERRED, OPERATORS):
        return value
    if isinstance(known, int) and isinstance(value, int):
        if rule == HIGHER:
            return max(known, value)
        if rule in (LIMIT, LOWER):
            return max(known, value) if min(known, value) < 0 else min(known, value)
    return known


def _retry(values: dict[str, object]) -> RetryDelays | None:
    kind = _text(values.get("delayed-retry-type"))
    least_ms = _number(values, "delayed-retry-min", 0)
    if kind not in RETRIES[:-1] or least_ms == 0:
        return None
    return RetryDelays(kind, least_ms, _number(values, "delayed-retry-max", least_ms))


def _number(values: dict[str, object], key: str, absent: int) -> int:
    value = values.get(key)
    return value if isinstance(value, int) else absent


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# -- what is refused -----------------------------------------------------------------------


def check_policy(policy: Policy, operator: bool) -> None:
    """Raises PreconditionFailed."""
    _check_pattern("pattern", policy.pattern)
    if policy.apply_to not in APPLY_TO:
        raise PreconditionFailed(
            f"apply-to '{policy.apply_to}' unrecognised; should be 'queues', 'exchanges' or 'all'"
        )
    if len(policy.definition) == 0:
        raise PreconditionFailed("no policy provided")
    _check_definition(policy.definition, operator)


def _is_allowed(key: str, operator: bool) -> bool:
    option = POLICY_KEYS.get(key)
    return option is not None and (option.in_operator_policies or not operator)


def _check_definition(definition: dict[str, object], operator: bool) -> None:
    """In RabbitMQ's order: each value, what is said of mirrors, and last unknown keys."""
    unknown: list[str] = []
    for key in sorted(definition):
        if not _is_allowed(key, operator):
            unknown.append(f"{{{term(key)},{term(definition[key])}}}")
        elif key not in HA_KEYS:
            _check_value(POLICY_KEYS[key], definition[key])
    if not operator:
        read_ha_policy(definition)
        _check_federation(definition)
    _check_retries(definition)
    if unknown:
        raise PreconditionFailed(f"[{','.join(unknown)}] are not recognised policy settings")


def _check_retries(definition: dict[str, object]) -> None:
    kind = definition.get("delayed-retry-type", RETRIES[-1])
    least, most = definition.get("delayed-retry-min"), definition.get("delayed-retry-max")
    if kind != RETRIES[-1] and least is None:
        raise PreconditionFailed(f"delayed-retry-min is required when delayed-retry-type is {kind}")
    if isinstance(least, int) and isinstance(most, int) and most < least:
        raise PreconditionFailed(
            f"delayed-retry-max ({most}) must not be smaller than delayed-retry-min ({least})"
        )


def _check_federation(definition: dict[str, object]) -> None:
    if sum(key in definition for key in FEDERATION_KEYS) > 1:
        raise PreconditionFailed(
            "cannot specify federation-upstream, federation-upstream-set or"
            " federation-upstream-pattern together"
        )
    _check_pattern("federation-upstream-pattern", definition.get("federation-upstream-pattern"))


def _check_pattern(key: str, pattern: object) -> None:
    try:
        patterns.check(pattern if isinstance(pattern, str) else "")
    except patterns.Refused as error:
        raise PreconditionFailed(
            f"{key} should be regular expression but is invalid: {error}"
        ) from None


def _check_value(option: Option, value: object) -> None:
    if option.is_number:
        good = is_integer(value) and isinstance(value, int) and option.lowest <= value <= VALUE_MAX
    else:
        good = isinstance(value, str) and option.is_written(value)
    if not good or (option.words and value not in option.words):
        fault = "invalid" if option.name == "queue-master-locator" else "is not a valid"
        raise PreconditionFailed(f"{term(value)} {fault} {option.noun}")
