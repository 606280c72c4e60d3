"""The table of verbs, the second part: lists and health checks.

Words, usage and sections are those of rabbitmqctl, rabbitmq-diagnostics and rabbitmq-upgrade, which
scripts and fingers know.
"""

from typing import Final

from penstock.ctl.options import FLAG, NUMBER, TEXT
from penstock.ctl.verb import Verb

VERBS: Final[dict[str, Verb]] = {
    "list_queues": Verb(
        "Monitoring",
        "listing:list_queues",
        (
            "[--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers]"
            " [<column>, ...] [--timeout <timeout>]"
        ),
        "Lists queues and their properties",
        {"online": FLAG, "offline": FLAG, "local": FLAG, "no-table-headers": FLAG},
    ),
    "list_exchanges": Verb(
        "Monitoring",
        "listing:list_exchanges",
        "[--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>]",
        "Lists exchanges",
        {"no-table-headers": FLAG},
    ),
    "list_bindings": Verb(
        "Monitoring",
        "listing:list_bindings",
        "[--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>]",
        "Lists all bindings on a vhost",
        {"no-table-headers": FLAG},
    ),
    "list_connections": Verb(
        "Monitoring",
        "listing:list_connections",
        "[--no-table-headers] [<column> ...] [--timeout <timeout>]",
        "Lists AMQP 0.9.1 connections for the node",
        {"no-table-headers": FLAG},
    ),
    "list_channels": Verb(
        "Monitoring",
        "listing:list_channels",
        "[--no-table-headers] [<column> ...]",
        "Lists all channels in the node",
        {"no-table-headers": FLAG},
    ),
    "list_consumers": Verb(
        "Monitoring",
        "listing:list_consumers",
        "[--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>]",
        "Lists all consumers for a vhost",
        {"no-table-headers": FLAG},
    ),
    "list_unresponsive_queues": Verb(
        "Monitoring",
        "listing:list_unresponsive_queues",
        (
            "[--local] [--queue-timeout <milliseconds>] [<column> ...] [--no-table-headers]"
            " [--timeout <timeout>]"
        ),
        "Lists queues that have stopped",
        {"local": FLAG, "queue-timeout": NUMBER, "no-table-headers": FLAG},
    ),
    "list_node_auth_attempt_stats": Verb(
        "Monitoring",
        "health:list_node_auth_attempt_stats",
        "[--by-source]",
        "Counts log-ins, and those that failed",
        {"by-source": FLAG},
    ),
    "environment": Verb(
        "Monitoring",
        "environment:environment",
        "",
        "Displays the settings, under RabbitMQ's names and under ours",
    ),
    "report": Verb(
        "Monitoring",
        "nodes:report",
        "",
        "Status, cluster status and the last lines of the log, for a report of a problem",
    ),
    "alarms": Verb(
        "Health checks",
        "health:alarms",
        "[--timeout <timeout>]",
        "Lists the alarms of the node",
    ),
    "check_alarms": Verb(
        "Health checks",
        "health:check_alarms",
        "[--timeout <timeout>]",
        "Fails when the node has an alarm",
    ),
    "check_local_alarms": Verb(
        "Health checks",
        "health:check_local_alarms",
        "[--timeout <timeout>]",
        "Fails when the node has an alarm of its own",
    ),
    "check_certificate_expiration": Verb(
        "Health checks",
        "health:check_certificate_expiration",
        "[--within <period>] [--unit <unit>]",
        "Fails when a certificate of a listener expires soon",
        {"within": NUMBER, "unit": TEXT},
    ),
    "check_if_node_is_mirror_sync_critical": Verb(
        "Health checks",
        "health:check_if_node_is_mirror_sync_critical",
        "[--timeout <timeout>]",
        "Fails when mirrored queues would lose data without this node",
    ),
    "check_if_node_is_quorum_critical": Verb(
        "Health checks",
        "health:check_if_node_is_quorum_critical",
        "[--timeout <timeout>]",
        "Fails when queues would lose their quorum without this node",
    ),
    "check_port_connectivity": Verb(
        "Health checks",
        "health:check_port_connectivity",
        "[--timeout <timeout>]",
        "Fails when one of the node's ports takes no connection",
    ),
    "check_port_listener": Verb(
        "Health checks",
        "health:check_port_listener",
        "<port> [--timeout <timeout>]",
        "Fails when nothing listens on the port",
    ),
    "check_protocol_listener": Verb(
        "Health checks",
        "health:check_protocol_listener",
        "<protocol> [--timeout <timeout>]",
        "Fails when nothing listens for the protocol",
    ),
    "check_running": Verb(
        "Health checks",
        "health:check_running",
        "[--timeout <timeout>]",
        "Fails when the node does not run",
    ),
    "check_virtual_hosts": Verb(
        "Health checks",
        "health:check_virtual_hosts",
        "[--timeout <timeout>]",
        "Fails when a virtual host does not run",
    ),
    "is_booting": Verb(
        "Health checks",
        "health:is_booting",
        "[--timeout <timeout>]",
        "Says whether the node is starting",
    ),
    "is_running": Verb(
        "Health checks",
        "health:is_running",
        "[--timeout <timeout>]",
        "Says whether the node runs",
    ),
    "listeners": Verb(
        "Health checks",
        "health:listeners",
        "[--timeout <timeout>]",
        "Lists what the node listens on: interface, port, protocol",
    ),
    "memory_breakdown": Verb(
        "Health checks",
        "health:memory_breakdown",
        "[--unit <unit>] [--timeout <timeout>]",
        "Says what the node's memory is used for",
        {"unit": TEXT},
    ),
    "server_version": Verb(
        "Health checks",
        "health:server_version",
        "[--timeout <timeout>]",
        "Says the broker's version",
    ),
    "log_location": Verb(
        "Health checks",
        "logs:log_location",
        "[--all|-a] [--timeout <timeout>]",
        "Says where the log is",
    ),
    "log_tail": Verb(
        "Health checks",
        "logs:log_tail",
        "[--number|-N <number>] [--timeout <timeout>]",
        "Prints the last lines of the log",
        {"number": NUMBER},
    ),
    "log_tail_stream": Verb(
        "Health checks",
        "logs:log_tail_stream",
        "[--duration|-d <seconds>] [--timeout <timeout>]",
        "Prints lines of the log as they come",
        {"duration": NUMBER},
    ),
    "consume_event_stream": Verb(
        "Health checks",
        "logs:consume_event_stream",
        "[--duration|-d <seconds>] [--pattern <pattern>] [--timeout <timeout>]",
        "Prints totals as JSON each time they change",
        {"duration": NUMBER, "pattern": TEXT},
    ),
    "os_env": Verb(
        "Health checks",
        "logs:os_env",
        "[--timeout <timeout>]",
        "Lists Penstock's variables in the environment of this command",
    ),
    "resolve_hostname": Verb(
        "Health checks",
        "nodes:resolve_hostname",
        "<hostname> [--address-family <ipv4 | ipv6>]",
        "Resolves a name to addresses",
        {"address-family": TEXT, "offline": FLAG},
    ),
    "tls_versions": Verb(
        "Health checks",
        "nodes:tls_versions",
        "[--timeout <timeout>]",
        "Lists TLS versions",
    ),
    "erlang_version": Verb(
        "Health checks",
        "refused:no_erlang",
        "[--timeout <timeout>]",
        "Refused: there is no Erlang here",
    ),
    "node_health_check": Verb(
        "Health checks",
        "health:node_health_check",
        "[--timeout <timeout>]",
        "Deprecated: use the check_ verbs",
    ),
}
