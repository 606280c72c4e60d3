"""Dead letters and delayed messages: published by the broker, independent of their protocol.

The broker knows that a message died, where, when and why; how that is written on a message only
its protocol knows.  So the broker is given a ``HeaderWriter``.
"""

from typing import Final

from penstock.core.message import Message

REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"
"""Why a message died, in the words of its letter."""


class Letter:
    """What a message is published as.

    ``address``     as in ``Message``: the dead letter exchange and the first routing key
    ``keys``        all routing keys
    ``priority``    0 to 255, -1 = none
    ``lasts_ms``    its own time to live, -1 = none
    ``headers``     for exchanges that route by headers
    ``seen_queues`` queues to which it must not go again: it came from there, and no consumer ever
                    refused it
    """

    def __init__(
        self,
        content: bytes,
        address: bytes,
        keys: list[str],
        headers: dict[str, object],
        seen_queues: list[str],
        priority: int,
        lasts_ms: int = -1,
    ) -> None:
        self.content = content
        self.address = address
        self.keys = keys
        self.headers = headers
        self.seen_queues = seen_queues
        self.priority = priority
        self.lasts_ms = lasts_ms


class HeaderWriter:
    """Writes a death on a message, or the end of a delay."""

    def write(
        self,
        message: Message,
        queue: str,
        reason: str,
        time_s: int,
        exchange: str,
        key: str | None,
        names_last: bool = False,
    ) -> Letter:
        """``exchange`` and ``key`` are where it goes; no key = the one it had.

        ``names_last``: this death is named as the last one, as by RabbitMQ 4.
        """
        raise NotImplementedError

    def release(self, message: Message) -> Letter:
        """A message whose delay is over, with all its routing keys."""
        raise NotImplementedError
