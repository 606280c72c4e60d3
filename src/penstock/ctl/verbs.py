"""All verbs of ``penstockctl``, in the order of its help.

Words, usage and sections are those of rabbitmqctl, rabbitmq-diagnostics, rabbitmq-queues,
rabbitmq-streams, rabbitmq-plugins and rabbitmq-upgrade, which scripts and fingers know.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.ctl.options import FLAG, NUMBER, TEXT

TABLE: Final = """\
Help
  help (<command> | [--list-commands])  usage:help_verb  Displays usage information for a command
  version  usage  Displays CLI tools version
  autocomplete [prefix] [--timeout <timeout>]  usage  Lists verbs that begin like that
Nodes
  await_startup  nodes  Waits until the node has started
  ping [--timeout <timeout>]  nodes  Checks that the node answers
  status [--unit <unit>] [--timeout <timeout>]  status  Displays status of a node
  shutdown [--wait] [--timeout <timeout>] \
    nodes  Stops the node and waits until its process has ended
  stop [--idempotent] [<pidfile>] \
    nodes  Stops the node; with a file of its process number waits for its end
  stop_app  refused  Refused: use drain or stop
  start_app  plain  Succeeds when the node runs
  reset  refused  Refused while the node runs
  force_reset  refused  Refused while the node runs
  force_boot  refused  Refused while the node runs
  force_standalone_khepri_boot  refused  Refused while the node runs
  wait [<pidfile>] [--pid|-P <pid>] [--timeout <timeout>] \
    nodes  Waits until the node has started, by the file of its process number
  rotate_logs  refused  Does nothing [deprecated]
Cluster
  cluster_status [--timeout <timeout>]  status  Displays nodes, listeners, alarms, and maintenance
  await_online_nodes <count> [--timeout <timeout>] \
    nodes  Waits for so many nodes to be in the cluster
  join_cluster [--disc|--ram] <existing_cluster_member> \
    refused  Refused: the setting cluster_etcd_endpoints makes a node part of a cluster
  forget_cluster_node [--offline] <existing_cluster_member_node> \
    cluster  Removes a node that is down from the cluster, with the queues only it had
  change_cluster_node_type <disc | ram>  refused  Refused while the node runs
  rename_cluster_node <oldnode1> <newnode1> [oldnode2] [newnode2] ... \
    refused  Refused while the node runs
  update_cluster_nodes <seed_node>  refused  Refused while the node runs
Replication
  sync_queue [--vhost <vhost>] <queue>  cluster  Lets the mirrors of a queue fetch what they lack
  cancel_sync_queue [--vhost <vhost>] <queue>  cluster  Ends what sync_queue began
  rebalance < all | classic | quorum > [--vhost-pattern <pattern>] [--queue-pattern <pattern>] \
    cluster  Moves masters of mirrored queues to synchronised mirrors on nodes with fewer
  await_online_synchronized_mirror \
    cluster  Waits until every mirrored queue of the node has a synchronised mirror
  list_policies_with_classic_queue_mirroring [--no-table-headers] [--timeout <timeout>] \
    policies:list_mirroring  Lists policies that mirror queues
  list_operator_policies_with_classic_queue_mirroring [--no-table-headers] [--timeout <timeout>] \
    policies:list_mirroring  Lists operator policies that mirror queues
  check_if_cluster_has_classic_queue_mirroring_policy [--timeout <timeout>] \
    policies:check_mirroring  Fails when a policy mirrors queues
  remove_classic_queue_mirroring_from_policies [--timeout <timeout>] \
    refused  Refused: mirrored queues stay
