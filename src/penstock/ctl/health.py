"""Health checks and what they look at: alarms, listeners, virtual hosts, memory."""

import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.client.management import path_of
from penstock.ctl.call import Call
from penstock.ctl.faults import DATA, UNAVAILABLE, USAGE, Fault, Invalid, Refused
from penstock.ctl.output import Facts, Table, as_json

PURPOSES: Final[Mapping[str, str]] = {
    "amqp": "AMQP 0-9-1",
    "amqp/ssl": "AMQP 0-9-1 over TLS",
    "http": "HTTP API",
    "https": "HTTP API over TLS",
    "http/prometheus": "Prometheus exporter API over HTTP",
    "nsq": "NSQ",
    "clustering": "inter-node and CLI tool communication",
}
EXPIRY: Final = "certificate_expires_on"
ALSO_CALLED: Final[Mapping[str, str]] = {"peer": "clustering"}
UNITS: Final[Mapping[str, int]] = {"bytes": 1, "mb": 1_000_000, "gb": 1_000_000_000}
RESOURCES: Final[Mapping[str, str]] = {
    "memory": "Memory alarm",
    "disk space": "Free disk space alarm",
}
ANY: Final[Mapping[str, str]] = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104
CONNECT_TIMEOUT_S: Final = 5.0
UNHEALTHY: Final = 503
SINGLE: Final = "seems to be the only one in a single node cluster, the check does not apply"


# -- alarms ----------------------------------------------------------------------------------


def alarms_of(call: Call, which: str = "local-alarms") -> list[str]:
    """In words, one for each; ``which``: ``alarms`` for those of the whole cluster."""
    answer = call.node.ask("GET", f"/api/health/checks/{which}")
    if answer.status != 503:
        call.node.must(answer)
        return []
    found = answer.json()["alarms"]
    return [f"{RESOURCES[one['resource']]} on node {one['node']}" for one in found]


def alarms(call: Call) -> object:
    node = call.node.name
    call.say(f"Asking node {node} to report any known resource alarms ...")
    found = alarms_of(call, "alarms")
    if not found:
        value: object = {"result": "ok", "node": node, "alarms": []}
        return Facts(f"Node {node} reported no alarms, local or clusterwide", value)
    return Facts("\n".join(found), _alarmed(node, found, "ok"))


def _alarmed(node: str, found: Sequence[str], result: str) -> dict[str, object]:
    local = [one for one in found if one.endswith(f" on node {node}")]
    return {
        "result": result,
        "local": local,
        "global": [one for one in found if one not in local],
        "message": f"Node {node} reported alarms",
    }


def check_alarms(call: Call) -> object:
    is_local = call.verb == "check_local_alarms"
    which, head = ("local-alarms", "Error:\n") if is_local else ("alarms", "")
    none = "no local alarms" if is_local else "no alarms, local or clusterwide"
    node = call.node.name
    call.say(f"Asking node {node} to report any local resource alarms ...")
    found = alarms_of(call, which)
    if found:
        raise _failed(call, _alarmed(node, found, "error"), head + "\n".join(found))
    return Facts(f"Node {node} reported {none}", {"result": "ok"})


def _failed(call: Call, facts: Mapping[str, object], text: str) -> Fault:
    is_json = call.formatter == "json"
    return Fault(UNAVAILABLE, as_json(facts, sort=True) if is_json else text)


# -- does it run -----------------------------------------------------------------------------


def node_health_check(call: Call) -> str:
    call.say("This command is DEPRECATED: use check_running, check_local_alarms and their like.")
    call.say(f"Checking health of node {call.node.name} ...")
    found = alarms_of(call)
    if found:
        raise Refused("\n".join(found), UNAVAILABLE)
    return "Health check passed"


def check_virtual_hosts(call: Call) -> object:
    call.say(f"Checking if all vhosts are running on node {call.node.name} ...")
    call.node.get("/api/health/checks/virtual-hosts")
    return Facts(f"Node {call.node.name} reported all vhosts as running", {"result": "ok"})


class Critical(NamedTuple):
    says: str
    check: str
    wrong: str
    """What is reported of the node."""
    line: str
    right: str


MIRRORS: Final = Critical(
    "Checking if node {node} is critical for data safety of any classic mirrored queues ...",
    "node-is-mirror-sync-critical",
    "local classic mirrored queues without online synchronised mirrors",
    "{queue} would lose its only synchronised replica (master) if node {node} is stopped",
    "no classic mirrored queues without online synchronised mirrors",
)
MEMBERS: Final = Critical(
    "Checking if node {node} is critical for quorum of any quorum queues ...",
    "node-is-quorum-critical",
    "local queues with minimum online quorum",
    "{queue} would lose quorum if node {node} is stopped",
    "no quorum queues with minimum quorum",
)


