"""Facts about connections, channels and listeners, as the node gives them to management.

The server fills these in on the data loop (``session_inspector``); ``view`` makes rows of them.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from penstock.broker.rules.access import User
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirm
from penstock.core.errors import BrokerError
from penstock.core.message import Message
from penstock.core.pending import Pending
from penstock.management.facts.on_loop import Part
from penstock.management.facts.storage_view import DiskFacts
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.tls.dates import Certificate
from penstock.tls.options import TlsOptions


class ConnectionTerms(NamedTuple):
    """What a client said of itself when it logged in, and what was agreed with it."""

    auth_mechanism: str
    client_properties: dict[str, object]
    heartbeat_s: int = 0
    frame_max: int = 0  # bytes
    channel_max: int = 0


class TlsFacts(NamedTuple):
    """The encryption of a connection; all "" = it has none."""

    version: str = ""
    cipher: str = ""
    subject: str = ""  # of the client's certificate, if it was verified

    def row(self) -> dict[str, object]:
        plain: dict[str, object] = {}
        if self.version == "":
            plain = dict.fromkeys(
                ("peer_cert_issuer", "peer_cert_validity", "ssl_hash", "ssl_key_exchange")
            )
        return plain | {
            "ssl": self.version != "",
            "ssl_protocol": self.version or None,
            "ssl_cipher": self.cipher or None,
            # Of these RabbitMQ's pages show a dash where they are null.
            "ssl_key_exchange": None,
            "ssl_hash": None,
            "peer_cert_subject": self.subject or None,
            "peer_cert_issuer": None,
            "peer_cert_validity": None,
        }


class ConnectionFacts(NamedTuple):
    name: str
    user: str
    vhost: str
    state: str
    protocol: str
    peer_host: str
    peer_port: int
    host: str
    port: int
    connected_at_ms: WallMs
    received_bytes: int
    sent_bytes: int
    received_count: int  # times that something came in, or left
    sent_count: int
    unsent_bytes: int
    flow_s: int  # seconds in flow
    channel_count: int
    terms: ConnectionTerms
    tls: TlsFacts


class ChannelFacts(NamedTuple):
    number: int
    state: str
    traffic: tuple[int, ...]  # as ``Traffic.counts``
    consumer_count: int
    prefetch: int
    unacknowledged_count: int
    flow_s: int
    shared_prefetch: int = 0
    active_at_ms: WallMs = WallMs(0)  # 0: its protocol does not note it
    confirm: bool = False
    transactional: bool = False
    uncommitted_count: int = 0
    uncommitted_ack_count: int = 0
    unconfirmed_count: int = 0


class SessionTally(NamedTuple):
    name: str
    is_first: bool  # of the tallies of this connection
    octets: tuple[int, int]
    channels: list[tuple[int, tuple[int, ...]]]


def date_text(end_s: int) -> str:
    """Of seconds since 1970: the date and the time of UTC."""
    at = time.gmtime(end_s)
    return f"{at.tm_year}-{at.tm_mon:02}-{at.tm_mday:02} " + time.strftime("%H:%M:%S", at)


class ListenerFacts:
    """A socket that accepts clients; ``port`` 0: a Unix socket, whose path is ``host``."""

    def __init__(self, protocol: str, host: str, port: int, tls: TlsOptions | None = None) -> None:
        self.protocol = protocol
        self.host = host
        self.port = port
        self._tls = tls

    @property
    def certificates(self) -> Mapping[str, Sequence[Certificate]]:
        """Those in force now, by their setting (``TlsOptions``)."""
        return {} if self._tls is None else self._tls.certificates

    @property
    def expiry_dates(self) -> dict[str, list[int]]:
        """Until when they hold, in seconds since 1970."""
        return {key: [one.ends_s for one in some] for key, some in self.certificates.items()}


class OpenDelivery(NamedTuple):
    """What a consumer was given and has not settled; ``due_ms``: its channel is closed then."""

    message: Message
    consumer_tag: str
    delivered_ms: WallMs
    due_ms: WallMs


class InternalClientRefused(BrokerError):
    """What an agent asked for ended its channel: AMQP's code, and what a client would be told."""

    def __init__(self, code: int, told: str) -> None:
        super().__init__(f"{code} {told}")
        self.code = code
        self.told = told


class Got(NamedTuple):
    tag: int
    exchange: str
    routing_key: str
    redelivered: bool
    message_count: int
    properties: dict[str, object]
    body: bytes


