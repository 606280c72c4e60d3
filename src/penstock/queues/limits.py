"""What a queue may hold, and what becomes of what it may not: the settings of its limits.

In: arguments and policies, already judged (``arguments``).  Out: numbers the queue looks
at.  Lengths count ready messages only, bytes those of bodies, as RabbitMQ counts them.

    overflow    drop-head           the oldest go
                reject-publish      the newest are refused, and their publishers told
                reject-publish-dlx  the same, and what was refused becomes a dead letter
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from penstock.core.message import Message
from penstock.streams.log import StreamLimits

NO_LIMIT: Final[i64] = -1

DROP_HEAD: Final = "drop-head"
REJECT_PUBLISH: Final = "reject-publish"
REJECT_PUBLISH_DLX: Final = "reject-publish-dlx"
OVERFLOWS: Final = (DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX)

RETRY_ALL: Final = "all"
RETRY_FAILED: Final = "failed"
RETRIES: Final = (RETRY_ALL, RETRY_FAILED, "returned", "disabled")


@final
@mypyc_attr(acyclic=True)
class RetryDelays:
    """What a quorum queue gets back waits for; ``kind``: one of ``RETRIES`` but the last."""

    def __init__(self, kind: str, least_ms: i64, most_ms: i64) -> None:
        self._kind = kind
        self._least_ms: i64 = least_ms
        self._most_ms: i64 = most_ms

    def cover(self, failed: bool) -> bool:
        """``failed``: not just returned."""
        return self._kind == RETRY_ALL or failed == (self._kind == RETRY_FAILED)

    def delay_ms(self, failures: i64) -> i64:
        """After so many failed deliveries."""
        delay_ms = self._least_ms * failures if failures > 1 else self._least_ms
        return delay_ms if delay_ms < self._most_ms else self._most_ms


@final
@mypyc_attr(acyclic=True)
class QueueLimits:
    """``dead_letter_exchange``: None = dead messages are just gone; "" is the default exchange.

    ``dead_letter_key``      None = a dead letter keeps its own routing key
    ``message_ttl_ms``       -1 = messages live as long as they say themselves
    ``expires_ms``           an unused queue goes after that time; 0 = never
    ``consumer_timeout_ms``  for unsettled deliveries; 0 = the node's
    ``on_disconnect``        "timeout" or "requeue": what a lost consumer held; "" = its choice
    ``stream``               of a stream, which has no others
    ``policies``             names of the policy and of the operator policy that apply; "" = none
    ``buries_surely``        a dead message stays until a queue has it, where overflow is
                             reject-publish: with drop-head nothing would bound what stays
    """

    def __init__(
        self,
        max_length: i64 = NO_LIMIT,
        max_length_bytes: i64 = NO_LIMIT,
        overflow: str = DROP_HEAD,
        dead_letter_exchange: str | None = None,
        dead_letter_key: str | None = None,
        delivery_limit: i64 = NO_LIMIT,
        message_ttl_ms: i64 = NO_LIMIT,
        expires_ms: i64 = 0,
        consumer_timeout_ms: i64 = 0,
        on_disconnect: str = "",
        buries_surely: bool = False,
        retry: RetryDelays | None = None,
        stream: StreamLimits | None = None,
        policies: tuple[str, str] = ("", ""),
    ) -> None:
        self.max_length: i64 = max_length
        self.max_length_bytes: i64 = max_length_bytes
        self.dead_letter_exchange: str | None = dead_letter_exchange
        self.dead_letter_key: str | None = dead_letter_key
        self.delivery_limit: i64 = delivery_limit
        self.message_ttl_ms: i64 = message_ttl_ms
        self.expires_ms: i64 = expires_ms
        self.consumer_timeout_ms: i64 = consumer_timeout_ms
        self.on_disconnect: str = on_disconnect
        self.buries_refused: bool = overflow == REJECT_PUBLISH_DLX
        self.buries_surely: bool = buries_surely and overflow == REJECT_PUBLISH
        self.retry: RetryDelays | None = retry
        self.stream: StreamLimits | None = stream
        self.policies: tuple[str, str] = policies
        self.buries: bool = dead_letter_exchange is not None
        bounded = max_length >= 0 or max_length_bytes >= 0
        self.drops: bool = bounded and overflow == DROP_HEAD
        self.refuses: bool = bounded and overflow != DROP_HEAD


NO_LIMITS: Final = QueueLimits()


@final
class DeadLetterBatch:
    """Messages of one queue that died for one reason; a token each, pending in its backing.

    Those that were ``refused`` never were in the queue: no acknowledgement of them is due.
    """

    def __init__(self, queue: object, reason: str, messages: list[Message], refused: bool) -> None:
        self.queue = queue
        self.reason = reason
        self.messages = messages
        self.refused = refused