Quorum queues
  quorum_status [--vhost <vhost>] <queue>  queues  Displays the members of a quorum queue
  peek [--vhost <vhost>] <queue> <position> [--timeout <timeout>] \
    queues  Shows a message by its place in a queue, without taking it
  add_member [--vhost <vhost>] <queue> <node> [--timeout <timeout>] \
    plain  Gives a quorum queue a copy on a node
  delete_member [--vhost <vhost>] <queue> <node> \
    plain  Takes a node's copy away; not the leader's, and not the last
  grow <node> <all | even> [--vhost-pattern <pattern>] [--queue-pattern <pattern>] \
    plain  Gives a node a copy of each quorum queue
  shrink <node> [--errors-only] \
    queues  Takes all copies of quorum queues from a node, but those that lead
  grow_to_count <node_count> <all | even> [--vhost-pattern <pattern>] [--queue-pattern <pattern>] \
      [--membership <promotable|voter>] \
    queues  Gives quorum queues with fewer copies more of them, each on the node that has fewest
  transfer_leadership [--vhost <vhost>] <queue> <node> \
    plain  Makes a node the leader of a quorum queue, as soon as its copy has everything
  force_checkpoint [--vhost-pattern <pattern>] [--queue-pattern <pattern>] \
    refused  Refused: there is no Raft log
  reclaim_quorum_memory [--vhost <vhost>] <quorum queue>  refused  Refused: there is no Raft log
  check_for_quorum_queues_without_an_elected_leader [--vhost <vhost>] [--across-all-vhosts] \
      <pattern>  health:check_leaders  Fails when quorum queues have no leader
  check_if_new_quorum_queue_replicas_have_finished_initial_sync [--timeout <timeout>] \
    health:check_initial_sync  Fails while copies of the node fetch what they lack, and do not vote
Streams
  stream_status [--vhost <vhost>] [--tracking] <stream> \
    streams  Displays a stream: offsets, files, readers; with --tracking what it keeps of clients
  list_stream_tracking <stream> [--all | --offset | --writer] [--vhost <vhost>] \
    streams  Lists the positions of consumers and the numbers of publishers that a stream keeps
  reset_offset --stream <stream> --reference <reference> [--vhost <vhost>] \
    streams  Deletes the position that a stream keeps of the consumers with a tag
  list_stream_consumers [--vhost <vhost>] [<column> ...] \
    streams  Lists consumers of streams, with their position and how far behind they are
  coordinator_status  refused  Refused: a policy of mirrors makes copies of streams
  add_replica [--vhost <vhost>] <stream> <node> \
    refused  Refused: a policy of mirrors makes copies of streams
  delete_replica [--vhost <vhost>] <queue> <node> \
    refused  Refused: a policy of mirrors makes copies of streams
  restart_stream [--vhost <vhost>] <stream> [--preferred-leader-node <node>] \
    refused  Refused: a policy of mirrors makes copies of streams
  add_super_stream <name> [--vhost <vhost>] [--partitions <partitions>] \
      [--binding-keys <binding-keys>] \
    streams  Makes an exchange and streams behind it, one for each key
  delete_super_stream <name> [--vhost <vhost>]  streams  Deletes a super stream and its partitions
  set_stream_retention_policy [--vhost <vhost>] <name> <policy>  refused  Refused: a policy sets it
Plug-ins
  list [pattern] [--verbose] [--minimal] [--enabled] [--implicitly-enabled] \
    plugins:list_plugins  Lists RabbitMQ's plug-ins: those that Penstock has are enabled
  is_enabled <plugin1> [ <plugin2>] [--offline] [--online] \
    plugins  Fails when a plug-in is not part of Penstock
  enable <plugin1> [ <plugin2>] | --all [--offline] [--online] \
    plugins  Succeeds for plug-ins that are part of Penstock
  disable <plugin1> [ <plugin2>] | --all [--offline] [--online] \
    plugins  Says that what is part of Penstock stays
  set <plugin1> [ <plugin2>] [--offline] [--online] \
    plugins:enable  Succeeds for plug-ins that are part of Penstock
  directories [--offline] [--online]  plugins  Says that there are none
Configuration
  encode value passphrase [--cipher <cipher>] [--hash <hash>] [--iterations <iterations>] \
    encoding  Encrypts a text for the configuration
  decode value passphrase [--cipher <cipher>] [--hash <hash>] [--iterations <iterations>] \
    encoding  Decrypts such a text
  list_ciphers  encoding:list_known  Displays the ciphers for that
  list_hashes  encoding:list_known  Displays the hashes for that
Users
  add_user <username> <password>  users  Makes a user, without permissions at first
  authenticate_user <username> <password>  users  Tries a user's password
  change_password <username> <password>  users  Changes the password of a user
  hash_password <cleartext_password> [--hashing-algorithm <algorithm>] \
    users  Hashes a password, for definitions
  clear_password <username>  users  Removes the password of a user: it cannot log in with one
  clear_user_limits <username> <limit_type> | all  users  Clears limits of a user
  delete_user <username>  plain  Deletes a user
  list_user_limits [--user <username>] [--global]  users  Lists limits of a user, or of all
  list_users [--no-table-headers] [--timeout <timeout>]  users  Lists users and their tags
  set_user_limits <username> <definition> \
    users  Sets limits of a user: max-connections, max-channels
  set_user_tags <username> <tag> [...]  users  Sets the tags of a user
