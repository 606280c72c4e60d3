"""``Dialer``: opens the connections of links, to another broker or to this node.

A connection to this node is a pair of sockets, one of which the data loop serves like that of any
client: it needs no listener.  It acts with the rights of a user of this node, without a password.
"""

import random
import socket
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.client.amqp import Connection
from penstock.client.endpoint import ClientError, Endpoint
from penstock.core.amqp_uri import AmqpUri, parse_amqp_uri
from penstock.core.errors import SettingInvalid

HEARTBEAT_S: Final = 10
TIMEOUT_MS: Final = 30_000
"""For the connection, and for each answer."""


class Dialed(NamedTuple):
    connection: Connection
    uri: str
    """As it may be shown."""
    user: str
    vhost: str


class Dialer:
    """Of one node; used by the threads of all links."""

    def __init__(
        self,
        open_local: Callable[[str], socket.socket],
        completed: Callable[[AmqpUri], AmqpUri],
    ) -> None:
        """``open_local``: a connected socket whose other end this user's session has.

        ``completed``: with the password that the configuration has; it may raise SettingInvalid.
        """
        self._open_local = open_local
        self._completed = completed

    def dial(self, uris: Sequence[str], name: str, local_user: str, vhost: str = "/") -> Dialed:
        """The first that answers, in random order; raises ClientError with the last reason.

        ``local_user``: the user as whom to act at this node where the URI names none; ``vhost``:
        likewise the virtual host.
        """
        why: ClientError | None = None
        for text in random.sample(uris, len(uris)):
            uri = parse_amqp_uri(text, vhost)
            try:
                return self._dial(uri, name, local_user)
            except ClientError as error:
                why = ClientError(f"{uri.shown()}: {error}")
        raise why or ClientError("there is no URI")

    def _dial(self, uri: AmqpUri, name: str, local_user: str) -> Dialed:
        timeout_s = (uri.number("connection_timeout", 0) or TIMEOUT_MS) / 1000
        heartbeat_s = uri.number("heartbeat", HEARTBEAT_S)
        if uri.host:
            try:
                endpoint, sock = Endpoint.of(self._completed(uri)), None
            except (SettingInvalid, ValueError) as error:
                raise ClientError(str(error)) from error
        else:
            endpoint = Endpoint("", 0, uri.user or local_user, "", uri.vhost)
            sock = self._open_local(endpoint.user)
        connection = Connection(
            endpoint, timeout_s=timeout_s, name=name, heartbeat_s=heartbeat_s, sock=sock
        )
        return Dialed(connection, uri.shown(), endpoint.user, uri.vhost)
