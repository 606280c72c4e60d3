"""Settings of NSQ's HTTP API, of nsqlookupd and of statsd.

Names are those of nsqd's flags behind ``nsq_``, with the unit last.
"""

from penstock.settings.kinds import NAME_MAX_BYTES, Boolean, Integer, NameList, Shares, Text


class NsqHttpSettings:
    """See ``settings.Settings``."""

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
