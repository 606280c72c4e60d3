"""Settings of NSQ's listeners and clients, of its HTTP API, of nsqlookupd and of statsd.

Names are those of nsqd's flags behind ``nsq_``, with the unit last; defaults and bounds are
nsqd's where it has the same.
"""

from penstock.settings.kinds import NAME_MAX_BYTES, Boolean, Integer, NameList, Shares, Text


class NsqSettings:
    nsq = Boolean(True, "`false` opens no port of NSQ and nsqlookupd, whatever their settings are.")
    nsq_port = Integer(4150, 0, 65535, "TCP port for NSQ clients; 0: none.")
    nsq_tcp_bind = Text("", "Address of that port. Empty: as `bind`.", min_bytes=0, max_bytes=255)
    # fmt: off
    nsq_unix_socket = Text("",
        "Path of a Unix socket for NSQ clients; they count as clients of this machine, and"
        " `unix_socket_mode` is the mode of its file. Empty: none.", min_bytes=0, max_bytes=107)
    nsq_vhost = Text("/",
        "Virtual host of topics and channels: topic T is the exchange `nsq.T`, its channel C the"
        " queue `nsq.T:C`.", max_bytes=NAME_MAX_BYTES)
    nsq_user = Text("",
        "User as whom NSQ clients act that do not authenticate, over TCP and HTTP. `loopback_users`"
        " applies to it, too. Empty: the default user, for clients on this machine only.",
        min_bytes=0, max_bytes=NAME_MAX_BYTES)
    nsq_user_created = Boolean(False,
        "Whether a new data directory gets the user of `nsq_user`, without a password; it may use"
        " topics and channels, and nothing else.")
    nsq_auth_required = Boolean(False,
        "NSQ clients must authenticate as a user of this broker, and act as that user: over TCP"
        " with the secret `user:password`, over HTTP with Basic authentication.")
    nsq_auth_http_addresses = NameList((),
        "Servers, as `host:port` or URL, that decide whether an NSQ client may connect and what it"
        " may do, as nsqd's `--auth-http-address`. With one, clients must authenticate; its answers"
        " are limited by the rights of `nsq_user`.")
    nsq_tls_required = Text("no",
        "Whether NSQ clients must use TLS for every command but IDENTIFY. `tcp-https` is as `yes`,"
        " but allows HTTP without TLS. Needs `ssl_certfile`.",
        choices=("no", "tcp-https", "yes"))
    nsq_snappy = Boolean(True, "NSQ clients may compress with snappy.")
    nsq_deflate = Boolean(True, "NSQ clients may compress with deflate.")
    nsq_max_deflate_level = Integer(6, 1, 9,
        "Highest deflate level for a client.")
    nsq_publish_mode = Text("durable",
        "When an NSQ publish is answered: when it is on disk, or at once (it still goes to the"
        " journal, and is synced a moment later).", choices=("durable", "fast"))
    nsq_requeue_on_disconnect = Boolean(False,
        "Whether messages in flight are returned at once when an NSQ client's connection ends."
        " Otherwise they wait for their timeout, as with nsqd.")
    nsq_node_id = Integer(-1, -1, 1023,
        "Number of this node in the ids of NSQ messages. -1: made of the machine's name, as nsqd"
        " does.")
    nsq_max_msg_size_bytes = Integer(1_048_576, 1, 536_870_912,
        "Largest body of a message from an NSQ client.", unit="bytes")
    nsq_max_body_size_bytes = Integer(5_242_880, 16, 1 << 30,
        "Largest body of an NSQ command, such as MPUB.", unit="bytes")
    nsq_max_rdy_count = Integer(2500, 1, 1 << 30, "Largest RDY of an NSQ consumer.")
    nsq_msg_timeout_ms = Integer(60_000, 1, 86_400_000,
        "Time an NSQ consumer has to finish a message, if it asks for no other.", unit="ms")
    nsq_max_msg_timeout_ms = Integer(900_000, 1000, 86_400_000,
        "Longest such time it may ask for, and to which TOUCH may extend it.", unit="ms")
    nsq_max_req_timeout_ms = Integer(3_600_000, 0, 315_360_000_000,
        "Longest delay of a requeue (longer ones are cut) or of a deferred publish (refused).",
        unit="ms")
    nsq_max_heartbeat_interval_ms = Integer(60_000, 1000, 86_400_000,
        "Longest heartbeat an NSQ client may ask for.", unit="ms")
    nsq_max_channel_consumers = Integer(0, 0, 1 << 30,
        "NSQ consumers a channel may have; 0: any number.")
    nsq_max_output_buffer_size_bytes = Integer(65_536, 64, 1 << 30,
        "Largest output buffer an NSQ client may ask for.", unit="bytes")
    nsq_min_output_buffer_timeout_ms = Integer(25, 1, 86_400_000,
        "Shortest timeout of it that a client may ask for. No message waits longer than a turn of"
        " the loop.", unit="ms")
    nsq_max_output_buffer_timeout_ms = Integer(30_000, 1, 86_400_000,
        "Longest such timeout a client may ask for.", unit="ms")
    nsq_queue_scan = Text("exact",
        "How the broker finds deliveries and deferred messages whose time has come: `exact` knows"
        " every deadline; `probabilistic` is nsqd's queueScanLoop, with the next five settings.",
        choices=("exact", "probabilistic"))
    nsq_queue_scan_interval_ms = Integer(100, 1, 60_000,
        "How often the scan loop checks some channels.", unit="ms")
    nsq_queue_scan_refresh_interval_ms = Integer(5000, 1, 3_600_000,
        "How often it updates its list of channels.", unit="ms")
    nsq_queue_scan_selection_count = Integer(20, 1, 1 << 20,
        "How many channels it checks in a round.")
    nsq_queue_scan_dirty_percent = Integer(25, 0, 100,
        "If more than this percentage of them had something due, another round follows at once.",
        unit="percent")
    nsq_queue_scan_worker_pool_max = Integer(4, 1, 1024,
        "How many channels it checks between two turns of the loop, at most.")
    # fmt: on


