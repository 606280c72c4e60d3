"""Lists of queues, exchanges, bindings, connections, channels and consumers: columns and defaults.

A column of RabbitMQ's that does not exist here is an empty cell.  Where it has a process id of
Erlang, a queue or mirror has its node here, and a connection or channel its name, which
``close_connection`` takes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.client.management import path_of
from penstock.ctl.call import Call, columns_of
from penstock.ctl.faults import NOT_YET, Fault
from penstock.ctl.output import Arguments, Table, Term

Row = Mapping[str, Any]
Cell = Callable[[Row], object]

QUEUE_COLUMNS: Final = (
    "arguments auto_delete consumer_capacity consumer_utilisation consumers disk_reads disk_writes"
    " durable exclusive exclusive_consumer_pid exclusive_consumer_tag head_message_timestamp leader"
    " members memory message_bytes message_bytes_persistent message_bytes_ram message_bytes_ready"
    " message_bytes_unacknowledged messages messages_persistent messages_ram messages_ready"
    " messages_ready_ram messages_unacknowledged messages_unacknowledged_ram name online owner_pid"
    " pid policy slave_pids state synchronised_slave_pids type"
    " backing_queue_status slave_nodes synchronised_slave_nodes recoverable_slaves"
)
"""The last line is ours: RabbitMQ 3.10 shows them over HTTP only."""
QUEUE_TIMEOUT_S: Final = 60


def _plain(column: str) -> Cell:
    return lambda row: row.get(column)


def _table(
    columns: Sequence[str], rows: Sequence[Row], cells: Mapping[str, Cell] | None = None
) -> Table:
    made = [(cells or {}).get(column) or _plain(column) for column in columns]
    return Table(columns, [[cell(row) for cell in made] for row in rows])


def _arguments(row: Row) -> object:
    return Arguments(row.get("arguments") or {})


# -- queues ----------------------------------------------------------------------------------


def _policy(row: Row) -> object:
    return row.get("policy") or ""


def _state(row: Row) -> object:
    """Idle is a word of the API, not of the broker."""
    state = row.get("state", "running")
    return "running" if state == "idle" else state


def _owner(row: Row) -> object:
    return row.get("owner_pid_details", {}).get("name")


def _nodes(field: str) -> Cell:
    """A list in Erlang's way, also an empty one; nothing where there are no mirrors at all."""

    def cell(row: Row) -> object:
        names = row.get(field)
        return None if names is None else [Term(name) for name in names]

    return cell


QUEUE_FIELDS: Final[Mapping[str, str]] = {
    "pid": "node",
    "leader": "node",
    "owner_pid": "owner_pid_details",
    "slave_pids": "slave_nodes",
    "synchronised_slave_pids": "synchronised_slave_nodes",
    "exclusive_consumer_pid": "",
}
"""The field of the API where it is not the column's own; "" for those that do not exist here."""
QUEUE_CELLS: Final[Mapping[str, Cell]] = {
    "arguments": _arguments,
    "policy": _policy,
    "state": _state,
    "owner_pid": _owner,
    "pid": _plain("node"),
    "leader": _plain("node"),
    "exclusive_consumer_pid": lambda _row: None,
    "members": _nodes("members"),
    "online": _nodes("online"),
    "slave_pids": _nodes("slave_nodes"),
    "synchronised_slave_pids": _nodes("synchronised_slave_nodes"),
    "slave_nodes": _nodes("slave_nodes"),
    "synchronised_slave_nodes": _nodes("synchronised_slave_nodes"),
    "recoverable_slaves": _nodes("recoverable_slaves"),
}


def list_queues(call: Call) -> Table:
    columns = columns_of(call, QUEUE_COLUMNS.split(), ("name", "messages"))
    timeout_s = call.number("timeout", QUEUE_TIMEOUT_S)
    if timeout_s == 0:
        raise Fault(
            NOT_YET,
            f"Error: operation list_queues on node {call.node.name} timed out."
            " Timeout value used: 0",
        )
    call.say(f"Timeout: {timeout_s:.1f} seconds ...")
    call.say(f"Listing queues for vhost {call.vhost} ...")
    rows = [row for row in _queues(call, columns) if _is_asked_for(call, row)]
    return _table(columns, rows, QUEUE_CELLS)


def _is_asked_for(call: Call, row: Row) -> bool:
    """Of the three switches one is enough; with none of them all are."""
    is_down = row.get("state") == "down"
    asked = {"offline": is_down, "online": not is_down, "local": row.get("node") == call.node.name}
    wanted = [is_so for switch, is_so in asked.items() if call.is_set(switch)]
    return any(wanted) or not wanted


