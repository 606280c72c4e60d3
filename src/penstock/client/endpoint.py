"""Addresses of brokers, and the errors of reaching them: shared by all clients."""

from typing import Final, Self
from urllib.parse import unquote, urlsplit

from penstock.core.errors import PenstockError

DEFAULT_PORT: Final = 5672


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
    """Where a broker listens, who asks, and for which virtual host."""

    def __init__(self, host: str, port: int, user: str, password: str, vhost: str) -> None:
        self.host = host
        self.port = port
        self.user = user
        self.password = password
        self.vhost = vhost

    @classmethod
    def parse(cls, uri: str) -> Self:
        """``amqp://user:password@host:port/vhost``; parts left out have the usual defaults."""
        parts = urlsplit(uri)
        if parts.scheme != "amqp":
            raise ValueError(f"{uri!r}: the scheme must be amqp (this client has no TLS)")
        if not parts.hostname:
            raise ValueError(f"{uri!r} names no host")
        if parts.query or parts.fragment:
            raise ValueError(f"{uri!r}: options in the URI are not understood")
        path = parts.path.removeprefix("/")
        if "/" in path:
            raise ValueError(f"{uri!r}: a slash in the name of a virtual host is written %2f")
        return cls(
            parts.hostname,
            parts.port or DEFAULT_PORT,
            unquote(parts.username or "guest"),
            unquote(parts.password or "guest"),
            unquote(path) if path else "/",
        )
