"""Every option of queues, and of exchanges and NSQ topics where policies reach them, declared once.

``OPTIONS`` has a row for each.  The checks of arguments (``arguments``), the comparison with what
exists (``equivalence``), policies (``policies``, ``ha_policy``), ``GET /api/penstock/options`` and
with it the forms of the web UI, ``penstock queue declare`` and docs/reference/queue-options.md read
it, and default delivery limits.  The order is RabbitMQ's: of wrong arguments the first is refused.
"""

from typing import Final, NamedTuple

from penstock.core.clock_types import WallMs
from penstock.queues.context import CLASSIC, LASTING_TYPES, QUEUE_TYPES, QUORUM, STREAM
from penstock.queues.limits import OVERFLOWS, RETRIES
from penstock.queues.stream_start import age_ms, channel_start
from penstock.settings.cluster import MASTER_LOCATORS

# What a value is.
NUMBER: Final = "whole number"
MILLISECONDS: Final = "milliseconds"
FLAG: Final = "true or false"
WORD: Final = "word"
TEXT: Final = "text"
EXCHANGE: Final = "name of an exchange"
AGE: Final = "number and unit of time"
START: Final = "first, last, next, an age, or seconds since 1970"
COUNT_OR_NODES: Final = "number or list of nodes"

# Which value holds; so also where the option may be given.
LIMIT: Final = "the lowest of argument, policy and operator policy"
LOWER: Final = "the lower of argument and policy"
FIRST: Final = "the argument, else the policy"
ARGUMENT: Final = "the argument"
POLICY: Final = "the policy"
PREFERRED: Final = "the policy, else the argument"

# Which of policy and operator policy holds; LIMIT means the lower.
HIGHER: Final = "the higher"
OPERATORS: Final = "the operator policy"

MESSAGES_GO: Final = (CLASSIC, QUORUM)
"""Types of queues from which messages are taken."""
TEN_YEARS_MS: Final = 10 * 365 * 86_400_000
"""RabbitMQ's limit of times in arguments."""


class Option(NamedTuple):
    """``words``: all values there are, if they are few.  ``lowest`` and ``highest``: of a number.

    ``noun`` and ``refusal`` are parts of error messages: the noun for the value in a policy, and
    the message for an argument that is none of ``words``, both as RabbitMQ has them.
    """

    name: str  # the key of a policy
    kind: str
    merge: str
    example: object
    noun: str
    doc: str
    label: str = "Args"  # in a list of queues
    words: tuple[object, ...] = ()
    lowest: int = 0
    highest: int | None = None  # of an argument
    refusal: str = ""
    applies_to: str = "queue"  # or "exchange", "queue or exchange", "NSQ topic", "NSQ channel"
    types: tuple[str, ...] = QUEUE_TYPES  # of queues that take the argument
    operator: str = ""  # which value holds where there is an operator policy; "" = it has none
    unsuited: str = ""  # type of queues that a policy with this key does not reach
    quorum_merge: str = ""  # as ``merge``, of quorum queues, where that is another

    @property
    def argument(self) -> str | None:
        """Its name as an argument; None = it is none."""
        if self.merge == POLICY:
            return None
        return "x-" + self.name if self.applies_to == "queue" else self.name

    def is_written(self, value: object) -> bool:
        """Is an age or a start the text that it has to be?  Other kinds are not looked at."""
        if self.kind == AGE:
            return age_ms(value) is not None
        return self.kind != START or channel_start(value, WallMs(0)) is not None

    @property
    def is_number(self) -> bool:
        return self.kind in (NUMBER, MILLISECONDS)

    @property
    def in_policies(self) -> bool:
        return self.merge != ARGUMENT

    def merge_in(self, kind: str) -> str:
        """Which value holds in queues of that type."""
        return self.quorum_merge if kind == QUORUM and self.quorum_merge else self.merge

    @property
    def of_operators(self) -> str:
        """Which of policy and operator policy holds; "" = the key is not for operators."""
        return LIMIT if self.merge == LIMIT else self.operator

    @property
    def in_operator_policies(self) -> bool:
        return self.of_operators != ""