Access Control
  clear_permissions [--vhost <vhost>] <username>  plain  Revokes user permissions for a vhost
  clear_topic_permissions [--vhost <vhost>] <username> [<exchange>] \
    users  Clears user topic permissions for a vhost or exchange
  list_permissions [--vhost <vhost>] [--no-table-headers] [--timeout <timeout>] \
    plain  Lists user permissions in a virtual host
  list_topic_permissions [--vhost <vhost>] [--no-table-headers] [--timeout <timeout>] \
    plain  Lists topic permissions in a virtual host
  list_user_permissions [--no-table-headers] <username> [--timeout <timeout>] \
    plain  Lists permissions of a user across all virtual hosts
  list_user_topic_permissions [--no-table-headers] <username> [--timeout <timeout>] \
    plain  Lists user topic permissions
  set_permissions [--vhost <vhost>] <username> <conf> <write> <read> \
    plain  Sets user permissions for a vhost
  set_permissions_globally <username> <conf> <write> <read> \
    users  Sets user permissions for all virtual hosts
  set_topic_permissions [--vhost <vhost>] <username> <exchange> <write> <read> \
    plain  Sets user topic permissions for an exchange
  list_vhosts [--no-table-headers] [<column> ...] [--timeout <timeout>] \
    listing  Lists virtual hosts
Monitoring
  list_queues [--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, \
      ...] [--timeout <timeout>]  listing  Lists queues and their properties
  list_exchanges [--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>] \
    listing  Lists exchanges
  list_bindings [--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>] \
    listing  Lists all bindings on a vhost
  list_connections [--no-table-headers] [<column> ...] [--timeout <timeout>] \
    listing  Lists AMQP 0.9.1 connections for the node
  list_channels [--no-table-headers] [<column> ...]  listing  Lists all channels in the node
  list_consumers [--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>] \
    listing  Lists all consumers for a vhost
  list_unresponsive_queues [--local] [--queue-timeout <milliseconds>] [<column> ...] \
      [--no-table-headers] [--timeout <timeout>]  listing  Lists queues that have stopped
  list_node_auth_attempt_stats [--by-source]  health  Counts log-ins, and those that failed
  reset_node_auth_attempt_metrics  plain  Begins these counts anew
  enable_auth_attempt_source_tracking  refused  Refused: the log names sources
  disable_auth_attempt_source_tracking  refused  Refused: the log names sources
  clear_auth_backend_cache  plain  Forgets answers of servers that know users
  reset_stats_db [--all]  plain  Forgets the samples of rates
  environment  environment  Displays the settings, under RabbitMQ's names and under ours
  report  nodes  Status, cluster status and the last lines of the log, for a report of a problem
