"""The events of the AMQP decoder.

Runs, not messages, are the unit: consecutive publishes to the same address are one
``PublishRun``, consecutive acknowledgements of neighbouring tags are one ``AckRun``.
"""

from typing import final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.errors import BrokerError
from penstock.core.message import Address, Message
from penstock.protocols.amqp.codec.errors import ProtocolViolation
from penstock.protocols.amqp.codec.methods import Method


class Event:
    """Something a peer said on one of its channels; the classes of events set ``channel``."""

    channel: i64


@final
class PublishRun(Event):
    """Consecutive publishes to one address; each message came with its whole content.

    ``messages`` are one to begin with; ``size_bytes`` is the sum of their contents, ``flags`` are
    those that any of them has; ``read_ms`` is the wall clock when they were read, from which their
    ``expires_at_ms`` counts.  ``resumed``: what is left of a run that was begun; ``first``: what is
    left of its first message, if that was begun (wide_publish.py).
    """

    def __init__(
        self,
        channel: i64,
        address: Address,
        messages: list[Message],
        read_ms: WallMs,
        resumed: bool = False,
        first: object = None,
    ) -> None:
        self.channel = channel
        self.address = address
        self.messages = messages
        self.size_bytes: i64 = messages[0].size
        self.flags: i64 = messages[0].flags
        self.read_ms: WallMs = read_ms
        self.resumed: bool = resumed
        self.first: object = first

    def takes(self, channel: i64, address: Address, message: Message) -> bool:
        """The next publish; False: it does not belong to this run."""
        if self.address is not address or self.channel != channel:
            return False
        self.messages.append(message)
        self.size_bytes += message.size
        self.flags |= message.flags
        return True

    def replace(self, messages: list[Message]) -> None:
        """The same publishes, as the broker has edited them; ``size_bytes`` is what came."""
        self.messages = messages

    def rest(self, place: i64, first: object = None) -> "PublishRun":
        """The publishes from that place on; the others are no longer in this run."""
        messages = self.messages[place:]
        rest = PublishRun(self.channel, self.address, messages[:1], self.read_ms, True, first)
        for message in messages[1:]:
            rest.takes(self.channel, self.address, message)
        self.messages = self.messages[:place]
        self.size_bytes -= rest.size_bytes
        return rest

    def enter(self, now_ms: WallMs) -> None:
        """They were held, and go to queues now: their times to live begin only here."""
        held_ms = now_ms - self.read_ms
        self.read_ms = now_ms
        for message in self.messages:
            if message.expires_at_ms != 0:
                message.expires_at_ms = WallMs(message.expires_at_ms + held_ms)


@final
class AckRun(Event):
    """``basic.ack`` of the tags first..last, or of everything up to last (``multiple``)."""

    def __init__(self, channel: i64, first_tag: i64, last_tag: i64, multiple: bool) -> None:
        self.channel = channel
        self.first_tag: i64 = first_tag
        self.last_tag: i64 = last_tag
        self.multiple = multiple

    def takes(self, channel: i64, tag: i64) -> bool:
        """The next acknowledgement of one tag; False: it does not belong to this run."""
        # Tags above 2**63 - 1 are negative here, and follow no tag.
        if self.channel != channel or self.last_tag + 1 != tag or tag <= 0:
            return False
        self.last_tag = tag
        return True


@final
class MethodReceived(Event):
    """Any other method, decoded."""

    def __init__(self, channel: i64, method: Method) -> None:
        self.channel = channel
        self.method = method


@final
class ChannelFailed(Event):
    """The peer broke a rule that costs it this channel; its frames are dropped from here on."""

    def __init__(self, channel: i64, error: BrokerError, method_key: i64) -> None:
        self.channel = channel
        self.error = error
        self.method_key: i64 = method_key


@final
class ConnectionFailed(Event):
    """The peer broke a rule that costs it the connection; always the last event."""

    def __init__(self, channel: i64, violation: ProtocolViolation) -> None:
        self.channel = channel
        self.violation = violation