class NsqHttpSettings:
    # fmt: off
    nsq_http_port = Integer(4151, 0, 65535,
        "TCP port of nsqd's HTTP API: publishing, topics, `/stats`. 0: off.")
    nsq_http_bind = Text("", "Address of that port. Empty: as `bind`.", min_bytes=0, max_bytes=255)
    nsq_http_unix_socket = Text("",
        "Path of a Unix socket with the same API, as `nsq_unix_socket`. Empty: none.",
        min_bytes=0, max_bytes=107)
    nsq_https_port = Integer(4152, 0, 65535,
        "TCP port of the same API over TLS, opened when `ssl_certfile` is set, or in `nsq_tls`."
        " With `nsq_tls_required = \"yes\"` the other port only answers 403. 0: off.")
    nsq_https_bind = Text("", "Address of that port. Empty: as `bind`.", min_bytes=0, max_bytes=255)
    nsqlookupd_bind = Text("127.0.0.1",
        "Address of nsqlookupd's two ports. They have no log-in: at another address every client"
        " that reaches them may register nodes, and delete topics from the registry.",
        max_bytes=255)
    nsqlookupd_tcp_port = Integer(4160, 0, 65535,
        "TCP port of the embedded nsqlookupd, for other nodes to register. 0: off.")
    nsqlookupd_http_port = Integer(4161, 0, 65535,
        "TCP port of its HTTP API, where consumers and nsqadmin look topics up. 0: off.")
    nsqlookupd_http_bind = Text("",
        "Address of that port. Empty: as `nsqlookupd_bind`.", min_bytes=0, max_bytes=255)
    nsqlookupd_tls_port = Integer(0, 0, 65535,
        "TCP port of the embedded nsqlookupd over TLS, with the certificate of `ssl_certfile` or of"
        " `nsqlookupd_tls`. Penstock's nodes can register there; nsqd has no TLS for it. 0: off.")
    nsqlookupd_https_port = Integer(0, 0, 65535, "TCP port of its HTTP API over TLS. 0: off.")
    nsqlookupd_inactive_producer_timeout_ms = Integer(300_000, 1, 86_400_000,
        "After this silence a node is no longer in answers to consumers; nsqlookupd's"
        " `--inactive-producer-timeout`.", unit="ms")
    nsqlookupd_tombstone_lifetime_ms = Integer(45_000, 1, 86_400_000,
        "How long a node whose topic is being deleted is left out of answers for that topic;"
        " nsqlookupd's `--tombstone-lifetime`.", unit="ms")
    nsq_broadcast_address = Text("",
        "Address in the answers to lookups of a topic: consumers connect to it. Empty: the name of"
        " the machine.", min_bytes=0, max_bytes=NAME_MAX_BYTES)
    nsq_broadcast_port_tcp = Integer(0, 0, 65535,
        "Port for NSQ clients in these answers. 0: `nsq_port`.")
    nsq_broadcast_port_http = Integer(0, 0, 65535,
        "Port of the HTTP API in these answers. 0: `nsq_http_port`.")
    nsqlookupd_tcp_addresses = NameList((),
        "Other nsqlookupds, each the `host:port` of its TCP port. This node registers its topics"
        " and channels there, and asks them for the channels of a new topic. Can be changed at run"
        " time: `PUT /config/nsqlookupd_tcp_addresses`.")
    nsq_e2e_processing_latency_percentiles = Shares((),
        "Quantiles of the time from publish to finish that `/stats` shows for each channel and"
        " topic, such as `0.99,0.95`. Empty: not measured.")
    nsq_e2e_processing_latency_window_time_s = Integer(600, 2, 86_400,
        "Time over which they are measured.", unit="s")
    nsq_statsd_address = Text("",
        "`host:port` of a statsd that gets the numbers of topics and channels by UDP. Empty: none.",
        min_bytes=0, max_bytes=NAME_MAX_BYTES)
    nsq_statsd_prefix = Text("nsq.%s",
        "Prefix of their names; `%s` is the node: its broadcast address and HTTP port.",
        min_bytes=0, max_bytes=NAME_MAX_BYTES)
    nsq_statsd_interval_s = Integer(60, 1, 86_400,
        "How often they are sent.", unit="s")
    nsq_statsd_udp_packet_size_bytes = Integer(508, 1, 65_507,
        "Largest packet sent there.", unit="bytes")
    nsq_statsd_mem_stats = Boolean(True,
        "Whether numbers of the interpreter's memory are sent, too.")
    nsq_statsd_exclude_ephemeral = Boolean(False,
        "Whether ephemeral topics and channels are left out.")
    # fmt: on
