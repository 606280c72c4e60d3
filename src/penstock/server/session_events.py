"""When connections and channels come and go, for the event log.

In: a session on which somebody has just logged in, or that is about to be forgotten.  A session
keeps the name it came in by, because later there is no socket to ask.
"""

from penstock.core.event_book import EventBook
from penstock.server.connection import Connection
from penstock.server.session import Session


def entered(book: EventBook, session: Session, user: str, vhost: str, protocol: str) -> None:
    """Somebody has logged in."""
    carrier = session.carrier
    if book.on and isinstance(carrier, Connection) and session.entered_at_ms == 0:
        session.event_name = carrier.name
        session.entered_at_ms = book.now_ms
        book.note("connection_opened", (session.event_name, user, vhost, protocol))


def left(book: EventBook, session: Session) -> None:
    """It is over, whoever ended it; only the first time counts."""
    if session.entered_at_ms != 0:
        lasted_ms = int(book.now_ms - session.entered_at_ms)
        book.note("connection_closed", (session.event_name, lasted_ms))
        session.entered_at_ms = 0


def channel_moved(book: EventBook, kind: str, session: Session, number: int) -> None:
    """``kind`` is channel_opened or channel_closed."""
    if session.event_name != "":
        book.note(kind, (session.event_name, number))
