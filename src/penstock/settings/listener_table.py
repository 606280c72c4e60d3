"""``LISTENERS``: every listener, and what a client may do there without a log-in.

The one table for the sockets that are opened, the start screen, ``penstock config check``, the
table of SECURITY.md (a test compares) and the test that asks each of them from another machine.
"""

import ipaddress
import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.settings.settings import DECLARED, Settings
from penstock.settings.tls import tls_view

NOTHING: Final = "nothing"
BIND: Final = ("bind",)


class ListenerKind(NamedTuple):
    """A row.  ``place_key`` is the setting of its port, or of the path of its Unix socket."""

    protocol: str
    """As ``rabbitmqctl status`` names it; a Unix socket has that of its TCP sibling."""
    place_key: str
    binds: tuple[str, ...]
    """Settings of its address, the first that is not empty counts; none: a Unix socket."""
    title: str
    url: str
    """On the start screen; ``{}`` is the host and the port, or the path."""
    purpose: str
    here: str = NOTHING
    """What a client of this machine may do without a log-in."""
    elsewhere: str = NOTHING
    """The same of a client of another machine."""
    opened_by: tuple[str, ...] = ()
    """Settings without each of which it is closed, whatever its port."""
    tls: str | None = None
    """The setting with what its TLS has of its own, "" = nothing; None: it has none."""
    begins_plain: bool = False
    """Its clients ask for TLS, where there is a certificate, in a first message without it."""
    takes_free_port: bool = False
    """Port 0 is a free one; otherwise the listener is closed then."""
    widened_by: str = ""
    """A setting with which ``widened`` holds for every client."""
    widened: str = ""
    log_in_by: tuple[str, ...] = ()
    """Settings with which a client of this machine, too, may do no more than the others."""

    @property
    def is_unix(self) -> bool:
        return not self.binds

    def address(self, settings: Settings) -> str:
        """Of its TCP port."""
        return next(str(settings.value_of(key)) for key in self.binds if settings.value_of(key))

    def port(self, settings: Settings) -> int:
        return int(str(settings.value_of(self.place_key)))

    def is_open(self, settings: Settings) -> bool:
        view = settings if self.tls is None else tls_view(settings, self.tls)
        if not all(view.value_of(key) for key in self.opened_by):
            return False
        return self.takes_free_port or bool(settings.value_of(self.place_key))

    def speaks_tls(self, settings: Settings) -> bool:
        """Whether it is open, and what clients send there can be encrypted."""
        if self.tls is None or not self.is_open(settings):
            return False
        return not self.begins_plain or bool(tls_view(settings, self.tls).ssl_certfile)

    def place(self, settings: Settings) -> str:
        """Host and port, or the whole path."""
        where = settings.value_of(self.place_key)
        if self.is_unix:
            return os.path.abspath(str(where))
        return host_and_port(self.address(settings), where)

    def is_wide_open(self, settings: Settings) -> bool:
        """May clients of other machines do there, without a log-in, what others should not?"""
        if self.is_unix or stays_here(self.address(settings)):
            return False
        return self.without_log_in(settings) not in (NOTHING, PING, PAGES, SUMS)

    def without_log_in(self, settings: Settings) -> str:
        """What a client may do there, of the machines that the address lets in."""
        if any(settings.value_of(key) for key in self.log_in_by):
            return self.elsewhere
        if self.widened_by and settings.value_of(self.widened_by):
            return self.widened
        if self.is_unix or stays_here(self.address(settings)):
            return self.here
        return self.elsewhere


AMQP: Final = "amqp"
AMQP_SSL: Final = "amqp/ssl"
HTTP: Final = "http"
HTTPS: Final = "https"
METRICS: Final = "http/prometheus"
METRICS_HTTPS: Final = "https/prometheus"
NSQ: Final = "nsq"
NSQ_HTTP: Final = "nsq/http"
NSQ_HTTPS: Final = "nsq/https"
LOOKUP: Final = "nsqlookupd"
LOOKUP_TLS: Final = "nsqlookupd/tls"
LOOKUP_HTTP: Final = "nsqlookupd/http"
LOOKUP_HTTPS: Final = "nsqlookupd/https"
PEER: Final = "peer"
"""Other nodes: a node that is drained goes on with them."""
AS_DEFAULT: Final = "everything the default user may"
AS_NSQ_USER: Final = "everything that user may"
PAGES: Final = "pages of the UI, `/healthz/*`, three health checks, the description of the API"
PING: Final = "`/ping`"
SUMS: Final = "sums over queues"
NAMES: Final = "also names of queues, connections and virtual hosts"
REGISTRY: Final = "everything: look up and change the registry"

