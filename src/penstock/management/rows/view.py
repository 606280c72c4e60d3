"""``BrokerView``: the broker as JSON-able dicts in the shape of RabbitMQ's management API.

Quiet, read-only but for ``purge`` and ``close_connection``, and meant to be called on the
data loop: every method is either O(1) or takes the names it shall describe, so that the caller
decides how much is done in one go.  A name that has vanished between two calls is left out.

A field is shown when the broker knows its value.  What it does not measure is absent, never
zero: absent is what RabbitMQ's own tools are prepared for.

Sessions are the server's; ``facts`` has what it tells about them.
"""

from collections.abc import Sequence

from penstock.broker.broker import Broker
from penstock.broker.definitions.exporting import metadata_row
from penstock.management.facts.rows import Row, Rows
from penstock.management.facts.sessions import ListenerFacts, SessionInspector, date_text
from penstock.management.facts.storage_view import files_row, storage_row
from penstock.management.rows.clients import ClientRows
from penstock.management.rows.exchanges import ExchangeRows
from penstock.management.rows.forecast_view import alarms_row
from penstock.management.rows.mirrors import MirrorRows
from penstock.management.rows.queues import QueueRows
from penstock.management.statistics.kinds import CLUSTER, CountersSnapshot
from penstock.management.statistics.reading import cluster_counts, vhost_tally
from penstock.storage.engine.recovery import Opening


class BrokerView(Rows):
    """What there is once; queues, exchanges, clients and mirrors have rows of their own."""

    def __init__(
        self,
        broker: Broker,
        watch: SessionInspector,
        node_name: str = "",
        opening: Opening | None = None,
    ) -> None:
        super().__init__(broker, watch, node_name)
        self._opening = opening
        self.queues = QueueRows(broker, watch, self.node_name)
        self.exchanges = ExchangeRows(broker, watch, self.node_name)
        self.clients = ClientRows(broker, watch, self.node_name)
        self.mirrors = MirrorRows(broker, watch, self.node_name)

    # -- totals --------------------------------------------------------------------------

    def count_entities(self, vhosts: Sequence[str]) -> tuple[int, int]:
        found = [self.broker.vhosts[name] for name in vhosts if name in self.broker.vhosts]
        # RabbitMQ counts the default exchange too, which is no object here.
        exchanges = sum(len(vhost.exchanges) + 1 for vhost in found)
        return exchanges, sum(len(vhost.queues) for vhost in found)

    def cluster_counts(self) -> dict[str, int]:
        return dict(zip(CLUSTER.counters, cluster_counts(self.broker), strict=True))

    def vhost_tallies(self, names: Sequence[str]) -> list[CountersSnapshot]:
        return [vhost_tally(self.broker, name) for name in names]

    def listener_rows(self) -> list[Row]:
        return [listener_row(listener, self.node_name) for listener in self.watch.listeners()]

    def add_message_counts(self, vhost_name: str, names: Sequence[str], totals: list[int]) -> None:
        """Add ready, unacknowledged and consumers of these queues to the three ``totals``."""
        vhost = self.broker.vhosts.get(vhost_name)
        if vhost is None:
            return
        for name in names:
            queue = vhost.queues.get(name)
            if queue is not None:
                totals[0] += queue.backing.ready_count()
                totals[1] += queue.unacked_anywhere()
                totals[2] += queue.consumers_anywhere()

    def storage_row(self) -> Row:
        engine = self.broker.engine
        row = storage_row(engine, self.watch.disk(), self._opening)
        row["alarms"] = alarms_row(self.broker.admission)
        row["files"] = files_row(engine)
        staging = self.broker.staging
        names = sorted({vhost for vhost, _ in staging.sets})
        row["staged"] = {
            **staging.totals(),
            "published": staging.batches.published_count,
            "vhosts": {name: staging.totals(name) for name in names},
        }
        return row

    # -- virtual hosts ---------------------------------------------------------------------

    def vhost_names(self) -> list[str]:
        return list(self.broker.vhosts)

    def has_vhost(self, name: str) -> bool:
        return name in self.broker.vhosts

    def vhost_row(self, name: str) -> Row:
        vhost = self.vhost(name)
        return {
            "name": name,
            "description": vhost.metadata.description,
            "tags": list(vhost.metadata.tags),
            "metadata": metadata_row(vhost.metadata),
            "cluster_state": {self.node_name: "running"},
            "tracing": vhost.tracing,
            "default_queue_type": vhost.metadata.default_queue_type or "undefined",
            "protected_from_deletion": vhost.metadata.protected_from_deletion,
            "message_stats": vhost_tally(self.broker, name),
        }


def listener_row(listener: ListenerFacts, node_name: str) -> Row:
    """With TLS also when the first of its certificates expires, as ``date_text`` has it."""
    ends = [end for dates in listener.expiry_dates.values() for end in dates]
    expiry = {"certificate_expires_on": date_text(min(ends))} if ends else {}
    return expiry | {
        "node": node_name,
        "protocol": listener.protocol,
        "ip_address": listener.host,
        "port": listener.port,
        "socket_opts": {},
    }
