"""Progress of a long command: a bar on a terminal, plain lines in a log.

On a terminal one line is drawn over and over; elsewhere a whole line comes every few seconds, the
first when the work has lasted that long.  What is over at once says nothing.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

BAR_WIDTH: Final = 30
DRAW_EVERY_S: Final = 0.1
LINE_EVERY_S: Final = 5.0
PATIENCE_S: Final = 0.5
FOREVER_S: Final = float("inf")
ERASE: Final = "\r\x1b[K"


class Progress:
    """Of one work; any thread may tell it something."""

    def __init__(self, title: str, stream: TextIO | None = None, *, lines: bool = True) -> None:
        """``stream``: standard error when none is given; ``lines``: also without a terminal."""
        self._title = title
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._began_s = time.monotonic()
        wait_s = PATIENCE_S if self._is_terminal else LINE_EVERY_S
        self._next_s = self._began_s + (wait_s if lines or self._is_terminal else FOREVER_S)
        self._drawn = False
        self._lock = threading.Lock()

    def show(self, done: float, total: float = 0.0, text: str = "") -> None:
        """``total`` 0: the total is not known."""
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._next_s:
                return
            self._next_s = now_s + (DRAW_EVERY_S if self._is_terminal else LINE_EVERY_S)
            self._write(self.line(done, total, text, now_s - self._began_s))

    def line(self, done: float, total: float, text: str, elapsed_s: float) -> str:
        parts = [self._title]
        if total > 0:
            share = min(max(done / total, 0.0), 1.0)
            if self._is_terminal:
                bar = ("#" * round(share * BAR_WIDTH)).ljust(BAR_WIDTH, "-")
                parts.append(f"[{bar}]")
            parts.append(f"{share:4.0%}")
        parts += [text] if text else []
        return " ".join([*parts, f"({elapsed_s:.0f} s)"])

    def end(self) -> None:
        """The line of a terminal is taken away: what comes next is the result."""
        with self._lock:
            self._next_s = FOREVER_S
            if self._drawn and self._is_terminal:
                self._stream.write(ERASE)
                self._stream.flush()

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """While work without a known extent is under way: the elapsed time."""
        over = threading.Event()

        def draw() -> None:
            while not over.wait(DRAW_EVERY_S):
                self.show(0, 0, text)

        thread = threading.Thread(target=draw, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.end()

    def _write(self, line: str) -> None:
        self._drawn = True
        self._stream.write(f"{ERASE}{line}" if self._is_terminal else f"{line}\n")
        self._stream.flush()
