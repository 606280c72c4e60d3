"""Addresses of brokers, and the errors of reaching them: shared by all clients."""

import os
import ssl
from pathlib import Path
from typing import Final, Self

from penstock.client.passwords import password_given
from penstock.core.amqp_uri import AmqpUri, parse_amqp_uri
from penstock.core.errors import PenstockError, SettingInvalid

PEM_END: Final = "-----END CERTIFICATE-----"


class ClientError(PenstockError):
    """Something this client could not do."""


class ConnectionLost(ClientError):
    """The socket ended, or the broker stopped answering."""


class BrokerClosed(ClientError):
    """The broker closed something, and said why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


class ChannelClosed(BrokerClosed):
    """This channel is gone; the connection and its other channels live on."""


class ConnectionClosed(BrokerClosed):
    """The whole connection is gone."""


class ConsumerCancelled(ClientError):
    """The broker cancelled the consumer, for instance because its queue was deleted."""


class Endpoint:
    """Where a broker listens, who asks, and for which virtual host.

    ``user`` with an empty password logs in by EXTERNAL: the broker knows the user already.
    ``tls``: None = in the clear; ``server_name``: whose certificate is asked for, "" = the host's.
    """

    def __init__(
        self,
        host: str,
        port: int,
        user: str,
        password: str,
        vhost: str,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
    ) -> None:
        self.host = host
        self.port = port
        self.user = user
        self.password = password
        self.vhost = vhost
        self.tls = tls
        self.server_name = server_name or host

    @classmethod
    def parse(cls, text: str) -> Self:
        """``amqp://user:password@host:port/vhost``; parts left out have the usual defaults, the
        password that of ``PENSTOCK_PASSWORD``.

        Raises ValueError, also for a file of the options that cannot be read.
        """
        uri = parse_amqp_uri(text)
        if not uri.host:
            raise ValueError(f"{uri.shown()!r} names no host")
        given = os.environ.get("PENSTOCK_PASSWORD")
        if uri.user is not None and uri.password is None and given is not None:
            try:
                uri = uri._replace(password=password_given(given))
            except SettingInvalid as error:
                raise ValueError(str(error)) from error
        return cls.of(uri)

    @classmethod
    def of(cls, uri: AmqpUri) -> Self:
        """``uri`` names a host; raises ValueError as ``parse``."""
        user = "guest" if uri.user is None else uri.user
        password = "guest" if uri.password is None else uri.password
        if uri.options.get("auth_mechanism") == "external":
            password = ""
        tls = tls_context(uri.options) if uri.tls else None
        name = uri.options.get("server_name_indication", "")
        return cls(uri.host, uri.port, user, password, uri.vhost, tls, name)


def tls_context(options: dict[str, str], trusted: str = "") -> ssl.SSLContext:
    """As a URI's options say it: the peer is verified unless they say ``verify_none``.

    ``trusted``: the first certificate of this file is believed, whatever the peer's host is called.
    Raises ValueError where a file cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=options.get("cacertfile"))
        if trusted:
            text = Path(trusted).read_text(encoding="ascii", errors="replace")
            context.load_verify_locations(cadata=text.partition(PEM_END)[0] + PEM_END)
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if "certfile" in options:
            context.load_cert_chain(
                options["certfile"], options.get("keyfile"), options.get("password")
            )
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(f"a certificate of the URI cannot be used: {error}") from error
    is_verified = options.get("verify") != "verify_none"
    context.check_hostname = is_verified and not trusted
    if not is_verified:
        context.verify_mode = ssl.CERT_NONE
    return context
