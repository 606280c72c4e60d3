"""``status`` and ``cluster_status``: a page in sections, or all of it as JSON.

Headings, order and wording are RabbitMQ's; what has no meaning here (Erlang, Raft, plugins) is
left out of the page.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.ctl.call import Call
from penstock.ctl.health import (
    PURPOSES,
    alarms_of,
    in_unit,
    listener_line,
    listeners_of,
    memory_of,
    unit_of,
)
from penstock.ctl.output import BOLD, PLAIN, Facts

NONE: Final = "(none)"
MAINTAINED: Final = ("not under maintenance", "marked for maintenance")


RUNTIME: Final = """\
OS PID: {pid}
OS: {os}
Uptime (seconds): {uptime}
Is under maintenance?: {maintained}
{product_name} version: {product_version}
RabbitMQ version: {rabbitmq_version}
Node name: {node}"""
DESCRIPTORS: Final = """\
Total: {total_used}, limit: {total_limit}
Sockets: {sockets_used}, limit: {sockets_limit}"""
TOTALS: Final = """\
Connection count: {connection_count}
Queue count: {queue_count}
Virtual host count: {virtual_host_count}"""


def _filled(text: str, facts: Mapping[str, Any]) -> list[str]:
    return text.format_map(facts).splitlines()


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return [f"{BOLD}{title}{PLAIN}", "", *(list(lines) or [NONE]), ""]


def _is_draining(call: Call) -> bool:
    found = call.node.found("/api/penstock/drain")
    return bool(found and found["draining"])


def status(call: Call) -> object:
    unit = unit_of(call)
    call.say(f"Status of node {call.node.name} ...")
    facts = _facts(call)
    return Facts("\n".join(_page(facts, unit)), facts)


def _facts(call: Call) -> dict[str, Any]:
    node = call.node.get("/api/nodes")[0]
    overview = call.node.get("/api/overview")
    totals = overview["object_totals"]
    return {
        "os": "Linux",
        "pid": int(node["os_pid"]),
        "uptime": node["uptime"] // 1000,
        "is_under_maintenance": _is_draining(call),
        "product_name": overview["product_name"],
        "product_version": overview["product_version"],
        "rabbitmq_version": overview["rabbitmq_version"],
        "node": node["name"],
        "data_directory": node["db_dir"],
        "config_files": node["config_files"],
        "log_files": node.get("log_files") or ["<stderr>"],
        "alarms": alarms_of(call),
        "memory": {
            **memory_of(call),
            "strategy": node.get("mem_calculation_strategy", "rss"),
            "total": {"rss": node.get("mem_used", 0)},
        },
        "vm_memory_high_watermark_setting": _watermark(call),
        "vm_memory_high_watermark_limit": node["mem_limit"],
        "vm_memory_calculation_strategy": node.get("mem_calculation_strategy", "rss"),
        "file_descriptors": {
            "total_used": node.get("fd_used", 0),
            "total_limit": node["fd_total"],
            "sockets_used": node.get("sockets_used", totals["connections"]),
            "sockets_limit": node.get("sockets_total", node["fd_total"]),
        },
        "disk_free": node["disk_free"],
        "disk_free_limit": node["disk_free_limit"],
        "totals": {
            "connection_count": totals["connections"],
            "queue_count": totals["queues"],
            "virtual_host_count": len(call.node.get("/api/vhosts?columns=name")),
        },
        "listeners": listeners_of(call),
    }


def _watermark(call: Call) -> dict[str, Any]:
    """The limit as it was set: ``{"relative": 0.4}`` or ``{"absolute": bytes}``."""
    found = call.node.get("/api/penstock/vm-memory-high-watermark")
    return {
        name: found[ours]
        for name, ours in (("relative", "fraction"), ("absolute", "absolute"))
        if ours in found
    }


def _page(facts: Mapping[str, Any], unit: str) -> list[str]:
    maintained = str(facts["is_under_maintenance"]).lower()
    lines = [
        *_section("Runtime", _filled(RUNTIME, {**facts, "maintained": maintained})),
        *_section("Data directory", [f"Node data directory: {facts['data_directory']}"]),
        *_section("Config files", [f" * {name}" for name in facts["config_files"]]),
        *_section("Log file(s)", [f" * {name}" for name in facts["log_files"]]),
        *_section("Alarms", facts["alarms"]),
        *_section("Memory", _memory(facts, unit)),
        *_section("File Descriptors", _filled(DESCRIPTORS, facts["file_descriptors"])),
        *_section("Free Disk Space", _disk(facts, unit)),
        *_section("Totals", _filled(TOTALS, facts["totals"])),
        *_section("Listeners", map(listener_line, facts["listeners"])),
    ]
    return lines[:-1]


def _memory(facts: Mapping[str, Any], unit: str) -> list[str]:
    memory = facts["memory"]
    used = memory["total"]["rss"]
    limit = in_unit(facts["vm_memory_high_watermark_limit"], unit)
    setting = facts["vm_memory_high_watermark_setting"]
    is_share = "relative" in setting
    shown = f"{setting['relative']} of available memory" if is_share else limit
    parts = {name: size for name, size in memory.items() if isinstance(size, int)}
    total = sum(parts.values()) or 1
    return [
        f"Total memory used: {in_unit(used, unit)}",
        f"Calculation strategy: {facts['vm_memory_calculation_strategy']}",
        f"Memory high watermark setting: {shown}, computed to: {limit}",
        "",
        *(
            f"{name}: {in_unit(size, unit)} ({round(100 * size / total, 2)} %)"
            for name, size in parts.items()
        ),
    ]


def _disk(facts: Mapping[str, Any], unit: str) -> list[str]:
    free = facts["disk_free"]
    return [
        f"Low free disk space watermark: {in_unit(facts['disk_free_limit'], unit)}",
        f"Free disk space: {in_unit(free, unit) if isinstance(free, int) else free}",
    ]


# -- the cluster, as the node that is asked sees it -------------------------------------------


def cluster_status(call: Call) -> object:
    node = call.node.name
    call.say(f"Cluster status of node {node} ...")
    overview = call.node.get("/api/overview")
    flags = call.node.get("/api/feature-flags")
    own = {"name": node, "running": True, "drained": False, "version": overview["product_version"]}
    nodes = call.node.get("/api/penstock/cluster")["nodes"] or [own]
    running = [one for one in nodes if one["running"]]
    drained = {one["name"] for one in running if one["drained"]}
    if _is_draining(call):
        drained.add(node)
    found = alarms_of(call, "alarms")
    facts = {
        "alarms": found,
        "cluster_name": overview["cluster_name"],
        "disk_nodes": [one["name"] for one in nodes],
        "ram_nodes": [],
        "running_nodes": [one["name"] for one in running],
        "versions": {
            one["name"]: {
                "rabbitmq_name": overview["product_name"],
                "rabbitmq_version": one["version"],
                "erlang_version": overview.get("erlang_version", ""),
            }
            for one in running
        },
        "maintenance_status": {one["name"]: MAINTAINED[one["name"] in drained] for one in running},
        "partitions": _partitions(node, running),
        "listeners": {
            one["name"]: listeners_of(call) if one["name"] == node else _clustering(one)
            for one in running
        },
        "feature_flags": flags,
    }
    return Facts("\n".join(_cluster_page(facts)), facts)


def _partitions(node: str, running: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Who has a lease and cannot be reached from the node that is asked."""
    away = [one["name"] for one in running if "link" in one and not one["link"]["connected"]]
    return {node: away} if away else {}


