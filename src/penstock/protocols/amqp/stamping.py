"""When a message came: a timestamp on each that is published, if the node is told to write them.

In: the messages of a run, and the time of the turn.  Out: the same messages with the property
``timestamp`` (seconds) and the header ``timestamp_in_ms``; what the publisher has set itself
stays (``KEEP``) or not (``OVERWRITE``).  RabbitMQ's interceptor ``set_header_timestamp`` does the
same.  It comes before routing, so a headers exchange may look at it, and once: letters of the dead
and what was delayed keep the time they came.
"""

from typing import Final

from mypy_extensions import i64

from penstock.broker.broker import OVERWRITE
from penstock.core.clock_types import WallMs
from penstock.core.message import Message
from penstock.protocols.amqp.codec.header_edit import with_timestamp

STAMPINGS: Final = ("off", "keep", "overwrite")
"""What the setting ``message_timestamp`` may say, by the number the broker knows it by."""


def stamped(messages: list[Message], now_ms: WallMs, stamping: i64) -> list[Message]:
    overwrite = stamping == OVERWRITE
    return [
        Message(
            with_timestamp(message.content, now_ms, overwrite),
            message.address,
            message.flags,
            message.expires_at_ms,
        )
        for message in messages
    ]
