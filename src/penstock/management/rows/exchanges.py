"""Exchanges and bindings, as JSON-able dicts.

Called on the data loop; see ``view``.
"""

from collections.abc import Sequence
from typing import cast

from penstock.broker.topology.topics import PREFIX
from penstock.broker.topology.vhost import Vhost
from penstock.core.events.kinds import NODE_ITSELF
from penstock.management.facts.rows import (
    DEFAULT_EXCHANGE_IN_PATHS,
    Row,
    Rows,
    jsonable,
    properties_key,
)
from penstock.management.statistics.reading import exchange_tally
from penstock.queues.queue import Queue
from penstock.routing.exchanges import NSQ_TOPIC, Binding, Exchange


class ExchangeRows(Rows):
    def names(self, vhost: str) -> list[str]:
        return ["", *self.vhost(vhost).exchanges]

    def rows(self, vhost_name: str, names: Sequence[str]) -> list[Row]:
        vhost = self.broker.vhosts.get(vhost_name)
        if vhost is None:
            return []
        return [
            self._exchange_row(vhost, name)
            for name in names
            if name == "" or name in vhost.exchanges
        ]

    def row(self, vhost_name: str, name: str) -> Row:
        """Raises NotFound."""
        vhost = self.vhost(vhost_name)
        return self._exchange_row(vhost, "" if name == DEFAULT_EXCHANGE_IN_PATHS else name)

    def _exchange_row(self, vhost: Vhost, name: str) -> Row:
        row: Row = {"name": name, "vhost": vhost.name}
        if name == "":
            row.update(type="direct", durable=True, auto_delete=False, internal=False, arguments={})
            row["user_who_performed_action"] = NODE_ITSELF
            row["message_stats"] = exchange_tally(vhost.name, name, vhost.default_traffic)
            return row
        exchange = vhost.exchange(name)
        row.update(
            type=exchange.type,
            durable=exchange.durable,
            auto_delete=exchange.auto_delete,
            internal=exchange.internal,
            arguments=jsonable(exchange.arguments),
            user_who_performed_action=exchange.user or NODE_ITSELF,
            message_stats=exchange_tally(vhost.name, name, exchange.traffic),
        )
        policy = vhost.policies.exchange_policy(name)
        if policy is not None:
            row["policy"] = policy.name
        if exchange.delays:
            waiting = cast(Queue, exchange.internal_queue).backing
            row["messages_delayed"] = int(waiting.ready_count() + waiting.count_delayed())
        if exchange.type == NSQ_TOPIC:
            topic = vhost.topics.topics[name.removeprefix(PREFIX)]
            row.update(messages=int(topic.depth()), paused=topic.paused)
        return row

    def bindings_from(self, vhost: str, exchange: str) -> list[Binding]:
        """Bindings that leave an exchange, as tokens for ``binding_rows``; none if it is gone."""
        found = self.broker.vhosts.get(vhost)
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
