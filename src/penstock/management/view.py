"""What the broker holds, as JSON-able dicts in the shape of RabbitMQ's management API.

Quiet, read-only but for ``purge_queue`` and ``close_connection``, and meant to be called on the
data loop: every method is either O(1) or takes the names it shall describe, so that the caller
decides how much is done in one go.  A name that has vanished between two calls is left out.

A field is shown when the broker knows its value.  What it does not measure is absent, never
zero: absent is what RabbitMQ's own tools are prepared for.

Sessions are the server's; ``facts`` has what it tells about them.
"""

import base64
import platform
import zlib
from collections.abc import Sequence
from decimal import Decimal
from math import isfinite
from typing import Final, cast
from urllib.parse import quote_plus

from penstock.backing.variable_queue import VariableQueue
from penstock.broker.access import User
from penstock.broker.broker import Broker
from penstock.broker.vhost import Vhost
from penstock.core.credit import QUEUE, Stage
from penstock.core.errors import NotFound
from penstock.management.alarms_view import alarms_row
from penstock.management.facts import ChannelFacts, ConnectionFacts, Watch
from penstock.management.storage_view import (
    files_row,
    listed_fields,
    shown_fields,
    storage_row,
)
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Binding, Exchange
from penstock.storage.recovery import Opening

Row = dict[str, object]

DEFAULT_EXCHANGE_IN_PATHS: Final = "amq.default"
"""How a path names the exchange whose name is empty."""


