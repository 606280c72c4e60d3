"""Whether a browser was sent here by the page of another site.

A browser keeps the password of a site and shows it with whatever any page has it ask there, so a
page elsewhere could change the broker (cross-site request forgery); and a page whose name was made
to mean 127.0.0.1 could talk to a broker that listens for this machine only (DNS rebinding).
Browsers say so: in ``Sec-Fetch-Site`` how the page is related to what it asks, in ``Origin`` where
it came from, in ``Host`` what they believe they talk to.  With a GET of a page whose name was made
to mean this machine they send neither of the first two: so of every request from this machine
``Host`` is asked first.  Tools on it name it as it is called.

A reverse proxy on this machine looks like a browser on it: the names under which it is known are a
setting (``http_host_names``).

    guard(names, answer)    the middleware that every HTTP port of a node has
"""

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from penstock.settings.listener_table import is_loopback

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

READING: Final = ("GET", "HEAD", "OPTIONS")
CHANGED_BY_GET: Final = "/api/aliveness-test/"
"""Below this path GET changes something: it declares a queue, as RabbitMQ's does."""
ELSEWHERE: Final = ("cross-site", "same-site")
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
HOST: Final = re.compile(r"(?:\[[^][@]*\]|[^][@:]*)(?::[0-9]*)?")


def refusal(
    method: str,
    headers: Mapping[str, str],
    peer_is_loopback: bool,
    host_names: frozenset[str] = frozenset(),
) -> str:
    """Why it is refused; "" when it is not.  ``host_names``: see ``names_in``."""
    origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
    named = headers.get("Host")
    is_browser = origin is not None or site is not None
    host = named or ""
    names_a_host = is_browser or named is not None
    if peer_is_loopback and names_a_host and not _is_this_machine(host, host_names):
        return (
            f"a program on this machine asks for the host '{host}': use its host name, localhost"
            " or an address, or set http_host_names (a proxy)"
        )
    if not is_browser or method in READING:
        return ""
    if site is not None and site.strip().lower() in ELSEWHERE:
        return f"a page of another site may change nothing here (Sec-Fetch-Site: {site})"
    if origin is not None and not _is_same(origin, host):
        return f"a page from '{origin}' may change nothing at '{host}' (Origin and Host differ)"
    return ""


def guard(
    host_names: frozenset[str],
    answer: Callable[[str], web.Response],
    open_paths: frozenset[str] = frozenset(),
) -> Middleware:
    """``answer`` makes a refusal's reason a response; ``host_names``: see ``names_in``.

    ``open_paths``: to which pages of other sites may send forms.
    """

    @web.middleware
    async def no_other_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_here = is_loopback(request.remote or "")
        method = "GET" if request.path in open_paths else request.method
        if request.path.startswith(CHANGED_BY_GET):
            method = "POST"
        why = refusal(method, request.headers, is_here, host_names)
        return answer(why) if why else await handler(request)

    return no_other_pages


def _is_same(origin: str, host: str) -> bool:
    try:
        scheme = urlsplit(origin).scheme
        default = DEFAULT_PORTS.get(scheme)
        return default is not None and _place(origin, default) == _place(f"//{host}", default)
    except ValueError:  # no port, or no address
        return False


def _place(url: str, default_port: int) -> tuple[str, int]:
    parts = urlsplit(url)
    # Older Pythons look for an address in brackets, and not at what is around it.
    if not parts.hostname or not HOST.fullmatch(parts.netloc):
        raise ValueError(url)
    return parts.hostname, default_port if parts.port is None else parts.port


def names_in(hosts: Iterable[str]) -> frozenset[str]:
    """Of hosts as ``Host`` has them: small letters, and no ports."""
    return frozenset(_name(host) for host in hosts)


def _name(host: str) -> str:
    try:
        return _place(f"//{host}", 0)[0]
    except ValueError:
        return ""


def _is_this_machine(host: str, host_names: frozenset[str]) -> bool:
    name = _name(host)
    own = socket.gethostname().lower()
    if name in ("localhost", own, own.partition(".")[0]) or (name and name in host_names):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
