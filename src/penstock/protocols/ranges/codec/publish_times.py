"""When a message's publisher says it was published, and how exactly.

In: a message with its content.  Out: milliseconds since 1970 and the size of the step in which
they were counted: 1 for NSQ's messages and for the header ``timestamp_in_ms`` (RabbitMQ's
interceptor sets it, and so does ``message_timestamp`` here), 1000 for the property ``timestamp``.
(0, 0) where nothing says it; a nonsense header says nothing.
"""

from typing import Final

from penstock.core.message import Message
from penstock.protocols.amqp.codec.errors import MalformedArguments
from penstock.protocols.amqp.codec.properties import decode_properties, headers_of
from penstock.protocols.nsq.codec.contents import is_ours, publish_time_ms

HEADER: Final = "timestamp_in_ms"
LATEST_MS: Final = 253_402_300_800_000
"""The year 10,000: what is later is no time."""


def publish_times(message: Message) -> tuple[int, int]:
    content = message.content
    if not content:
        return 0, 0
    if is_ours(content):
        return publish_time_ms(message), 1
    try:
        exact = (headers_of(content) or {}).get(HEADER)
        seconds = decode_properties(content).timestamp
    except (MalformedArguments, ValueError):
        return 0, 0
    if isinstance(exact, int) and 0 < exact < LATEST_MS:
        return exact, 1
    if seconds is not None and 0 < seconds < LATEST_MS // 1000:
        return int(seconds) * 1000, 1000
    return 0, 0
