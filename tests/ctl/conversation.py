"""What is said to ``rabbitmqctl`` and to ``penstockctl``, in this order, on a fresh node.

A line is a command line.  ``diagnostics`` and ``upgrade`` in front of a verb name RabbitMQ's
other two programs, whose verbs ``penstockctl`` has too.  ``@`` does something with a client.
What RabbitMQ 3.10.8 said is in ``recorded.json``, which ``python -m tests.ctl.record`` makes.

A mark in front of a line says how the two are compared (``judge.py``); without one every
character counts, but for names, numbers and the order of rows, which are the node's own.

    ~   the exit code and the first lines that say what is done or what is wrong
    =   the exit code and the columns (a table's head, or the keys of JSON)
    !   different by intention: docs/reference/penstockctl.md says why; only ours is judged
"""

from __future__ import annotations

SCENES: dict[str, str] = {
    "forms": r"""
trace_on --formatter json
! trace_off --formatter csv
ping --formatter json
add_user dora secret --formatter json
add_user dora secret --formatter json
set_user_tags dora management --formatter json
list_users dora --formatter json
set_permissions dora a b c --formatter csv
list_vhosts -q --formatter pretty_table
list_permissions -p nosuch --formatter json
list_queues --formatter json
list_queues --formatter csv name
list_queues --formatter pretty_table name
list_policies --formatter json
list_policies --formatter csv
! list_policies --formatter pretty_table
list_policies -q
list_consumers -q
delete_user dora -q
delete_user dora -s
purge_queue nosuch -q
set_policy -q p "^x" '{"max-length":1}'
clear_policy -s p
cancel_sync_queue nosuch --formatter json
= diagnostics check_port_listener 1 --formatter json
diagnostics check_alarms -s
diagnostics is_booting --formatter json
await_online_nodes 1 -q
-p / list_exchanges --no-table-headers name
! list_exchanges --no-table-headers --formatter csv name
""",
    "arguments": r"""
! help
~ help set_policy
~ help list_queues
~ help nosuchverb
nosuchverb
set_polic
~ autocomplete list_q
set_policy x
set_policy a b c d e
list_queues --nosuch
list_queues name --nosuch 3
list_queues nosuchcol
list_queues name nosuchcol other
list_queues -t abc name
! -n nosuch@localhost list_queues
! ping -n nosuch@localhost
list_queues -p nosuch
list_exchanges -p nosuch
list_bindings -p nosuch
list_consumers -p nosuch
list_policies -p nosuch
list_permissions -p nosuch
list_users nosuch
! list_users --formatter nosuch
= version
ping
ping -q
ping a
""",
    "users": r"""
list_users
add_user bob secret
add_user bob secret
add_user
! add_user x
add_user "" secret
add_user bob secret more
add_user carl ""
change_password bob new
change_password nosuch new
authenticate_user bob new
authenticate_user bob bad
authenticate_user nosuch bad
set_user_tags bob management monitoring
set_user_tags nosuch management
set_user_tags
list_users
list_users -q
list_users -s
list_users --no-table-headers
list_users --formatter json
list_users --formatter csv
! list_users --formatter pretty_table
! -q list_users --formatter pretty_table
! -s list_users --formatter pretty_table
list_users --formatter=json
--formatter json -q list_users
set_user_tags bob
list_users -s --formatter csv
clear_password bob
clear_password nosuch
authenticate_user bob new
change_password bob new
set_user_limits bob '{"max-connections":5,"max-channels":7}'
set_user_limits bob '{"max-connections":}'
set_user_limits bob '{"max-nonsense":1}'
set_user_limits nosuch '{"max-connections":5}'
list_user_limits
list_user_limits --user bob
list_user_limits --user bob --formatter json
list_user_limits --user nosuch
clear_user_limits bob max-connections
list_user_limits --user bob
clear_user_limits bob all
list_user_limits
clear_user_limits bob nonsense
set_permissions bob ".*" "^a" ""
set_permissions -p / bob ".*" "^a" "^b$"
set_permissions bob "(" ".*" ".*"
set_permissions nosuch ".*" ".*" ".*"
set_permissions -p nosuch bob ".*" ".*" ".*"
set_permissions bob ".*" ".*"
list_permissions
list_permissions --formatter json
list_permissions -q --formatter csv
list_user_permissions bob
list_user_permissions bob --formatter json
list_user_permissions nosuch
list_user_permissions
set_topic_permissions bob amq.topic "^x" "^y"
~ set_topic_permissions bob amq.topic "(" "^y"
set_topic_permissions nosuch amq.topic "^x" "^y"
list_topic_permissions
list_topic_permissions --formatter json
list_user_topic_permissions bob
list_user_topic_permissions nosuch
clear_topic_permissions bob amq.topic
clear_topic_permissions bob
clear_topic_permissions nosuch
list_topic_permissions
clear_permissions bob
clear_permissions -p nosuch bob
clear_permissions nosuch
list_user_permissions bob
delete_user bob
delete_user bob
delete_user
""",
    "vhosts": r"""
list_vhosts
list_vhosts name
add_vhost v1
add_vhost v1
add_vhost
add_vhost v2 --description "two words" --tags "a,b"
list_vhosts
= list_vhosts name description tags
list_vhosts --formatter json name tracing
list_vhosts name --formatter pretty_table
list_vhosts nosuch
set_vhost_limits -p v1 '{"max-connections":10}'
set_vhost_limits -p v1 '{"max-nonsense":10}'
set_vhost_limits -p v1 'x'
set_vhost_limits -p nosuch '{"max-connections":10}'
list_vhost_limits -p v1
list_vhost_limits -p v1 --formatter json
list_vhost_limits --global
list_vhost_limits -p nosuch
list_vhost_limits
clear_vhost_limits -p v1
list_vhost_limits -p v1
clear_vhost_limits -p nosuch
set_vhost_tags v1 one two
set_vhost_tags nosuch one
= list_vhosts name tags
trace_on -p v1
list_vhosts name tracing
trace_off -p v1
! trace_on -p nosuch
! restart_vhost -p v1
! restart_vhost -p nosuch
delete_vhost v2
delete_vhost v2
delete_vhost v1
delete_vhost
""",
    "mirror_policies": r"""
set_policy two "^queue_" '{"ha-mode":"exactly","ha-params":2,"ha-sync-mode":"automatic"}'
set_policy -q some "^n" '{"ha-mode":"nodes","ha-params":["a@b","c@d"]}' --apply-to queues
set_policy -q where "^w" '{"queue-master-locator":"random","ha-mode":"all"}'
list_policies -q
list_policies -q --formatter json
set_policy bad "^a" '{"ha-mode":"some"}'
set_policy bad "^a" '{"ha-sync-mode":"manual"}'
set_policy bad "^a" '{"ha-mode":"exactly","ha-params":0}'
set_policy bad "^a" '{"ha-mode":"nodes","ha-params":["a",1]}'
set_policy bad "^a" '{"ha-mode":"all","ha-promote-on-failure":"never"}'
set_policy bad "^a" '{"queue-master-locator":"near"}'
set_operator_policy bad "^a" '{"ha-mode":"all","expires":5}'
clear_policy two
clear_policy -q some
clear_policy -q where
""",
    "policies": r"""
set_policy --priority 0 --apply-to queues ttl_queue "^queue_" '{"message-ttl":2000,"max-length":5}'
set_policy Lazy "^myqueue$" '{"queue-mode":"lazy"}' --apply-to queues
set_policy -p / --priority 7 both "^b" '{"alternate-exchange":"ae"}' --apply-to exchanges
list_policies
list_policies -q
list_policies -s
list_policies --formatter json
list_policies --formatter csv
set_policy bad "^a" '{"message-ttl":'
set_policy bad "^a" '{"nonsense":1}'
set_policy bad "^a" '{}'
~ set_policy bad "(" '{"message-ttl":1}'
set_policy bad "^a" '{"message-ttl":"x"}'
set_policy bad "^a" '{"message-ttl":1}' --priority x
set_policy bad "^a" '{"message-ttl":1}' --apply-to nonsense
set_policy -p nosuch bad "^a" '{"message-ttl":1}'
set_operator_policy op "^queue_" '{"max-length":3}' --priority 2 --apply-to queues
set_operator_policy op2 "^queue_" '{"dead-letter-exchange":"x"}'
list_operator_policies
list_operator_policies --formatter json
clear_operator_policy op
clear_operator_policy op
clear_policy Lazy
clear_policy Lazy
clear_policy -p nosuch Lazy
clear_policy
clear_policy both
clear_policy ttl_queue
list_policies
""",
    "parameters": r"""
list_parameters
set_parameter nonsense n '{"a":1}'
set_parameter nonsense n x
clear_parameter nonsense n
list_global_parameters
set_global_parameter mine '{"a":1,"b":[true,null,"x"]}'
set_global_parameter mine 'x'
set_global_parameter
list_global_parameters
list_global_parameters --formatter json
clear_global_parameter mine
clear_global_parameter mine
list_global_parameters
set_cluster_name our-cluster
set_cluster_name
""",
    "queues": r"""
@ declare
list_queues
list_queues -q
list_queues -s
list_queues name messages
list_queues name,messages
list_queues -s name durable auto_delete exclusive arguments
list_queues -p / name messages_ready messages_unacknowledged consumers state policy
list_queues name type vhost owner_pid exclusive_consumer_tag
list_queues name slave_pids synchronised_slave_pids
list_queues --formatter json name messages arguments durable
list_queues --formatter csv name messages arguments
list_queues --formatter pretty_table name messages
list_queues --timeout 0 name
list_queues --offline name
list_queues --online name
list_queues --local name
! list_queues name backing_queue_status
= list_queues -p / name message_bytes_ready
list_queues name consumers --no-table-headers
list_exchanges
list_exchanges -q
list_exchanges name type durable auto_delete internal arguments policy
list_exchanges --formatter json name type arguments
list_exchanges nosuch
list_bindings
list_bindings -q
list_bindings source_name routing_key arguments
list_bindings --formatter json source_name destination_name routing_key arguments
list_bindings vhost source_name destination_name
list_bindings nosuch
= list_consumers
= list_consumers queue_name consumer_tag ack_required prefetch_count active activity_status arguments
= list_consumers --formatter json queue_name prefetch_count active
list_consumers nosuch
list_connections
list_connections -q user vhost protocol channels state auth_mechanism timeout frame_max channel_max
list_connections user nosuch
= list_connections --formatter json name client_properties ssl connected_at
= list_connections -s user peer_cert_subject
list_channels
list_channels user consumer_count messages_unacknowledged prefetch_count confirm transactional
list_channels number user vhost messages_unconfirmed messages_uncommitted state
list_channels number acks_uncommitted global_prefetch_count
= list_channels --formatter json name connection
list_channels nosuch
list_unresponsive_queues
purge_queue plain
purge_queue nosuch
purge_queue -p nosuch plain
purge_queue
delete_queue full --if-empty
delete_queue used --if-unused
delete_queue full
delete_queue full
delete_queue
sync_queue plain
sync_queue nosuch
cancel_sync_queue plain
cancel_sync_queue nosuch
close_connection nonsense why
close_connection
close_all_user_connections nosuch why
close_all_user_connections guest why
@ gone
list_connections
@ declare
close_all_connections --vhost nosuch why
close_all_connections --vhost / why
@ gone
@ declare
close_all_connections --global --limit 1 --per-connection-delay 1 why
close_all_connections why
close_all_connections
@ gone
list_channels
= list_consumers
""",  # noqa: E501 - a command line is one line
    "limits": r"""
set_vm_memory_high_watermark 0.3
set_vm_memory_high_watermark absolute 2GiB
set_vm_memory_high_watermark absolute 2XB
set_vm_memory_high_watermark absolute
set_vm_memory_high_watermark 1.1
set_vm_memory_high_watermark nonsense
set_vm_memory_high_watermark -0.1
set_vm_memory_high_watermark
set_vm_memory_high_watermark 0.4 more
set_disk_free_limit 60MB
set_disk_free_limit mem_relative 1.0
set_disk_free_limit mem_relative x
set_disk_free_limit nonsense
set_disk_free_limit
set_disk_free_limit 50MB
diagnostics check_alarms
set_vm_memory_high_watermark 0
@ alarm
diagnostics check_alarms
diagnostics check_local_alarms
diagnostics check_alarms -q
diagnostics check_alarms --formatter json
diagnostics alarms
diagnostics alarms --formatter json
diagnostics alarms -q
set_vm_memory_high_watermark 0.4
@ no alarm
diagnostics alarms
diagnostics alarms --formatter json
diagnostics check_local_alarms
set_log_level debug
set_log_level nonsense
set_log_level
set_log_level info
""",
    "diagnostics": r"""
diagnostics check_running
diagnostics check_running -q
diagnostics check_running --formatter json
diagnostics check_virtual_hosts
diagnostics check_virtual_hosts --formatter json
diagnostics check_local_alarms --formatter json
diagnostics check_port_listener 1
diagnostics check_port_listener x
diagnostics check_port_listener
diagnostics check_port_listener @AMQP@
diagnostics check_port_connectivity
diagnostics check_protocol_listener amqp
diagnostics check_protocol_listener mqtt
diagnostics check_protocol_listener amqp --formatter json
diagnostics check_if_node_is_mirror_sync_critical
diagnostics check_if_node_is_quorum_critical
diagnostics check_certificate_expiration --within 2 --unit weeks
diagnostics check_certificate_expiration
~ diagnostics listeners
= diagnostics listeners --formatter json
~ diagnostics memory_breakdown
~ diagnostics memory_breakdown --unit mb
diagnostics memory_breakdown --unit nonsense
= diagnostics memory_breakdown --formatter json
diagnostics is_running
diagnostics is_booting
diagnostics is_running --formatter json
= diagnostics server_version
= diagnostics status
= diagnostics status --formatter json
~ diagnostics log_location
~ diagnostics log_tail -N 3
diagnostics resolve_hostname localhost
diagnostics nonsense
diagnostics ping
! diagnostics os_env
! diagnostics tls_versions
! diagnostics erlang_version
~ diagnostics data_directory
~ diagnostics os_pid
= list_feature_flags name state
enable_feature_flag nonsense
enable_feature_flag all
! node_health_check
""",
    "cluster": r"""
~ cluster_status
= cluster_status --formatter json
cluster_status nosuch
join_cluster
! join_cluster rabbit@nosuchhost
forget_cluster_node rabbit@nosuchhost
forget_cluster_node
forget_cluster_node --offline rabbit@nosuchhost
! change_cluster_node_type ram
change_cluster_node_type nonsense
! update_cluster_nodes rabbit@nosuchhost
rename_cluster_node a b
await_online_nodes 1
await_online_nodes 3 -t 1
await_online_nodes x
await_startup
await_startup -q
! reset
! force_reset
! force_boot
start_app
rotate_logs
hipe_compile /tmp
! force_gc
upgrade await_online_quorum_plus_one
upgrade post_upgrade
upgrade drain
~ cluster_status
upgrade drain
upgrade revive
upgrade revive
suspend_listeners
resume_listeners
""",
    "eval": r"""
eval 'application:get_env(rabbit, credit_flow_default_credit).'
eval 'application:get_env(rabbit, vm_memory_high_watermark).'
eval 'application:get_env(rabbit,vm_memory_high_watermark_paging_ratio).'
eval 'application:get_env(rabbit, nonsense).'
eval 'application:get_env(rabbit, queue_index_embed_msgs_below).'
eval 'application:get_env(rabbit, msg_store_file_size_limit).'
eval 'application:get_env(rabbit, msg_store_credit_disc_bound).'
eval 'application:get_env(rabbit, queue_index_max_journal_entries).'
eval 'application:get_env(rabbit, heartbeat).'
eval 'application:get_env(rabbit, frame_max).'
eval 'application:get_env(rabbit, channel_max).'
eval 'application:get_env(rabbit, consumer_timeout).'
eval 'application:get_env(rabbit, max_message_size).'
eval 'application:get_env(rabbit, handshake_timeout).'
eval 'application:get_env(rabbit, default_user).'
eval 'application:get_env(rabbit, loopback_users).'
! eval 'application:get_env(rabbit, disk_free_limit).'
= eval 'application:get_all_env(rabbit).'
! eval '1 + 1.'
! eval 'os:getpid().'
eval
eval 'application:get_env(rabbit, heartbeat)'
eval 'application:get_env(nonsense, heartbeat).'
! environment
! report
! exec 1
! encode x y
""",
    "definitions": r"""
= export_definitions -
= export_definitions - --format json
export_definitions @FILE@
export_definitions @DIR@/no/such/place
export_definitions @FILE@ --format nonsense
~ import_definitions @FILE@
import_definitions @DIR@/nosuch
~ import_definitions @BAD@
import_definitions @FILE@ --format nonsense
""",
    "stopped": r"""
! stop_app
! status
! list_queues
! start_app
""",
}
