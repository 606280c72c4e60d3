"""Writes a death on an AMQP message: the headers RabbitMQ's users read on dead letters.
Also the end of a delay: its ``x-delay`` becomes negative.

    x-death                 array, the newest in front: count, reason, queue, time, exchange,
                            routing-keys, and original-expiration if the message had one
    x-first-death-exchange  of the first death, set once
    x-first-death-queue
    x-first-death-reason

The first death replaces whatever a publisher has written into the other three.  The same queue and
reason again: that entry comes to the front and counts one more; behind it the others are turned
round, as in RabbitMQ.  An ``x-death`` that is none is replaced; one that a publisher wrote as we do
is taken for ours, since nothing tells them apart.
``expiration`` goes, else the letter would die as soon as it arrives; CC goes
when the queue has a routing key for its letters.

Order and types of the fields are RabbitMQ's, down to this: an entry that is not the first one
ever has its fields sorted.
"""

from typing import Final, final

from penstock.core.headers import DELAY_HEADER, delay_in
from penstock.core.letters import REJECTED, HeaderWriter, Letter
from penstock.core.message import Message
from penstock.protocols.amqp.codec.encoder import short_bytes
from penstock.protocols.amqp.codec.header_edit import (
    ARRAY,
    BCC,
    CC,
    TABLE,
    Field,
    array_items,
    array_value,
    fields_between,
    header_fields,
    keys_in,
    long_bytes,
    names_in,
    table_payload,
    table_value,
    text_value,
    with_headers,
)
from penstock.protocols.amqp.codec.properties import (
    EXPIRATION,
    expiration,
    parse_expiration,
    priority,
)
from penstock.protocols.amqp.codec.routing_facts import add_properties, routing_facts
from penstock.protocols.amqp.codec.tables import decode_table

X_DEATH: Final = b"x-death"
X_DELAY: Final = b"x-delay"
FIRST_DEATH: Final = (b"x-first-death-exchange", b"x-first-death-queue", b"x-first-death-reason")
LAST_DEATH: Final = (b"x-last-death-exchange", b"x-last-death-queue", b"x-last-death-reason")
LONG: Final = b"l"
"""Integers of 64 bits, as RabbitMQ writes counts."""
COUNT_MAX: Final = 2**63 - 1
INTEGER: Final = b"I"
TIMESTAMP: Final = b"T"


@final
class AmqpLetterWriter(HeaderWriter):
    """See the head of this file; ``names_last``: every death is named as the last one."""

    def __init__(self, names_last: bool = False) -> None:
        self._names_last: Final = names_last

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
        content = message.content
        fields = header_fields(content)
        old_exchange, old_key = names_in(message.address)
        keys = [old_key, *keys_in(fields, CC)]
        info = [
            (b"reason", text_value(reason)),
            (b"queue", text_value(queue)),
            (b"time", TIMESTAMP + time_s.to_bytes(8, "big")),
            (b"exchange", text_value(old_exchange)),
            (b"routing-keys", array_value([text_value(one) for one in keys])),
        ]
        lasted = expiration(content)
        if lasted is not None:
            info.append((b"original-expiration", text_value(lasted)))
        fields = _with_death(fields, info, queue, reason, old_exchange)
        if names_last or self._names_last or any(field[0] in LAST_DEATH for field in fields):
            named = zip(LAST_DEATH, (old_exchange, queue, reason), strict=True)
            fields = [field for field in fields if field[0] not in LAST_DEATH]
            fields += [(name, text_value(value)) for name, value in named]
        if key is not None:
            keys = [key]
            fields = [field for field in fields if field[0] != CC]
        headers, _ = decode_table(long_bytes(table_payload(fields)), 0)
        add_properties(headers, content)
        return Letter(
            with_headers(content, fields, EXPIRATION),
            short_bytes(exchange) + short_bytes(keys[0]),
            keys,
            headers,
            [] if reason == REJECTED else _seen_queues(headers),
            int(priority(content)),
        )

    def release(self, message: Message) -> Letter:
        content = message.content
        fields = header_fields(content)
        facts = routing_facts(content)
        _, key = names_in(message.address)
        keys = [key, *keys_in(fields, CC), *keys_in(fields, BCC)]
        delay = -delay_in(facts.get(DELAY_HEADER))
        if delay < 0:
            facts[DELAY_HEADER] = delay
            fields = [_delayed(field, delay) for field in fields]
        lasted = expiration(content)
        return Letter(
            with_headers(content, [field for field in fields if field[0] != BCC], 0),
            message.address,
            keys,
            facts,
            [],
            int(priority(content)),
            -1 if lasted is None else parse_expiration(lasted),
        )


