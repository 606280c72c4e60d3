"""What aiohttp's server logs of requests that are no HTTP.

It writes a traceback with the octets that it could not read, among which may be a password: one
line without them takes its place.  A peer without credentials can cause such lines as fast as it
connects, so they are bounded as those of log-ins are.
"""

import logging

from aiohttp.http_exceptions import HttpProcessingError

from penstock.broker.rules.bounded_events import TOLD_MAX


class NoRequest(logging.Filter):
    """The server answers its sender with 400.

    ``TOLD_MAX`` lines in a minute; the next line after it says how many there would have been.
    """

    def __init__(self) -> None:
        super().__init__()
        self._minute = 0
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        untold = self._count_one(int(record.created) // 60)
        if self._count <= TOLD_MAX:
            logger = logging.getLogger(record.name)
            more = f"; {untold} more before" if untold > 0 else ""
            logger.info("%s: no HTTP: %s%s", record.getMessage(), type(error).__name__, more)
        return False

    def _count_one(self, minute: int) -> int:
        """How many of an earlier minute had no line, if this is the first of another one."""
        untold = 0
        if minute != self._minute:
            untold = self._count - TOLD_MAX
            self._minute, self._count = minute, 0
        self._count += 1
        return untold


def server_logger(name: str) -> logging.Logger:
    """For the servers of one kind."""
    logger = logging.getLogger(name)
    if not logger.filters:
        logger.addFilter(NoRequest())
    return logger
