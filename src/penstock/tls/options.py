"""TLS of the listeners: certificates, who is asked for one, and the user that it names.

    settings ─► TlsSet: for each listener with TLS its TlsOptions ─► contexts of Python's ssl

A node has one ``TlsSet``.  When settings are read again all options are made anew first; what is
wrong in any of them leaves all as they were.  A listener takes ``TlsOptions.context`` for each
connection, so that the next handshake is with the certificates that are in force then.
"""

import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.errors import SettingInvalid
from penstock.core.events.line_limit import LineLimit
from penstock.secrets.sources import secret_of
from penstock.settings.listener_table import LISTENERS, ListenerKind
from penstock.settings.settings import Settings
from penstock.settings.tls import (
    ALTERNATIVE_NAME,
    COMMON_NAME,
    DISTINGUISHED_NAME,
    overridden,
    tls_view,
)
from penstock.tls.dates import Certificate, certificates
from penstock.tls.names import alternative_name, common_name, distinguished_name

ROUND_S: Final = 0.010
HANDSHAKES_S: Final = 0.005
"""So much of each round is for handshakes; those that are left over come in the next one."""
SAID_MAX: Final = 5
"""Failed handshakes of one host that are lines of the log in a minute."""
VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
CRL_FLAGS: Final = {"no": 0, "peer": ssl.VERIFY_CRL_CHECK_LEAF, "chain": ssl.VERIFY_CRL_CHECK_CHAIN}
ANY_DEPTH: Final = 100
BETWEEN_NODES: Final = ("verify=verify_peer", "fail_if_no_peer_cert=true", "min_version=1.3")


logger: Final = logging.getLogger("penstock.tls")


class NamingRule(NamedTuple):
    """Which part of a client's certificate names its user; ``part`` "": none does."""

    part: str = ""
    san_type: str = "dns"
    san_index: int = 0

    def name_in(self, certificate: dict[str, Any] | None) -> str | None:
        """The user, "" when it names none; None = certificates name none."""
        found = certificate or {}
        if self.part == COMMON_NAME:
            return common_name(found.get("subject", ()))
        if self.part == DISTINGUISHED_NAME:
            return distinguished_name(found.get("subject", ()))
        if self.part == ALTERNATIVE_NAME:
            return alternative_name(found.get("subjectAltName", ()), self.san_type, self.san_index)
        return None


