"""The table of verbs, the third part: policies, virtual hosts, configuration, operations.

Words, usage and sections are those of rabbitmqctl, rabbitmq-diagnostics and rabbitmq-upgrade, which
scripts and fingers know.
"""

from typing import Final

from penstock.ctl.options import FLAG, NUMBER, TEXT
from penstock.ctl.verb import Verb

VERBS: Final[dict[str, Verb]] = {
    "clear_global_parameter": Verb(
        "Parameters",
        "policies:clear_global_parameter",
        "<name>",
        "Clears a global runtime parameter",
    ),
    "clear_parameter": Verb(
        "Parameters",
        "policies:clear_parameter",
        "[--vhost <vhost>] <component_name> <name>",
        "Clears a runtime parameter",
    ),
    "list_global_parameters": Verb(
        "Parameters",
        "policies:list_global_parameters",
        "[--no-table-headers] [--timeout <timeout>]",
        "Lists global runtime parameters",
        {"no-table-headers": FLAG},
    ),
    "list_parameters": Verb(
        "Parameters",
        "policies:list_parameters",
        "[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
        "Lists runtime parameters for a virtual host",
        {"no-table-headers": FLAG},
    ),
    "set_global_parameter": Verb(
        "Parameters",
        "policies:set_global_parameter",
        "<name> <value>",
        "Sets a runtime parameter",
    ),
    "set_parameter": Verb(
        "Parameters",
        "policies:set_parameter",
        "[--vhost <vhost>] <component_name> <name> <value>",
        "Sets a runtime parameter",
    ),
    "clear_operator_policy": Verb(
        "Policies",
        "policies:clear_operator_policy",
        "[--vhost <vhost>] <name>",
        "Clears an operator policy",
    ),
    "clear_policy": Verb(
        "Policies",
        "policies:clear_policy",
        "[--vhost <vhost>] <name>",
        "Clears (removes) a policy",
    ),
    "list_operator_policies": Verb(
        "Policies",
        "policies:list_operator_policies",
        "[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
        "Lists operator policy overrides for a virtual host",
        {"no-table-headers": FLAG},
    ),
    "list_policies": Verb(
        "Policies",
        "policies:list_policies",
        "[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
        "Lists all policies in a virtual host",
        {"no-table-headers": FLAG},
    ),
    "set_operator_policy": Verb(
        "Policies",
        "policies:set_operator_policy",
        (
            "[--vhost <vhost>] [--priority <priority>] [--apply-to <apply-to>] <name>"
            " <pattern> <definition>"
        ),
        "Sets a policy that limits what other policies may say",
        {"priority": NUMBER, "apply-to": TEXT},
    ),
    "set_policy": Verb(
        "Policies",
        "policies:set_policy",
        (
            "[--vhost <vhost>] [--priority <priority>] [--apply-to <apply-to>] <name>"
            " <pattern> <definition>"
        ),
        "Sets a policy",
        {"priority": NUMBER, "apply-to": TEXT},
    ),
    "add_vhost": Verb(
        "Virtual hosts",
        "vhosts:add_vhost",
        (
            '<vhost> [--description <description> --tags "<tag1>,<tag2>,<...>"'
            " --default-queue-type <quorum|classic|stream>]"
        ),
        "Creates a virtual host",
        {"description": TEXT, "tags": TEXT, "default-queue-type": TEXT},
    ),
    "clear_vhost_limits": Verb(
        "Virtual hosts",
        "vhosts:clear_vhost_limits",
        "[--vhost <vhost>]",
        "Clears virtual host limits",
    ),
    "delete_vhost": Verb(
        "Virtual hosts",
        "vhosts:delete_vhost",
        "<vhost>",
        "Deletes a virtual host",
    ),
    "list_vhost_limits": Verb(
        "Virtual hosts",
        "vhosts:list_vhost_limits",
        "[--vhost <vhost>] [--global] [--no-table-headers]",
        "Displays configured virtual host limits",
        {"global": FLAG, "no-table-headers": FLAG},
    ),
    "restart_vhost": Verb(
        "Virtual hosts",
        "vhosts:restart_vhost",
        "[--vhost <vhost>] [--timeout <timeout>]",
        "Refused: a virtual host does not fail as a whole",
    ),
    "set_vhost_limits": Verb(
        "Virtual hosts",
        "vhosts:set_vhost_limits",
        "[--vhost <vhost>] <definition>",
        "Sets virtual host limits",
    ),
    "set_vhost_tags": Verb(
        "Virtual hosts",
        "vhosts:set_vhost_tags",
        "<vhost> <tag> [...]",
        "Sets the tags of a virtual host",
    ),
    "trace_off": Verb(
        "Virtual hosts",
        "vhosts:trace_off",
        "[--vhost <vhost>]",
        "Ends what trace_on began",
    ),
    "trace_on": Verb(
        "Virtual hosts",
        "vhosts:trace_on",
        "[--vhost <vhost>]",
        "Copies all messages of a virtual host to amq.rabbitmq.trace",
    ),
    "eval": Verb(
        "Configuration",
        "environment:evaluate",
        "<expression>",
        "Looks up a setting: application:get_env(rabbit, NAME).",
    ),
    "set_cluster_name": Verb(
        "Configuration",
        "policies:set_cluster_name",
        "<name>",
        "Sets the cluster name",
    ),
    "set_disk_free_limit": Verb(
        "Configuration",
        "limits:set_disk_free_limit",
        "<disk_limit> | mem_relative <fraction>",
        "Sets the disk_free_limit setting",
    ),
    "set_log_level": Verb(
        "Configuration",
        "limits:set_log_level",
        "<log_level>",
        "Sets the log level of the running node",
    ),
    "set_vm_memory_high_watermark": Verb(
        "Configuration",
        "limits:set_vm_memory_high_watermark",
        "<fraction> | absolute <value>",
        "Sets the vm_memory_high_watermark setting",
    ),
    "export_definitions": Verb(
        "Definitions",
        "definitions:export_definitions",
        '<file_path | "-"> [--format <json | erlang>] [--timeout <timeout>]',
        "Writes definitions as JSON to a file",
        {"format": TEXT},
    ),
    "import_definitions": Verb(
        "Definitions",
        "definitions:import_definitions",
        '<file_path | "-"> [--format <json | erlang>] [--skip-if-unchanged] [--timeout <timeout>]',
        "Declares what a file has",
        {"format": TEXT, "skip-if-unchanged": FLAG},
    ),
    "list_feature_flags": Verb(
        "Feature flags",
        "health:list_feature_flags",
        "[<column> ...] [--timeout <timeout>]",
        "Lists feature flags",
    ),
    "enable_feature_flag": Verb(
        "Feature flags",
        "health:enable_feature_flag",
        "<all | feature_flag>",
        "Enables a feature flag; all are",
    ),
    "close_all_connections": Verb(
        "Operations",
        "connections:close_all_connections",
        (
            "[--vhost <vhost> --limit <limit>] [-n <node> --global] [--per-connection-delay"
            " <delay>] <explanation>"
        ),
        "Closes all connections of a virtual host or of the node",
        {"global": FLAG, "limit": NUMBER, "per-connection-delay": NUMBER},
    ),
    "close_all_user_connections": Verb(
        "Operations",
        "connections:close_all_user_connections",
        "<username> <explanation>",
        "Closes all connections of a user",
    ),
    "close_connection": Verb(
        "Operations",
        "connections:close_connection",
        "<connection pid> <explanation>",
        "Closes the connection of that name, as list_connections pid shows it",
    ),
    "drain": Verb(
        "Operations",
        "nodes:drain",
        "",
        "Puts the node into maintenance: clients are sent away, masters handed over",
    ),
    "revive": Verb(
        "Operations",
        "nodes:revive",
        "",
        "Ends what drain began",
    ),
    "suspend_listeners": Verb(
        "Operations",
        "nodes:suspend_listeners",
        "",
        "Closes the doors: no new clients are let in",
    ),
    "resume_listeners": Verb(
        "Operations",
        "nodes:resume_listeners",
        "",
        "Opens them again",
    ),
    "force_gc": Verb(
        "Operations",
        "refused:force_gc",
        "[--timeout <timeout>]",
        "Refused: nothing is collected here",
    ),
    "await_online_quorum_plus_one": Verb(
        "Operations",
        "nodes:await_online_quorum_plus_one",
        "",
        "Waits for nothing: there are no quorum queues",
    ),
    "post_upgrade": Verb(
        "Operations",
        "cluster:post_upgrade",
        "",
        "Hands masters over after an upgrade, so that each node has as many",
    ),
    "delete_queue": Verb(
        "Queues",
        "queues:delete_queue",
        "<queue_name> [--if-empty|-e] [--if-unused|-u] [--timeout <timeout>]",
        "Deletes a queue",
        {"if-empty": FLAG, "if-unused": FLAG},
    ),
    "purge_queue": Verb(
        "Queues",
        "queues:purge_queue",
        "<queue> [--timeout <timeout>]",
        "Purges a queue (removes all messages in it)",
    ),
    "hipe_compile": Verb(
        "Deprecated",
        "refused:hipe_compile",
        "<directory>",
        "Deprecated, does nothing",
    ),
    "encode": Verb(
        "Not here",
        "refused:no_erlang",
        "value passphrase [--cipher <cipher>] [--hash <hash>] [--iterations <iterations>]",
        "Refused: there is no Erlang here",
        {"cipher": TEXT, "hash": TEXT, "iterations": NUMBER},
    ),
    "decode": Verb(
        "Not here",
        "refused:no_erlang",
        "value passphrase [--cipher <cipher>] [--hash <hash>] [--iterations <iterations>]",
        "Refused: there is no Erlang here",
        {"cipher": TEXT, "hash": TEXT, "iterations": NUMBER},
    ),
    "exec": Verb(
        "Not here",
        "refused:no_erlang",
        "<expression> [--offline]",
        "Refused: there is no Elixir here",
        {"offline": FLAG},
    ),
    "eval_file": Verb(
        "Not here",
        "refused:no_erlang",
        "<file path>",
        "Refused: there is no Erlang here",
    ),
    "list_ciphers": Verb(
        "Not here",
        "refused:no_erlang",
        "",
        "Refused: belongs to encode",
    ),
    "list_hashes": Verb(
        "Not here",
        "refused:no_erlang",
        "",
        "Refused: belongs to encode",
    ),
    "schema_info": Verb(
        "Not here",
        "refused:no_erlang",
        "[--no-table-headers] [<column> ...] [--timeout <timeout>]",
        "Refused: there is no Mnesia here",
        {"no-table-headers": FLAG},
    ),
}
