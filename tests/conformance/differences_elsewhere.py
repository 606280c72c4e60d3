"""Where Penstock does otherwise than RabbitMQ 3.10.8 in ways no recorded conversation shows.

Such as what survives a crash, what an import leaves out, or which queue a hash chooses.
``docs/differences.md`` shows them beside what the recordings tell.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Elsewhere:
    """``test``: where it is put to the test, ``file below tests::function``; none for what is
    not there at all.
    """

    subject: str
    theirs: str
    ours: str
    test: str = ""


ELSEWHERE: Final = (
    Elsewhere(
        "Secrets in a configuration",
        "Any value of `advanced.config` may be encrypted, and the passphrase be asked for "
        "(`prompt`). Whatever a password in `rabbitmq.conf` begins with, it is the password.",
        "Passwords, and URIs of static shovels, may be encrypted; another encrypted value, and "
        "`prompt`, stop the start. A password that begins with `file:`, `command:`, `encrypted:` "
        "or `plain:` says where it is.",
        "secrets/test_sources.py::test_what_is_not_decrypted_here_stops_the_start",
    ),
    Elsewhere(
        "Quorum queues of a cluster",
        "`x-queue-type` is `quorum` with copies on several nodes.",
        "So it is here. etcd keeps which copy leads, in place of Raft; with copies on several "
        "nodes messages have no priorities, and copies are not added by themselves "
        "(`target-group-size`, and a queue that was declared before its node joined).",
        "cluster/test_several_nodes.py"
        "::test_a_quorum_queue_has_copies_and_every_node_publishes_to_it",
    ),
    Elsewhere(
        "Streams of a cluster",
        "A stream has copies on `x-initial-cluster-size` nodes, and a message is confirmed when "
        "most have it. Its consumers read the copy of their own node.",
        "It has the copies that a policy of mirrors asks for, and all synchronised ones have a "
        "message on disk before it is confirmed or read. When the master moves, its consumers "
        "are cancelled, unless their position is kept.",
        "cluster/test_streams_of_nodes.py"
        "::test_a_consumer_whose_position_is_kept_goes_on_and_another_is_cancelled",
    ),
    Elsewhere(
        "Log-ins without a name",
        "RabbitMQ 4.3.6 offers ANONYMOUS, which logs in as `anonymous_login_user`, by default "
        "`guest`.",
        "There is no such log-in: each client says who it is.",
        "conformance/test_log_in_stories.py::test_are_as_in_rabbitmq",
    ),
    Elsewhere(
        "No limits",
        "With `channel_max` or `frame_max` 0 the broker offers 0, and a client may answer 0.",
        "It offers the highest value that it takes, 65,535 channels and frames of 128 MiB, and a "
        "client that answers 0 is refused as with any other limit.",
        "conformance/test_log_in_stories.py::test_are_as_in_rabbitmq",
    ),
    Elsewhere(
        "Limits of users that are not there",
        "Setting one by the management API answers 400.",
        "It answers 404.",
        "conformance/test_log_in_stories.py::test_are_as_in_rabbitmq",
    ),
    Elsewhere(
        "Newer headers",
        "RabbitMQ 4.3.6 writes `x-last-death-queue`, `-reason` and `-exchange` on dead letters.",
        "Written by quorum queues; a classic queue changes them when they are there.",
        "conformance/test_conformance.py::test_answers_like_rabbitmq",
    ),
    Elsewhere(
        "Names of number types in refusals",
        "As the client wrote the number: `byte`, `unsignedshort`, `float` ...",
        "As its value is: `signedint` or `long`, and `double`.",
        "broker/test_arguments.py::test_refusals_name_types_by_values_and_not_by_widths",
    ),
    Elsewhere(
        "Decimals beside integers",
        "A queue that has an integer, declared again with a decimal: 541.",
        "406, the argument is inequivalent.",
        "broker/test_vhost.py::test_a_decimal_is_no_integer",
    ),
    Elsewhere(
        "`x-queue-version`, and the policy key `queue-version`",
        "How messages rest on disk.",
        "1 and 2 are taken and compared; both mean the same.",
        "broker/test_policies.py::test_every_key_is_taken",
    ),
    Elsewhere(
        "Mirrored queues that have no synchronised mirror",
        "`ha-promote-on-failure` is `always` where nothing is said: when the master fails, a "
        "mirror that lacks messages takes its place, and they are lost.",
        "It is `when-synced`: such a queue is down until a copy with everything is back, unless "
        "the policy says `always`.",
        "broker/test_ha_policy.py::test_what_holds_where_nothing_is_said",
    ),
    Elsewhere(
        "Mirrors of queues that are not durable",
        "They have mirrors, and survive their node that way.",
        "They have none, as exclusive queues have none in RabbitMQ: `ha-mode` is for durable "
        "queues.",
        "broker/test_policies.py::test_which_queues_are_mirrored",
    ),
    Elsewhere(
        "Queues that are not durable, when their node is lost",
        "They are deleted at once.",
        "They are deleted two leases later (9 s unless set otherwise): a node that was only cut "
        "off keeps them.",
        "cluster/test_lost_transients.py::test_they_go_and_their_names_are_free",
    ),
    Elsewhere(
        "A node that was forgotten starts again",
        "It refuses to start (`inconsistent_cluster`).",
        "It joins as a new node, and what it had of the queues that were deleted goes.",
        "cluster/test_forgetting.py::test_a_forgotten_node_that_starts_again_joins_as_a_new_one",
    ),
    Elsewhere(
        "Connections that may not publish",
        "Without credit, or during an alarm, the socket is not read: acknowledgements wait behind "
        "publishes.",
        "Publishes wait, with what comes behind them on their channel; acknowledgements, "
        "rejections, cancellations and other channels go on. Up to 1 MiB of a connection is read "
        "ahead for it.",
        "node/test_flow.py::test_a_blocked_publisher_still_acknowledges_rejects_and_cancels",
    ),
    Elsewhere(
        "Credit",
        "Counts messages.",
        "A message costs one, or one a KiB where that is more.",
        "core/test_credit.py::test_a_batch_costs_a_credit_a_message_or_a_kibibyte",
    ),
    Elsewhere(
        "Rights of an HTTP backend",
        "What the server has allowed holds as long as the channel or connection that asked.",
        "It is asked again every `auth_http_recheck_s` (a minute): what it then refuses ends "
        "consumers, publishing and connections. 0 is RabbitMQ's way.",
        "auth/test_http_backend.py::test_a_right_that_was_taken_is_noticed",
    ),
    Elsewhere(
        "Empty passwords and HTTP backends",
        "The server is asked about a log-in with an empty password.",
        "It is not asked, and the log-in is refused: some directories take an empty password for "
        "an anonymous log-in, which they allow.",
        "auth/test_http_backend.py::test_an_empty_password_is_refused_unasked",
    ),
    Elsewhere(
        "Reasons of refused tokens",
        "A client whose token of OAuth 2 is refused hears that its log-in was refused.",
        "So it does here; over HTTP, with `Authorization: Bearer`, the answer has the reason, as "
        "RFC 6750 allows.",
        "node/test_oauth_live.py::test_all_protocols_refuse_a_token_and_the_log_says_why",
    ),
    Elsewhere(
        "Tokens that name no user",
        "A token of OAuth 2 without any of the claims for a user's name is taken: all such "
        "clients are the user `unknown`.",
        "It is refused: one name would give these clients one user's limits, records and locks.",
        "broker/oauth/test_oauth_claims.py::test_a_token_that_names_no_user_is_refused",
    ),
    Elsewhere(
        "Delivery limit",
        "Quorum queues only.",
        "`x-delivery-limit` and the policy key `delivery-limit` hold for every queue. What has "
        "come back that often is dead-lettered with the reason `delivery_limit`.",
        "node/test_dead_letters.py::test_what_is_tried_too_often_dies",
    ),
    Elsewhere(
        "Budgets of a virtual host",
        "Limits of virtual hosts are `max-connections` and `max-queues`.",
        "`max-memory-bytes`, `max-disk-bytes` and `max-publish-rate` besides: a virtual host "
        "above one has its publishers blocked. `max-channels` refuses one more channel with 530.",
        "management/test_budgets.py::"
        "test_only_publishers_of_a_virtual_host_over_its_memory_are_held",
    ),
    Elsewhere(
        "Consumers that do not read",
        "The kernel takes up to 4 MB for each of them.",
        "At most 256 KiB, beside the peer's own receive buffer; what the broker keeps for all of "
        "them has one budget.",
        "runtime/test_output_budget.py::"
        "test_consumers_that_never_read_cost_little_and_nobody_else_anything",
    ),
    Elsewhere(
        "Dead letters",
        "Of classic queues they are published without waiting: a crash at the wrong moment loses "
        "them.",
        "At least once: a message leaves its queue when its letter is on disk where it went. A "
        "crash in between may bring it twice, never not at all.",
        "node/test_dead_letters.py::test_a_crash_in_between_leaves_one_of_both",
    ),
    Elsewhere(
        "`overflow` of operator policies",
        "Refused; RabbitMQ 4.3.6 takes it.",
        "As in 4.3.6: it holds before the policy's.",
        "broker/test_policies.py::"
        "test_of_overflows_the_operators_comes_first_and_in_quorum_queues_the_policy",
    ),
    Elsewhere(
        "`x-recent-history` after a restart",
        "3.10.8 has forgotten all; 4.3.6 has all of them, transient ones too.",
        "A durable exchange has its persistent messages. An `x-delayed-message` exchange cannot "
        "have this type as its `x-delayed-type`.",
        "node/test_histories.py::test_persistent_messages_are_there_after_a_power_cut",
    ),
    Elsewhere(
        "`x-recent-history` in a cluster",
        "4.3.6 has one table of the cluster: nothing is lost with a node.",
        "Each node has what it routed itself. Who is bound gets the last of all nodes that are "
        "reached, by their clocks, 64 MiB at most; what a node routed is back when that is.",
        "cluster/test_recent_histories.py::"
        "test_of_a_node_that_is_down_nothing_comes_and_a_restart_brings_nothing_again",
    ),
    Elsewhere(
        "The event exchange",
        "A plug-in.",
        "A setting; the keys and headers that [events](guide/events.md#events-as-messages) lists, "
        "up to a quarter of a second late.",
        "node/test_event_exchange.py::test_what_happens_arrives",
    ),
    Elsewhere(
        "Full queues with priorities",
        "`drop-head` drops what would be delivered next, the highest priority.",
        'The lowest priority first; `priority_drop_order = "highest"` has RabbitMQ\'s order.',
        "node/test_priorities.py::test_a_full_queue_loses_what_the_setting_says",
    ),
    Elsewhere(
        "Transactions: when",
        "`tx.commit-ok` waits for the published messages; acknowledgements may be lost behind it.",
        "It leaves when publishes and acknowledgements both are on disk.",
        "protocols/amqp/test_transactions.py::test_commit_ok_waits_for_the_acknowledgements_too",
    ),
    Elsewhere(
        "Transactions: what is routed when",
        "Messages are routed as they are published; the commit only lets them into their queues.",
        "They are routed by the commit, over several turns where that is dear. When an exchange is "
        "gone before all have their routes, nothing of the transaction is done; when an exchange "
        "or the connection goes while a dear commit is being published, a part of it is "
        "published, and no `tx.commit-ok` is sent.",
        "protocols/amqp/test_transactions.py::test_an_exchange_that_went_before_the_commit_undoes_all_of_it",
    ),
    Elsewhere(
        "Topic permissions",
        "The routing key is checked; keys in CC and BCC are not.",
        "All keys of a message need the right to their topic, else the right could be walked "
        "around.",
        "conformance/test_restricted.py::test_is_refused_as_by_rabbitmq",
    ),
    Elsewhere(
        "Long arguments",
        "A method may fill a frame.",
        "A method with all its arguments has at most 20 KiB, else the channel is closed with 406: "
        "arguments are kept as long as what they declare.",
        "protocols/amqp/codec/test_decoder.py::test_a_method_with_long_arguments_is_refused",
    ),
    Elsewhere(
        "Permissions that are taken",
        "A consumer goes on until its channel ends.",
        "A consumer of a queue that its user may not read any more is cancelled within a second.",
        "node/test_rights_taken.py::test_amqp_consumers_are_cancelled",
    ),
    Elsewhere(
        "Consistent-hash exchanges",
        "The plug-in counts buckets: a queue that leaves moves most keys.",
        "A queue that comes or goes moves only its own share. Which queue a key leads to is not "
        "the same there and here: on a migration, drain the queues first.",
        "routing/test_consistent_hash.py::test_a_queue_that_goes_moves_only_its_own_keys_and_comes_back_to_them",
    ),
    Elsewhere(
        "Delayed messages",
        "The community's plug-in keeps them in a table of one node, outside of any queue.",
        "They wait on disk like any message, and survive crashes.",
        "node/test_delays.py::test_a_crash_loses_and_doubles_nothing",
    ),
    Elsewhere(
        "Deduplication",
        "The community's plug-in can keep the cache of a deduplicating exchange on disk.",
        "In memory only (`x-cache-persistence` `disk` is refused with 540). Queues know a key as "
        "long as a message with it is in them, after a restart too.",
        "routing/test_once.py::test_wrong_arguments_are_refused",
    ),
    Elsewhere(
        "Deduplication by streams",
        "In the native stream protocol a publisher has a name, and its messages numbers.",
        "By AMQP: a stream with `x-message-deduplication` drops a message whose "
        "`x-deduplication-header` is NAME:NUMBER and not above all that came of this name.",
        "node/test_stream_numbers.py::test_a_number_that_came_is_confirmed_and_not_taken",
    ),
    Elsewhere(
        "Time to acknowledge",
        "One time for the node (`consumer_timeout`), looked at once a minute.",
        "`x-consumer-timeout` of a queue or a consumer too, kept to a second or two; who needs "
        "more time asks for it by publishing to `amq.penstock.extend`.",
        "protocols/amqp/test_deadlines.py::test_queues_and_consumers_say_otherwise",
    ),
    Elsewhere(
        "Memory alarm",
        "Set and cleared at the limit, by a number that is taken once a second.",
        "Messages are counted as they come, beside what the broker takes without any, so that "
        "the whole process stays at the limit; cleared with a twentieth to spare.",
        "broker/test_alarms.py::test_memory_is_the_whole_process_and_clears_with_some_to_spare",
    ),
    Elsewhere(
        "Declarations at the memory alarm",
        "Queues, bindings and consumers go on being declared, whatever memory they take.",
        "Far over the limit (a tenth of it, 64 MiB at least) new ones are refused with 406; a "
        "channel may have 64 consumers without long arguments all the same.",
        "node/test_declared_memory.py::test_far_over_the_limit_it_is_refused",
    ),
    Elsewhere(
        "More than 64 consumers of a queue",
        "Each gets one message, then the next consumer one.",
        "While the queue has several messages for each of them, a consumer gets up to 8 before the "
        "next one.",
        "queues/test_consumer_ring.py"
        "::test_of_a_backlog_for_all_each_of_a_crowd_gets_some_together",
    ),
    Elsewhere(
        "Disk alarm",
        "50 MB are to stay free by default. Cleared at the limit, looked at every 10 s while set.",
        "A fiftieth of the disk by default (`disk_free_limit`), at least 50 MB, at most 2 GB. "
        "Cleared with a twentieth to spare, looked at every second while set. A disk that was "
        "found full without an alarm blocks too, as `low on disk`.",
        "node/test_resource_monitor.py::test_the_nearer_the_limit_the_sooner_the_next_look",
    ),
    Elsewhere(
        "Units of sizes",
        "k, M and G in some spellings; `KiB` makes the node fail.",
        "All spellings, and T. `absolute 0` is taken by `set_vm_memory_high_watermark` too.",
        "core/test_capacity.py::test_units_it_does_not_know",
    ),
    Elsewhere(
        "Definitions",
        "What a node has no plug-in for ends the import.",
        "What can be honoured is taken, the rest is left out and named, a line each: queue types, "
        "parameters of plug-ins, keys of policies that only RabbitMQ has. The answer is 400 all "
        "the same, unless the request says `?partial=true`.",
        "management/test_definitions.py::test_what_is_left_out_is_said",
    ),
    Elsewhere(
        "Firehose: what a copy says",
        "`routed_queues` of the default exchange are the routing keys, whether such queues are "
        "there or not. Timestamps are cut to 32 bits. Keys in BCC are in the copies of deliveries.",
        "`routed_queues` are queues that are there. Timestamps after 2038 have 64 bits. Keys in "
        "BCC are in the copy of the publish only: nothing keeps them.",
        "conformance/test_tracing.py::test_is_copied_as_by_rabbitmq",
    ),
    Elsewhere(
        "Firehose in a transaction",
        "A publish is copied before its transaction is committed, and when it is taken back.",
        "It is copied when the transaction is committed.",
        "conformance/test_tracing.py::test_is_copied_as_by_rabbitmq",
    ),
    Elsewhere(
        "Names of virtual hosts in `trace_on`",
        "`rabbitmqctl` says that tracing is enabled, though no such virtual host exists.",
        "It is refused.",
        "management/test_tracing.py::test_the_commands_of_rabbitmqctl",
    ),
    Elsewhere(
        "`PUT /api/vhosts/{name}`",
        "What the body does not name is lost (a description, when only tracing is switched); "
        "unknown fields are passed over.",
        "What it does not name stays as it is; unknown fields are refused with 400.",
        "management/test_tracing.py::test_what_is_not_named_stays",
    ),
    Elsewhere(
        "A second `channel.close` or `connection.close` right behind the first",
        "Both are answered when they come in one packet; a millisecond later a second "
        "`channel.close` ends the connection with 504.",
        "It ends the connection with 504, or is not answered, whenever it comes.",
        "protocols/amqp/test_session.py::test_a_second_close_right_behind_the_first",
    ),
    Elsewhere(
        "`exchange.declare` of an unknown type",
        "`invalid exchange type` for names that happen to be atoms of Erlang (`Direct`, `queue`), "
        "`unknown exchange type` for others.",
        "Always `unknown exchange type`, but for the empty one.",
        "protocols/amqp/test_session.py::test_an_unknown_type_of_exchange",
    ),
    Elsewhere(
        "Queues that are down",
        "A queue whose process or node is down answers 404 with a text of its own.",
        "On one node no queue is down while the broker answers; in a cluster one whose home is "
        "down answers 404 as there. One whose next message is damaged on disk answers 404 to "
        "`basic.get` and `basic.consume`, with the file; it still takes messages and can be "
        "declared, purged and deleted. It is read again after 5 s, then after twice as long, up "
        "to some 5 minutes.",
        "node/test_heads.py::test_what_a_queue_that_is_stopped_says_to_each_method",
    ),
    Elsewhere(
        "Paging in batches",
        "Betas go to delta only when 64 or more (`IO_BATCH_SIZE`) are above the target.",
        "There is no such minimum: what is above the target goes, and the end of delta is "
        "collected to 128 KiB before it is written.",
        "storage/test_engine_order.py::test_nothing_goes_to_segments_before_the_tail_that_is_older",
    ),
)