class InternalClient:
    """Publishes and gets for a user in a virtual host, by all rules that hold for clients.

    Every method is called on the data loop and may raise ``InternalClientRefused``.
    """

    def publish(
        self,
        exchange: str,
        routing_key: str,
        properties: dict[str, object],
        body: bytes,
        now_ms: WallMs,
    ) -> "Future[bool]":
        """Done when the message is safe; False = it led to no queue.

        Raises Blocked, or PreconditionFailed when a queue has no room for it.
        """
        raise NotImplementedError

    def get(self, queue: str, now_ms: WallMs) -> Got | Pending | None:
        """The first message, unsettled; None when there is none.

        When it has to come from the disk, the next call goes on with this one, as resuming does.
        """
        raise NotImplementedError

    def is_waiting(self) -> bool:
        """Is a get under way?  What is said now comes behind it."""
        raise NotImplementedError

    def accept(self, now_ms: WallMs) -> None:
        """Everything got so far is done with."""
        raise NotImplementedError

    def refuse(self, requeue: bool, now_ms: WallMs) -> None:
        """Everything got so far goes back, or dies."""
        raise NotImplementedError

    def leave(self, now_ms: WallMs) -> None:
        """That was all; what is unsettled goes back."""
        raise NotImplementedError


class LinkInspector:
    """What the node tells about its links, to any thread; without node: none.

    Rows are RabbitMQ's, in the order in which the links came; without passwords.
    """

    def shovels(self) -> list[dict[str, object]]:
        """Those that this node runs; the answer of ``/api/shovels``."""
        return []

    def restart_shovel(self, vhost: str, name: str) -> bool:
        """Connect that shovel anew; False: this node does not run it."""
        return False

    def federation_links(self) -> list[dict[str, object]]:
        """Those that this node runs; the answer of ``/api/federation-links``."""
        return []

    def restart_federation_link(self, vhost: str, link_id: str) -> bool:
        """Connect that link anew; False: this node does not run it."""
        return False


class SessionInspector(Protocol):
    """What the server tells about its sessions; it implements this, on the data loop.

    A session is a token here; the methods take back what ``sessions`` gave out, alive or not.
    """

    links: LinkInspector

    def sessions(self) -> list[object]: ...

    def connection(self, session: object) -> ConnectionFacts | None:
        """None before its client has logged in, and when it is gone."""

    def find(self, name: str) -> object | None:
        """The session of that name whose client has logged in."""

    def close(self, session: object, reason: str) -> None:
        """Tell the peer, and end it."""

    def channel_numbers(self, session: object) -> list[int]:
        """For the next three, which describe those that are still there."""

    def channels(self, session: object, numbers: Sequence[int]) -> list[ChannelFacts]: ...

    def consumers(self, session: object, number: int) -> list[Consumer]: ...

    def tallies(self, parts: Sequence[Part]) -> list[SessionTally]:
        """Counts are as ``Traffic.counts`` has them, as far as shown."""

    def place_of(self, consumer: Consumer) -> tuple[object, int] | None:
        """The session and channel number a consumer lives on."""

    def listeners(self) -> list[ListenerFacts]: ...

    def opened(self, message: Message) -> tuple[dict[str, object], bytes]:
        """A message's properties that are set, and its body."""

    def enter(self, user: str | User, vhost: str, now_ms: WallMs) -> InternalClient:
        """A client of the node's own that publishes and gets as that user; raises AgentRefused."""

    def close_some(self, vhost: str, at_most: int) -> bool:
        """End connections to a virtual host that is being deleted; False when there are none."""

    def cancelled(self, consumers: list[Consumer]) -> None:
        """Tell them that their queue is gone."""

    def when_safe(self, position: int, waits: list[PendingConfirm] | None = None) -> "Future[None]":
        """Done when the journal is on disk up to there, and these waits for other nodes are."""

    def flow(self) -> dict[str, object]:
        """Flow control: the answer of ``/api/penstock/flow``."""

    def chain(self) -> dict[str, object]:
        """The same with every link's credit: what ``/api/penstock/flow/chain`` answers."""

    def open_deliveries(self, queue: Queue, at_most: int) -> list[OpenDelivery]:
        """Of consumers that have a timeout and no lease (AMQP), the oldest of each channel."""

    def disk(self) -> DiskFacts: ...

    def cluster(self) -> dict[str, object]:
        """Its nodes and links: what ``/api/penstock/cluster`` answers."""

    def forget_node(self, name: str) -> Pending | None:
        """A node that never comes back; to be run by an ``Ask``.

        Raises NotFound, PreconditionFailed for one that runs.
        """


Row = dict[str, object]
