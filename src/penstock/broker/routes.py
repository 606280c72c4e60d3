"""Where an address leads, and what publishing to several queues shares."""

from typing import cast, final

from penstock.core.errors import AccessRefused
from penstock.core.message import Message
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Exchange


@final
class Route:
    """Where an address leads.

    ``needs_headers``  ask again for each message
    ``refuses``        some queue refuses what is too much for it
    """

    def __init__(self, queues: list[Queue], needs_headers: bool) -> None:
        self.queues = queues
        self.needs_headers = needs_headers
        self.refuses = any_refuses(queues)


def any_refuses(queues: list[Queue]) -> bool:
    for queue in queues:  # noqa: SIM110 - compiled code has no cheap generators
        if queue.limits.refuses:
            return True
    return False


def share_contents(taken: list[Message], copies: list[Message]) -> None:
    """What one queue put into the message store the next one finds there."""
    for i in range(len(taken)):
        copies[i].msg_id = taken[i].msg_id


def queues_in(found: list[object]) -> list[Queue]:
    return [cast(Queue, queue) for queue in found]


def unused(exchange: Exchange) -> bool:
    return exchange.auto_delete and not exchange.has_bindings()


def needs_headers(exchange: Exchange) -> bool:
    """Does any exchange a message may pass here look at headers?"""
    seen = [exchange]
    place = 0
    while place < len(seen):
        if seen[place].needs_headers:
            return True
        for target in seen[place].exchange_destinations():
            if target not in seen:
                seen.append(target)
        place += 1
    return False


def check_not_default(name: str) -> None:
    if name == "":
        raise AccessRefused("operation not permitted on the default exchange")


def duration(arguments: dict[str, object], key: str, absent: int) -> int:
    value = arguments.get(key, absent)
    assert isinstance(value, int)
    return value