def _clustering(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where other nodes call it: all that is known here of the listeners of another."""
    host, _, port = str(node.get("addresses", {}).get("peer", "")).rpartition(":")
    if not port.isdecimal():
        return []
    return [
        {
            "node": node["name"],
            "interface": host,
            "port": int(port),
            "protocol": "clustering",
            "purpose": PURPOSES["clustering"],
        }
    ]


def _cluster_page(facts: Mapping[str, Any]) -> list[str]:
    lines = [
        *_section("Basics", [f"Cluster name: {facts['cluster_name']}"]),
        *_section("Disk Nodes", facts["disk_nodes"]),
        *_section("Running Nodes", facts["running_nodes"]),
        *_section(
            "Versions",
            [
                f"{node}: {one['rabbitmq_name']} {one['rabbitmq_version']}"
                for node, one in facts["versions"].items()
            ],
        ),
        *_section(
            "Maintenance status",
            [f"Node: {node}, status: {one}" for node, one in facts["maintenance_status"].items()],
        ),
        *_section("Alarms", facts["alarms"]),
        *_section(
            "Network Partitions",
            [
                f"Node {node} cannot communicate with {', '.join(others)}"
                for node, others in facts["partitions"].items()
            ],
        ),
        *_section(
            "Listeners",
            [
                f"Node: {node}, {line[0].lower()}{line[1:]}"
                for node, listeners in facts["listeners"].items()
                for line in map(listener_line, listeners)
            ],
        ),
        *_section(
            "Feature flags",
            [f"Flag: {flag['name']}, state: {flag['state']}" for flag in facts["feature_flags"]],
        ),
    ]
    return lines[:-1]
