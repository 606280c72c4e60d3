"""``Shovel``: one run of a shovel, as a parameter of the component ``shovel`` or a setting says it.

The value, RabbitMQ's, was checked (``broker/rules/parameter_values.py``).  Messages go from the
source queue, or from a queue bound to the source exchange for the time of the run, to a queue or an
exchange of the target, or to the exchange they were published to.  Where the target is a queue, a
message which it does not take ends the run instead of the message.

A static shovel belongs to no virtual host and says itself what is to be declared at either side:
``src-declarations`` and ``dest-declarations``, a list of ``[method, {argument: value}]`` each.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from penstock.client.amqp import Connection
from penstock.client.channel import Channel, Delivery
from penstock.client.endpoint import ChannelClosed
from penstock.client.forwarding import NO_ACK, ON_CONFIRM, Envelope, Forwarding
from penstock.links.dialing import Dialed, Dialer
from penstock.links.link import Row, seconds
from penstock.protocols.amqp.codec.properties import encode_properties

PREFETCH: Final = 1000
NOT_FOUND: Final = 404
SHOVELLED: Final = "x-shovelled"
SHOVELLED_AT: Final = "x-shovelled-timestamp"
PROTOCOL: Final = "amqp091"
ENDS: Final = ("src-queue", "src-exchange", "src-exchange-key")
ENDS_OF_TARGET: Final = ("dest-queue", "dest-exchange", "dest-exchange-key")
AFTER_QUEUE_LENGTH: Final = "queue-length"
DURATION: Final = "src-delete-after-duration"

Value = Mapping[str, Any]


DECLARED_BY: Final[Mapping[str, Callable[..., object]]] = {
    "queue.declare": Channel.queue_declare,
    "exchange.declare": Channel.exchange_declare,
    "queue.bind": Channel.queue_bind,
    "exchange.bind": Channel.exchange_bind,
}


class ShovelSpec(NamedTuple):
    """A parameter, or a static shovel (``vhost`` ""); ``user``: as whom it acts at this node."""

    vhost: str
    name: str
    value: dict[str, Any]
    user: str

    @property
    def kind(self) -> str:
        return "dynamic" if self.vhost else "static"


class Shovel:
    """Opened by its constructor, which raises ClientError."""

    def __init__(self, spec: ShovelSpec, dialer: Dialer, cluster: str) -> None:
        """``cluster``: this one's name, for headers."""
        vhost, name, value, user = spec
        title = f"Shovel {name}"
        self._value = value
        source = dialer.dial(listed(value["src-uri"]), title, user)
        self.connections = [source.connection]
        try:
            target = dialer.dial(listed(value["dest-uri"]), title, user)
            self.connections.append(target.connection)
            self._uris = (source.uri, target.uri)
            self._forwarding = self._open(source.connection, target)
        except BaseException:
            for connection in self.connections:
                connection.close()
            raise
        self._target = target
        self._ends_s = time.monotonic() + value.get(DURATION, math.inf)
        self._marks: Row = {
            "shovelled-by": cluster,
            "shovel-type": spec.kind,
            "shovel-name": name,
            **({"shovel-vhost": vhost} if vhost else {}),
            "src-uri": source.uri,
            "dest-uri": target.uri,
            **{key: value[key] for key in (*ENDS, *ENDS_OF_TARGET) if key in value},
        }

    # -- opening -------------------------------------------------------------------------

    def _open(self, source: Connection, target: Dialed) -> Forwarding:
        value = self._value
        if "dest-queue" in value:
            self._have_queue(target.connection, "dest")
        channel = source.channel()
        target_channel = target.connection.channel()
        _declare(target_channel, value.get("dest-declarations", ()))
        queue = self._source_queue(source, channel)
        mode = value.get("ack-mode", ON_CONFIRM)
        limit = self._limit(channel, queue)
        if mode != NO_ACK:
            channel.qos(value.get("src-prefetch-count", value.get("prefetch-count", PREFETCH)))
        forwarding = Forwarding(
            channel,
            target_channel,
            self._address,
            mode,
            mandatory="dest-queue" in value,
            limit=limit,
        )
        if limit != 0:
            channel.consume(
                queue,
                value.get("src-consumer-name", ""),
                no_ack=mode == NO_ACK,
                arguments=value.get("src-consumer-args"),
            )
        return forwarding

    def _source_queue(self, source: Connection, channel: Channel) -> str:
        if "src-declarations" in self._value:
            _declare(channel, self._value["src-declarations"])
            return str(self._value["src-queue"])  # "" = the last one that it has declared
        if "src-queue" in self._value:
            self._have_queue(source, "src")
            return str(self._value["src-queue"])
        queue = channel.queue_declare(exclusive=True).text("queue")
        key = self._value.get("src-exchange-key", "")
        channel.queue_bind(queue, self._value["src-exchange"], key)
        return queue

    def _have_queue(self, connection: Connection, side: str) -> None:
        """Declare it unless it is there, or is said to be there."""
        name = self._value[f"{side}-queue"]
        channel = connection.channel()
        try:
            channel.queue_declare(name, passive=True)
        except ChannelClosed as error:
            if error.code != NOT_FOUND or self._value.get(f"{side}-predeclared", False):
                raise
            channel = connection.channel()
            arguments = self._value.get(f"{side}-queue-args")
            channel.queue_declare(name, durable=True, arguments=arguments)
        channel.close()

    def _limit(self, channel: Channel, queue: str) -> int | None:
        after = self._value.get("src-delete-after", self._value.get("delete-after", "never"))
        if after == AFTER_QUEUE_LENGTH:
            return channel.queue_declare(queue, passive=True).number("message_count")
        return after if isinstance(after, int) else None

    # -- moving --------------------------------------------------------------------------

    def step(self) -> bool:
        self._forwarding.settle()
        if not self.is_blocked():
            self._forwarding.publish()
        return self._forwarding.is_done or time.monotonic() >= self._ends_s

    def is_blocked(self) -> bool:
        return self._target.connection.blocked is not None

    def _address(self, delivery: Delivery) -> Envelope:
        value = self._value
        exchange = value.get("dest-exchange", delivery.exchange)
        key = value.get("dest-exchange-key", delivery.routing_key)
        if "dest-queue" in value:
            exchange, key = "", value["dest-queue"]
        return Envelope(exchange, key, self._written(delivery))

    def _written(self, delivery: Delivery) -> bytes:
        """The properties, byte for byte unless something is to be set or would be refused."""
        value, properties = self._value, delivery.properties
        fixed = value.get("dest-publish-properties", value.get("publish-properties", {}))
        marks = value.get("dest-add-forward-headers", value.get("add-forward-headers", False))
        dated = value.get("dest-add-timestamp-header", value.get("add-timestamp-header", False))
        foreign = properties.user_id is not None and properties.user_id != self._target.user
        if not (fixed or marks or dated or foreign):
            return delivery.written
        changes: dict[str, Any] = dict(fixed)
        if foreign:  # of a user whom the target does not let say so
            changes.setdefault("user_id", None)
        headers = dict(properties.headers or {})
        if marks:
            before = headers.get(SHOVELLED)
            headers[SHOVELLED] = [self._marks, *(before if isinstance(before, list) else [])]
        if dated:
            headers[SHOVELLED_AT] = seconds()
        if marks or dated:
            changes["headers"] = headers
        return encode_properties(properties._replace(**changes))

    def clean(self) -> None:
        """A queue that it has declared may be in use by others."""

    def facts(self) -> Row:
        forwarding = self._forwarding
        left: object = "unlimited"
        left_unpublished: object = "unlimited"
        if forwarding.limit is not None:
            left = forwarding.limit - forwarding.settled
            left_unpublished = forwarding.limit - forwarding.published
        ends = {key: self._value[key] for key in (*ENDS, *ENDS_OF_TARGET) if key in self._value}
        return {
            "src_uri": self._uris[0],
            "src_protocol": PROTOCOL,
            "dest_uri": self._uris[1],
            "dest_protocol": PROTOCOL,
            **{key.replace("-", "_"): one for key, one in ends.items()},
            "remaining": left,
            "remaining_unacked": left_unpublished,
            "pending": forwarding.waiting,
            "forwarded": forwarding.published,
        }


def _declare(channel: Channel, declarations: Iterable[tuple[str, Value]]) -> None:
    for method, arguments in declarations:
        DECLARED_BY[method](channel, **arguments)


def listed(uris: object) -> list[str]:
    return [str(uri) for uri in uris] if isinstance(uris, list) else [str(uris)]
