"""What links of federated exchanges and queues have in common: ends, headers, hops.

A message says in ``x-received-from`` over which links it has come, the last one first.  It goes on
while there are fewer than ``max-hops`` and none of them led away from this cluster.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from penstock.client.amqp import Connection
from penstock.client.channel import Delivery
from penstock.client.endpoint import ChannelClosed
from penstock.links.dialing import Dialed, Dialer
from penstock.links.shovel import listed
from penstock.protocols.amqp.codec.properties import encode_properties

RECEIVED_FROM: Final = "x-received-from"
BOUND_FROM: Final = "x-bound-from"
MAX_HOPS: Final = 1
PREFETCH: Final = 1000
NOT_FOUND: Final = 404
NUMBER_MAX: Final = 1 << 31
CLUSTER_NAME: Final = "cluster_name"
PURPOSE: Final = {"x-internal-purpose": "federation"}


class FederationSpec(NamedTuple):
    """An exchange or queue (``kind``) of this broker, and an upstream of it.

    ``value``: what the upstream and its set say; ``user``: as whom the link acts at this node;
    ``declared``: what is declared at the upstream where it is missing there.
    """

    vhost: str
    kind: str
    name: str
    upstream: str
    value: dict[str, Any]
    user: str
    declared: dict[str, Any]

    @property
    def upstream_name(self) -> str:
        """Of the exchange or queue there."""
        return str(self.value.get(self.kind, self.name))


class LocalBroker(Protocol):
    """What links ask this node; any thread may."""

    def bindings(self, vhost: str, exchange: str, seen: int) -> tuple[int, list[Any]] | None:
        """A number that moves when bindings change, and all from that exchange as (key, arguments).

        None: the number is still ``seen``.
        """

    def wants(self, vhost: str, queue: str) -> bool:
        """Has the queue nothing for consumers that would take something?"""


class Ends:
    """Both connections of a link; the constructor opens them and raises ClientError."""

    def __init__(self, spec: FederationSpec, dialer: Dialer, cluster: str) -> None:
        title = f"Federation link (upstream: {spec.upstream}, policy: {spec.name})"
        self.cluster = cluster
        self.spec = spec
        self.upstream: Dialed = dialer.dial(listed(spec.value["uri"]), title, spec.user, spec.vhost)
        try:
            here = [f"amqp:///{quote(spec.vhost, safe='')}"]
            self.downstream: Dialed = dialer.dial(here, title, spec.user)
        except BaseException:
            self.upstream.connection.close()
            raise

    @property
    def connections(self) -> list[Connection]:
        return [self.upstream.connection, self.downstream.connection]

    def upstream_cluster(self) -> str:
        """Its name; a broker that says none is known by its address."""
        named = self.upstream.connection.server_properties.get(CLUSTER_NAME)
        return str(named or self.upstream.uri)

    def mark(self, redelivered: bool) -> dict[str, object]:
        """What a message gets that comes over this link."""
        return {
            "uri": self.upstream.uri,
            self.spec.kind: self.spec.name,
            "redelivered": redelivered,
            "cluster-name": self.upstream_cluster(),
            "vhost": self.upstream.vhost,
        }

    def written(self, delivery: Delivery, headers: dict[str, object]) -> bytes:
        """The properties with other headers; the user only where the upstream is trusted."""
        properties = delivery.properties._replace(headers=headers)
        if not self.spec.value.get("trust-user-id", False):
            properties = properties._replace(user_id=None)
        return encode_properties(properties)


def passed(headers: Mapping[str, object], key: str) -> list[dict[str, Any]]:
    """The links that a message (or a binding) has come over, as its header says."""
    found = headers.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def number_in(row: Mapping[str, object], key: str) -> int:
    """What a header says, which a client may have made up; 1 where that is no sensible number."""
    found = row.get(key)
    return int(found) if isinstance(found, int) and 0 < found < NUMBER_MAX else 1


def has_seen(links: list[dict[str, Any]], cluster: str, vhost: str) -> bool:
    return any(
        one.get("cluster-name") == cluster and one.get("vhost", vhost) == vhost for one in links
    )


def declare_missing(connection: Connection, passive: Callable[[Any], object]) -> bool:
    """True: what ``passive`` asks for on a channel is missing."""
    channel = connection.channel()
    try:
        passive(channel)
    except ChannelClosed as error:
        if error.code != NOT_FOUND:
            raise
        return True
    channel.close()
    return False
