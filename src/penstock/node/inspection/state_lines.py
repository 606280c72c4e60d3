"""Log lines about what changes state, made of the events that rooms note.

    event ─► category, level, words ─► logger ``penstock.<category>``

In: batches of events, in the event log's thread, so the data loop pays nothing.  Out: a line for
each that an operator looks for, in the words RabbitMQ's users search for where RabbitMQ has such a
line.  What happens all the time to healthy clients (channels, flow, temporary queues) is ``debug``.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.broker.rules.log_ins import RANGES
from penstock.core.event_book import Event
from penstock.core.traffic import NSQ

Values = Sequence[object]
Words = Callable[[Values], str]


def _connection_opened(values: Values) -> str:
    name, user, vhost, protocol, given_name = values
    called = f" - {given_name}" if given_name else ""
    kind = "AMQP" if "AMQP" in str(protocol).upper() else protocol
    return (
        f"accepting {kind} connection ({name}{called}): user '{user}' authenticated and granted"
        f" access to vhost '{vhost}'"
    )


def _connection_closed(values: Values) -> str:
    name, lasted_ms = values
    assert isinstance(lasted_ms, int)
    return f"closing connection ({name}) after {lasted_ms / 1000:.1f} s"


def _connection_state(values: Values) -> str:
    name, state, was = values
    return f"connection ({name}) is {state}, was {was}"


def _login_refused(values: Values) -> str:
    name, user, mechanism, reason = values
    if mechanism == "HTTP":
        return f"HTTP access denied: user '{user}' from {name}: {reason}"
    if mechanism in (NSQ, RANGES):
        return f"{mechanism} access refused to {name}: user '{user}' - {reason}"
    return (
        f"Error on AMQP connection ({name}, state: starting): {mechanism} login refused: user"
        f" '{user}' - {reason}"
    )


def _logins_refused(values: Values) -> str:
    address, count, users = values
    return f"{count} more log-ins refused to {address} within a minute, as '{users}' and others"


def _opening_failed(values: Values) -> str:
    name, protocol, reason = values
    kind = "NSQ" if protocol == NSQ else "AMQP"
    return f"closing {kind} connection ({name}) before it is open: {reason}"


def _openings_failed(values: Values) -> str:
    address, count, reasons = values
    return (
        f"{count} more connections of {address} closed within a minute before they were open:"
        f" {reasons}"
    )


def _connection_failed(values: Values) -> str:
    name, channel, user, vhost, operation, _code, reason = values
    return (
        f"Error on AMQP connection ({name}, vhost: '{vhost}', user: '{user}'), channel {channel}:"
        f" operation {operation or 'none'} caused a connection exception {_as_there(reason)}"
    )


def _channel_failed(values: Values) -> str:
    name, channel, user, vhost, operation, _code, reason = values
    return (
        f"Channel error on connection ({name}, vhost: '{vhost}', user: '{user}'), channel"
        f" {channel}: operation {operation or 'none'} caused a channel exception"
        f" {_as_there(reason)}"
    )


def _as_there(reason: object) -> str:
    """``NOT_FOUND - no queue`` as RabbitMQ's log spells it: ``not_found: no queue``."""
    name, dash, text = str(reason).partition(" - ")
    return f"{name.lower()}: {text}" if dash else name.lower()


def _channel_opened(values: Values) -> str:
    name, number = values
    return f"connection ({name}): channel {number} opened"


def _channel_closed(values: Values) -> str:
    name, number = values
    return f"connection ({name}): channel {number} closed"


def _channel_state(values: Values) -> str:
    name, number, state, was = values
    return f"connection ({name}): channel {number} is {state}, was {was}"


def _queue_declared(values: Values) -> str:
    vhost, name, durable = values
    return f"queue '{name}' in vhost '{vhost}' declared{', durable' if durable else ''}"


def _queue_deleted(values: Values) -> str:
    vhost, name = values
    return f"queue '{name}' in vhost '{vhost}' deleted"


def _queue_state(values: Values) -> str:
    vhost, name, state, was = values
    return f"queue '{name}' in vhost '{vhost}' is {state}, was {was}"


def _paging_begun(values: Values) -> str:
    vhost, name, held, target = values
    return f"queue '{name}' in vhost '{vhost}' pages to disk: {held} bytes held, {target} wanted"


def _paging_ended(values: Values) -> str:
    vhost, name, _held, paged, lasted = values
    return f"queue '{name}' in vhost '{vhost}' paged {paged} bytes to disk in {lasted} ms"


LINES: Final[Mapping[str, tuple[str, int, Words]]] = {
    "connection_opened": ("connection", logging.INFO, _connection_opened),
    "login_refused": ("connection", logging.ERROR, _login_refused),
    "logins_refused": ("connection", logging.ERROR, _logins_refused),
    "opening_failed": ("connection", logging.ERROR, _opening_failed),
    "openings_failed": ("connection", logging.ERROR, _openings_failed),
    "connection_failed": ("connection", logging.ERROR, _connection_failed),
    "channel_failed": ("channel", logging.ERROR, _channel_failed),
    "connection_closed": ("connection", logging.INFO, _connection_closed),
    "connection_state": ("connection", logging.DEBUG, _connection_state),
    "channel_opened": ("channel", logging.DEBUG, _channel_opened),
    "channel_closed": ("channel", logging.DEBUG, _channel_closed),
    "channel_state": ("channel", logging.DEBUG, _channel_state),
    "queue_declared": ("queue", logging.DEBUG, _queue_declared),
    "queue_deleted": ("queue", logging.DEBUG, _queue_deleted),
    "queue_state": ("queue", logging.DEBUG, _queue_state),
    "paging_begun": ("queue", logging.INFO, _paging_begun),
    "paging_ended": ("queue", logging.INFO, _paging_ended),
}

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
            logger.log(level, "%s", words(values))
