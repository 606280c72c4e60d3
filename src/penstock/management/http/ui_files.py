"""The web UI's files in ``management/ui``, served without login.

They hold no secret: the page asks for a name and a password and begins a session with them
(``ui_sessions``).  Every file has an ETag: a browser asks each time, and the
server answers 304 while the file is the same, so an old copy never hides a new release.

The policy allows what comes from this server and nothing else: no script or style inside the
markup, no other host, no frame around it.  Only with single sign-on scripts ask its provider, too.
"""

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web
from aiohttp.hdrs import ETAG

FOLDER: Final = Path(__file__).parents[1] / "ui"
POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'"
)
CALLBACK: Final = "/js/oidc-oauth/login-callback.html"
"""Where providers of single sign-on send browsers back, as with RabbitMQ."""
TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


PAGES: Final = {
    "/": "index.html",
    "/api/index.html": "api.html",
    "/cli/index.html": "cli.html",
    CALLBACK: "index.html",
}
MOVED: Final = {
    "/api": "/api/index.html",
    "/api/": "/api/index.html",
    "/cli": "/cli/index.html",
    "/cli/": "/cli/index.html",
    "/doc/stats.html": "/api/index.html",
    "/favicon.ico": "/ui/logo.svg",
}
"""Paths of RabbitMQ's that bookmarks have."""


class UiFile(NamedTuple):
    content: bytes
    content_type: str
    etag: str


class UiFiles:
    """Reads the folder once; what is not in it then cannot be asked for."""

    def __init__(self, folder: Path = FOLDER, providers: tuple[str, ...] = ()) -> None:
        """``providers``: origins that scripts may ask."""
        sources = " ".join(("'self'", *providers))
        self._policy = f"{POLICY}; connect-src {sources}" if providers else POLICY
        self._files = {
            path.relative_to(folder).as_posix(): _read(path)
            for path in folder.rglob("*")
            if path.suffix in TYPES
        }

    def add_routes(self, router: web.UrlDispatcher) -> None:
        for path in PAGES:
            router.add_get(path, self._page)
        for path in MOVED:
            router.add_get(path, self._moved)
        router.add_get("/ui/{name:.+}", self._file)

    async def _page(self, request: web.Request) -> web.Response:
        return self._answer(request, PAGES[request.path])

    async def _moved(self, request: web.Request) -> web.Response:
        raise web.HTTPMovedPermanently(MOVED[request.path])

    async def _file(self, request: web.Request) -> web.Response:
        return self._answer(request, request.match_info["name"])

    def _answer(self, request: web.Request, name: str) -> web.Response:
        found = self._files.get(name)
        if found is None:
            raise web.HTTPNotFound
        headers = {ETAG: f'"{found.etag}"', "Content-Security-Policy": self._policy}
        asked = request.if_none_match or ()
        if any(etag.value in (found.etag, "*") for etag in asked):
            return web.Response(status=304, headers=headers)
        return web.Response(
            body=found.content, content_type=found.content_type, charset="utf-8", headers=headers
        )


def _read(path: Path) -> UiFile:
    content = path.read_bytes()
    return UiFile(content, TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:16])
