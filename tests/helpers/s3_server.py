"""nanio as ``object_store`` runs it, and what nanio 0.1.7 lacks: ``If-None-Match: *`` of a PUT.

    python -m tests.helpers.s3_server DIRECTORY PORT [careless]

An object whose name is taken is refused then, which logs of Delta tables rest on; ``careless``: it
is not.  Keys are in NANIO_ACCESS_KEY and NANIO_SECRET_KEY.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

TAKEN = b"<Error><Code>PreconditionFailed</Code><Message>It is there.</Message></Error>"


class Conditional:
    """In front of ``app``, which keeps objects below ``directory``; one such PUT at a time."""

    def __init__(self, app: Any, directory: Path) -> None:
        self._app = app
        self._directory = directory
        self._alone = asyncio.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if scope.get("method") != "PUT" or headers.get(b"if-none-match") != b"*":
            await self._app(scope, receive, send)
            return
        async with self._alone:
            if (self._directory / unquote(scope["path"]).lstrip("/")).exists():
                await _refuse(receive, send)
            else:
                await self._app(scope, receive, send)


async def _refuse(receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    length = (b"content-length", b"%d" % len(TAKEN))
    await send({"type": "http.response.start", "status": 412, "headers": [length]})
    await send({"type": "http.response.body", "body": TAKEN})


def main(directory: str, port: str, careless: str = "") -> None:
    import uvicorn
    from nanio.app import build_app

    os.environ["NANIO_DATA_DIR"] = directory
    nanio = build_app()
    app = nanio if careless else Conditional(nanio, Path(directory))
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning", access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
