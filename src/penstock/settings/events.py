"""Settings of event log, audit trail and traces; ``settings.py`` says what a declaration is."""

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
        "Size at which the audit trail goes on in a new file.", unit="bytes")
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
        "Size at which the event log goes on in a new file.", unit="bytes")
    event_log_size_limit_bytes = Integer(134_217_728, 131_072, 1 << 50,
        "Size of all its files; the oldest are removed above it.", unit="bytes")
    event_log_interval_s = Integer(5, 1, 10,
        "Seconds between two entries of the node's and its queues' figures.", unit="s")
    event_log_samples_per_s = Integer(20, 0, 10_000,
        "Messages of one queue whose times are logged, per second; ten times as many of all queues"
        " together. 0: none.")
    otlp_endpoint = Text("",
        "URL to which spans of messages with a sampled `traceparent` header are sent by OTLP over"
        " HTTP, as `http://localhost:4318/v1/traces`. Empty: none.", min_bytes=0)
    otlp_spans_per_s = Integer(1000, 4, 100_000,
        "Spans that are sent per second at most; the others are dropped and counted.")
    # fmt: on
