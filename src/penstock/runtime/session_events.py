"""When connections, channels and consumers come, fail and go, for the event log.

In: a session whose client has just logged in, or that is about to be forgotten.  A session
keeps the name it came in by, because later there is no socket to ask.
"""

from typing import cast

from penstock.core.events.book import EventBook
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.runtime.connection import Connection
from penstock.runtime.secure_socket import SecureSocket
from penstock.runtime.session import Session


def entered(
    book: EventBook,
    session: Session,
    user: str,
    vhost: str,
    protocol: str,
    given_name: object = None,
) -> None:
    """A client has logged in; ``given_name``: what it calls its connection, if that is a text."""
    carrier = session.carrier
    if book.on and isinstance(carrier, Connection) and session.client.entered_at_ms == 0:
        session.client.enter(carrier.name, book.now_ms)
        name = given_name if isinstance(given_name, str) else None
        values = (carrier.name, user, vhost, protocol, name)
        book.note("connection_opened", values, session.client.actor)


def is_encrypted(session: Session) -> bool:
    """Does what its client sends come by TLS?"""
    carrier = session.carrier
    return isinstance(carrier, Connection) and isinstance(carrier.sock, SecureSocket)


def left(book: EventBook, session: Session) -> None:
    """It is over; only the first call counts."""
    client = session.client
    if client.entered_at_ms != 0:
        lasted_ms = int(book.now_ms - client.entered_at_ms)
        book.note("connection_closed", (client.event_name, lasted_ms))
        client.leave()


def channel_moved(book: EventBook, kind: str, session: Session, number: int) -> None:
    """``kind`` is channel_opened or channel_closed."""
    if session.client.event_name != "":
        book.note(kind, (session.client.event_name, number), session.client.actor)


def consumer_moved(
    book: EventBook, session: Session, number: int, consumer: Consumer, added: bool
) -> None:
    """It is at its queue from now on (``added``), or no longer."""
    if book.on and session.client.event_name != "":
        queue = cast(Queue, consumer.queue)
        place = (queue.vhost, queue.name, session.client.event_name, number, consumer.tag)
        if added:
            window = int(consumer.prefetch)
            asked = (consumer.exclusive, not consumer.no_ack, window)
            book.note("consumer_added", (*place, *asked), session.client.actor)
        else:
            book.note("consumer_removed", place, session.client.actor)


def failed(
    book: EventBook,
    kind: str,
    session: Session,
    number: int,
    who: tuple[str, str],
    operation: str | None,
    code: int,
    reason: str,
) -> None:
    """``kind`` is channel_failed or connection_failed, ``who`` the user and the virtual host."""
    if book.on:
        values = (connection_name(session), number, *who, operation, code, reason)
        book.note(kind, values, session.client.actor)


def connection_name(session: Session) -> str:
    """Before log-in it has none of its own."""
    carrier = session.carrier
    if session.client.event_name == "" and isinstance(carrier, Connection):
        return carrier.name
    return session.client.event_name
