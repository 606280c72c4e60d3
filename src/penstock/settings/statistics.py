"""Settings of statistics and metrics; ``settings.py`` says what a declaration is."""

from penstock.settings.kinds import Boolean, Integer, Text


class StatisticsSettings:
    """The part of ``Settings`` that is about numbers over time."""

    # fmt: off
    collect_statistics_interval_ms = Integer(5000, 1000, 600_000,
        "How often counters are sampled for rates and charts; what lies between is not kept.",
        unit="ms")
    rates_mode = Text("basic",
        "Whether management keeps samples: of every object, or none at all. Counts are there in any"
        " case. RabbitMQ's `detailed`, which counts each pair of channel and queue, is not"
        " offered.", choices=("basic", "none"))
    prometheus_port = Integer(15692, 0, 65535,
        "TCP port for Prometheus, where the management API listens; 0: none. `/metrics` needs no"
        " log-in there. The same pages are on the management port, with a log-in.")
    prometheus_https_port = Integer(0, 0, 65535,
        "TCP port for Prometheus over TLS (RabbitMQ's is 15691), with the certificate of"
        " `ssl_certfile` or of `prometheus_tls`. 0: off.")
    prometheus_objects_open = Boolean(False,
        "Whether `/metrics/per-object` and `/metrics/detailed`, which name queues, connections and"
        " virtual hosts, need no log-in on `prometheus_port` from other machines.")
    # fmt: on
