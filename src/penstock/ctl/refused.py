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
MUST_STOP: Final = "this command requires the target node to be stopped."
ONE_TYPE: Final = "all nodes of a cluster keep its definitions on disk: there are no RAM nodes."
ROWS: Final[Mapping[str, Refusal]] = {
    "join_cluster": Refusal(BY_SETTINGS, 1, 1, by_node=True),
    "update_cluster_nodes": Refusal(BY_SETTINGS, 1, 1, by_node=True),
    "rename_cluster_node": Refusal(MUST_STOP, 2, 1000, by_node=True),
    **dict.fromkeys(("reset", "force_reset", "force_boot"), RESET),
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
    **dict.fromkeys(("erlang_version", "encode", "decode", "exec"), NO_ERLANG),
    **dict.fromkeys(("eval_file", "list_ciphers", "list_hashes", "schema_info"), NO_ERLANG),
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
