"""``FederatedExchange``: one run of a link that brings messages of an upstream exchange here.

    upstream X ─► "federation: X -> here A" (fanout) ─► queue "federation: X -> here" ─► link ─► X

The upstream queue holds what comes while the link is away.  The fanout exchange between has the
bindings of the exchange here, so that only those messages come which are wanted; bindings which the
upstream has of an earlier run cannot be listed by AMQP, so each run makes a new exchange (A or B)
with today's bindings and removes the former one.  A binding travels against the messages, and
carries in ``x-bound-from`` how many links it may still pass.
"""

from typing import Any, Final

from penstock.client.channel import Channel, Delivery
from penstock.client.endpoint import ClientError
from penstock.client.forwarding import NO_ACK, ON_CONFIRM, Envelope, Forwarding
from penstock.links.dialing import Dialer
from penstock.links.federation import (
    BOUND_FROM,
    MAX_HOPS,
    PREFETCH,
    PURPOSE,
    RECEIVED_FROM,
    Ends,
    FederationSpec,
    LocalBroker,
    declare_missing,
    has_seen,
    number_in,
    passed,
)
from penstock.links.link import Pace, Row
from penstock.protocols.amqp.codec.tables import encode_table

SUFFIXES: Final = ("A", "B")


class FederatedExchange:
    """Opened by its constructor, which raises ClientError."""

    def __init__(
        self, spec: FederationSpec, dialer: Dialer, local: LocalBroker, cluster: str
    ) -> None:
        self._spec = spec
        self._local = local
        self._ends = Ends(spec, dialer, cluster)
        self.connections = self._ends.connections
        self._max_hops = int(spec.value.get("max-hops", MAX_HOPS))
        self._seen = -1
        self._pace = Pace()
        self._bound: dict[tuple[str, bytes], dict[str, object]] = {}
        try:
            self._check_names()
            self._queue = self._queue_name()
            self._commands = self._ends.upstream.connection.channel()
            self._internal = self._declare()
            self._forwarding = self._open()
        except BaseException:
            for connection in self.connections:
                connection.close()
            raise

    # -- opening -------------------------------------------------------------------------

    def _check_names(self) -> None:
        """Raises ClientError where each message would seem to have been here already."""
        ends = self._ends
        if (ends.upstream_cluster(), ends.upstream.vhost) == (ends.cluster, self._spec.vhost):
            raise ClientError(
                f"the upstream's cluster is called '{ends.cluster}' as this one: messages must not"
                " go round, so give one of them another name (set_cluster_name)"
            )

    def _queue_name(self) -> str:
        spec, there = self._spec, self._spec.upstream_name
        own = ""
        if spec.vhost != self._ends.upstream.vhost:
            own = f":{spec.vhost}:{spec.name}"
        elif spec.name != there:
            own = f":{spec.name}"
        return f"federation: {there} -> {self._ends.cluster}{own}"

    def _declare(self) -> str:
        """All that is needed at the upstream; returns the name of the exchange between."""
        value, there = self._spec.value, self._spec.upstream_name
        arguments: dict[str, object] = dict(PURPOSE)
        for key in ("expires", "message-ttl"):
            if key in value:
                arguments[f"x-{key}"] = value[key]
        if "queue-type" in value:
            arguments["x-queue-type"] = value["queue-type"]
        self._commands.queue_declare(self._queue, durable=True, arguments=arguments)
        if self._is_missing(there):
            declared = dict(self._spec.declared)
            self._commands.exchange_declare(there, declared.pop("type"), **declared)
        former, name = [f"{self._queue} {suffix}" for suffix in SUFFIXES]
        if self._is_missing(former):
            former, name = name, former
        self._commands.exchange_delete(name)
        self._commands.exchange_declare(
            name, "fanout", durable=True, auto_delete=True, internal=True, arguments=dict(PURPOSE)
        )
        self._commands.queue_bind(self._queue, name)
        self._follow_bindings(name)
        self._commands.exchange_delete(former)
        return name

    def _is_missing(self, exchange: str) -> bool:
        def passive(channel: Channel) -> None:
            channel.exchange_declare(exchange, passive=True)

        return declare_missing(self._ends.upstream.connection, passive)

    def _open(self) -> Forwarding:
        source = self._ends.upstream.connection.channel()
        mode = self._spec.value.get("ack-mode", ON_CONFIRM)
        target = self._ends.downstream.connection.channel()
        forwarding = Forwarding(source, target, self._address, mode)
        if mode != NO_ACK:
            source.qos(self._spec.value.get("prefetch-count", PREFETCH))
        source.consume(self._queue, no_ack=mode == NO_ACK)
        return forwarding

    # -- bindings ------------------------------------------------------------------------

    def _follow_bindings(self, internal: str) -> None:
        """At the upstream as they are here."""
        changed = self._local.bindings(self._spec.vhost, self._spec.name, self._seen)
        if changed is None:
            return
        self._seen, bindings = changed
        wanted: dict[tuple[str, bytes], dict[str, object]] = {}
        for key, arguments in bindings:
            sent = self._sent(arguments)
            if sent is not None:
                wanted[key, encode_table(sent)] = sent
        there = self._spec.upstream_name
        for one in wanted.keys() - self._bound.keys():
            self._commands.exchange_bind(internal, there, one[0], wanted[one])
        for one in self._bound.keys() - wanted.keys():
            self._commands.exchange_unbind(internal, there, one[0], self._bound[one])
        self._bound = wanted

    def _sent(self, arguments: dict[str, Any]) -> dict[str, object] | None:
        """The arguments of a binding at the upstream; None: it goes no further."""
        before = passed(arguments, BOUND_FROM)
        hops = self._max_hops
        if before:
            cluster, vhost = self._ends.upstream_cluster(), self._ends.upstream.vhost
            if has_seen(before, cluster, vhost):
                return None
            hops = min(number_in(before[0], "hops") - 1, hops)
        if hops <= 0:
            return None
        spec = self._spec
        mark = {
            "cluster-name": self._ends.cluster,
            "vhost": spec.vhost,
            "exchange": f"{spec.vhost}:{spec.name}",
            "hops": hops,
        }
        return {**arguments, BOUND_FROM: [mark, *before]}

    # -- moving --------------------------------------------------------------------------

    def step(self) -> bool:
        if self._pace.is_due():
            self._follow_bindings(self._internal)
        self._forwarding.settle()
        if not self.is_blocked():
            self._forwarding.publish()
        return False

    def is_blocked(self) -> bool:
        return self._ends.downstream.connection.blocked is not None

    def _address(self, delivery: Delivery) -> Envelope | None:
        headers = dict(delivery.properties.headers or {})
        before = passed(headers, RECEIVED_FROM)
        if len(before) >= self._max_hops or has_seen(before, self._ends.cluster, self._spec.vhost):
            return None
        headers[RECEIVED_FROM] = [self._ends.mark(delivery.redelivered), *before]
        written = self._ends.written(delivery, headers)
        return Envelope(self._spec.name, delivery.routing_key, written)

    def clean(self) -> None:
        if keeps_its_queue(self._spec):
            return
        channel = self._ends.upstream.connection.channel()
        channel.queue_delete(self._queue)
        channel.exchange_delete(self._internal)

    def facts(self) -> Row:
        return {"uri": self._ends.upstream.uri, "forwarded": self._forwarding.published}


def keeps_its_queue(spec: FederationSpec) -> bool:
    """Also when the link ends for good."""
    return bool(spec.value.get("resource-cleanup-mode", "default") == "never")
