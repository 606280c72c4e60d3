"""``AmqpUri``: where a broker is, and how a client logs in there, as RabbitMQ spells it.

    amqp://user:password@host:port/vhost?heartbeat=10
    amqps://host/vhost?cacertfile=...&certfile=...&keyfile=...&verify=verify_peer
    amqp:///vhost    amqp://    this node itself

Names are percent-encoded; a path that is missing or empty is the virtual host ``/``, or another one
of the caller's.
"""

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

PORTS: Final = {"amqp": 5672, "amqps": 5671}
FILES: Final = ("cacertfile", "certfile", "keyfile")
VERIFY: Final = ("verify_peer", "verify_none")
NUMBERS: Final = ("heartbeat", "connection_timeout", "channel_max", "depth")
MILLISECONDS_MAX: Final = 2**31
OTHERS: Final = ("password", "server_name_indication", "auth_mechanism", "fail_if_no_peer_cert")


class AmqpUri(NamedTuple):
    """``host`` "": this node itself; ``user`` None: none is named."""

    tls: bool
    host: str
    port: int
    user: str | None
    password: str | None
    vhost: str
    options: dict[str, str]

    def shown(self) -> str:
        """Without user, password and options."""
        scheme = "amqps" if self.tls else "amqp"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if not host or self.port == PORTS[scheme] else f":{self.port}"
        return f"{scheme}://{host}{port}/{quote(self.vhost, safe='')}"

    def number(self, option: str, absent: int) -> int:
        return int(self.options.get(option, absent))


def parse_amqp_uri(text: str, vhost: str = "/") -> AmqpUri:
    """``vhost``: where the text names none.

    Raises ValueError with the reason; the text, which may hold a password, is not in it.
    """
    parts = urlsplit(text)
    if parts.scheme not in PORTS:
        raise ValueError(f"the scheme is amqp or amqps, not {parts.scheme!r}")
    if parts.fragment:
        raise ValueError("a fragment means nothing")
    path = parts.path.removeprefix("/")
    if "/" in path:
        raise ValueError("a slash in the name of a virtual host is written %2f")
    if parts.scheme == "amqps" and not parts.hostname:
        raise ValueError("a TLS connection needs a host")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name, value in options.items():
        _check_option(name, value)
    user = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    return AmqpUri(
        parts.scheme == "amqps",
        parts.hostname or "",
        parts.port or PORTS[parts.scheme],
        user,
        password,
        unquote(path) if path else vhost,
        options,
    )


def _check_option(name: str, value: str) -> None:
    if name in NUMBERS:
        if not (value.isascii() and value.isdigit() and int(value) < MILLISECONDS_MAX):
            raise ValueError(f"{name} is a number, not {value!r}")
    elif name == "verify":
        if value not in VERIFY:
            raise ValueError(f"verify is verify_peer or verify_none, not {value!r}")
    elif name not in FILES and name not in OTHERS:
        raise ValueError(f"the option {name!r} is not known")
