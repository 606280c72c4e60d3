"""``FederatedQueue``: one run of a link that fetches messages of an upstream queue.

While a consumer of the queue here waits and the queue is empty, the link consumes at the upstream,
with a priority below that of the consumers there; else it has no consumer there.
"""

from typing import Final

from penstock.client.channel import Channel, Delivery
from penstock.client.forwarding import NO_ACK, ON_CONFIRM, Envelope, Forwarding
from penstock.links.dialing import Dialer
from penstock.links.federation import (
    PREFETCH,
    RECEIVED_FROM,
    Ends,
    FederationSpec,
    LocalBroker,
    declare_missing,
    number_in,
    passed,
)
from penstock.links.link import Pace, Row

PRIORITY: Final = -1
FIRST_EXCHANGE: Final = "x-original-exchange"
FIRST_KEY: Final = "x-original-routing-key"
VISITS: Final = "visit-count"


class FederatedQueue:
    """Opened by its constructor, which raises ClientError."""

    def __init__(
        self, spec: FederationSpec, dialer: Dialer, local: LocalBroker, cluster: str
    ) -> None:
        self._spec = spec
        self._local = local
        self._ends = Ends(spec, dialer, cluster)
        self.connections = self._ends.connections
        self._mode = str(spec.value.get("ack-mode", ON_CONFIRM))
        self._consumer = ""
        self._pace = Pace()
        try:
            self._source = self._open_source()
            target = self._ends.downstream.connection.channel()
            self._forwarding = Forwarding(
                self._source, target, self._address, self._mode, mandatory=True
            )
        except BaseException:
            for connection in self.connections:
                connection.close()
            raise

    def _open_source(self) -> Channel:
        upstream, name = self._ends.upstream.connection, self._spec.upstream_name

        def passive(channel: Channel) -> None:
            channel.queue_declare(name, passive=True)

        source = upstream.channel()
        if declare_missing(upstream, passive):
            source.queue_declare(name, **self._spec.declared)
        if self._mode != NO_ACK:
            source.qos(self._spec.value.get("prefetch-count", PREFETCH))
        return source

    def step(self) -> bool:
        if self._pace.is_due():
            self._follow_demand()
        self._forwarding.settle()
        if not self.is_blocked():
            self._forwarding.publish()
        return False

    def _follow_demand(self) -> None:
        wanted = self._local.wants(self._spec.vhost, self._spec.name)
        if wanted and not self._consumer:
            self._consumer = self._source.consume(
                self._spec.upstream_name,
                self._spec.value.get("consumer-tag", f"federation-link-{self._spec.upstream}"),
                no_ack=self._mode == NO_ACK,
                arguments={"x-priority": PRIORITY},
            )
        elif not wanted and self._consumer:
            self._source.cancel(self._consumer)
            self._consumer = ""

    def is_blocked(self) -> bool:
        return self._ends.downstream.connection.blocked is not None

    def _address(self, delivery: Delivery) -> Envelope:
        headers = dict(delivery.properties.headers or {})
        before = passed(headers, RECEIVED_FROM)
        mark = self._ends.mark(delivery.redelivered)
        if not before:
            headers[FIRST_EXCHANGE] = delivery.exchange
            headers[FIRST_KEY] = delivery.routing_key
        former = [one for one in before if one.get("uri") == mark["uri"]]
        visits = 1 + sum(number_in(one, VISITS) for one in former)
        others = [one for one in before if one not in former]
        headers[RECEIVED_FROM] = [{**mark, VISITS: visits}, *others]
        return Envelope("", self._spec.name, self._ends.written(delivery, headers))

    def clean(self) -> None:
        """Nothing at the upstream is the link's own."""

    def facts(self) -> Row:
        return {
            "uri": self._ends.upstream.uri,
            "consumer_tag": self._consumer,
            "forwarded": self._forwarding.published,
        }