def check_critical(call: Call) -> object:
    critical = MIRRORS if call.verb == "check_if_node_is_mirror_sync_critical" else MEMBERS
    node = call.node.name
    call.say(critical.says.format(node=node))
    answer = call.node.ask("GET", path_of("health", "checks", critical.check))
    if answer.status == UNHEALTHY:
        raise _of_queues(
            call, answer.json()["queues"], critical.wrong, partial(critical.line.format, node=node)
        )
    if "reason" in call.node.must(answer).json():
        return f"Node {node} {SINGLE}"
    return Facts(f"Node {node} reported {critical.right}", {"result": "ok"})


def _of_queues(
    call: Call, queues: Sequence[Mapping[str, Any]], wrong: str, line: Callable[..., str]
) -> Fault:
    message = f"Node {call.node.name} reported {wrong}"
    facts = {"message": message, "queues": queues, "result": "error"}
    return _failed(call, facts, "\n".join(line(queue=one["readable_name"]) for one in queues))


def check_leaders(call: Call) -> object:
    (pattern,) = call.take(1)
    is_all = call.is_set("across-all-vhosts")
    where = "all vhosts" if is_all else f"vhost {call.vhost}"
    call.say(f"Checking leader replicas of quorum queues matching '{pattern}' in {where} ...")
    place = ("all-vhosts",) if is_all else ("vhost", call.vhost)
    check = "quorum-queues-without-elected-leaders"
    path = path_of("health", "checks", check, *place, "pattern", pattern)
    answer = call.node.ask("GET", path)
    if answer.status == UNHEALTHY:
        wrong, line = "quorum queues without an elected leader", "{queue} has no elected leader"
        raise _of_queues(call, answer.json()["queues"], wrong, line.format)
    call.node.must(answer)
    text = f"Node {call.node.name} reported all quorum queue as having responsive leader replicas"
    return Facts(text, {"result": "ok"})


def check_initial_sync(call: Call) -> object:
    """RabbitMQ's replicas are promotable until they have all messages."""
    node = call.node.name
    call.say(f"Checking if node {node} runs promotable replicas of any queues ...")
    found = [
        {"readable_name": f"queue '{one['name']}' in vhost '{one['vhost']}'"}
        for one in call.node.get("/api/penstock/mirrors")
        for copy in one["copies"]
        if one["members"] and copy["node"] == node and not copy["synchronised"]
    ]
    if found:
        wrong, line = "queues with promotable replicas", "{queue} has a promotable replica"
        raise _of_queues(call, found, wrong, line.format)
    text = f"Node {node} reported no queues with promotable replicas"
    return Facts(text, {"result": "ok"})


def check_certificate_expiration(call: Call) -> str:
    within, unit = call.number("within", 4), call.text("unit", "weeks")
    call.say(f"Checking certificate expiration on node {call.node.name} ...")
    answer = call.node.ask(
        "GET", path_of("health", "checks", "certificate-expiration", str(within), unit)
    )
    if answer.status == 503:
        raise Fault(UNAVAILABLE, answer.reason())
    call.node.must(answer)
    return f"No certificates are expiring within {within} {unit}."


# -- listeners -------------------------------------------------------------------------------


def listeners_of(call: Call) -> list[dict[str, Any]]:
    node = call.node.name
    found = call.node.get("/api/overview?columns=listeners").get("listeners", [])
    return [
        {
            "node": node,
            "interface": _interface(str(one.get("ip_address", ""))),
            "port": one["port"],
            "protocol": protocol,
            "purpose": PURPOSES.get(protocol, protocol),
            **{key: one[key] for key in (EXPIRY,) if key in one},
        }
        for one in found
        for protocol in [ALSO_CALLED.get(one["protocol"], one["protocol"])]
    ]


