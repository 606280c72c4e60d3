"""``Logs``: where log lines go: standard error, a file, the ring of the last ones, an exchange.

    loggers ``penstock.<category>`` ─► level of the category ─► console │ file │ ring │ waiting

A category is the second word of a logger's name (connection, channel, queue, alarm, policy …; the
node's own lines are ``node``).  Levels can be changed while the broker runs, of everything or of
one category.  The ring keeps the last ``RING_LINES`` lines for the management API.

What is to be published to ``amq.rabbitmq.log`` waits in a bounded list until the data loop takes it
(``log_exchange``); when it is full, lines are dropped and counted: nothing waits for a log.
"""

import json
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from typing import Final, NamedTuple

from penstock.core.clock_types import WallMs
from penstock.core.errors import SettingInvalid
from penstock.core.printable import printable
from penstock.settings.settings import Settings

ROOT: Final = "penstock"
NODE: Final = "node"
RING_LINES: Final = 2000
WAITING_MAX: Final = 1000
MADE: Final = "penstock_text"
OFF: Final = logging.CRITICAL + 10
LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "none": OFF,
}


class Waiting(NamedTuple):
    """A line for the exchange."""

    level: str
    category: str
    text: str
    at_ms: WallMs


def _category_levels(settings: Settings) -> dict[str, str]:
    return {
        "connection": settings.log_connection_level,
        "channel": settings.log_channel_level,
        "queue": settings.log_queue_level,
    }


def category_of(name: str) -> str:
    first, _, rest = name.partition(".")
    return rest.partition(".")[0] or NODE if first == ROOT else first


class TextFormatter(logging.Formatter):
    """``2026-11-21 20:00:00.123456+00:00 [info] <connection> words``, as RabbitMQ's columns.

    Words may be those of peers: they neither begin a line nor move a terminal's cursor.
    """

    def format(self, record: logging.LogRecord) -> str:
        text: str | None = record.__dict__.get(MADE)
        if text is not None:
            return text  # for another place the same line goes to
        at = datetime.fromtimestamp(record.created, UTC).isoformat(" ", "microseconds")
        text = f"{at} [{record.levelname.lower()}] <{category_of(record.name)}> "
        text += printable(record.getMessage())
        if record.exc_info:
            text += "\n" + printable(self.formatException(record.exc_info), "\n")
        record.__dict__[MADE] = text
        return text


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        row = {
            "time": at.isoformat(" ", "microseconds"),
            "level": record.levelname.lower(),
            "category": category_of(record.name),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["traceback"] = self.formatException(record.exc_info)
        return json.dumps(row)


class LineBuffer(logging.Handler):
    """The last lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=RING_LINES)
        self.setFormatter(TextFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class Outbox(logging.Handler):
    """Lines that wait for the data loop."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: deque[Waiting] = deque()
        self.dropped = 0
        self._closed_to = 0  # the thread whose lines are not taken

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Without lines of this thread meanwhile."""
        self._closed_to = threading.get_ident()
        try:
            yield
        finally:
            self._closed_to = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._closed_to:
            return
        if len(self.waiting) >= WAITING_MAX:
            self.dropped += 1
            return
        level, category = record.levelname.lower(), category_of(record.name)
        at_ms = WallMs(int(record.created * 1000))
        self.waiting.append(Waiting(level, category, self.format(record), at_ms))


class Logs:
    """Of one process."""

    def __init__(self) -> None:
        self.ring = LineBuffer()
        self.outbox: Outbox | None = None
        self._handlers: list[logging.Handler] = []
        self._set: dict[str, str] = {}  # category ─► level; "" is everything's

    def apply(self, settings: Settings) -> None:
        """From now on as they say; raises SettingInvalid, and then nothing has changed."""
        handlers = self._make(settings)
        root = logging.getLogger()
        for handler in self._handlers:
            root.removeHandler(handler)
            if handler is not self.ring:
                handler.close()
        for handler in handlers:
            root.addHandler(handler)
        self._handlers = handlers
        self.outbox = next((one for one in handlers if isinstance(one, Outbox)), None)
        for category in [one for one in self._set if one]:
            self.set_level("", category)
        self.set_level(settings.log_level)
        for category, level in _category_levels(settings).items():
            if level:
                self.set_level(level, category)

    def set_level(self, level: str, category: str = "") -> None:
        """Of one category, or of all that have none of their own; "" takes a category's away."""
        if not category:
            logging.getLogger().setLevel(LEVELS[level])
            self._set[""] = level
            return
        number = LEVELS[level] if level else logging.NOTSET
        logging.getLogger(ROOT if category == NODE else f"{ROOT}.{category}").setLevel(number)
        if level:
            self._set[category] = level
        else:
            self._set.pop(category, None)

    def levels(self) -> dict[str, str]:
        """What is set: ``""`` for all, and the categories with a level of their own."""
        return dict(self._set)

    def lines(self, count: int) -> list[str]:
        """The last ones, the oldest first."""
        return list(self.ring.lines)[-count:]

    def flush(self) -> None:
        for handler in self._handlers:
            handler.flush()

    # -- making --------------------------------------------------------------------------

    def _make(self, settings: Settings) -> list[logging.Handler]:
        handlers: list[logging.Handler] = [self.ring]
        if settings.log_console:
            console = logging.StreamHandler(sys.stderr)
            handlers.append(_made(console, settings.log_format, settings.log_console_level))
        if settings.log_file:
            file = _file(settings)
            handlers.append(_made(file, settings.log_file_format, settings.log_file_level))
        if settings.log_exchange:
            outbox = self.outbox or Outbox()
            level = settings.log_exchange_level
            handlers.append(_made(outbox, settings.log_exchange_format, level))
        return handlers


def _made(handler: logging.Handler, form: str, level: str) -> logging.Handler:
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.setLevel(LEVELS[level] if level else logging.NOTSET)
    return handler


def _file(settings: Settings) -> logging.Handler:
    directory = settings.log_dir or os.path.join(settings.data_dir, "logs")
    path = os.path.join(directory, settings.log_file)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return RotatingFileHandler(
            path,
            maxBytes=settings.log_file_size_bytes,
            backupCount=max(1, settings.log_file_count),
            encoding="utf-8",
        )
    except OSError as error:
        raise SettingInvalid(f"log_file = {path!r}: {error.strerror}") from error
