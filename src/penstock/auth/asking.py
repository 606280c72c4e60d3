"""``AskingLoop``: the thread and event loop on which backends ask servers."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from penstock.side_loop import SideLoop

STOP_TIMEOUT_S: Final = 2.0


class AskingLoop:
    """Of one node; the first question starts the thread.

    ``wake``: makes the data loop look at what has been answered; call it behind each answer.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake: Final = wake
        self._side = SideLoop("auth", self._serve)
        self._lock = threading.Lock()
        self._has_begun = False
        self._endings: list[Callable[[], Awaitable[None]]] = []

    def run(self, question: Coroutine[Any, Any, None]) -> None:
        """From any thread; the coroutine raises nothing, and is cancelled if the node stops."""
        with self._lock:
            if not self._has_begun:
                self._has_begun = True
                self._side.start()
        self._side.run(question)

    def at_end(self, close: Callable[[], Awaitable[None]]) -> None:
        """On the loop: what is to be closed there."""
        self._endings.append(close)

    async def _serve(self) -> None:
        self._side.ready()
        await self._side.stopping.wait()
        questions = asyncio.all_tasks() - {asyncio.current_task()}
        for question in questions:
            question.cancel()
        await asyncio.gather(*questions, return_exceptions=True)
        for close in self._endings:
            await close()

    def stop(self) -> None:
        """What has not been answered is not answered any more."""
        self._has_begun = True
        self._side.stop(STOP_TIMEOUT_S)
