"""Live answers: ``GET /api/penstock/live?path=…&path=…&interval_ms=…``, server-sent events.

Every interval each path is asked as if the visitor had asked it with GET, and what differs from
the answer sent last goes out:

    event: 0            the number of the path in the query
    data: {…}           its JSON

    event: 0.error      the path could not be answered; sent once as long as it stays so
    data: {"status": 404, "error": …, "reason": …}

So whatever is a GET can be live, through the same endpoints and the same rights; the visitor is
found out anew each time, and a user who was removed hears 401 and no more.
Streams (in all, and of one user), paths and the length of an answer are bounded, and so is the time
an answer may take from others: a path whose answer was dear is asked the more rarely (``pause_s``),
so that a list of ten thousand queues, sorted by length, takes a sixtieth of a processor at most.
The stream ends when the server stops.
"""

import asyncio
import hashlib
import time
from contextlib import suppress
from typing import Final

from aiohttp import web
from aiohttp.hdrs import WWW_AUTHENTICATE

from penstock.management.http.access import Visitor
from penstock.management.http.bodies import to_json
from penstock.management.http.endpoints import Context, Endpoints
from penstock.management.http.listing import BadQuery

STREAMS_MAX: Final = 64
STREAMS_OF_USER_MAX: Final = 12
"""One user, or one page left open all over a floor, does not take those of all others."""
PATHS_MAX: Final = 16
ANSWER_MAX_BYTES: Final = 1024 * 1024
INTERVAL_MIN_MS: Final = 1000
INTERVAL_MAX_MS: Final = 60_000
PAUSE_SHARE: Final = 4.0
"""A path is left alone so many times as long as its answer took."""
PROCESSOR_SHARE: Final = 60.0
"""From one look to the next, so many times the processor time of the broker that it took."""
STILL_HERE_S: Final = 15.0
"""Proxies between here and the browser close what is silent for long."""
WRITE_TIMEOUT_S: Final = 30.0
"""Who does not take an event for so long does not watch."""
LOOK_S: Final = 0.05
"""The least between two rounds, however the paths fall due."""
JSON: Final = "application/json"
END: Final = b": the log-in does not hold any more\n\n"
LIVE: Final = "/api/penstock/live"


class LiveApi(Endpoints):
    heading = "live"
    table = """
        user  penstock/live  GET=live  Other GETs as they change, as server-sent events
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._streams: list[tuple[web.Request, str]] = []  # and the user of each
        self._stopped = asyncio.Event()

    async def close(self) -> None:
        self._stopped.set()

    async def live(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        paths = _paths(request.query.getall("path", []))
        interval_s = _interval_ms(request.query.get("interval_ms", "1000")) / 1000
        self._take_place(request, visitor.name)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.headers["X-Accel-Buffering"] = "no"  # nginx would collect the events
        try:
            with suppress(ConnectionResetError):  # the browser went away
                await response.prepare(request)
                if request.method != "HEAD":
                    await self._stream(request, response, paths, interval_s)
        finally:
            self._streams = [stream for stream in self._streams if stream[0] is not request]
        return response

    def _take_place(self, request: web.Request, user: str) -> None:
        """Count the stream of this request; raises HTTPServiceUnavailable at the limit.

        A stream looks for its browser once in an interval.  The streams whose browsers went
        away end here, or a user who walks through the pages would meet the limit.
        """
        for other, _ in self._streams:
            if _is_gone(other):
                other.task.cancel()
        self._streams = [stream for stream in self._streams if not _is_gone(stream[0])]
        if len(self._streams) >= STREAMS_MAX:
            raise web.HTTPServiceUnavailable(reason=f"{STREAMS_MAX} streams are open already")
        if sum(name == user for _, name in self._streams) >= STREAMS_OF_USER_MAX:
            reason = f"{STREAMS_OF_USER_MAX} streams of this user are open already"
            raise web.HTTPServiceUnavailable(reason=reason)
        self._streams.append((request, user))

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        paths: list[str],
        interval_s: float,
    ) -> None:
        sent = [b""] * len(paths)
        due_s = [0.0] * len(paths)
        wrote_s = time.monotonic()
        await _write(request, response, b": live\n\n")
        while not self._stopped.is_set() and not _is_gone(request):
            for number, path in enumerate(paths):
                began_s, used_s = time.monotonic(), time.process_time()
                if began_s < due_s[number]:
                    continue
                event = await self._event(request, number, path)
                took_s, used_s = time.monotonic() - began_s, time.process_time() - used_s
                due_s[number] = began_s + pause_s(interval_s, took_s, used_s)
                digest = hashlib.blake2b(event, digest_size=16).digest()
                if digest != sent[number]:
                    sent[number] = digest
                    wrote_s = time.monotonic()
                    await _write(request, response, event)
                if event.endswith(END):
                    return
            if time.monotonic() - wrote_s >= STILL_HERE_S:
                wrote_s = time.monotonic()
                await _write(request, response, b": still here\n\n")
            with suppress(TimeoutError):
                wait_s = min(due_s) - time.monotonic()
                await asyncio.wait_for(self._stopped.wait(), max(LOOK_S, min(wait_s, interval_s)))

    async def _event(self, request: web.Request, number: int, path: str) -> bytes:
        answer = await self._context.answer_get(request, path)
        body = await _body(answer)
        if answer.status == 200 and answer.content_type != JSON:
            body = to_json({"error": "no_json", "reason": "only answers in JSON can be live"})
        elif answer.status == 200 and len(body) > ANSWER_MAX_BYTES:
            reason = f"the answer is longer than {ANSWER_MAX_BYTES} bytes: ask for a page of it"
            body = to_json({"error": "too_long", "reason": reason})
        elif answer.status == 200:
            return b"event: %d\ndata: %b\n\n" % (number, body)
        fault = b'{"status":%d,"answer":%b}' % (answer.status, body or b"null")
        end = END if WWW_AUTHENTICATE in answer.headers else b""
        return b"event: %d.error\ndata: %b\n\n%b" % (number, fault, end)


def pause_s(interval_s: float, took_s: float, used_s: float) -> float:
    """From the beginning of one look at a path to that of the next.

    ``used_s``: processor time of all threads meanwhile; what clients need of it counts as well, so
    that a broker at work is asked the more rarely.
    """
    return max(interval_s, took_s * (1 + PAUSE_SHARE), used_s * PROCESSOR_SHARE)


async def _write(request: web.Request, response: web.StreamResponse, event: bytes) -> None:
    """Raises ConnectionResetError when the browser went away or does not read."""
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await response.write(event)
    except TimeoutError as error:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("an event was not taken in time") from error


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


async def _body(answer: web.StreamResponse) -> bytes:
    """What an endpoint answered, without sending it; JSON without line ends, as all of ours is."""
    if not isinstance(answer, web.Response):
        return b""
    if answer.body is None or isinstance(answer.body, (bytes, bytearray)):
        return bytes(answer.body or b"")
    return bytes(await answer.body.as_bytes())


def _paths(paths: list[str]) -> list[str]:
    if not 1 <= len(paths) <= PATHS_MAX:
        raise BadQuery(f"path: 1 to {PATHS_MAX} of them, {len(paths)} given")
    for path in paths:
        if not path.startswith("/api/") or path.startswith(LIVE):
            raise BadQuery(f"path: '{path}' is no path of the API that can be live")
    return paths


def _interval_ms(text: str) -> int:
    interval_ms = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    if not INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
        raise BadQuery(f"interval_ms: {INTERVAL_MIN_MS} to {INTERVAL_MAX_MS}, not '{text}'")
    return interval_ms