LISTENERS: Final = (
    ListenerKind(AMQP, "amqp_port", BIND, "AMQP", "amqp://{}", "AMQP, and Spark's protocol",
         opened_by=("amqp_listener",), takes_free_port=True),
    ListenerKind(AMQP_SSL, "ssl_port", ("ssl_bind", "bind"), "AMQP", "amqps://{}",
         "the same over TLS", opened_by=("ssl_certfile", "ssl_listener"), tls="",
         takes_free_port=True),
    ListenerKind(AMQP, "unix_socket", (), "AMQP", "{} (Unix socket)", "the same as `amqp_port`"),
    ListenerKind(HTTP, "http_port", ("http_bind", "bind"), "management", "http://{}/",
         "management API and UI", here=PAGES, elsewhere=PAGES,
         opened_by=("http_listener",), takes_free_port=True),
    ListenerKind(HTTPS, "https_port", ("https_bind", "http_bind", "bind"), "management",
         "https://{}/", "the same over TLS", here=PAGES, elsewhere=PAGES, tls="https_tls"),
    ListenerKind(METRICS, "prometheus_port", ("http_bind", "bind"), "metrics", "http://{}/metrics",
         "metrics", here=f"{SUMS}; {NAMES}", elsewhere=SUMS,
         widened_by="prometheus_objects_open", widened=f"{SUMS}; {NAMES}"),
    ListenerKind(METRICS_HTTPS, "prometheus_https_port", ("http_bind", "bind"), "metrics",
         "https://{}/metrics", "the same over TLS", here=f"{SUMS}; {NAMES}", elsewhere=SUMS,
         widened_by="prometheus_objects_open", widened=f"{SUMS}; {NAMES}", tls="prometheus_tls"),
    ListenerKind(NSQ, "nsq_port", ("nsq_tcp_bind", "bind"), "NSQ", "{}", "NSQ",
         here=AS_DEFAULT, widened_by="nsq_user", widened=AS_NSQ_USER,
         log_in_by=("nsq_auth_required", "nsq_auth_http_addresses"),
         tls="nsq_tls", begins_plain=True),
    ListenerKind(NSQ, "nsq_unix_socket", (), "NSQ", "{} (Unix socket)", "the same as `nsq_port`",
         here=AS_DEFAULT, widened_by="nsq_user", widened=AS_NSQ_USER,
         log_in_by=("nsq_auth_required", "nsq_auth_http_addresses"),
         tls="nsq_tls", begins_plain=True),
    ListenerKind(NSQ_HTTP, "nsq_http_port", ("nsq_http_bind", "bind"), "NSQ", "http://{}/",
         "NSQ over HTTP",
         here=AS_DEFAULT, elsewhere=PING, widened_by="nsq_user", widened=AS_NSQ_USER,
         log_in_by=("nsq_auth_required",)),
    ListenerKind(NSQ_HTTP, "nsq_http_unix_socket", (), "NSQ", "{} (Unix socket, HTTP)",
         "the same as `nsq_http_port`", here=AS_DEFAULT, elsewhere=PING,
         widened_by="nsq_user", widened=AS_NSQ_USER, log_in_by=("nsq_auth_required",)),
    ListenerKind(NSQ_HTTPS, "nsq_https_port", ("nsq_https_bind", "bind"), "NSQ", "https://{}/",
         "NSQ over HTTPS",
         here=AS_DEFAULT, elsewhere=PING, opened_by=("ssl_certfile",), tls="nsq_tls",
         widened_by="nsq_user", widened=AS_NSQ_USER, log_in_by=("nsq_auth_required",)),
    ListenerKind(LOOKUP, "nsqlookupd_tcp_port", ("nsqlookupd_bind",), "nsqlookupd", "{}",
         "nsqlookupd, for nodes", here=REGISTRY, elsewhere=REGISTRY),
    ListenerKind(LOOKUP_TLS, "nsqlookupd_tls_port", ("nsqlookupd_bind",), "nsqlookupd", "{} (TLS)",
         "the same over TLS", here=REGISTRY, elsewhere=REGISTRY, tls="nsqlookupd_tls"),
    ListenerKind(LOOKUP_HTTP, "nsqlookupd_http_port", ("nsqlookupd_http_bind", "nsqlookupd_bind"),
         "nsqlookupd", "http://{}/", "nsqlookupd, for consumers",
         here=REGISTRY, elsewhere=REGISTRY),
    ListenerKind(LOOKUP_HTTPS, "nsqlookupd_https_port",
         ("nsqlookupd_http_bind", "nsqlookupd_bind"), "nsqlookupd", "https://{}/",
         "the same over TLS", here=REGISTRY, elsewhere=REGISTRY, tls="nsqlookupd_tls"),
    ListenerKind(PEER, "cluster_port", ("cluster_bind", "bind"), "cluster", "{}",
         "other nodes, which show the cluster's secret",
         opened_by=("cluster_etcd_endpoints",), takes_free_port=True),
    ListenerKind(PEER, "cluster_unix_socket", (), "cluster", "{} (Unix socket)",
         "the same as `cluster_port`", opened_by=("cluster_etcd_endpoints",)),
)  # fmt: skip


