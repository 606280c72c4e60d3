"""Log lines about what changes state, made of the events that packages note.

    event ─► category, level, words ─► logger ``penstock.<category>``

In: batches of events, in the event log's thread, so the data loop pays nothing.  Out: a line for
each that an operator looks for, in the words RabbitMQ's users search for where RabbitMQ has such a
line.  What happens all the time to healthy clients (channels, flow, temporary queues) is ``debug``.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from penstock.broker.rules.log_ins import RANGES
from penstock.core.counting.traffic import NSQ
from penstock.core.events.book import Event
from penstock.core.events.kinds import KINDS

CHANNEL: Final = "connection ({connection}): channel {channel}"
QUEUE: Final = "queue '{queue}' in vhost '{vhost}'"
STATE: Final = "is {state}, was {was}"


def _connection_opened(
    connection: str, user: str, vhost: str, protocol: str, given_name: str
) -> str:
    called = f" - {given_name}" if given_name else ""
    kind = "AMQP" if "AMQP" in protocol.upper() else protocol
    return (
        f"accepting {kind} connection ({connection}{called}): user '{user}' authenticated and"
        f" granted access to vhost '{vhost}'"
    )


def _connection_closed(connection: str, lasted_ms: int) -> str:
    return f"closing connection ({connection}) after {lasted_ms / 1000:.1f} s"


def _login_refused(connection: str, user: str, mechanism: str, reason: str) -> str:
    if mechanism == "HTTP":
        return f"HTTP access denied: user '{user}' from {connection}: {reason}"
    if mechanism in (NSQ, RANGES):
        return f"{mechanism} access refused to {connection}: user '{user}' - {reason}"
    return (
        f"Error on AMQP connection ({connection}, state: starting): {mechanism} login refused:"
        f" user '{user}' - {reason}"
    )


def _lockout(text: str, /, user: str, address: str | None, **others: object) -> str:
    whence = f" from {address}" if address else ""
    return f"log-ins of user '{user}'{whence} are {text.format(**others)}"


def _opening_failed(connection: str, protocol: str, reason: str) -> str:
    kind = "NSQ" if protocol == NSQ else "AMQP"
    return f"closing {kind} connection ({connection}) before it is open: {reason}"


def _fault(
    opening: str,
    kind: str,
    /,
    connection: str,
    channel: int,
    user: str,
    vhost: str,
    operation: str | None,
    reason: str,
    **_: object,
) -> str:
    """``kind``: connection or channel; ``NOT_FOUND - reason`` becomes ``not_found: reason``."""
    name, dash, text = reason.partition(" - ")
    return (
        f"{opening} ({connection}, vhost: '{vhost}', user: '{user}'), channel {channel}: operation"
        f" {operation or 'none'} caused a {kind} exception {name.lower()}{dash and ': '}{text}"
    )


def _paging_ended(vhost: str, queue: str, paged_bytes: int, lasted_ms: int, **_: object) -> str:
    name = f"queue '{queue}' in vhost '{vhost}'"
    if not paged_bytes:
        return f"{name} had nothing more to page after {lasted_ms} ms"
    return f"{name} paged {paged_bytes} bytes to disk in {lasted_ms} ms"


def _queue_declared(vhost: str, queue: str, durable: bool, **_: object) -> str:
    return f"queue '{queue}' in vhost '{vhost}' declared{', durable' if durable else ''}"


# fmt: off
LINES: Final[Mapping[str, tuple[str, int, str | Callable[..., str]]]] = {
    "connection_opened": ("connection", logging.INFO, _connection_opened),
    "login_refused": ("connection", logging.ERROR, _login_refused),
    "logins_refused": ("connection", logging.ERROR,
        "{count} more log-ins refused to {address} within a minute, as '{users}' and others"),
    "login_locked_out": ("connection", logging.ERROR,
        partial(_lockout, "locked out for {seconds} s after too many wrong passwords")),
    "login_unlocked": ("connection", logging.INFO, partial(_lockout, "not locked out any more")),
    "opening_failed": ("connection", logging.ERROR, _opening_failed),
    "openings_failed": ("connection", logging.ERROR,
        ("{count} more connections of {address} closed within a minute before they were open:"
         " {reasons}")),
    "connection_failed": ("connection", logging.ERROR,
        partial(_fault, "Error on AMQP connection", "connection")),
    "channel_failed": ("channel", logging.ERROR,
        partial(_fault, "Channel error on connection", "channel")),
    "connection_closed": ("connection", logging.INFO, _connection_closed),
    "connection_state": ("connection", logging.DEBUG, f"connection ({{connection}}) {STATE}"),
    "channel_opened": ("channel", logging.DEBUG, f"{CHANNEL} opened"),
    "channel_closed": ("channel", logging.DEBUG, f"{CHANNEL} closed"),
    "channel_state": ("channel", logging.DEBUG, f"{CHANNEL} {STATE}"),
    "queue_declared": ("queue", logging.DEBUG, _queue_declared),
    "queue_deleted": ("queue", logging.DEBUG, f"{QUEUE} deleted"),
    "queue_state": ("queue", logging.DEBUG, f"{QUEUE} {STATE}"),
    "paging_begun": ("queue", logging.INFO,
        f"{QUEUE} pages to disk: {{held_bytes}} bytes held, {{target_bytes}} wanted"),
    "paging_ended": ("queue", logging.INFO,
        _paging_ended),
}
# fmt: on
"""Category, level, and the words, or what makes them; with the event's fields by their names."""

_LOGGERS: Final = {
    category: logging.getLogger(f"penstock.{category}")
    for category in ("connection", "channel", "queue")
}


def log_events(events: list[Event]) -> None:
    """A line for each that has one and whose category wants it."""
    for _at, kind, values in events:
        line = LINES.get(kind)
        if line is None:
            continue
        category, level, words = line
        logger = _LOGGERS[category]
        if logger.isEnabledFor(level):
            fields = dict(zip(KINDS[kind], values, strict=True))
            text = words.format(**fields) if isinstance(words, str) else words(**fields)
            logger.log(level, "%s", text)