def _queues(call: Call, columns: Sequence[str]) -> list[Row]:
    """Only what is shown is sent: of ten thousand queues the whole rows are megabytes."""
    shown = (QUEUE_FIELDS.get(column, column) for column in columns)
    fields = dict.fromkeys(["name", "state", "node", *shown])
    path = path_of("queues", call.vhost) + "?columns=" + ",".join(filter(None, fields))
    return list(call.node.found(path) or [])


def list_unresponsive_queues(call: Call) -> Table:
    """Queues do not answer one by one: all are in one loop, which has just answered."""
    columns = columns_of(call, QUEUE_COLUMNS.split(), ("name",))
    call.say(f"Listing unresponsive queues for vhost {call.vhost} ...")
    found = call.node.found(path_of("queues", call.vhost)) or []
    stopped = [row for row in found if row["state"] == "stopped"]
    return _table(columns, stopped, QUEUE_CELLS)


# -- the other lists ---------------------------------------------------------------------------


def _protocol(row: Row) -> object:
    """``AMQP 0-9-1`` is ``{0,9,1}`` there."""
    name, _, version = str(row.get("protocol", "")).partition(" ")
    if name != "AMQP" or not version:
        return row.get("protocol")
    return tuple(int(part) for part in version.split("-"))


class Listing(NamedTuple):
    """A list whose request has the verb's name."""

    says: str
    columns: str
    default: str
    cells: Mapping[str, Cell] = {}
    """Of the columns that are not just a field of the row."""


# fmt: off
ROWS: Final[Mapping[str, Listing]] = {
    "list_exchanges": Listing("Listing exchanges for vhost {vhost} ...",
        "arguments auto_delete durable internal name policy type", "name type",
        {"arguments": _arguments, "policy": _policy}),
    "list_bindings": Listing(
        "Listing bindings for vhost {vhost}...",
        "source_name source_kind destination_name destination_kind routing_key arguments",
        "source_name source_kind destination_name destination_kind routing_key arguments",
        {
            "source_name": _plain("source"),
            "source_kind": lambda _row: "exchange",
            "destination_name": _plain("destination"),
            "destination_kind": _plain("destination_type"),
            "arguments": lambda row: Arguments(sorted(row["arguments"].items())),
        },
    ),
    "list_connections": Listing(
        "Listing connections ...",
        "auth_mechanism channel_max channels client_properties connected_at frame_max host name"
        " peer_cert_issuer peer_cert_subject peer_cert_validity peer_host peer_port pid port"
        " protocol recv_cnt recv_oct send_cnt send_oct send_pend ssl ssl_cipher ssl_hash"
        " ssl_key_exchange ssl_protocol state timeout user vhost",
        "user peer_host peer_port state",
        {
            "pid": _plain("name"),
            "protocol": _protocol,
            "client_properties": lambda row: Arguments(row.get("client_properties") or {}),
        },
    ),
    "list_channels": Listing("Listing channels ...",
        "acks_uncommitted confirm connection consumer_count global_prefetch_count"
        " messages_unacknowledged messages_uncommitted messages_unconfirmed name number pid"
        " prefetch_count transactional user vhost",
        "pid user consumer_count messages_unacknowledged",
        {"pid": _plain("name"), "connection": lambda row: row["connection_details"].get("name")}),
    "list_consumers": Listing(
        "Listing consumers in vhost {vhost} ...",
        "ack_required active activity_status arguments channel_pid consumer_tag prefetch_count"
        " queue_name",
        "queue_name channel_pid consumer_tag ack_required prefetch_count active arguments",
        {
            "queue_name": lambda row: row["queue"]["name"],
            "channel_pid": lambda row: row["channel_details"].get("name"),
            "activity_status": lambda row: Term(str(row.get("activity_status", "up"))),
            "arguments": _arguments,
        },
    ),
    "list_vhosts": Listing("Listing vhosts ...",
        "name description tags default_queue_type protected_from_deletion tracing cluster_state",
        "name", {"tags": lambda row: [Term(tag) for tag in row.get("tags", "")]}),
    "list_feature_flags": Listing("Listing feature flags ...",
        "name state stability provided_by desc doc_url", "name state"),
}
# fmt: on


def from_row(call: Call) -> Table:
    """An unknown virtual host has nothing in it, as there."""
    row = ROWS[call.verb]
    columns = columns_of(call, row.columns.split(), row.default.split())
    call.say(row.says.format(vhost=call.vhost))
    answer = call.do(call.verb)
    return _table(columns, [] if answer.status == 404 else answer.json(), row.cells)


def list_deprecated_features(call: Call) -> Table:
    known = ("name", "deprecation_phase", "state", "desc", "doc_url", "provided_by")
    columns = columns_of(call, known, ("name", "deprecation_phase", "state"))
    is_used = call.is_set("used")
    call.say(f"Listing deprecated features{' in use' if is_used else ''} ...")
    path = "/api/deprecated-features" + ("/used" if is_used else "")
    return _table(columns, call.node.get(path))