Health checks
  alarms [--timeout <timeout>]  health  Lists the alarms of the node
  check_alarms [--timeout <timeout>]  health  Fails when the node has an alarm
  check_local_alarms [--timeout <timeout>] \
    health:check_alarms  Fails when the node has an alarm of its own
  check_certificate_expiration [--within <period>] [--unit <unit>] \
    health  Fails when a certificate of a listener expires soon
  check_if_node_is_mirror_sync_critical [--timeout <timeout>] \
    health:check_critical  Fails when mirrored queues would lose data without this node
  check_if_node_is_quorum_critical [--timeout <timeout>] \
    health:check_critical  Fails when queues would lose their quorum without this node
  check_port_connectivity [--timeout <timeout>] \
    health  Fails when one of the node's ports takes no connection
  check_port_listener <port> [--timeout <timeout>]  health  Fails when nothing listens on the port
  check_protocol_listener <protocol> [--timeout <timeout>] \
    health  Fails when nothing listens for the protocol
  check_running [--timeout <timeout>]  plain  Fails when the node does not run
  check_virtual_hosts [--timeout <timeout>]  health  Fails when a virtual host does not run
  check_if_any_deprecated_features_are_used [--timeout <timeout>] \
    plain  Succeeds: nothing is deprecated here
  check_if_metadata_store_is_initialized [--timeout <timeout>] \
    plain  Fails while definitions are not read
  check_if_metadata_store_is_initialized_with_data [--timeout <timeout>] \
    plain  Fails while definitions are not read
  has_reached_target_cluster_size [--timeout <timeout>] \
    plain  Succeeds: no node waits for others to join
  is_booting [--timeout <timeout>]  plain  Says whether the node is starting
  is_running [--timeout <timeout>]  plain  Says whether the node runs
  listeners [--timeout <timeout>]  health  Lists what the node listens on: interface, port, protocol
  memory_breakdown [--unit <unit>] [--timeout <timeout>] \
    health  Says what the node's memory is used for
  server_version [--timeout <timeout>]  health  Says the broker's version
  log_location [--all|-a] [--timeout <timeout>]  logs  Says where the log is
  log_tail [--number|-N <number>] [--timeout <timeout>]  logs  Prints the last lines of the log
  log_tail_stream [--duration|-d <seconds>] [--timeout <timeout>] \
    logs  Prints lines of the log as they come
  consume_event_stream [--duration|-d <seconds>] [--pattern <pattern>] [--timeout <timeout>] \
    logs  Prints totals as JSON each time they change
  os_env [--timeout <timeout>]  logs  Lists Penstock's variables in the environment of this command
  resolve_hostname <hostname> [--address-family <ipv4 | ipv6>]  nodes  Resolves a name to addresses
  tls_versions [--timeout <timeout>]  nodes  Lists TLS versions
  cipher_suites [--format <openssl | erlang | map>] [--all] [--timeout <timeout>] \
    nodes  Lists cipher suites by OpenSSL's names
  discover_peers [--timeout <timeout>]  cluster  Lists the nodes of the cluster
  erlang_version [--timeout <timeout>]  refused  Refused: there is no Erlang here
  node_health_check [--timeout <timeout>]  health  Deprecated: use the check_ verbs
Parameters
  clear_global_parameter <name>  plain  Clears a global runtime parameter
  clear_parameter [--vhost <vhost>] <component_name> <name>  plain  Clears a runtime parameter
  list_global_parameters [--no-table-headers] [--timeout <timeout>] \
    plain  Lists global runtime parameters
  list_parameters [--vhost <vhost>] [--no-table-headers] [--timeout <timeout>] \
    policies  Lists runtime parameters for a virtual host
  set_global_parameter <name> <value>  plain  Sets a runtime parameter
  set_parameter [--vhost <vhost>] <component_name> <name> <value>  plain  Sets a runtime parameter
Shovels
  delete_shovel [--vhost <vhost>] <name>  plain  Deletes a Shovel
  restart_shovel [--vhost <vhost>] <name>  plain  Restarts a dynamic Shovel
  shovel_status  plain  Displays status of Shovel on a node
Federation
  federation_status  plain  Displays federation link status
  restart_federation_link [--vhost <vhost>] <link_id>  plain  Restarts a running federation link
Policies
  clear_operator_policy [--vhost <vhost>] <name>  plain  Clears an operator policy
  clear_policy [--vhost <vhost>] <name>  plain  Clears (removes) a policy
  list_operator_policies [--vhost <vhost>] [--no-table-headers] [--timeout <timeout>] \
    plain  Lists operator policy overrides for a virtual host
  list_policies [--vhost <vhost>] [--no-table-headers] [--timeout <timeout>] \
    plain  Lists all policies in a virtual host
  set_operator_policy [--vhost <vhost>] [--priority <priority>] [--apply-to <apply-to>] <name> \
      <pattern> <definition> \
    policies:set_policy  Sets a policy that limits what other policies may say
  set_policy [--vhost <vhost>] [--priority <priority>] [--apply-to <apply-to>] <name> <pattern> \
      <definition>  policies  Sets a policy
  list_policies_that_match [--object-type <type>] <name> \
    policies  Lists policies whose pattern matches a queue or exchange
