"""``PasswordWorker``: the thread that computes slow hashes of passwords, one by one."""

import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from penstock.broker.rules.access import SCRYPT
from penstock.broker.rules.passwords import PasswordRule, Passwords
from penstock.core import patterns
from penstock.core.errors import SettingInvalid
from penstock.settings.settings import Settings

logger = logging.getLogger("penstock")


class PasswordWorker:
    """``wake``: the data loop, when something is done.  The thread begins with the first work."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._thread = ThreadPoolExecutor(1, "passwords")

    def run(self, work: Callable[[], None]) -> None:
        """From any thread; returns at once."""
        self._thread.submit(self._do, work)

    def close(self) -> None:
        """What waits is not done."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            logger.exception("a password could not be hashed")
        self._wake()


def passwords_of(settings: Settings, run: Callable[[Callable[[], None]], None]) -> Passwords:
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
