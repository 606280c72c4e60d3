"""Noise: sockets, threads, signals, the clock; and the sessions that join wire and broker.

node.py            boot and shutdown in order
loop.py            the event loop             turn.py       what happens between read and write
listener.py        where clients come in      connection.py  a socket and its session
descriptors.py     which are left for guests  measured_files.py  the disk, with a watch in hand
secure_socket.py   TLS                        proxy_protocol.py, certificate.py,
                                             certificate_dates.py
committer.py       group commit in a thread   session.py    what the loop knows of a session
sessions.py        who comes, and what they speak
amqp_session.py    one connection             amqp_handshake.py, amqp_link.py
amqp_channel.py    one channel                amqp_topology.py
nsq_session.py     one NSQ connection         nsq_opening.py  IDENTIFY, AUTH, layers, rights
nsq_publishing.py  its publishes and answers  nsq_consuming.py  its channel, and what is in flight
nsq_layers.py      TLS, snappy and deflate    nsq_rights.py, nsq_authority.py  what a client may do
nsq_shared.py      what all of them share     nsq_settings.py   and how it is made
publish_credit.py  the credits of a publisher thread_calls.py   calls from other threads
doors.py           listeners, shut and opened  ending.py     signals, an orderly stop, a quick one
reloading.py       SIGHUP                     node_control.py  what management may ask of the node
logs.py            where log lines go         state_lines.py   lines about what changes state
log_exchange.py    lines as messages          systemd.py       what a service manager is told
boot_definitions.py  what is imported at start
output_budget.py   what may wait for sockets that are not read
range_session.py   one Spark program         range_desk.py  what it hands requests to
range_staging.py   batches, staged and committed
range_reading.py   ranges of a queue         range_leases.py  who reads which queue
range_subscribing.py  groups, channels, and where a reader begins
range_reporting.py  how pipelines go, and the event log
event_collector.py  what happened, every few seconds   event_log.py  the files
session_events.py  connections come and go
peer_queues.py     queues between two nodes: the room ``cluster`` and the bytes of a link
watch.py           what management may see
insider.py         a client without a socket  disk_waiters.py  answers that wait for the disk
nsq_watch.py       NSQ clients as management shows them
nsq_services.py    what runs beside the loop for NSQ
nsq_http.py        nsqd's HTTP API    nsq_answers.py, nsq_desk.py, nsq_stats.py, nsq_config.py,
                   nsq_statsd.py
known_revisions.py  what other nodes have done of what was agreed on
peers.py           the links of a node to the others of its cluster
peer_link.py       one of them                peer_session.py  one connection of it
peer_dialer.py     calling                    peer_access.py   secret, certificates, listener
turn_part.py       what else has its part in each turn
lookup_http.py     nsqlookupd                 lookup_tcp.py, lookup_peers.py
http_asking.py     requests to other machines
etcd_coordinator.py  where a cluster of several machines agrees: etcd_http.py requests,
                   etcd_names.py keys, etcd_lease.py, etcd_watch.py events, etcd_proposals.py
coordination_server.py  where the nodes of one machine agree: the process that holds the store
local_coordinator.py    and each of the others
"""