Virtual hosts
  add_vhost <vhost> [--description <description> --tags "<tag1>,<tag2>,<...>" \
      --default-queue-type <quorum|classic|stream>]  vhosts  Creates a virtual host
  clear_vhost_limits [--vhost <vhost>]  vhosts  Clears virtual host limits
  delete_vhost <vhost>  vhosts  Deletes a virtual host
  list_vhost_limits [--vhost <vhost>] [--global] [--no-table-headers] \
    vhosts  Displays configured virtual host limits
  restart_vhost [--vhost <vhost>] [--timeout <timeout>] \
    vhosts  Refused: a virtual host does not fail as a whole
  reconcile_vhosts [--timeout <timeout>]  plain  Succeeds: virtual hosts run whenever the node does
  enable_vhost_deletion_protection <vhost> \
    vhosts:protect  Protects a virtual host from deletion
  disable_vhost_deletion_protection <vhost> \
    vhosts:protect  Removes that protection, so that it can be deleted
  set_vhost_limits [--vhost <vhost>] <definition>  vhosts  Sets virtual host limits
  set_vhost_tags <vhost> <tag> [...]  vhosts  Sets the tags of a virtual host
  trace_off [--vhost <vhost>]  vhosts:trace  Ends what trace_on began
  trace_on [--vhost <vhost>] \
    vhosts:trace  Copies all messages of a virtual host to amq.rabbitmq.trace
  update_vhost_metadata <vhost> [--description=<description>] [--tags="<tag1>,<tag2>,<...>"] \
      [--default-queue-type=<quorum|classic|stream>] [--protected-from-deletion=<true|false>] \
    vhosts  Changes the description, tags, default queue type or protection of a virtual host
Configuration
  eval <expression>  environment:evaluate  Looks up a setting: application:get_env(rabbit, NAME).
  set_cluster_name <name>  plain  Sets the cluster name
  set_disk_free_limit <disk_limit> | mem_relative <fraction> \
    nodes:set_limit  Sets the disk_free_limit setting
  activate_free_disk_space_monitoring [--timeout <timeout>] \
    plain  Succeeds: free disk space is always watched
  deactivate_free_disk_space_monitoring [--timeout <timeout>] \
    refused  Refused: free disk space is always watched
  set_log_level <log_level>  nodes  Sets the log level of the running node
  set_vm_memory_high_watermark <fraction> | absolute <value> \
    nodes:set_limit  Sets the vm_memory_high_watermark setting
Definitions
  export_definitions <file_path | "-"> [--format <json | erlang>] [--timeout <timeout>] \
    definitions  Writes definitions as JSON to a file
  import_definitions <file_path | "-"> [--format <json | erlang>] [--skip-if-unchanged] \
      [--timeout <timeout>]  definitions  Declares what a file has
Feature flags
  list_feature_flags [<column> ...] [--timeout <timeout>]  listing  Lists feature flags
  enable_feature_flag <all | feature_flag>  health  Enables a feature flag; all are
  list_deprecated_features [--used] [<column> ...] \
    listing  Lists deprecated features: there are none
Operations
  close_all_connections [--vhost <vhost> --limit <limit>] [-n <node> --global] \
      [--per-connection-delay <delay>] <explanation> \
    nodes  Closes all connections of a virtual host or of the node
  close_all_user_connections <username> <explanation>  nodes  Closes all connections of a user
  close_connection <connection pid> <explanation> \
    nodes  Closes the connection of that name, as list_connections pid shows it
  drain  nodes  Puts the node into maintenance: clients are sent away, masters handed over
  revive  plain  Ends what drain began
  suspend_listeners  plain  Closes the listeners: no new clients are accepted
  resume_listeners  plain  Opens them again
  force_gc [--timeout <timeout>]  refused  Refused: nothing is collected here
  await_online_quorum_plus_one \
    cluster  Waits until every quorum queue has a majority without the node
  post_upgrade  cluster  Hands masters over after an upgrade, so that each node has as many
Queues
  delete_queue <queue_name> [--if-empty|-e] [--if-unused|-u] [--timeout <timeout>] \
    queues  Deletes a queue
  purge_queue <queue> [--timeout <timeout>]  plain  Purges a queue (removes all messages in it)
Deprecated
  hipe_compile <directory>  refused  Deprecated, does nothing
