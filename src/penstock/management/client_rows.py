"""Connections and channels, as JSON-able dicts.

Called on the data loop; see ``view``.
"""

from collections.abc import Sequence

from penstock.core.errors import NotFound
from penstock.management.facts import ChannelFacts, ConnectionFacts
from penstock.management.rows import Row, Rows, activity, jsonable
from penstock.management.statistics.reading import channel_tally, octets_tally


class ClientRows(Rows):
    """See the head of this file."""

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

    def close_sessions_of(
        self, sessions: Sequence[object], users: Sequence[str], reason: str
    ) -> None:
        """Those of these sessions that are theirs; ``{}`` in the reason is the user's name."""
        for session in sessions:
            facts = self._watch.connection(session)
            if facts is not None and facts.user in users:
                self._watch.close(session, reason.format(facts.user))

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

    def channel_rows_of(self, name: str) -> list[Row]:
        """Channels of one connection; raises NotFound."""
        return self.channel_rows([self._named(name)])

    def channel_row(self, name: str) -> Row:
        """``name`` is its connection's with the number in brackets; raises NotFound."""
        connection, _, number = name.removesuffix(")").rpartition(" (")
        for row in self.channel_rows_of(connection):
            if str(row["number"]) == number:
                return row
        raise NotFound(f"no channel '{name}'")

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
            "recv_cnt": facts.received_count,
            "send_cnt": facts.sent_count,
            "send_pend": facts.unsent_bytes,
            "octets": octets_tally(facts.name, facts.received_bytes, facts.sent_bytes),
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
