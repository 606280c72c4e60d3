"""Settings of event log, audit trail, traces, statistics and metrics.

``settings.py`` says what a declaration is.
"""

from penstock.settings.kinds import Boolean, Integer, Text


class EventSettings:
    """The part of ``Settings`` about the event log, the audit trail and traces."""

    # fmt: off
    event_log = Boolean(True,
        "Whether the broker keeps an event log: flow control, alarms, paging, rates of queues,"
        " times of some messages. `penstock pipeline latency` and `flow` read it.")
    audit_trail = Boolean(True,
        "Whether the broker keeps an audit trail: each log-in, change and request of an operator,"
        " with user, address and answer, in files of the data directory.")
    audit_trail_dir = Text("",
        "Directory of the audit trail. Empty: `audit-trail` in the data directory.", min_bytes=0)
    audit_trail_file_size_bytes = Integer(16_777_216, 65_536, 1 << 40,
        "Size at which the audit trail begins a new file.", unit="bytes")
    audit_trail_size_limit_bytes = Integer(268_435_456, 131_072, 1 << 50,
        "Size of all its files; the oldest are removed above it.", unit="bytes")
    event_exchange = Boolean(False,
        "Whether events are published to the topic exchange `amq.rabbitmq.event`, as by RabbitMQ's"
        " plug-in `rabbitmq_event_exchange`.")
    event_exchange_vhost = Text("",
        "Virtual host of that exchange. Empty: as `default_vhost`.", min_bytes=0)
    event_log_dir = Text("",
        "Directory of the event log. Empty: `events` in the data directory.", min_bytes=0)
    event_log_file_size_bytes = Integer(16_777_216, 65_536, 1 << 40,
        "Size at which the event log begins a new file.", unit="bytes")
    event_log_size_limit_bytes = Integer(134_217_728, 131_072, 1 << 50,
        "Size of all its files; the oldest are removed above it.", unit="bytes")
    event_log_interval_s = Integer(5, 1, 10,
        "Time between two entries of the figures of the node and its queues.", unit="s")
    event_log_samples_per_s = Integer(20, 0, 10_000,
        "Messages of one queue whose times are logged, per second; ten times as many of all queues"
        " together. 0: none.")
    otlp_endpoint = Text("",
        "URL that gets spans of messages with a sampled `traceparent` header, by OTLP over HTTP,"
        " such as `http://localhost:4318/v1/traces`. Empty: none.", min_bytes=0)
    otlp_spans_per_s = Integer(1000, 4, 100_000,
        "Most spans sent per second; others are dropped and counted.")
    # fmt: on


class StatisticsSettings:
    """The part of ``Settings`` that is about numbers over time."""

    # fmt: off
    collect_statistics_interval_ms = Integer(5000, 1000, 600_000,
        "How often counters are sampled for rates and charts.",
        unit="ms")
    rates_mode = Text("basic",
        "Whether management keeps samples of every object, or none. Counts are always there."
        " RabbitMQ's `detailed`, which counts each pair of channel and queue, is not offered.",
        choices=("basic", "none"))
    prometheus_port = Integer(15692, 0, 65535,
        "TCP port for Prometheus, at the management API's address; 0: none. `/metrics` needs no"
        " log-in there. The same pages are on the management port, with a log-in.")
    prometheus_https_port = Integer(0, 0, 65535,
        "TCP port for Prometheus over TLS (RabbitMQ's is 15691), with the certificate of"
        " `ssl_certfile` or of `prometheus_tls`. 0: off.")
    prometheus_objects_open = Boolean(False,
        "Whether `/metrics/per-object` and `/metrics/detailed`, which name queues, connections and"
        " virtual hosts, need no log-in from other machines on `prometheus_port`.")
    # fmt: on