def _delayed(field: Field, delay: int) -> Field:
    """A delay that is over is negative."""
    if field[0] != X_DELAY:
        return field
    if delay >= -(1 << 31):
        return X_DELAY, INTEGER + delay.to_bytes(4, "big", signed=True)
    return X_DELAY, LONG + delay.to_bytes(8, "big", signed=True)


def _with_death(
    fields: list[Field], info: list[Field], queue: str, reason: str, exchange: str
) -> list[Field]:
    """The headers with one more death; ``info`` is its entry without the count."""
    for place, (key, value) in enumerate(fields):
        if key == X_DEATH:
            entries = _entries(value)
            if entries is None:
                entry = table_value([(b"count", _count(1)), *info])
                return [*fields[:place], (X_DEATH, array_value([entry])), *fields[place + 1 :]]
            moved = _moved_to_front(entries, info, queue, reason)
            return [*fields[:place], (X_DEATH, array_value(moved)), *fields[place + 1 :]]
    return [
        *(field for field in fields if field[0] not in FIRST_DEATH),
        (X_DEATH, array_value([table_value([(b"count", _count(1)), *info])])),
        (FIRST_DEATH[0], text_value(exchange)),
        (FIRST_DEATH[1], text_value(queue)),
        (FIRST_DEATH[2], text_value(reason)),
    ]


def _entries(value: bytes) -> list[bytes] | None:
    """The entries of an ``x-death``; None when it is none."""
    if value[:1] != ARRAY:
        return None
    items = array_items(value)
    return items if all(item[:1] == TABLE for item in items) else None


def _moved_to_front(
    entries: list[bytes], info: list[Field], queue: str, reason: str
) -> list[bytes]:
    newest = [(b"count", _count(1)), *info]
    others: list[bytes] = []
    for fields in _by_queue_and_reason(entries):
        if _queue_and_reason(fields) == (text_value(queue), text_value(reason)):
            count = _count(_counted(fields) + 1)
            newest = [(b"count", count), *(field for field in fields if field[0] != b"count")]
        else:
            others.append(table_value(fields))
    return [table_value(sorted(newest)), *others]


def _by_queue_and_reason(entries: list[bytes]) -> list[list[Field]]:
    """One entry for each.  Releases before 3.6 wrote one for each death, without a count.

    As RabbitMQ does it: of several the first one stays and counts them all if it has no count; a
    single entry is left alone, and the order is turned round.
    """
    deaths: dict[tuple[bytes, bytes], list[list[Field]]] = {}
    for entry in entries:
        fields = fields_between(entry, 5, len(entry))
        deaths.setdefault(_queue_and_reason(fields), []).append(fields)
    found: list[list[Field]] = []
    for same in deaths.values():
        first = same[0]
        if len(entries) > 1 and all(key != b"count" for key, _ in first):
            first = [(b"count", _count(len(same))), *first]
        found.append(first)
    found.reverse()
    return found


def _queue_and_reason(fields: list[Field]) -> tuple[bytes, bytes]:
    queue = reason = b""
    for key, value in fields:
        if key == b"queue" and queue == b"":
            queue = value
        elif key == b"reason" and reason == b"":
            reason = value
    return queue, reason


def _counted(fields: list[Field]) -> int:
    """The count of an entry; 0 when it has none that could grow."""
    said, _ = decode_table(table_value(fields), 1)
    count = said.get("count")
    return count if isinstance(count, int) and -COUNT_MAX < count < COUNT_MAX else 0


def _seen_queues(headers: dict[str, object]) -> list[str]:
    """Queues since the last reject: to come to one of them again would be a circle."""
    deaths = headers.get("x-death")
    assert isinstance(deaths, list)
    seen: list[str] = []
    for death in deaths:
        if death.get("reason") == REJECTED:
            break
        name = death.get("queue")
        if isinstance(name, str):
            seen.append(name)
    return seen


def _count(number: int) -> bytes:
    return LONG + number.to_bytes(8, "big", signed=True)