def _interface(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def listener_line(one: Mapping[str, Any]) -> str:
    expiry = f", certificate expires on {one[EXPIRY]}" if EXPIRY in one else ""
    return (
        f"Interface: {one['interface']}, port: {one['port']}, protocol: {one['protocol']},"
        f" purpose: {one['purpose']}{expiry}"
    )


def listeners(call: Call) -> object:
    call.say(f"Asking node {call.node.name} to report its protocol listeners ...")
    found = listeners_of(call)
    value = {"result": "ok", "node": call.node.name, "listeners": found}
    return Facts("\n".join(map(listener_line, found)), value)


def check_port_listener(call: Call) -> object:
    (text,) = call.take(1)
    if not text.isdecimal():
        raise Invalid("Bad argument: Argument must be a positive integer", DATA)
    call.say(f"Asking node {call.node.name} if there's an active listener on port {text} ...")
    found = listeners_of(call)
    ports = [one["port"] for one in found]
    if int(text) not in ports:
        raise _failed(
            call,
            {"missing": text, "ports": ports, "listeners": found, "result": "error"},
            f"No listener for port {text} is active on node {call.node.name}. Found listeners that"
            f" use the following ports: {', '.join(map(str, ports))}",
        )
    return Facts(
        f"A listener for port {text} is running on node {call.node.name}.",
        {"result": "ok", "node": call.node.name, "port": int(text)},
    )


def check_protocol_listener(call: Call) -> object:
    (protocol,) = call.take(1)
    node = call.node.name
    call.say(f"Asking node {node} if there's an active listener for protocol {protocol} ...")
    found = list(dict.fromkeys(one["protocol"] for one in listeners_of(call)))
    if protocol not in found:
        raise Refused(
            f"No listener for protocol {protocol} is active on node {node}. Found listeners for the"
            f" following protocols: {', '.join(found)}",
            UNAVAILABLE,
        )
    return Facts(
        f"A listener for protocol {protocol} is running on node {node}.",
        {"result": "ok", "node": node, "protocol": protocol},
    )


def check_port_connectivity(call: Call) -> object:
    node = call.node.name
    call.say(f"Testing TCP connections to all active listeners on node {node} ...")
    found = [one for one in listeners_of(call) if one["port"]]
    failed = [one["port"] for one in found if not _connects(one)]
    if failed:
        shown = ", ".join(map(str, failed))
        raise Fault(UNAVAILABLE, f"Failed to connect to ports {shown} on node {node}.")
    ports = ", ".join(str(one["port"]) for one in found)
    return Facts(f"Successfully connected to ports {ports} on node {node}.", {"result": "ok"})


def _connects(listener: Mapping[str, Any]) -> bool:
    address = listener["interface"].strip("[]")
    try:
        with socket.create_connection(
            (ANY.get(address, address), listener["port"]), CONNECT_TIMEOUT_S
        ):
            return True
    except OSError:
        return False


# -- memory ----------------------------------------------------------------------------------


def memory_of(call: Call) -> dict[str, int]:
    """Bytes by what they are for, the largest first; without totals."""
    found = call.node.get(path_of("nodes", call.node.name, "memory"))["memory"]
    parts = {name: size for name, size in found.items() if isinstance(size, int)}
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def unit_of(call: Call) -> str:
    """Raises Invalid."""
    unit = call.text("unit", "gb")
    if unit not in UNITS:
        units = ", ".join(UNITS)
        raise Invalid(f"\"unit '{unit}' is not supported. Please use one of: {units}\"", USAGE)
    return unit


def memory_breakdown(call: Call) -> object:
    unit = unit_of(call)
    call.say(f"Reporting memory breakdown on node {call.node.name}...")
    parts = memory_of(call)
    total = sum(parts.values()) or 1
    shares = {name: round(100 * size / total, 2) for name, size in parts.items()}
    lines = [f"{name}: {in_unit(parts[name], unit)} ({share}%)" for name, share in shares.items()]
    value = {name: {"bytes": parts[name], "percentage": share} for name, share in shares.items()}
    return Facts("\n".join([*lines, ""]), value)


def in_unit(size: int, unit: str) -> str:
    return f"{size if unit == 'bytes' else round(size / UNITS[unit], 4)} {unit}"


# -- versions and flags ----------------------------------------------------------------------


def server_version(call: Call) -> str:
    call.say(f"Asking node {call.node.name} for its RabbitMQ version...")
    return str(call.node.get("/api/overview?columns=product_version")["product_version"])


def enable_feature_flag(call: Call) -> None:
    (flag,) = call.take(1)
    call.say(
        "Enabling all feature flags ..." if flag == "all" else f'Enabling feature flag "{flag}" ...'
    )
    known = [one["name"] for one in call.node.get("/api/feature-flags")]
    if flag != "all" and flag not in known:
        raise Refused(f"This feature flag is not supported by node {call.node.name}", USAGE)


def list_node_auth_attempt_stats(call: Call) -> Table:
    call.say(f"Listing authentication attempts for node {call.node.name} ...")
    path = path_of("auth", "attempts", call.node.name)
    columns: tuple[str, ...] = (
        "protocol",
        "auth_attempts",
        "auth_attempts_failed",
        "auth_attempts_succeeded",
    )
    if call.is_set("by-source"):
        path += "/source"
        columns = ("remote_address", "username", *columns)
    return Table(columns, [[one.get(column) for column in columns] for one in call.node.get(path)])
