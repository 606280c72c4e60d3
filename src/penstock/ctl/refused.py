"""Verbs that mean something in RabbitMQ which does not exist here; each says what does instead."""

from collections.abc import Mapping
from typing import Final, NamedTuple, NoReturn

from penstock.ctl.call import Call
from penstock.ctl.faults import DATA, SOFTWARE, UNAVAILABLE, Fault, Invalid, NotAsThingsAre


class Refusal(NamedTuple):
    """Why, and how many words the verb takes."""

    text: str
    least: int = 0
    most: int = 0
    code: int = SOFTWARE
    by_node: bool = False
    """As RabbitMQ refuses it on a node that runs: one that does not answer is another error."""


BY_SETTINGS: Final = (
    "a node joins a cluster when it starts, by its settings cluster_etcd_endpoints and"
    " cluster_secret_file; 'penstockctl forget_cluster_node' removes a node that is down"
    " (docs/guide/clusters.md)."
)
RESET: Final = Refusal(
    "a node that runs keeps its data. Stop it with 'penstockctl stop'; then start it with another,"
    " empty data directory (--data-dir). It starts without waiting for other nodes.",
    by_node=True,
)
NO_ERLANG: Final = Refusal(
    "Error: this needs an Erlang machine, which Penstock does not have", most=1000
)
NO_LOG: Final = Refusal("Error: a quorum queue has no Raft log here: nothing to reclaim", most=1000)
NO_REPLICAS: Final = Refusal(
    "Error: streams have no replicas and no coordinator here. A policy of mirrors makes copies of"
    " a stream; stream_status shows what it has",
    most=1000,
)
NO_INTERCEPTORS: Final = Refusal("Error: there are no channel interceptors here", most=1000)
SOURCES: Final = Refusal(
    "Error: the log names the source of each log-in that fails (log_tail); log-ins are counted by"
    " protocol (list_node_auth_attempt_stats)"
)
MUST_STOP: Final = "this command requires the target node to be stopped."
ONE_TYPE: Final = "all nodes of a cluster keep its definitions on disk: there are no RAM nodes."
ROWS: Final[Mapping[str, Refusal]] = {
    "join_cluster": Refusal(BY_SETTINGS, 1, 1, by_node=True),
    "update_cluster_nodes": Refusal(BY_SETTINGS, 1, 1, by_node=True),
    "rename_cluster_node": Refusal(MUST_STOP, 2, 1000, by_node=True),
    **dict.fromkeys(("reset", "force_reset", "force_boot"), RESET),
    "force_standalone_khepri_boot": RESET,
    "stop_app": Refusal(
        "Error: a Penstock has no application that stops by itself. 'penstockctl drain' closes it"
        " to clients, 'penstockctl stop' ends the process"
    ),
    "force_gc": Refusal(
        "Error: there are no Erlang processes to collect; memory is given back as messages leave"
    ),
    "rotate_logs": Refusal(
        "Error:\nThis command does not rotate logs anymore [deprecated]", code=UNAVAILABLE
    ),
    **dict.fromkeys(("erlang_version", "exec"), NO_ERLANG),
    **dict.fromkeys(("eval_file", "schema_info"), NO_ERLANG),
    **dict.fromkeys(("decrypt_conf_value", "encrypt_conf_value", "maybe_stuck"), NO_ERLANG),
    **dict.fromkeys(("command_line_arguments", "runtime_thread_stats"), NO_ERLANG),
    **dict.fromkeys(("erlang_cookie_hash", "erlang_cookie_sources"), NO_ERLANG),
    **dict.fromkeys(("observer", "remote_shell", "resolver_info"), NO_ERLANG),
    **dict.fromkeys(("force_checkpoint", "reclaim_quorum_memory"), NO_LOG),
    **dict.fromkeys(("coordinator_status", "restart_stream"), NO_REPLICAS),
    **dict.fromkeys(("add_replica", "delete_replica"), NO_REPLICAS),
    "set_stream_retention_policy": Refusal(
        "Error: set_policy with max-age or max-length-bytes says how long messages stay", 2, 2
    ),
    "list_channel_interceptors": NO_INTERCEPTORS,
    "set_channel_interceptor_priorities": NO_INTERCEPTORS,
    "enable_auth_attempt_source_tracking": SOURCES,
    "disable_auth_attempt_source_tracking": SOURCES,
    "deactivate_free_disk_space_monitoring": Refusal(
        "Error: free disk space is always watched; 'penstockctl set_disk_free_limit' says how much"
        " must stay free"
    ),
    "remove_classic_queue_mirroring_from_policies": Refusal(
        "Error: mirrored queues stay in Penstock, so nothing has to be removed; 'penstockctl"
        " set_policy' without ha-mode ends the mirroring of one policy"
    ),
    "metadata_store_status": Refusal(
        "Error: definitions are in a database of the node (definitions.db), in a cluster in etcd:"
        " 'penstockctl check_if_metadata_store_is_initialized' says whether they are read"
    ),
    "message_size_stats": Refusal("Error: messages are not counted by classes of size"),
    "certificates": Refusal(
        "Error: certificates are files that the settings name (environment); 'penstockctl"
        " check_certificate_expiration' looks at those that listeners have loaded"
    ),
    "list_network_interfaces": Refusal(
        "Error: the operating system lists them ('ip address'); 'penstockctl listeners' says where"
        " the node listens"
    ),
}


def from_row(call: Call) -> NoReturn:
    row = ROWS[call.verb]
    call.take(row.least, row.most)
    if row.by_node:
        refuse(call, row.text)
    raise Fault(row.code, row.text)


def refuse(call: Call, instead: str) -> NoReturn:
    """As a node that runs does."""
    call.node.get("/api/whoami")
    raise NotAsThingsAre(instead)


def change_cluster_node_type(call: Call) -> NoReturn:
    (kind,) = call.take(1)
    if kind not in ("disc", "disk", "ram"):
        raise Invalid("Bad argument: The node type must be either disc or ram.", DATA)
    refuse(call, ONE_TYPE)


def hipe_compile(call: Call) -> str:
    call.take(1)
    return "This command is a no-op. HiPE is no longer supported by modern Erlang versions"
