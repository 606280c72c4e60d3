"""``SideLoop``: a thread with an event loop of asyncio, beside the broker's own loop."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

STOP_TIMEOUT_S: Final = 5.0

log = logging.getLogger("penstock.threads")


class SideLoop:
    """``serve`` runs on the loop: it calls ``ready`` once what it serves is there, waits for
    ``stopping``, and closes what it opened.
    """

    def __init__(self, name: str, serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.stopping: Final = asyncio.Event()
        self._serve = serve
        self._started: Future[None] = Future()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run()), name=name, daemon=True
        )
        self.loop: asyncio.AbstractEventLoop | None = None  # from the start on

    def start(self) -> None:
        """Returns when ``serve`` is ready; raises what it raised before, after its end."""
        self._thread.start()
        self._started.result()

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            await self._serve()
        except BaseException as error:
            if self._started.done():
                log.exception("the thread %s has ended", self._thread.name)
            else:
                self._started.set_exception(error)

    def ready(self) -> None:
        self._started.set_result(None)

    async def pause(self, seconds: float) -> bool:
        """On the loop; ends early, with True, when it is to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        return self.stopping.is_set()

    def call(self, function: Callable[..., object], *arguments: object) -> bool:
        """On the loop, soon; from any thread.  False: it has not begun, or is over."""
        if self.loop is None:
            return False
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return False
        return True

    def call_later(self, delay_s: float, function: Callable[..., object]) -> None:
        """As ``call``, after that time, unless the loop is over by then."""
        self.call(lambda: asyncio.get_running_loop().call_later(delay_s, function))

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """As ``call``."""

        def begin() -> None:
            task = asyncio.ensure_future(coroutine)
            self._tasks.add(task)  # the loop keeps none
            task.add_done_callback(self._tasks.discard)

        if not self.call(begin):
            coroutine.close()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """And wait for the thread; may be called twice, from any thread."""
        if self.call(self.stopping.set):
            self._thread.join(timeout_s)