class HandshakeBudget:
    """Handshakes are dear: those of all listeners together get a share of the loop's time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock: Final = clock
        self._round_over_s = 0.0
        self._spent_s = 0.0

    def is_left(self) -> bool:
        """Is there time left for one in this round?"""
        now_s = self.clock()
        if not 0 < self._round_over_s - now_s <= ROUND_S:
            self._round_over_s = now_s + ROUND_S
            self._spent_s = 0.0
        return self._spent_s < HANDSHAKES_S

    def count(self, began_s: float) -> None:
        """One that began then, or a part of it, is done."""
        self._spent_s += self.clock() - began_s


class TlsOptions:
    """What a listener with TLS offers, and how it names clients that show a certificate."""

    def __init__(
        self,
        context: ssl.SSLContext,
        rule: NamingRule | None = None,
        budget: HandshakeBudget | None = None,
        certificates: Mapping[str, Sequence[Certificate]] | None = None,
        depth: int = ANY_DEPTH,
        by_name: dict[str, ssl.SSLContext] | None = None,
    ) -> None:
        """``certificates``: that were loaded, by their setting.

        ``depth``: so many certificates may stand between a client's and its authority's;
        ``by_name``: contexts for clients that name their host.
        """
        self.context = context
        self.certificates = certificates or {}
        self.budget: Final = budget or HandshakeBudget()
        self.failed_count = 0
        self._lines = LineLimit(SAID_MAX)
        self.rule = rule or NamingRule()
        self.depth = depth
        self.by_name = by_name or {}
        if by_name:
            context.sni_callback = self._choose

    def renew(self, other: "TlsOptions") -> None:
        """From now on with the certificates, the rules and the names of the other."""
        self.context = other.context
        self.certificates = other.certificates
        self.rule = other.rule
        self.depth = other.depth
        self.by_name = other.by_name

    def _choose(
        self, client: ssl.SSLSocket | ssl.SSLObject, name: str | None, _first: ssl.SSLContext
    ) -> None:
        """The certificate of the host that a client wants; called in its handshake."""
        wanted = (name or "").lower()
        found = self.by_name.get(wanted) or self.by_name.get(f"*.{wanted.partition('.')[2]}")
        if found is not None:
            client.context = found

    def failed(self, host: str, error: Exception) -> None:
        """A handshake with that host has failed: count it, and say so within bounds."""
        self.failed_count += 1
        if self._lines.allows(host, self.budget.clock()):
            logger.warning("TLS handshake with %s failed: %s", host, error)

    def login(self, tls: ssl.SSLObject) -> str | None:
        """After the handshake: the user that the peer's certificate names, "" when it names none.

        None = certificates name none.  Raises ValueError where the chain is too long.
        """
        certificate = tls.getpeercert()
        if certificate:
            # Python has no setting for it, and a public name for the chain since 3.13 only.
            between = len(tls._sslobj.get_verified_chain()) - 2  # type: ignore[attr-defined]  # noqa: SLF001
            if between > self.depth:
                raise ValueError(f"{between} certificates between the peer's and its authority's")
        return self.rule.name_in(certificate)


class TlsSet:
    """The options of every listener of a node that speaks TLS; raises SettingInvalid."""

    def __init__(self, settings: Settings) -> None:
        self.by_key: dict[str, TlsOptions] = {}
        self.calling: TlsOptions | None = None
        """For calling other nodes of the cluster."""
        budget = HandshakeBudget()
        for kind in LISTENERS:
            if kind.tls is None or kind.tls in self.by_key or not kind.speaks_tls(settings):
                continue
            options = tls_options(tls_view(settings, kind.tls), budget)
            if options is None:
                raise SettingInvalid(
                    f"{kind.place_key} is set, but neither ssl_certfile nor a certfile in"
                    f" {kind.tls}: there would be no TLS"
                )
            self.by_key[kind.tls] = options
        if not self.by_key:
            tls_options(settings)  # raises for settings that stand alone
        between = tls_between_nodes(settings)
        if between is not None:
            self.by_key["cluster_tls"], self.calling = between

    def of(self, kind: ListenerKind) -> TlsOptions | None:
        """None: this listener speaks without TLS."""
        return None if kind.tls is None else self.by_key.get(kind.tls)

    def between_nodes(self) -> tuple[TlsOptions, TlsOptions] | None:
        """For being called and for calling."""
        called = self.by_key.get("cluster_tls")
        return None if called is None or self.calling is None else (called, self.calling)

    def failed_count(self) -> int:
        """Handshakes of all listeners that failed."""
        return sum(options.failed_count for options in self.by_key.values())

    def all(self) -> Iterator[TlsOptions]:
        yield from self.by_key.values()
        if self.calling is not None:
            yield self.calling

    def renew(self, other: "TlsSet") -> None:
        """Each listener goes on with the certificates that the other set has for it."""
        for key, options in self.by_key.items():
            new = other.by_key.get(key)
            if new is not None:
                options.renew(new)
        if self.calling is not None and other.calling is not None:
            self.calling.renew(other.calling)


def tls_between_nodes(settings: Settings) -> tuple[TlsOptions, TlsOptions] | None:
    """For being called and for calling; both sides must show a certificate of the authority.

    None = no TLS was asked for.  Raises SettingInvalid.
    """
    files = {
        "certfile": settings.cluster_tls_certfile,
        "keyfile": settings.cluster_tls_keyfile,
        "cacertfile": settings.cluster_tls_cacertfile,
    }
    keys = ", ".join(f"cluster_tls_{word}" for word in files)
    missing = [word for word, path in files.items() if not path]
    if len(missing) == len(files):
        if settings.cluster_tls:
            raise SettingInvalid(f"cluster_tls needs {keys}")
        return None
    if missing:
        raise SettingInvalid(f"TLS between nodes needs {keys}; not set: cluster_tls_{missing[0]}")
    entries = [*BETWEEN_NODES, *(f"{word}={path}" for word, path in files.items())]
    entries += settings.cluster_tls
    view = overridden(settings, entries, "between nodes")
    if view.ssl_verify != "verify_peer" or not view.ssl_fail_if_no_peer_cert:
        raise SettingInvalid(
            "cluster_tls: verify and fail_if_no_peer_cert stay as they are: both nodes show a"
            " certificate in any case"
        )
    called = tls_options(view)
    assert called is not None
    calling = _context(view, ssl.PROTOCOL_TLS_CLIENT)
    return called, TlsOptions(calling, depth=view.ssl_depth)


def tls_options(settings: Settings, budget: HandshakeBudget | None = None) -> TlsOptions | None:
    """None = no TLS was asked for; raises SettingInvalid for what cannot work."""
    if not settings.ssl_certfile:
        _refuse_half_of_it(settings)
        return None
    context = _context(settings, ssl.PROTOCOL_TLS_SERVER)
    by_name = {}
    for entry in settings.ssl_sni:
        name, _, files = entry.partition("=")
        certificate, _, key = files.partition(":")
        certified = {"ssl_certfile": certificate, "ssl_keyfile": key or certificate}
        view = settings.with_values(certified, f"in ssl_sni, for {name}")
        by_name[name.lower()] = _context(view, ssl.PROTOCOL_TLS_SERVER)
    files_of = {
        "cacertfile": [settings.ssl_cacertfile] if settings.ssl_cacertfile else [],
        "certfile": [settings.ssl_certfile],
        "sni": [entry.partition("=")[2].partition(":")[0] for entry in settings.ssl_sni],
    }
    loaded = {
        key: [one for path in paths for one in certificates(path)]
        for key, paths in files_of.items()
        if paths
    }
    rule = NamingRule(
        settings.ssl_cert_login_from,
        settings.ssl_cert_login_san_type,
        settings.ssl_cert_login_san_index,
    )
    return TlsOptions(context, rule, budget, loaded, settings.ssl_depth, by_name)


def calling_context(settings: Settings) -> ssl.SSLContext:
    """For calling nsqlookupds of others; raises SettingInvalid."""
    view = tls_view(settings, "nsqlookupd_tls")
    context = ssl.create_default_context()
    if view.ssl_cacertfile:
        _load_authorities(context, "ssl_cacertfile", view.ssl_cacertfile)
    if view.ssl_certfile:
        _load_certificate(context, view)
    return context


def _context(settings: Settings, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    oldest, newest = settings.ssl_min_version, settings.ssl_max_version
    if oldest > newest:
        raise SettingInvalid(f"ssl_min_version = {oldest} is above ssl_max_version = {newest}")
    context.minimum_version, context.maximum_version = VERSIONS[oldest], VERSIONS[newest]
    context.options |= ssl.OP_NO_RENEGOTIATION
    if settings.ssl_ciphers:
        try:
            context.set_ciphers(settings.ssl_ciphers)
        except ssl.SSLError as error:
            raise SettingInvalid(
                f"ssl_ciphers = {settings.ssl_ciphers!r} names no cipher suite of TLS 1.2 that"
                " OpenSSL knows"
            ) from error
    _load_certificate(context, settings)
    if settings.ssl_cacertfile:
        _load_authorities(context, "ssl_cacertfile", settings.ssl_cacertfile)
    if settings.ssl_verify == "verify_peer":
        _verify_peers(context, settings)
        return context
    for key in ("ssl_fail_if_no_peer_cert", "ssl_cert_login_from"):
        if settings.value_of(key):
            raise SettingInvalid(f"{key} needs ssl_verify = 'verify_peer'")
    if settings.ssl_crl_check != "no":
        raise SettingInvalid("ssl_crl_check needs ssl_verify = 'verify_peer'")
    return context


def _verify_peers(context: ssl.SSLContext, settings: Settings) -> None:
    if not settings.ssl_cacertfile:
        raise SettingInvalid("ssl_verify = 'verify_peer' needs ssl_cacertfile: whom to trust")
    strict = settings.ssl_fail_if_no_peer_cert
    context.verify_mode = ssl.CERT_REQUIRED if strict else ssl.CERT_OPTIONAL
    if settings.ssl_crl_check == "no":
        return
    if not settings.ssl_crlfile:
        raise SettingInvalid("ssl_crl_check needs ssl_crlfile: the revocation lists")
    _load_authorities(context, "ssl_crlfile", settings.ssl_crlfile)
    context.verify_flags |= CRL_FLAGS[settings.ssl_crl_check]


def _refuse_half_of_it(settings: Settings) -> None:
    """An operator who names a key believes that there is TLS."""
    keys = (
        *("ssl_keyfile", "ssl_cacertfile", "ssl_fail_if_no_peer_cert", "ssl_cert_login_from"),
        *("ssl_sni", "ssl_crlfile"),
    )
    for key in keys:
        if settings.value_of(key):
            raise SettingInvalid(f"{key} is set, but ssl_certfile is not: there would be no TLS")
    if settings.ssl_verify == "verify_peer":
        raise SettingInvalid("ssl_verify is set, but ssl_certfile is not: there would be no TLS")


def _load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    _check_readable("ssl_certfile", settings.ssl_certfile)
    if not settings.ssl_keyfile:
        raise SettingInvalid("ssl_certfile needs ssl_keyfile: the private key of the certificate")
    _check_readable("ssl_keyfile", settings.ssl_keyfile)
    password = secret_of(settings, "ssl_password")
    try:
        # Without a password of ours the library would ask for one at the terminal.
        context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, lambda: password)
    except (ssl.SSLError, ValueError) as error:
        opened = "its key, which ssl_password opens," if password else "its unencrypted key"
        raise SettingInvalid(
            f"ssl_certfile = {settings.ssl_certfile!r} and ssl_keyfile = {settings.ssl_keyfile!r}"
            f" are no certificate and {opened} in PEM: {_reason(error)}"
        ) from error


def _load_authorities(context: ssl.SSLContext, key: str, path: str) -> None:
    _check_readable(key, path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        what = "revocation lists" if key == "ssl_crlfile" else "certificates"
        raise SettingInvalid(
            f"{key} = {path!r} holds no {what} in PEM: {_reason(error)}"
        ) from error


def _check_readable(key: str, path: str) -> None:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise SettingInvalid(f"{key} = {path!r}: {error.strerror}") from error


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else ""
    return (reason or str(error)).lower().replace("_", " ")
