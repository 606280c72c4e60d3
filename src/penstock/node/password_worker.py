"""``PasswordWorker``: the thread that computes slow hashes of passwords, one by one.

A client that has not logged in causes a fifth of a second of work with each connection, and may be
gone when its turn comes: so what waits is bounded in number, and is given up after ``WAIT_MAX_S``.
"""

import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import Final

from penstock.broker.rules.access import SCRYPT
from penstock.broker.rules.passwords import PasswordRule, Passwords, Run
from penstock.core import patterns
from penstock.core.errors import SettingInvalid
from penstock.settings.settings import Settings

WAITING_MAX: Final = 4096
WAIT_MAX_S: Final = 10.0
"""A log-in of AMQP has no more time by default (``handshake_timeout_ms``)."""

logger = logging.getLogger("penstock")


class PasswordWorker:
    """``wake``: the data loop, when something is done.  The thread begins with the first work."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._thread = ThreadPoolExecutor(1, "passwords")
        self._free = BoundedSemaphore(WAITING_MAX)

    def run(self, work: Callable[[], None], give_up: Callable[[], None]) -> None:
        """From any thread; returns at once.  ``give_up`` is called instead if work piles up."""
        if self._free.acquire(blocking=False):
            self._thread.submit(self._do, work, give_up, time.monotonic())
        else:
            give_up()

    def close(self) -> None:
        """What waits is not done."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _do(self, work: Callable[[], None], give_up: Callable[[], None], since_s: float) -> None:
        is_late = time.monotonic() - since_s > WAIT_MAX_S
        try:
            (give_up if is_late else work)()
        except Exception:
            logger.exception("a password could not be hashed")
        finally:
            self._free.release()
        self._wake()


def passwords_of(settings: Settings, run: Run) -> Passwords:
    """Raises SettingInvalid."""
    try:
        patterns.check(settings.password_regexp)
    except patterns.Refused as error:
        raise SettingInvalid(f"password_regexp: {error}") from error
    rule = PasswordRule(
        settings.password_rule, settings.password_min_length, settings.password_regexp
    )
    name = settings.password_hashing
    hashing = SCRYPT if name == "scrypt" else f"rabbit_password_hashing_{name}"
    return Passwords(rule, hashing, run, secrets.token_bytes)