def listener_at(place_key: str) -> ListenerKind:
    """The row whose port, or path, this setting says."""
    return next(kind for kind in LISTENERS if kind.place_key == place_key)


def listener_of(protocol: str) -> ListenerKind:
    """The row of a protocol over TCP.  Raises StopIteration for one that none serves."""
    return next(kind for kind in LISTENERS if kind.protocol == protocol and not kind.is_unix)


def open_listeners(settings: Settings) -> Iterator[ListenerKind]:
    return (kind for kind in LISTENERS if kind.is_open(settings))


def host_and_port(host: str, port: object) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Does a peer at this address sit on this machine?"""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def stays_here(bound: str) -> bool:
    """Can only clients of this machine reach a listener at this address?"""
    return bound == "localhost" or is_loopback(bound)


def plain_text_risks(settings: Settings) -> list[str]:
    """What becomes of passwords that clients of other machines send without TLS, in sentences."""
    plain = [
        kind.place(settings)
        for kind in open_listeners(settings)
        if kind.tls is None
        and kind.protocol in (AMQP, HTTP, NSQ_HTTP)
        and not (kind.is_unix or stays_here(kind.address(settings)))
    ]
    if not plain:
        return []
    if settings.plain_text_passwords:
        return [f"passwords cross the network in plain text to {', '.join(plain)}"]
    text = f"passwords from other machines are refused at {', '.join(plain)}, which have no TLS"
    return [f"{text}: use ports with TLS, or set plain_text_passwords"]


def etcd_risks(settings: Settings) -> list[str]:
    """What a client of etcd on another machine could do to the cluster, in sentences (M5)."""
    far = [one for one in settings.cluster_etcd_endpoints if not _is_here(one)]
    lacking = []
    if not settings.cluster_etcd_user:
        lacking.append("a user (cluster_etcd_user)")
    if not settings.cluster_etcd_tls:
        lacking.append("TLS (cluster_etcd_tls)")
    if not far or not lacking:
        return []
    named = f"etcd at {', '.join(far)} is used without {' and '.join(lacking)}"
    return [f"{named}: other clients of it can read password hashes, and delete users and queues"]


def _is_here(endpoint: str) -> bool:
    host = endpoint.rpartition(":")[0]
    return endpoint.startswith("unix:") or stays_here(host.removeprefix("[").removesuffix("]"))


def security_rows() -> list[str]:
    return [f"| {' | '.join(_security_row(kind))} |" for kind in LISTENERS]


def _security_row(kind: ListenerKind) -> tuple[str, ...]:
    default = DECLARED[kind.place_key].default
    allowed = kind.here if kind.here == kind.elsewhere else f"{kind.here} (this machine)"
    if kind.here != kind.elsewhere:
        allowed += f"; {kind.elsewhere} (other machines)"
    if kind.widened_by:
        allowed += f"; with `{kind.widened_by}`: {kind.widened} (all)"
    if kind.log_in_by:
        keys = " or ".join(f"`{key}`" for key in kind.log_in_by)
        allowed += f"; with {keys}: {kind.elsewhere} (all)"
    return (
        "path" if kind.is_unix else str(default),
        f"`{kind.place_key}`",
        ", else ".join(f"`{key}`" for key in kind.binds) or "none",
        kind.purpose,
        " and ".join(f"`{key}`" for key in kind.opened_by),
        allowed,
    )
