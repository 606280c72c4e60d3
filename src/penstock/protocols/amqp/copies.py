"""Sender-selected distribution: the routing keys a message brings in its headers CC and BCC.

In: the table of ``routing_facts``.  Out: the keys, CC's first; PreconditionFailed in RabbitMQ's
words when a header is no array.  What in an array is no text is passed over, as there.
"""

from penstock.core.errors import PreconditionFailed
from penstock.core.message import COPIES, Message
from penstock.protocols.amqp.codec.routing_facts import BCC, CC, routing_facts, without_bcc
from penstock.routing.headers import type_name


def copy_keys(facts: dict[str, object]) -> list[str]:
    keys: list[str] = []
    for header in (CC, BCC):
        if header not in facts:
            continue
        value = facts[header]
        if not isinstance(value, list):
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,"{header}",{type_name(value)}}}'
            )
        keys.extend([key for key in value if isinstance(key, str)])
    return keys


def without_its_bcc(message: Message) -> Message:
    """The message its receivers get to see."""
    return Message(
        without_bcc(message.content), message.address, message.flags, message.expires_at_ms
    )


def check_copies(messages: list[Message]) -> None:
    """Before they are held for later."""
    for message in messages:
        if message.flags & COPIES:
            copy_keys(routing_facts(message.content))
