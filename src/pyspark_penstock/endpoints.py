"""Where the broker is: its URL, the user there, and TLS.

In: the option ``url`` of the data source or ``PENSTOCK_URL``, and the options beside it (``user``,
``password``, ``caCertFile`` ...).  Out: an ``Endpoint``, or a ``ValueError`` with advice.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address
from urllib.parse import parse_qsl, unquote

DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/%2f"
DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}
TLS_OPTIONS = ("caCertFile", "certFile", "keyFile", "verify")
"""Also allowed in the URL behind ``?``, where case does not count either: that is how RabbitMQ's
URLs spell them."""


@dataclass(frozen=True)
class Tls:
    """The authorities to trust and our certificate; paths of files in PEM."""

    ca_cert_file: str | None = None  # None = the system's authorities
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True


@dataclass(frozen=True)
class Endpoint:
    """The broker's address and our user there; ``others``: more nodes of the same cluster."""

    host: str
    port: int
    vhost: str
    user: str
    password: str = field(repr=False)
    tls: Tls | None = None
    others: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def alone(self) -> "Endpoint":
        return replace(self, others=()) if self.others else self

    def nodes(self) -> list["Endpoint"]:
        """One of each, in the order of the URL."""
        first = self.alone()
        return [first, *(replace(first, host=host, port=port) for host, port in self.others)]


def parse_url(url: str, options: Mapping[str, str] | None = None) -> Endpoint:
    """``amqp[s]://user:password@host:port/vhost?cacertfile=…``, of which ``options`` (names in
    small letters) may replace user, password and what concerns TLS.  A password that is nowhere
    there is that of ``PENSTOCK_PASSWORD``.

    ``host:port,host:port`` are nodes of one cluster, which makes it no URL as Python's ``urlsplit``
    knows them.  An empty vhost is ``/``, as clients do it.
    """
    given = options or {}
    parts = _URL.fullmatch(url.strip())
    if parts is None:
        raise ValueError(_SHAPE)
    scheme = parts["scheme"].lower()
    (host, port), *others = _hosts(scheme, parts["hosts"])
    vhost = unquote(parts["vhost"] or "") or "/"
    user, colon, password = ("guest" if parts["who"] is None else parts["who"]).partition(":")
    user, password = unquote(user), unquote(password) if colon else "guest"
    tls = _tls(scheme, parts["query"] or "", given)
    user = given.get("user", user)
    apart = given.get("password")
    if apart is None and parts["who"] is not None and not colon:
        apart = os.environ.get("PENSTOCK_PASSWORD")
    password = password if apart is None else _read(apart)
    return Endpoint(host, port, vhost, user, password, tls, tuple(others))


def _read(password: str) -> str:
    """``file:/etc/penstock/p``: it is in this file; white space at its ends does not count."""
    if not password.startswith("file:"):
        return password.removeprefix("plain:")
    path = password.removeprefix("file:")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"penstock: the file of the password, {path!r}: {error}") from None


_URL = re.compile(
    r"(?P<scheme>amqps?)://(?:(?P<who>[^/?#]*)@)?(?P<hosts>[^/?#]*)"
    r"(?:/(?P<vhost>[^?#]*))?(?:\?(?P<query>[^#]*))?",
    re.IGNORECASE,
)
_NODE = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<name>[\w.-]+))(?::(?P<port>[^\[\]]*))?")
_ESCAPES = "in names and passwords / is written %2F, ? %3F, # %23 and @ %40"
_SHAPE = (
    "penstock: 'url' must look like amqp://user:password@host:5672/vhost, or amqps:// for TLS (a "
    "virtual host named / is written %2f); several nodes of a cluster are host:5672,host:5672, an "
    f"IPv6 address is [::1]; {_ESCAPES}"
)


def _hosts(scheme: str, text: str) -> list[tuple[str, int]]:
    """At least one, each once."""
    found = [_host(one.strip(), DEFAULT_PORTS[scheme]) for one in text.split(",")]
    if len(set(found)) != len(found):
        raise ValueError("penstock: 'url' names a node twice")
    return found


def _host(text: str, default_port: int) -> tuple[str, int]:
    """What is wrong is not repeated: it may be the end of a password."""
    parts = _NODE.fullmatch(text)
    if parts is None:
        raise ValueError(_SHAPE)
    host, percent, zone = (parts["address"] or parts["name"]).partition("%")
    host = host.lower() + percent + zone
    try:
        if parts["address"]:
            IPv6Address(host)
    except ValueError:
        raise ValueError(_SHAPE) from None
    port = parts["port"] or str(default_port)
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise ValueError(f"penstock: 'url' has a bad port: it must be 1 to 65535; {_ESCAPES}")
    return host, int(port)


def endpoint(options: Mapping[str, str]) -> Endpoint:
    """From the option ``url`` or the environment; the names of ``options`` in small letters."""
    url = options.get("url") or os.environ.get("PENSTOCK_URL") or DEFAULT_URL
    return parse_url(url, options)


def _tls(scheme: str, query: str, options: Mapping[str, str]) -> Tls | None:
    known = {name.lower(): name for name in TLS_OPTIONS}
    given = {name.lower(): value for name, value in parse_qsl(query, keep_blank_values=True)}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValueError(
            f"penstock: 'url' has the unknown parameter '{unknown[0]}'; it may have "
            f"{', '.join(known)}"
        )
    given |= {name: options[name] for name in known if name in options}
    if scheme == "amqp":
        if given:
            raise ValueError(f"penstock: option '{known[min(given)]}' needs a 'url' with amqps://")
        return None
    verify = given.get("verify", "verify_peer")
    if verify not in ("verify_peer", "verify_none"):
        raise ValueError(f"penstock: 'verify' is {verify!r}; it must be verify_peer or verify_none")
    if "keyfile" in given and "certfile" not in given:
        raise ValueError("penstock: option 'keyFile' needs 'certFile', the certificate of that key")
    return Tls(
        given.get("cacertfile"),
        given.get("certfile"),
        given.get("keyfile"),
        verify == "verify_peer",
    )
