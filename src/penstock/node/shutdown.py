"""``Shutdown``: signals that stop a node, stop it at once, or reload its settings.

    SIGTERM, SIGINT, the management API   an orderly stop: 320 to clients, what is open is finished
    a second signal, or ``stop_timeout_s``   the quick one: nothing is waited for, nothing is tidied
    SIGHUP                                settings are read again; but when the terminal it was
                                          started from is gone, an orderly stop

Quick costs no message: what was confirmed is in the journal, and the next start reads it as
after a crash.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.protocols.peers.peers import Peers
from penstock.runtime.loop import Loop

DRAIN_MS: Final = 3000

logger: Final = logging.getLogger("penstock")


class Shutdown:
    """Of one process."""

    def __init__(self, loop: Loop, timeout_s: int) -> None:
        self.quick = False
        self._reload_asked = False
        self._loop = loop
        self._timeout_s = timeout_s
        self._tidying = False
        self._is_signalled = False
        self._had_terminal = False
        self._flush: Callable[[], None] = lambda: None

    def install(self, flush: Callable[[], None]) -> None:
        """Listen to signals; ``flush`` is called before a quick end."""
        self._flush = flush
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGHUP, self._hung_up)
        self._had_terminal = os.isatty(0)

    def ask(self) -> None:
        """Stop in good order; safe from any thread."""
        self._loop.stopping = True
        self._loop.wake()

    def take_reload(self) -> bool:
        """Whether the settings shall be read again; said once for each signal."""
        asked, self._reload_asked = self._reload_asked, False
        return asked

    def begun(self) -> None:
        """The stop is under way: from here on its time runs."""
        threading.Thread(target=self._end_in_time, daemon=True).start()

    def drain(self, peers: Peers | None, look: Callable[[], None]) -> None:
        """Tell the clients, wait a little for their close-ok; then tell the other nodes."""
        loop = self._loop
        loop.stop_listening()
        loop.shut_down_sessions()
        until = time.monotonic() + DRAIN_MS / 1000
        while loop.connections and time.monotonic() < until and not self.quick:
            if peers is not None and peers.are_alone():
                peers.stop()
            loop.run_once(50)
            look()
        if peers is not None:
            peers.stop()
            loop.run_once(0)
        loop.drop_all()
        loop.run_once(0)

    def tidying(self) -> None:
        """What is left is only so that the next start is quick: it may be cut off anywhere."""
        self._tidying = True

    def _signalled(self, _number: int, _frame: object) -> None:
        # Not of a stop the management API asked for: the service manager's signal is its first.
        if self._is_signalled:
            logger.warning("a second signal: the node ends at once")
            self.quick = True
            if self._tidying:
                self._leave()
        self._is_signalled = True
        self.ask()

    def _hung_up(self, _number: int, _frame: object) -> None:
        if self._had_terminal and not os.isatty(0):
            self.ask()
            return
        self._reload_asked = True
        self._loop.wake()

    def _end_in_time(self) -> None:
        time.sleep(self._timeout_s)
        logger.warning("the stop takes longer than %d s: the node ends at once", self._timeout_s)
        self._leave()

    def _leave(self) -> None:
        self._flush()
        os._exit(0)