# fmt: off
OPTIONS: Final = (
    Option("expires", MILLISECONDS, LIMIT, 1_800_000, "queue expiry",
           "time after which an unused queue is deleted: no consumer, no get, no new declaration",
           "Exp", lowest=1, highest=TEN_YEARS_MS, types=MESSAGES_GO),
    Option("message-ttl", MILLISECONDS, LIMIT, 60_000, "message TTL",
           "time after which a message expires; it is dropped, or becomes a dead letter",
           "TTL", highest=TEN_YEARS_MS, types=MESSAGES_GO),
    Option("dead-letter-exchange", EXCHANGE, FIRST, "dlx", "dead letter exchange name",
           "where messages go that expire, are rejected or are dropped", "DLX", types=MESSAGES_GO),
    Option("dead-letter-routing-key", TEXT, FIRST, "dead", "dead letter routing key",
           "the routing key of dead letters; without it they keep their own", "DLK",
           types=MESSAGES_GO),
    Option("max-length", NUMBER, LIMIT, 10_000, "maximum length",
           "how many messages may be ready; at that limit overflow decides", "Lim",
           types=MESSAGES_GO),
    Option("max-length-bytes", NUMBER, LIMIT, 104_857_600, "maximum length in bytes",
           "how many bytes of bodies may be ready; at that limit overflow decides", "Lim B"),
    Option("max-priority", NUMBER, ARGUMENT, 10, "",
           "priorities from 0 to that number", "Pri", highest=255, types=(CLASSIC,)),
    Option("overflow", WORD, FIRST, "reject-publish", "overflow value",
           "what a full queue does: drops the oldest, refuses new messages, or buries them",
           "Ovfl", words=OVERFLOWS, refusal="invalid_overflow", operator=OPERATORS,
           quorum_merge=PREFERRED, types=MESSAGES_GO),
    Option("queue-mode", WORD, FIRST, "lazy", "queue-mode value",
           "lazy: messages rest on disk", "Mode",
           words=("default", "lazy"), refusal="\"unsupported queue mode '{value}'\"",
           types=(CLASSIC,), unsuited=QUORUM),
    Option("queue-version", NUMBER, FIRST, 2, "queue-version value",
           "RabbitMQ's formats of classic queues; no effect here",
           words=(1, 2), refusal="\"unsupported queue version '{value}'\"", types=(CLASSIC,)),
    Option("single-active-consumer", FLAG, ARGUMENT, True, "",
           "one consumer at a time gets messages; when it goes, the next one does", "SAC",
           types=MESSAGES_GO),
    Option("queue-type", WORD, ARGUMENT, "classic", "",
           "the type of queue",
           words=QUEUE_TYPES, refusal="\"unsupported queue type '{value}'\""),
    Option("delivery-limit", NUMBER, LIMIT, 5, "delivery limit",
           "how often a message may come back before it is a dead letter; -1: without a limit;"
           " a quorum queue's is 20 otherwise, and basic.nack does not count there",
           "DL", lowest=-1, types=MESSAGES_GO),
    Option("dead-letter-strategy", WORD, FIRST, "at-most-once", "dead letter strategy",
           "at-least-once: a dead message stays until a queue has taken its letter; with"
           " overflow reject-publish only",
           words=("at-most-once", "at-least-once"), refusal="invalid_dlx_strategy",
           types=(QUORUM,), unsuited=CLASSIC),
    Option("delayed-retry-type", WORD, PREFERRED, "failed",
           f"delayed retry type. Must be one of: {', '.join(RETRIES)}",
           "which messages that come back wait for delayed-retry-min times their failed"
           " deliveries: all, failed (basic.reject, a lost consumer), returned (basic.nack)",
           words=RETRIES, refusal="\"unsupported delayed retry type '{value}'\"", types=(QUORUM,),
           operator=OPERATORS),
    Option("delayed-retry-min", MILLISECONDS, LOWER, 1000,
           "delayed retry minimum delay. Must be a positive integer",
           "time that a message waits when its delivery failed once; without it none waits",
           lowest=1, highest=TEN_YEARS_MS, types=(QUORUM,), operator=HIGHER),
    Option("delayed-retry-max", MILLISECONDS, LIMIT, 60_000,
           "delayed retry maximum delay. Must be a positive integer",
           "the longest such time; without it delayed-retry-min",
           lowest=1, highest=TEN_YEARS_MS, types=(QUORUM,)),
    Option("quorum-initial-group-size", NUMBER, ARGUMENT, 1, "",
           "how many copies there are to be, 3 otherwise; no effect on a single node",
           lowest=1, types=(QUORUM,)),
    Option("quorum-target-group-size", NUMBER, ARGUMENT, 3, "",
           "how many copies there are to be later; no effect on a single node",
           lowest=1, types=(QUORUM,)),
    Option("target-group-size", NUMBER, POLICY, 3, "qq target count value",
           "how many copies of a quorum queue there are to be later; no effect on a single node",
           lowest=1, operator=HIGHER, unsuited=CLASSIC),
    Option("max-in-memory-length", NUMBER, LIMIT, 1000, "maximum memory in bytes",
           "how many messages may be in memory; no effect, as in RabbitMQ 4", types=(QUORUM,),
           unsuited=CLASSIC),
    Option("max-in-memory-bytes", NUMBER, LIMIT, 1_048_576, "maximum memory in bytes",
           "how many bytes may be in memory; no effect, as in RabbitMQ 4", types=(QUORUM,),
           unsuited=CLASSIC),
    Option("queue-leader-locator", WORD, FIRST, "client-local", "queue leader locator value",
           "on which node the queue is; no effect on a single node",
           words=("client-local", "balanced", "random", "least-leaders"),
           refusal="invalid_queue_locator_arg", types=LASTING_TYPES),
    Option("consumer-disconnected-timeout", MILLISECONDS, POLICY, 60_000,
           "consumer disconnected timeout",
           "how long a quorum queue waits for a consumer on a node that cannot be reached; no"
           " effect on a single node"),
    Option("max-age", AGE, PREFERRED, "7D", "max age",
           "how long a stream keeps messages: a number and Y, M, D, h, m or s; whole segments go",
           "MxAge", refusal="invalid_max_age", types=(STREAM,)),
    Option("stream-max-segment-size-bytes", NUMBER, PREFERRED, 500_000_000,
           "stream max segment size",
           "the size at which a stream begins a new file; retention takes whole files",
           types=(STREAM,)),
    Option("stream-filter-size-bytes", NUMBER, ARGUMENT, 16, "",
           "the size of the filter of each block of a stream", types=(STREAM,)),
    Option("initial-cluster-size", NUMBER, PREFERRED, 1, "initial cluster size",
           "how many copies RabbitMQ gives a stream; no effect: policies of mirrors say it",
           lowest=1, types=(STREAM,)),
    Option("consumer-timeout", MILLISECONDS, LOWER, 1_800_000, "consumer timeout",
           "time a consumer may hold a delivery; then its channel is closed",
           lowest=1, highest=TEN_YEARS_MS, types=MESSAGES_GO),
    Option("message-deduplication", FLAG, ARGUMENT, True, "",
           "a message whose x-deduplication-header is in the queue is dropped; a stream drops one"
           " that is NAME:NUMBER and not above all numbers that came of this name"),
    Option("queue-master-locator", WORD, FIRST, "min-masters", "queue-master-locator value",
           "on which node of a cluster a new queue is",
           words=MASTER_LOCATORS, refusal='"{term} invalid queue-master-locator value"',
           types=(CLASSIC,), unsuited=QUORUM),
    Option("alternate-exchange", EXCHANGE, FIRST, "unrouted", "alternate exchange name",
           "gets the messages that no binding wants", "AE", applies_to="exchange"),
    Option("ha-mode", WORD, POLICY, "exactly", "",
           "how many copies a queue has; without it no other key of mirrors is taken",
           words=("all", "exactly", "nodes"), unsuited=QUORUM),
    Option("ha-params", COUNT_OR_NODES, POLICY, 2, "",
           "with exactly: how many copies; with nodes: a list of names; with all: none",
           unsuited=QUORUM),
    Option("ha-sync-mode", WORD, POLICY, "automatic", "",
           "automatic: a new mirror fetches what was there before",
           words=("manual", "automatic"), unsuited=QUORUM),
    Option("ha-sync-batch-size", NUMBER, POLICY, 4096, "",
           "messages in a step of a synchronisation", lowest=1),
    Option("ha-promote-on-shutdown", WORD, POLICY, "when-synced", "",
           "always: a mirror that lacks messages may follow a master that stops",
           words=("always", "when-synced"), unsuited=QUORUM),
    Option("ha-promote-on-failure", WORD, POLICY, "when-synced", "",
           "always: a mirror that lacks messages may follow a master that fails; they are lost",
           words=("always", "when-synced"), unsuited=QUORUM),
    Option("federation-upstream", TEXT, POLICY, "far", "federation upstream name",
           "the upstream whose messages an exchange gets too, or a queue where it has none",
           applies_to="queue or exchange"),
    Option("federation-upstream-set", TEXT, POLICY, "all", "federation upstream set name",
           "a set of upstreams; all: each one of the virtual host",
           applies_to="queue or exchange"),
    Option("federation-upstream-pattern", TEXT, POLICY, "^far", "federation upstream pattern name",
           "the upstreams whose names the regular expression finds",
           applies_to="queue or exchange"),
    Option("nsq-publish-mode", WORD, POLICY, "fast", "publish mode of a topic",
           "fast: a publish is answered before it is on disk",
           words=("durable", "fast"), applies_to="NSQ topic"),
    Option("nsq-topic-type", WORD, POLICY, "stream", "type of a topic",
           "stream: what is published stays, in the stream nsq.TOPIC, and channels read it there",
           words=("queue", "stream"), applies_to="NSQ topic"),
    Option("nsq-start", START, FIRST, "first", "start of a channel",
           "where a new channel of NSQ begins in a topic that is a stream; without it the first"
           " channel with the oldest message, others with the next one",
           refusal="invalid_nsq_start"),
    Option("nsq-on-disconnect", WORD, POLICY, "requeue", "choice for what a lost consumer held",
           "when messages of a lost consumer come back: after their timeout, or at once",
           words=("timeout", "requeue"), applies_to="NSQ channel"),
)
# fmt: on
ARGUMENTS: Final = {option.argument: option for option in OPTIONS if option.argument is not None}
QUEUE_ARGUMENTS: Final = {
    key: option for key, option in ARGUMENTS.items() if option.applies_to == "queue"
}
ARGUMENTS_OF_TYPE: Final = {
    kind: {key: option for key, option in QUEUE_ARGUMENTS.items() if kind in option.types}
    for kind in QUEUE_TYPES
}
FEDERATION_KEYS: Final = tuple(
    option.name for option in OPTIONS if option.name.startswith("federation-")
)
POLICY_KEYS: Final = {option.name: option for option in OPTIONS if option.in_policies}
UNSUITED_KEYS: Final = {
    kind: [
        option.name
        for option in OPTIONS
        if option.unsuited == kind or (kind == STREAM and STREAM not in option.types)
    ]
    for kind in QUEUE_TYPES
}
"""A policy with one of them does not reach queues of that type."""

DEFAULT_DELIVERY_LIMITS: Final = {CLASSIC: -1, QUORUM: 20, STREAM: -1}
