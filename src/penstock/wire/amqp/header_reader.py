"""One header of an AMQP message, without decoding what has none of that name."""

from typing import final

from penstock.core.headers import HeaderReader
from penstock.core.message import Message
from penstock.wire.amqp.properties import decode_properties, has_header_key


@final
class AmqpHeaderReader(HeaderReader):
    """See the head of this file."""

    def read(self, message: Message, name: str) -> object:
        content = message.content
        if not has_header_key(content, name.encode()):
            return None
        headers = decode_properties(content).headers
        return None if headers is None else headers.get(name)
