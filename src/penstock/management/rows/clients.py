"""Connections and channels, as JSON-able dicts.

Called on the data loop; see ``view``.
"""

from collections.abc import Sequence

from penstock.core.errors import NotFound
from penstock.management.facts.on_loop import Part
from penstock.management.facts.rows import Row, Rows, activity, jsonable
from penstock.management.facts.sessions import ChannelFacts, ConnectionFacts
from penstock.management.statistics.reading import channel_tally, octets_tally
from penstock.queues.consumers import Consumer


class ClientRows(Rows):
    def session(self, name: str) -> object:
        """Raises NotFound."""
        found = self.watch.find(name)
        if found is None:
            raise NotFound(f"no connection '{name}'")
        return found

    def channel_numbers(self, sessions: Sequence[object]) -> list[tuple[object, list[int]]]:
        return [(session, self.watch.channel_numbers(session)) for session in sessions]

    def connection_row(self, name: str) -> Row:
        """Raises NotFound."""
        facts = self.watch.connection(self.session(name))
        assert facts is not None
        return self._connection_row(facts)

    def close_connection(self, name: str, reason: str) -> None:
        """Tell the client why, and end it; raises NotFound."""
        self.watch.close(self.session(name), reason)

    def connection_rows(self, sessions: Sequence[object]) -> list[Row]:
        rows: list[Row] = []
        for session in sessions:
            facts = self.watch.connection(session)
            if facts is not None:
                rows.append(self._connection_row(facts))
        return rows

    def channel_rows(self, parts: Sequence[Part]) -> list[Row]:
        watch = self.watch
        rows: list[Row] = []
        for session, numbers, _ in parts:
            facts = watch.connection(session)
            if facts is not None:
                rows.extend(
                    self._channel_row(facts, channel)
                    for channel in watch.channels(session, numbers)
                )
        return rows

    def channel_row(self, name: str) -> Row:
        """``name`` is its connection's with the number in brackets; raises NotFound."""
        for row in self.channel_rows([Part(*self._channel(name), True)]):
            return row
        raise NotFound(f"no channel '{name}'")

    def consumers_on(self, channel: str) -> list[Consumer]:
        """Of the channel of that name; raises NotFound."""
        session, numbers = self._channel(channel)
        return [one for number in numbers for one in self.watch.consumers(session, number)]

    def _channel(self, name: str) -> tuple[object, list[int]]:
        """Its session, and its number if it is there."""
        connection, _, number = name.removesuffix(")").rpartition(" (")
        session = self.session(connection)
        numbers = self.watch.channel_numbers(session)
        return session, [one for one in numbers if str(one) == number]

    def _connection_row(self, facts: ConnectionFacts) -> Row:
        row: Row = {
            "name": facts.name,
            "user": facts.user,
            "user_who_performed_action": facts.user,
            "vhost": facts.vhost,
            "node": self.node_name,
            "type": "network",
            "state": "running" if facts.state == "idle" else facts.state,
            "time_in_flow_s": facts.flow_s,
            "protocol": facts.protocol,
            "auth_mechanism": facts.terms.auth_mechanism,
            "peer_host": facts.peer_host,
            "peer_port": facts.peer_port,
            "host": facts.host,
            "port": facts.port,
            **facts.tls.row(),
            "timeout": facts.terms.heartbeat_s,
            "frame_max": facts.terms.frame_max,
            "channel_max": facts.terms.channel_max,
            "channels": facts.channel_count,
            "connected_at": facts.connected_at_ms,
            "recv_oct": facts.received_bytes,
            "send_oct": facts.sent_bytes,
            "recv_cnt": facts.received_count,
            "send_cnt": facts.sent_count,
            "send_pend": facts.unsent_bytes,
            "octets": octets_tally(facts.name, facts.received_bytes, facts.sent_bytes),
            "client_properties": jsonable(facts.terms.client_properties),
        }
        given_name = facts.terms.client_properties.get("connection_name")
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
            **activity(channel.state, channel.active_at_ms),
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
            "pending_raft_commands": 0,  # of quorum queues, which are not here
            "messages_unconfirmed": channel.unconfirmed_count,
            "message_stats": channel_tally(f"{facts.name} ({channel.number})", channel.traffic),
        }
