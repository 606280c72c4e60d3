"""Work that goes on in a thread behind its caller: in order, and never far behind.

Reading from the broker and writing a file take turns otherwise, and each leaves the other's
processor, line or disk idle meanwhile; Arrow and the system calls let go of the interpreter.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self


class Behind:
    """One thread; at most ``size_max`` of what was handed over waits, or one piece alone.

    What a piece of work raises is raised from ``do`` or ``settle``; leave the ``with`` then, so
    that what waits behind it is not done.  The thread ends with the ``with``, or with this object.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._size = 0
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def do(self, size: int, work: Callable[..., None], *given: Any) -> None:
        """Hand ``work(*given)`` over, and wait while too much is under way."""
        self._waiting.append((self._pool.submit(work, *given), size))
        self._size += size
        while self._waiting and (self._size > self._size_max or self._waiting[0][0].done()):
            self._take()

    def settle(self) -> None:
        while self._waiting:
            self._take()

    def _take(self) -> None:
        done, size = self._waiting.popleft()
        self._size -= size
        done.result()