Not here
  exec <expression> [--offline]  refused  Refused: there is no Elixir here
  eval_file <file path>  refused  Refused: there is no Erlang here
  decrypt_conf_value value passphrase [--cipher <cipher>] [--hash <hash>] \
      [--iterations <iterations>]  refused  Refused: decode does it
  encrypt_conf_value value passphrase [--cipher <cipher>] [--hash <hash>] \
      [--iterations <iterations>]  refused  Refused: encode does it
  list_channel_interceptors [--no-table-headers] [--timeout <timeout>] \
    refused  Refused: there are none
  set_channel_interceptor_priorities <interceptor> <priority> [<interceptor> <priority> ...] \
      [--timeout <timeout>]  refused  Refused: there are none
  metadata_store_status  refused  Refused: definitions are in a file of the node
  message_size_stats [--timeout <timeout>]  refused  Refused: sizes are not counted by class
  certificates  refused  Refused: check_certificate_expiration looks at them
  list_network_interfaces [--timeout <timeout>]  refused  Refused: the operating system has them
  command_line_arguments  refused  Refused: there is no Erlang here
  erlang_cookie_hash [--timeout <timeout>]  refused  Refused: there is no Erlang here
  erlang_cookie_sources [--timeout <timeout>]  refused  Refused: there is no Erlang here
  maybe_stuck [--timeout <timeout>]  refused  Refused: there is no Erlang here
  observer [--interval <seconds>]  refused  Refused: there is no Erlang here
  remote_shell  refused  Refused: there is no Erlang here
  resolver_info  refused  Refused: there is no Erlang here
  runtime_thread_stats [--sample-interval <interval>]  refused  Refused: there is no Erlang here
  schema_info [--no-table-headers] [<column> ...] [--timeout <timeout>] \
    refused  Refused: there is no Mnesia here
"""
"""A section, and in it a row for each verb: its usage, the file with its function, what it does.

Two spaces are between them.  ``file:function`` stands where the function has another name than the
verb.  A verb without a function has a row in ``ROWS`` of that file, which ``from_row`` carries out.
"""
ALIASES: Final[Mapping[str, str]] = {"list_node_auth_attempts": "list_node_auth_attempt_stats"}
OPTION: Final = re.compile(r"--([a-z-]+)(?:\|-\w)?([ =][<\"])?")
"""An option in a usage, and what shows that it has a value."""
NO_WORD: Final = re.compile(r"--[a-z-]+(?:\|-\w)?(?:[ =](?:<[^>]*>|\"[^\"]*\"))?|[\[\]]")
"""What stands in a usage beside words."""
NUMBERS: Final = (
    *("duration", "iterations", "limit", "number", "per-connection-delay", "pid", "priority"),
    *("queue-timeout", "within", "partitions", "initial-cluster-size"),
)
"""The options whose value is a number."""
SCOPES: Final = ("vhost", "timeout")
"""Options of every verb, which a usage names where they matter."""
UNTOLD: Final[Mapping[str, dict[str, str]]] = {
    "add_user": {"pre-hashed-password": FLAG},
    "add_member": {"membership": TEXT},
    "add_super_stream": {
        "routing-keys": TEXT,
        "max-length-bytes": TEXT,
        "max-age": TEXT,
        "stream-max-segment-size-bytes": TEXT,
        "leader-locator": TEXT,
        "initial-cluster-size": NUMBER,
    },
    "grow": {"membership": TEXT},
    "resolve_hostname": {"offline": FLAG},
    "list_stream_consumers": {"verbose": FLAG},
}
"""Options that the usage of RabbitMQ 3.10 does not have."""


class Verb(NamedTuple):
    """Its place in the help, the function that does it, and how it is used."""

    section: str
    target: str
    """``file:function`` below penstock.ctl."""
    usage: str
    """What may follow it on a command line."""
    summary: str
    switches: Mapping[str, str]
    """Its options, and what kind each is."""

    def takes_words(self) -> bool:
        """One that is refused says itself which."""
        return bool(NO_WORD.sub("", self.usage).strip()) or self.target.startswith("refused:")


def _switches(name: str, usage: str) -> dict[str, str]:
    found = {
        option: (NUMBER if option in NUMBERS else TEXT) if value else FLAG
        for option, value in OPTION.findall(usage)
        if option not in SCOPES
    }
    return found | UNTOLD.get(name, {})


def _verbs(table: str) -> dict[str, Verb]:
    found: dict[str, Verb] = {}
    section = ""
    for line in table.splitlines():
        if not line.startswith(" "):
            section = line
            continue
        *parts, target, summary = re.split(" {2,}", line.strip())
        name, _, usage = " ".join(parts).partition(" ")
        if ":" not in target:
            target += f":{name}"
        found[name] = Verb(section, target, usage, summary, _switches(name, usage))
    return found


VERBS: Final[Mapping[str, Verb]] = _verbs(TABLE)
