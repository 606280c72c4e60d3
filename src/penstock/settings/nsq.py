"""Settings of NSQ's listeners and clients, of its HTTP API, of nsqlookupd and of statsd.

Names are those of nsqd's flags behind ``nsq_``, with the unit last; defaults and bounds are
nsqd's where it has the same.
"""

from penstock.settings.kinds import NAME_MAX_BYTES, Boolean, Integer, NameList, Shares, Text


class NsqSettings:
    nsq = Boolean(True, "`false` opens no port of NSQ and nsqlookupd, whatever their settings say.")
    nsq_port = Integer(4150, 0, 65535, "TCP port for NSQ clients; 0: none.")
    nsq_tcp_bind = Text("", "Address of that port. Empty: as `bind`.", min_bytes=0, max_bytes=255)
    # fmt: off
    nsq_unix_socket = Text("",
        "Path of a Unix socket for NSQ clients; they count as clients of this machine, and"
        " `unix_socket_mode` is the mode of its file. Empty: none.", min_bytes=0, max_bytes=107)
    nsq_vhost = Text("/",
        "Virtual host in which topics and channels are: topic T is the exchange `nsq.T`, its"
        " channel C the queue `nsq.T:C`.", max_bytes=NAME_MAX_BYTES)
    nsq_user = Text("",
        "User whose rights NSQ clients have that do not authenticate, over TCP and HTTP."
        " `loopback_users` holds for it, too. Empty: the default user, for clients on this machine"
        " only.", min_bytes=0, max_bytes=NAME_MAX_BYTES)
    nsq_user_created = Boolean(False,
        "A new data directory gets the user that `nsq_user` names, without a password: it may use"
        " topics and channels, and nothing else.")
    nsq_auth_required = Boolean(False,
        "NSQ clients must authenticate as a user of this broker, and act as that user: over TCP"
        " with the secret `user:password`, over HTTP with Basic authentication.")
    nsq_auth_http_addresses = NameList((),
        "Servers, as `host:port` or URL, that are asked whether an NSQ client may come and what it"
        " may do, as nsqd's `--auth-http-address`. With one, clients must authenticate; what is"
        " allowed there is allowed within the rights of `nsq_user`.")
    nsq_tls_required = Text("no",
        "Whether NSQ clients must use TLS: not, or for every command but IDENTIFY. `tcp-https` is"
        " as `yes`, but lets clients use HTTP without TLS. Needs `ssl_certfile`.",
        choices=("no", "tcp-https", "yes"))
    nsq_snappy = Boolean(True, "NSQ clients may compress with snappy.")
    nsq_deflate = Boolean(True, "NSQ clients may compress with deflate.")
    nsq_max_deflate_level = Integer(6, 1, 9, "Highest level of it a client is given.")
    nsq_publish_mode = Text("durable",
        "When an NSQ publish is answered: when it is on disk, or at once (it goes to the journal"
        " all the same, and is synced a moment later).", choices=("durable", "fast"))
    nsq_requeue_on_disconnect = Boolean(False,
        "What an NSQ client held when its connection ended goes back at once. Otherwise it waits"
        " for its timeout, as with nsqd.")
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
        "Shortest time a message may be said to wait in it. None ever waits longer than a turn of"
        " the loop.", unit="ms")
    nsq_max_output_buffer_timeout_ms = Integer(30_000, 1, 86_400_000,
        "Longest such time an NSQ client may ask for.", unit="ms")
    nsq_queue_scan = Text("exact",
        "How deliveries and deferred messages whose time has come are found: `exact` knows every"
        " deadline; `probabilistic` is nsqd's queueScanLoop, with the five settings that follow.",
        choices=("exact", "probabilistic"))
    nsq_queue_scan_interval_ms = Integer(100, 1, 60_000,
        "How often the scan loop looks at some channels.", unit="ms")
    nsq_queue_scan_refresh_interval_ms = Integer(5000, 1, 3_600_000,
        "How often it learns which channels there are.", unit="ms")
    nsq_queue_scan_selection_count = Integer(20, 1, 1 << 20,
        "How many channels it looks at in a round.")
    nsq_queue_scan_dirty_percent = Integer(25, 0, 100,
        "With something due in more than so many per cent of them, another round follows at once.",
        unit="percent")
    nsq_queue_scan_worker_pool_max = Integer(4, 1, 1024,
        "How many channels it looks at between two turns of the loop, at most.")
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
        "Address of nsqlookupd's two ports. They have no log-in: on another address every client"
        " that reaches them may register nodes, and delete topics from the registry.",
        max_bytes=255)
    nsqlookupd_tcp_port = Integer(4160, 0, 65535,
        "TCP port of the nsqlookupd within, for other nodes to register. 0: off.")
    nsqlookupd_http_port = Integer(4161, 0, 65535,
        "TCP port of its HTTP API, where consumers and nsqadmin look topics up. 0: off.")
    nsqlookupd_http_bind = Text("",
        "Address of that port. Empty: as `nsqlookupd_bind`.", min_bytes=0, max_bytes=255)
    nsqlookupd_tls_port = Integer(0, 0, 65535,
        "TCP port of the nsqlookupd within over TLS, with the certificate of `ssl_certfile` or of"
        " `nsqlookupd_tls`. Penstock's nodes register there, nsqd's do not speak TLS. 0: off.")
    nsqlookupd_https_port = Integer(0, 0, 65535, "TCP port of its HTTP API over TLS. 0: off.")
    nsqlookupd_inactive_producer_timeout_ms = Integer(300_000, 1, 86_400_000,
        "A node that was silent for so long is not told to consumers; nsqlookupd's"
        " `--inactive-producer-timeout`.", unit="ms")
    nsqlookupd_tombstone_lifetime_ms = Integer(45_000, 1, 86_400_000,
        "How long a node whose topic is being deleted is not told to consumers of that topic;"
        " nsqlookupd's `--tombstone-lifetime`.", unit="ms")
    nsq_broadcast_address = Text("",
        "Address in the answers to lookups of a topic: consumers connect to it. Empty: the name of"
        " the machine.", min_bytes=0, max_bytes=NAME_MAX_BYTES)
    nsq_broadcast_port_tcp = Integer(0, 0, 65535,
        "Port for NSQ clients in these answers. 0: `nsq_port`.")
    nsq_broadcast_port_http = Integer(0, 0, 65535,
        "Port of the HTTP API in these answers. 0: `nsq_http_port`.")
    nsqlookupd_tcp_addresses = NameList((),
        "Other nsqlookupds, each `host:port` of its TCP port: this node registers its topics and"
        " channels there, and asks them which channels a new topic is to have. Can be changed while"
        " it runs: `PUT /config/nsqlookupd_tcp_addresses`.")
    nsq_e2e_processing_latency_percentiles = Shares((),
        "Quantiles of the time from publishing to finishing that `/stats` shows of each channel and"
        " topic, such as `0.99,0.95`. Empty: not measured.")
    nsq_e2e_processing_latency_window_time_s = Integer(600, 2, 86_400,
        "Over how long a time they are taken.", unit="s")
    nsq_statsd_address = Text("",
        "`host:port` of a statsd to which the numbers of topics and channels are pushed by UDP."
        " Empty: to none.", min_bytes=0, max_bytes=NAME_MAX_BYTES)
    nsq_statsd_prefix = Text("nsq.%s",
        "What their names begin with; `%s` is the node: its broadcast address and HTTP port.",
        min_bytes=0, max_bytes=NAME_MAX_BYTES)
    nsq_statsd_interval_s = Integer(60, 1, 86_400, "How often they are pushed.", unit="s")
    nsq_statsd_udp_packet_size_bytes = Integer(508, 1, 65_507,
        "Largest packet that is sent there.", unit="bytes")
    nsq_statsd_mem_stats = Boolean(True, "Numbers of the interpreter's memory are pushed too.")
    nsq_statsd_exclude_ephemeral = Boolean(False,
        "Ephemeral topics and channels are left out of it.")
    # fmt: on
