"""``AskingLoop``: the thread and event loop on which backends ask servers."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final

STOP_TIMEOUT_S: Final = 2.0


class AskingLoop:
    """Of one node; the first question starts the thread.

    ``wake``: makes the data loop look at what has been answered; call it behind each answer.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake: Final = wake
        self._thread: threading.Thread | None = None
        self._begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._lock = threading.Lock()
        self._is_stopped = False
        self._endings: list[Callable[[], Awaitable[None]]] = []

    def run(self, question: Coroutine[Any, Any, None]) -> None:
        """From any thread; the coroutine raises nothing, and is cancelled if the node stops."""
        if self._is_stopped:
            question.close()
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=lambda: asyncio.run(self._serve()), name="auth", daemon=True
                )
                self._thread.start()
        loop, _ = self._begun.result()
        asyncio.run_coroutine_threadsafe(question, loop)

    def at_end(self, close: Callable[[], Awaitable[None]]) -> None:
        """On the loop: what is to be closed there."""
        self._endings.append(close)

    async def _serve(self) -> None:
        stopping = asyncio.Event()
        self._begun.set_result((asyncio.get_running_loop(), stopping))
        await stopping.wait()
        questions = asyncio.all_tasks() - {asyncio.current_task()}
        for question in questions:
            question.cancel()
        await asyncio.gather(*questions, return_exceptions=True)
        for close in self._endings:
            await close()

    def stop(self) -> None:
        """What has not been answered is not answered any more."""
        self._is_stopped = True
        thread = self._thread
        if thread is not None and thread.is_alive():
            loop, stopping = self._begun.result()
            loop.call_soon_threadsafe(stopping.set)
            thread.join(STOP_TIMEOUT_S)