class BrokerView:
    """The broker, described."""

    def __init__(
        self, broker: Broker, watch: Watch, node_name: str = "", opening: Opening | None = None
    ) -> None:
        self._broker = broker
        self._watch = watch
        self._opening = opening
        self.node_name = node_name or f"penstock@{platform.node()}"

    @property
    def watch(self) -> Watch:
        return self._watch

    @property
    def broker(self) -> Broker:
        return self._broker

    # -- who ---------------------------------------------------------------------------

    def authenticate(self, name: str, password: str, peer_is_loopback: bool) -> User:
        """Raises AccessRefused."""
        return self._broker.authenticate(name, password, peer_is_loopback)

    # -- totals --------------------------------------------------------------------------

    def count_entities(self, vhosts: Sequence[str]) -> tuple[int, int]:
        """How many exchanges and queues these virtual hosts hold together."""
        found = [self._broker.vhosts[name] for name in vhosts if name in self._broker.vhosts]
        # RabbitMQ counts the default exchange too, which is no object here.
        exchanges = sum(len(vhost.exchanges) + 1 for vhost in found)
        return exchanges, sum(len(vhost.queues) for vhost in found)

    def listener_rows(self) -> list[Row]:
        return [
            {
                "node": self.node_name,
                "protocol": listener.protocol,
                "ip_address": listener.host,
                "port": listener.port,
            }
            for listener in self._watch.listeners()
        ]

    def add_message_counts(self, vhost_name: str, names: Sequence[str], totals: list[int]) -> None:
        """Add ready, unacknowledged and consumers of these queues to the three ``totals``."""
        vhost = self._broker.vhosts.get(vhost_name)
        if vhost is None:
            return
        for name in names:
            queue = vhost.queues.get(name)
            if queue is not None:
                totals[0] += queue.backing.ready_count()
                totals[1] += queue.unacked_count
                totals[2] += len(queue.consumers)

    def storage_row(self) -> Row:
        """The node's storage engine, and the files all queues share."""
        engine = self._broker.engine
        row = storage_row(engine, self._watch.disk(), self._opening)
        row["alarms"] = alarms_row(self._broker.admission)
        row["files"] = files_row(engine)
        staging = self._broker.staging
        names = sorted({vhost for vhost, _ in staging.sets})
        row["staged"] = {
            **staging.totals(),
            "published": staging.batches.poured_count,
            "vhosts": {name: staging.totals(name) for name in names},
        }
        return row

    # -- virtual hosts ---------------------------------------------------------------------

    def vhost_names(self) -> list[str]:
        return list(self._broker.vhosts)

    def has_vhost(self, name: str) -> bool:
        return name in self._broker.vhosts

    def vhost_row(self, name: str) -> Row:
        vhost = self._vhost(name)
        return {
            "name": name,
            "description": vhost.description,
            "tags": vhost.tags,
            "metadata": {"description": vhost.description, "tags": vhost.tags},
            "cluster_state": {self.node_name: "running"},
            "tracing": vhost.tracing,
        }

    # -- queues ------------------------------------------------------------------------------

    def queue_names(self, vhost: str) -> list[str]:
        return list(self._vhost(vhost).queues)

    def queue_rows(self, vhost_name: str, names: Sequence[str]) -> list[Row]:
        vhost = self._broker.vhosts.get(vhost_name)
        if vhost is None:
            return []
        queues = [vhost.queues[name] for name in names if name in vhost.queues]
        return [self._queue_row(queue) | listed_fields(queue.backing) for queue in queues]

    def queue_row(self, vhost: str, name: str) -> Row:
        """One queue with its consumers and all that is known of its storage; raises NotFound."""
        queue = self._vhost(vhost).queue(name)
        row = self._queue_row(queue) | shown_fields(queue.backing)
        row["consumer_details"] = self._consumer_rows(queue)
        return row

    def flow_row(self) -> Row:
        return self._watch.flow()

    def purge_queue(self, vhost: str, name: str) -> None:
        """Raises NotFound, or ResourceLocked when the queue is somebody's own."""
        queue = self._vhost(vhost).queue(name)
        queue.check_owner(None)
        queue.purge()

    def _queue_state(self, queue: Queue) -> Row:
        """``stopped``: something of it is damaged, and nothing is delivered any more."""
        book = self._broker.flow.book
        stage = queue.flow if queue.flow is not None else Stage(book, QUEUE, queue)
        stopped = queue.backing.why_stopped() != ""
        return {
            "state": "stopped" if stopped else stage.state(queue.active_at_ms),
            "time_in_flow_s": int(stage.flow_s),
        }

    def _queue_row(self, queue: Queue) -> Row:
        ready = queue.backing.ready_count()
        unacked = queue.unacked_count
        consumers = queue.consumers
        alone = len(consumers) == 1 and consumers[0].exclusive
        return {
            "name": queue.name,
            "vhost": queue.vhost,
            "type": "classic",
            "node": self.node_name,
            **self._queue_state(queue),
            "paused": queue.paused,
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "exclusive": queue.exclusive,
            "arguments": jsonable(queue.arguments) if queue.arguments else {},
            **self._broker.vhosts[queue.vhost].policies.queue_row(queue.name),
            "messages": ready + unacked,
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
            "consumers": len(consumers),
            "exclusive_consumer_tag": consumers[0].tag if alone else None,
            "single_active_consumer_tag": None,
            "message_stats": {
                "publish": queue.published_count,
                "deliver_get": queue.delivered_count,
                "ack": queue.acked_count,
            },
        }

    # -- exchanges and bindings -----------------------------------------------------------------

    def exchange_names(self, vhost: str) -> list[str]:
        return ["", *self._vhost(vhost).exchanges]

    def exchange_rows(self, vhost_name: str, names: Sequence[str]) -> list[Row]:
        vhost = self._broker.vhosts.get(vhost_name)
        if vhost is None:
            return []
        return [
            self._exchange_row(vhost, name)
            for name in names
            if name == "" or name in vhost.exchanges
        ]

    def exchange_row(self, vhost_name: str, name: str) -> Row:
        """Raises NotFound."""
        vhost = self._vhost(vhost_name)
        return self._exchange_row(vhost, "" if name == DEFAULT_EXCHANGE_IN_PATHS else name)

    def _exchange_row(self, vhost: Vhost, name: str) -> Row:
        row: Row = {"name": name, "vhost": vhost.name}
        if name == "":
            row.update(type="direct", durable=True, auto_delete=False, internal=False, arguments={})
            return row
        exchange = vhost.exchange(name)
        row.update(
            type=exchange.type,
            durable=exchange.durable,
            auto_delete=exchange.auto_delete,
            internal=exchange.internal,
            arguments=jsonable(exchange.arguments),
        )
        if exchange.delays:
            row["messages_delayed"] = self._delayed_count(cast(Queue, exchange.room))
        return row

    def _delayed_count(self, room: Queue) -> int:
        backing = cast(VariableQueue, room.backing)
        return int(backing.ready_count() + backing.count_delayed())

    def bindings_from(self, vhost: str, exchange: str) -> list[Binding]:
        """Bindings that leave an exchange, as tokens for ``binding_rows``; none if it is gone."""
        found = self._broker.vhosts.get(vhost)
        if found is None or exchange not in found.exchanges:
            return []
        return found.exchanges[exchange].bindings()

    def binding_rows(self, bindings: Sequence[Binding]) -> list[Row]:
        rows: list[Row] = []
        for binding in bindings:
            destination = binding.destination
            to_exchange = isinstance(destination, Exchange)
            rows.append(
                {
                    "source": binding.source.name,
                    "vhost": binding.source.vhost,
                    "destination": cast(Queue | Exchange, destination).name,
                    "destination_type": "exchange" if to_exchange else "queue",
                    "routing_key": binding.routing_key,
                    "arguments": jsonable(binding.arguments),
                    "properties_key": properties_key(binding.routing_key, binding.arguments),
                }
            )
        return rows

    def default_binding_rows(self, vhost: str, queues: Sequence[str]) -> list[Row]:
        """What the default exchange does, spelt as the bindings it does not have."""
        return [
            {
                "source": "",
                "vhost": vhost,
                "destination": name,
                "destination_type": "queue",
                "routing_key": name,
                "arguments": {},
                "properties_key": properties_key(name, {}),
            }
            for name in queues
        ]

    # -- consumers, connections, channels ---------------------------------------------------------

    def consumer_rows(self, vhost_name: str, names: Sequence[str]) -> list[Row]:
        """Consumers of these queues."""
        vhost = self._broker.vhosts.get(vhost_name)
        if vhost is None:
            return []
        rows: list[Row] = []
        for name in names:
            queue = vhost.queues.get(name)
            if queue is not None and queue.consumers:
                rows.extend(self._consumer_rows(queue))
        return rows

    def _consumer_rows(self, queue: Queue) -> list[Row]:
        return [
            {
                "queue": {"name": queue.name, "vhost": queue.vhost},
                "consumer_tag": consumer.tag,
                "channel_details": self._channel_details(consumer),
                "ack_required": not consumer.no_ack,
                "prefetch_count": int(
                    consumer.prefetch if consumer.window < 0 else consumer.window
                ),
                "exclusive": consumer.exclusive,
                "active": True,
                "activity_status": "up",
                "arguments": jsonable(consumer.arguments),
            }
            for consumer in queue.consumers
        ]

    def _channel_details(self, consumer: Consumer) -> Row:
        place = self._watch.place_of(consumer)
        facts = None if place is None else self._watch.connection(place[0])
        if place is None or facts is None:
            return {}
        return {
            "name": f"{facts.name} ({place[1]})",
            "number": place[1],
            "connection_name": facts.name,
            "user": facts.user,
            "peer_host": facts.peer_host,
            "peer_port": facts.peer_port,
            "node": self.node_name,
        }

    def sessions(self) -> list[object]:
        """All sessions; tokens for the next two."""
        return self._watch.sessions()

    def connection_row(self, name: str) -> Row:
        """Raises NotFound."""
        facts = self._watch.connection(self._named(name))
        assert facts is not None
        return self._connection_row(facts)

    def close_connection(self, name: str, reason: str) -> None:
        """Tell the client why, and end it; raises NotFound."""
        self._watch.close(self._named(name), reason)

    def _named(self, name: str) -> object:
        found = self._watch.find(name)
        if found is None:
            raise NotFound(f"no connection '{name}'")
        return found

    def connection_rows(self, sessions: Sequence[object]) -> list[Row]:
        rows: list[Row] = []
        for session in sessions:
            facts = self._watch.connection(session)
            if facts is not None:
                rows.append(self._connection_row(facts))
        return rows

    def channel_rows(self, sessions: Sequence[object]) -> list[Row]:
        watch = self._watch
        rows: list[Row] = []
        for session in sessions:
            facts = watch.connection(session)
            if facts is not None:
                rows.extend(
                    self._channel_row(facts, channel) for channel in watch.channels(session)
                )
        return rows

    def _connection_row(self, facts: ConnectionFacts) -> Row:
        row: Row = {
            "name": facts.name,
            "user": facts.user,
            "user_who_performed_action": facts.user,
            "vhost": facts.vhost,
            "node": self.node_name,
            "type": "network",
            "state": facts.state,
            "time_in_flow_s": facts.flow_s,
            "protocol": facts.protocol,
            "auth_mechanism": facts.auth_mechanism,
            "peer_host": facts.peer_host,
            "peer_port": facts.peer_port,
            "host": facts.host,
            "port": facts.port,
            **facts.tls_row(),
            "timeout": facts.heartbeat_s,
            "frame_max": facts.frame_max,
            "channel_max": facts.channel_max,
            "channels": facts.channel_count,
            "connected_at": facts.connected_at_ms,
            "recv_oct": facts.received_bytes,
            "send_oct": facts.sent_bytes,
            "client_properties": jsonable(facts.client_properties),
        }
        given_name = facts.client_properties.get("connection_name")
        if isinstance(given_name, str):
            row["user_provided_name"] = given_name
        return row

    def _channel_row(self, facts: ConnectionFacts, channel: ChannelFacts) -> Row:
        return {
            "name": f"{facts.name} ({channel.number})",
            "number": channel.number,
            "user": facts.user,
            "user_who_performed_action": facts.user,
            "vhost": facts.vhost,
            "node": self.node_name,
            "state": channel.state,
            "time_in_flow_s": channel.flow_s,
            "connection_details": {
                "name": facts.name,
                "peer_host": facts.peer_host,
                "peer_port": facts.peer_port,
            },
            "consumer_count": channel.consumer_count,
            "prefetch_count": channel.prefetch,
            "global_prefetch_count": channel.shared_prefetch,
            "confirm": channel.confirm,
            "transactional": channel.transactional,
            "messages_uncommitted": channel.uncommitted_count,
            "acks_uncommitted": channel.uncommitted_ack_count,
            "messages_unacknowledged": channel.unacknowledged_count,
            "messages_unconfirmed": channel.unconfirmed_count,
            "message_stats": {"publish": channel.published_count},
        }

    def _vhost(self, name: str) -> Vhost:
        """Raises NotFound."""
        return self._broker.vhost(name)


def properties_key(routing_key: str, arguments: dict[str, object]) -> str:
    """The name of a binding among those of its two ends, as paths of the API spell it.

    Without arguments it is the routing key as a form spells it (``~`` for the empty one);
    with arguments a short digest of them follows.  RabbitMQ's digest is Erlang's own, so
    ours differs from it; clients treat it as opaque.
    """
    spelt = quote_plus(routing_key, safe="", errors="replace").replace("~", "%7E")
    if not arguments:
        return spelt or "~"
    canonical = repr(sorted(arguments.items())).encode("utf-8", "replace")
    digest = base64.urlsafe_b64encode(zlib.crc32(canonical).to_bytes(4, "big"))
    return f"{spelt}~{digest.decode().rstrip('=')}"


def jsonable(value: object) -> object:
    """A field value as JSON can hold it; what JSON lacks becomes text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {str(key): jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [jsonable(inner) for inner in value]
    assert isinstance(value, Decimal), type(value)
    return str(value)
