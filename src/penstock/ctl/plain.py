"""Verbs that are one request: what they say, what they check first, and which rows come back.

The request itself is in the table of ``client.requests``, under the verb's name.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.ctl.call import Call, json_of, must_enter, must_have, must_know
from penstock.ctl.cluster import nodes_of
from penstock.ctl.faults import NO_USER, UNAVAILABLE, Invalid, NotAsThingsAre, Refused
from penstock.ctl.output import Facts, Table, as_json

Given = dict[str, Any]
Check = Callable[[Call, Given], None]


class Plain(NamedTuple):
    says: str
    """The status line, with the words and ``{vhost}`` and ``{node}`` in it."""
    words: str = ""
    """Names of the words after the verb, as the request has them."""
    check: Check | None = None
    """Raises Refused or Fault before anything is asked for."""
    absent: str = ""
    """Why it is refused when there is nothing to delete; "": then it is done already."""
    absent_code: int = UNAVAILABLE
    answers: str = ""
    """What is printed when it is done, with ``{node}`` in it."""
    value: Mapping[str, object] = {}
    """For programs, beside the ``message``."""
    columns: str = ""
    """Of a list: the fields of a row."""
    has_head: bool = True


def patterns(call: Call, given: Given) -> None:
    """As far as we can tell without the node: it judges by the same rules."""
    for pattern in (given[name] for name in PATTERNS if name in given):
        try:
            re.compile(pattern)
        except re.error as error:
            reason = error.msg.partition(",")[0]
            # Where the pattern ends, if something is missing: as PCRE says it.
            place = len(pattern) if reason.startswith("missing") else error.pos
            text = f"{{:invalid_regexp, '{pattern}', {{'{reason}', {place}}}}}"
            raise Refused(text, UNAVAILABLE) from error
    user_and_vhost(call, given)


def user_and_vhost(call: Call, given: Given) -> None:
    must_have(call, given["vhost"], given["user"])


def user(call: Call, given: Given) -> None:
    must_know(call, given["user"])


def vhost(call: Call, given: Given) -> None:
    must_enter(call, given["vhost"])


def json_value(call: Call, given: Given) -> None:
    given["value"] = json_of(given["value"])
    if call.verb == "set_parameter":
        vhost(call, given)


def member(call: Call, given: Given) -> None:
    if given["node"] not in nodes_of(call):
        raise NotAsThingsAre(f"node {given['node']} is not a member of the cluster")


def leading(call: Call, given: Given) -> None:
    given["action"] = "hand_over"
    member(call, given)


def growing(call: Call, given: Given) -> None:
    if given["strategy"] not in ("all", "even"):
        raise Invalid(f"\"strategy '{given['strategy']}' is not recognised.\"")
    given |= {f"{one}_pattern": call.text(f"{one}-pattern", ".*") for one in ("vhost", "queue")}
    member(call, given)


OK: Final = {"result": "ok"}
INITIALIZED: Final = Plain(
    "Checking if metadata store on node {node} has finished initializing ...",
    answers="Metadata store on node {node} has completed its initialization",
    value=OK,
)
PATTERNS: Final = ("configure", "write", "read")
RUNS: Final = "RabbitMQ on node {node} is fully booted and running"
NO_SHOVEL: Final = (
    "Shovel with the given name was not found on the target node '{node}' and / or virtual host"
    " '{vhost}'"
)
SHOVEL: Final = (
    "name vhost type state timestamp src_uri src_queue src_exchange dest_uri dest_queue"
    " dest_exchange forwarded pending remaining reason"
)
NO_PARAMETER: Final = "Parameter does not exist"
FEDERATION_LINK: Final = (
    "id vhost type upstream queue exchange upstream_queue upstream_exchange status uri timestamp"
    " error"
)
NO_LINK: Final = "Link with the given ID was not found"
PARAMETER: Final = 'runtime parameter "{name}" for component "{component}"'
POLICY: Final = "vhost name pattern apply-to definition priority"
# fmt: off
ROWS: Final[Mapping[str, Plain]] = {
    "delete_user": Plain('Deleting user "{user}" ...', "user", None, 'User "{user}" does not exist',
        NO_USER),
    "set_permissions": Plain('Setting permissions for user "{user}" in vhost "{vhost}" ...',
        "user configure write read", patterns),
    "clear_permissions": Plain('Clearing permissions for user "{user}" in vhost "{vhost}" ...',
        "user", user_and_vhost),
    "set_topic_permissions": Plain(
        'Setting topic permissions on "{exchange}" for user "{user}" in vhost "{vhost}" ...',
        "user exchange write read", patterns),
    "list_permissions": Plain('Listing permissions for vhost "{vhost}" ...', check=vhost,
        columns="user configure write read"),
    "list_topic_permissions": Plain('Listing topic permissions for vhost "{vhost}" ...',
        check=vhost, columns="user exchange write read"),
    "list_user_permissions": Plain('Listing permissions for user "{user}" ...', "user", user,
        columns="vhost configure write read"),
    "list_user_topic_permissions": Plain('Listing topic permissions for user "{user}" ...', "user",
        user, columns="vhost exchange write read", has_head=False),
    "clear_policy": Plain('Clearing policy "{name}" on vhost "{vhost}" ...', "name",
        absent=NO_PARAMETER),
    "clear_operator_policy": Plain('Clearing operator policy "{name}" on vhost "{vhost}" ...',
        "name", absent=NO_PARAMETER),
    "list_policies": Plain('Listing policies for vhost "{vhost}" ...', check=vhost, columns=POLICY),
    "list_operator_policies": Plain('Listing operator policy overrides for vhost "{vhost}" ...',
        check=vhost, columns=POLICY),
    "set_parameter": Plain(f'Setting {PARAMETER} to "{{value}}" in vhost "{{vhost}}" ...',
        "component name value", json_value),
    "clear_parameter": Plain(f'Clearing {PARAMETER} on vhost "{{vhost}}" ...', "component name",
        absent=NO_PARAMETER),
    "set_global_parameter": Plain('Setting global runtime parameter "{name}" to "{value}" ...',
        "name value", json_value),
    "clear_global_parameter": Plain('Clearing global runtime parameter "{name}" ...', "name",
        absent=NO_PARAMETER),
    "list_global_parameters": Plain("Listing global runtime parameters ...", columns="name value"),
    "shovel_status": Plain("Shovel status on node {node}", columns=SHOVEL),
    "restart_shovel": Plain(
        "Restarting dynamic Shovel {name} in virtual host {vhost} on node {node}", "name",
        absent=NO_SHOVEL),
    "delete_shovel": Plain("Deleting shovel {name} in vhost {vhost}", "name", absent=NO_SHOVEL),
    "federation_status": Plain("Listing federation links on node {node}...",
        columns=FEDERATION_LINK),
    "restart_federation_link": Plain("Restarting federation link {id} on node {node}", "id",
        absent=NO_LINK),
    "add_member": Plain("Adding a member for queue {queue} on node {node}...", "queue node",
        member),
    "delete_member": Plain("Removing a replica of queue {queue} on node {node}...", "queue node",
        member),
    "transfer_leadership": Plain("Transferring leadership of queue {queue} to node {node}...",
        "queue node", leading),
    "grow": Plain("Growing all queues on {node}...", "node strategy", growing),
    "check_if_any_deprecated_features_are_used": Plain(
        "Checking if any deprecated features are used ...",
        answers="Cluster reported no deprecated features in use", value=OK),
    "check_if_metadata_store_is_initialized": INITIALIZED,
    "check_if_metadata_store_is_initialized_with_data": INITIALIZED,
    "has_reached_target_cluster_size": Plain(
        "Checking if target cluster size has been reached on node {node} ...",
        answers="Target cluster size has been reached on node {node}", value=OK),
    "activate_free_disk_space_monitoring": Plain(
        "[Re-]activating free disk space monitoring on node {node}..."),
    "reconcile_vhosts": Plain(
        "Will try to initiate virtual host reconciliation on all reachable cluster nodes..."),
    "reset_node_auth_attempt_metrics": Plain("Reset auth attempt metrics on node {node} ..."),
    "clear_auth_backend_cache": Plain(
        "Will clear rabbitmq_auth_backend_cache plugin's cache on the target node..."),
    "reset_stats_db": Plain("Resetting statistics database on node {node}"),
    "set_cluster_name": Plain("Setting cluster name to {name} ...", "name"),
    "purge_queue": Plain("Purging queue '{queue}' in vhost '{vhost}' ...", "queue", None,
        "not_found"),
    "start_app": Plain("Starting node {node} ..."),
    "check_running": Plain("Checking if RabbitMQ is running on node {node} ...", answers=RUNS),
    "is_running": Plain("Asking node {node} for its status ...", answers=RUNS,
        value={"result": True}),
    "is_booting": Plain(
        "Asking node {node} for its boot status ...",
        answers="RabbitMQ on node {node} is fully booted (check with is_running), stopped or has"
        " not started booting yet",
        value={"result": False},
    ),
    "suspend_listeners": Plain(
        "Will suspend client connection listeners on node {node}. The node will no longer accept"
        " client connections!"),
    "resume_listeners": Plain(
        "Will resume client connection listeners on node {node}. The node will now accept client"
        " connections"),
    "revive": Plain(
        "Will put node {node} back into regular operating mode. The node will again serve client"
        " traffic and host primary queue replicas."),
}
# fmt: on


def from_row(call: Call) -> Table | Facts | None:
    row = ROWS[call.verb]
    words = row.words.split()
    given: Given = {**dict(zip(words, call.take(len(words)), strict=True)), "vhost": call.vhost}
    if "{node}" in row.says + row.absent and "node" not in given:
        given["node"] = call.node.name
    call.say(row.says.format_map(given))
    if row.check is not None:
        row.check(call, given)
    answer = call.do(call.verb, **given)
    if answer.status == 404 and row.absent:
        raise Refused(row.absent.format_map(given), row.absent_code)
    if row.answers:
        text = row.answers.format_map(given)
        return Facts(text, {"message": text, **row.value})
    if not row.columns:
        return None
    columns = row.columns.split()
    return Table(columns, [_cells(one, columns) for one in answer.json()], row.has_head, True)


def _cells(row: Mapping[str, Any], columns: Sequence[str]) -> list[object]:
    """Definitions and values, which may be anything, are shown as JSON."""
    return [
        as_json(row[column], sort=column == "definition")
        if column in ("definition", "value")
        else row.get(column, "")
        for column in columns
    ]
