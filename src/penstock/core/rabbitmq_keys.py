"""The keys of ``rabbitmq.conf`` and what each means here.

Three kinds of rows, and every key RabbitMQ 3.10 knows is in one of them:

    OBEYED   a setting of ours has the value from then on
    FIXED    this value is what the broker does anyway; any other earns a warning
    IGNORED  known to RabbitMQ, without effect here: each line of it earns a warning that says why

``$name`` stands for one part of a key, ``*`` at the end for all that follow.  docs/guide/
rabbitmq-conf.md shows the same rows, and a test holds one against the other.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.core.capacity import parse_number, parse_size
from penstock.core.setting_kinds import Value

BYTES: Final = re.compile(r"([0-9]{1,19})([kmg]b)?", re.IGNORECASE)
POWERS: Final = {"": 0, "kb": 1, "mb": 2, "gb": 3}
LEVELS: Final[Mapping[str, str]] = {
    "debug": "debug",
    "info": "info",
    "notice": "warning",
    "warning": "warning",
    "error": "error",
    "critical": "critical",
    "alert": "critical",
    "emergency": "critical",
    "none": "none",
}


class Kind(NamedTuple):
    """How a value is written there: what may stand, and what it becomes (None: it may not)."""

    allowed: str
    read: Callable[[str], Value | None]


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else None


def _or_word(word: str, meaning: int) -> Callable[[str], int | None]:
    return lambda text: meaning if text == word else _number(text)


def _none_means(most: int) -> Callable[[str], int | None]:
    """0 is "no limit" there; here the limit is then as high as it goes."""

    def read(text: str) -> int | None:
        number = _bytes(text)
        return most if number == 0 else number

    return read


def _bytes(text: str) -> int | None:
    found = BYTES.fullmatch(text)
    if found is None:
        return None
    return int(found[1]) * int(1024 ** POWERS[(found[2] or "").lower()])


def _share(text: str) -> str | None:
    return text if parse_number(text) is not None else None


def _float(text: str) -> float | None:
    return parse_number(text)


def _mem_relative(text: str) -> str | None:
    return f"mem_relative {text}" if parse_number(text) is not None else None


def _size(text: str) -> str | None:
    # A bare number is bytes there; here 1 would be all of the memory.
    return None if parse_size(text) is None else ("2" if text == "1" else text)


def _size_bytes(text: str) -> int | None:
    return parse_size(text)


def _truth(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


def _ip(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def _file_or_false(text: str) -> str:
    return "" if text == "false" else text


def _formatter(text: str) -> str | None:
    return {"plaintext": "text", "json": "json"}.get(text)


NUMBER: Final = Kind("a whole number", _number)
TIME_MS: Final = Kind("milliseconds, or infinity, here an hour", _or_word("infinity", 3_600_000))
MOST: Final = Kind("a whole number, or infinity", _or_word("infinity", 0))
CHANNELS: Final = Kind("a whole number; 0: as many as possible", _none_means(65_535))
FRAME: Final = Kind("bytes, or with KB or MB (1024); 0: as large as possible", _none_means(1 << 27))
BYTE_SIZE: Final = Kind("bytes, or with KB, MB, GB (1024)", _bytes)
SHARE: Final = Kind("a number such as 0.4", _share)
RATIO: Final = Kind("a number such as 0.5", _float)
MEMORIES: Final = Kind("a number such as 1.0: that many times the memory", _mem_relative)
SIZE: Final = Kind("bytes, or with a unit: kB is 1000, k and kiB are 1024", _size)
SIZE_BYTES: Final = Kind(SIZE.allowed, _size_bytes)
TRUTH: Final = Kind("true, false", _truth)
TEXT: Final = Kind("text", lambda text: text)
ADDRESS: Final = Kind("an IP address", _ip)
LEVEL: Final = Kind(", ".join(LEVELS), LEVELS.get)
FORMATTER: Final = Kind("plaintext, json", _formatter)
FILE: Final = Kind("a file name, or false", _file_or_false)

OBEYED: Final[Mapping[str, tuple[str, Kind]]] = {
    "nodename": ("node_name", TEXT),
    "handshake_timeout": ("handshake_timeout_ms", TIME_MS),
    "heartbeat": ("heartbeat_s", NUMBER),
    "frame_max": ("frame_max", FRAME),
    "channel_max": ("channel_max", CHANNELS),
    "queue_master_locator": ("queue_master_locator", TEXT),
    "connection_max": ("connection_max", MOST),
    "consumer_timeout": ("consumer_timeout_ms", NUMBER),
    "max_message_size": ("max_message_size_bytes", NUMBER),
    "tcp_listen_options.backlog": ("listen_backlog", NUMBER),
    "ssl_options.cacertfile": ("ssl_cacertfile", TEXT),
    "ssl_options.certfile": ("ssl_certfile", TEXT),
    "ssl_options.keyfile": ("ssl_keyfile", TEXT),
    "ssl_options.verify": ("ssl_verify", TEXT),
    "ssl_options.fail_if_no_peer_cert": ("ssl_fail_if_no_peer_cert", TRUTH),
    "ssl_cert_login_from": ("ssl_cert_login_from", TEXT),
    "default_user": ("default_user", TEXT),
    "default_pass": ("default_pass", TEXT),
    "default_vhost": ("default_vhost", TEXT),
    "default_permissions.configure": ("default_permissions_configure", TEXT),
    "default_permissions.write": ("default_permissions_write", TEXT),
    "default_permissions.read": ("default_permissions_read", TEXT),
    "load_definitions": ("load_definitions", TEXT),
    "management.load_definitions": ("load_definitions", TEXT),
    "definitions.local.path": ("load_definitions", TEXT),
    "vm_memory_high_watermark.relative": ("vm_memory_high_watermark", SHARE),
    "vm_memory_high_watermark.absolute": ("vm_memory_high_watermark", SIZE),
    "vm_memory_high_watermark_paging_ratio": ("vm_memory_high_watermark_paging_ratio", RATIO),
    "total_memory_available_override_value": ("total_memory_override_bytes", SIZE_BYTES),
    "disk_free_limit.relative": ("disk_free_limit", MEMORIES),
    "disk_free_limit.absolute": ("disk_free_limit", SIZE),
    "queue_index_embed_msgs_below": ("queue_index_embed_msgs_below_bytes", BYTE_SIZE),
    "queue_index_max_journal_entries": ("queue_index_max_journal_entries", NUMBER),
    "msg_store_file_size_limit": ("msg_store_file_size_limit_bytes", BYTE_SIZE),
    "management.tcp.port": ("http_port", NUMBER),
    "management.tcp.ip": ("http_bind", ADDRESS),
    "management.listener.port": ("http_port", NUMBER),
    "management.listener.ip": ("http_bind", ADDRESS),
    "management.rates_mode": ("rates_mode", TEXT),
    "collect_statistics_interval": ("collect_statistics_interval_ms", NUMBER),
    "prometheus.tcp.port": ("prometheus_port", NUMBER),
    "log.dir": ("log_dir", TEXT),
    "log.default.level": ("log_level", LEVEL),
    "log.connection.level": ("log_connection_level", LEVEL),
    "log.channel.level": ("log_channel_level", LEVEL),
    "log.queue.level": ("log_queue_level", LEVEL),
    "log.console": ("log_console", TRUTH),
    "log.console.level": ("log_console_level", LEVEL),
    "log.console.formatter": ("log_format", FORMATTER),
    "log.file": ("log_file", FILE),
    "log.file.level": ("log_file_level", LEVEL),
    "log.file.formatter": ("log_file_format", FORMATTER),
    "log.file.rotation.size": ("log_file_size_bytes", NUMBER),
    "log.file.rotation.count": ("log_file_count", NUMBER),
    "log.exchange": ("log_exchange", TRUTH),
    "log.exchange.level": ("log_exchange_level", LEVEL),
    "log.exchange.formatter": ("log_exchange_format", FORMATTER),
}
"""Key ─► our setting, and how the value is written."""

GATHERED: Final[Mapping[str, str]] = {
    "listeners.tcp": "amqp_listener",
    "listeners.tcp.$name": "bind, amqp_port",
    "listeners.ssl": "ssl_certfile",
    "listeners.ssl.$name": "ssl_bind, ssl_port",
    "loopback_users": "loopback_users",
    "loopback_users.$user": "loopback_users",
    "default_user_tags.$tag": "default_user_tags",
    "proxy_protocol": "proxy_protocol",
}
"""Keys of which several lines make one setting, or one line two; ``rabbitmq_conf`` reads them."""

FIXED: Final[Mapping[str, tuple[str, str]]] = {
    "tcp_listen_options.nodelay": ("true", "small answers are never held back"),
    "tcp_listen_options.keepalive": ("true", "a peer that vanished is noticed after a minute"),
    "auth_backends.$num": ("internal", "users are the broker's own"),
    "password_hashing_module": (
        "rabbit_password_hashing_sha256",
        "new passwords are hashed with SHA-256",
    ),
    "definitions.import_backend": ("local_filesystem", "definitions come from a file"),
    "prometheus.return_per_object_metrics": ("false", "`/metrics/per-object` has them"),
    "prometheus.path": ("/metrics", "metrics have one path"),
    "management.path_prefix": ("/", "the management API begins at the root"),
    "cluster_formation.peer_discovery_backend": ("classic_config", "nodes find no peers"),
    "log.console.stdio": ("stderr", "the console log goes to standard error"),
    "classic_queue.default_version": ("1", "there is one kind of storage"),
    "ssl_options.honor_cipher_order": ("true", "the server chooses the cipher"),
    "ssl_options.client_renegotiation": ("false", "there is no renegotiation"),
    "ssl_options.secure_renegotiate": ("true", "there is no renegotiation"),
}
"""Key ─► the value it may have without a warning, and why it has no other."""

_ERLANG: Final = "there is no Erlang here"
_PLUGIN: Final = "there is no such plugin here"
_INTERNAL: Final = "users are the broker's own; no other place is asked"
_MEMBERS: Final = "the nodes of a cluster meet in etcd: `cluster_etcd_endpoints`"
_LEASES: Final = "`cluster_lease_ttl_s` and `cluster_silence_ms` are about that"
_MAJORITY: Final = "whoever does not reach etcd's majority waits for it, and changes nothing"
_QUORUM: Final = "there are no quorum queues"
_FORMAT: Final = "log lines have one form as text and one as JSON"
_ROTATION: Final = "the one log file is put aside by size"
_OWN_FILE: Final = "there is one log file for all categories"
_TLS: Final = "TLS 1.2 and newer with the ciphers of OpenSSL's defaults are offered"
_HTTP: Final = "the management API has no such setting"
_HTTPS: Final = "the management API speaks plain HTTP: put a proxy in front of it"
_METRICS: Final = "metrics are served at the management API's address"
_SOCKET: Final = "the broker sets its sockets up itself"

IGNORED: Final[Mapping[str, str]] = {
    "amqp1_0.*": _PLUGIN,
    "auth_backends.$num.authn": _INTERNAL,
    "auth_backends.$num.authz": _INTERNAL,
    "auth_cache.*": _INTERNAL,
    "auth_http.*": _INTERNAL,
    "auth_ldap.*": _INTERNAL,
    "auth_oauth2.*": _INTERNAL,
    "auth_mechanisms.$name": "PLAIN and AMQPLAIN are offered, EXTERNAL with `ssl_cert_login_from`",
    "aws.*": _PLUGIN,
    "background_gc_enabled": _ERLANG,
    "background_gc_target_interval": _ERLANG,
    "cluster_formation.*": _MEMBERS,
    "cluster_keepalive_interval": _LEASES,
    "cluster_name": "it is set at run time: `PUT /api/cluster-name`",
    "cluster_partition_handling": _MAJORITY,
    "cluster_partition_handling.*": _MAJORITY,
    "collect_statistics": "statistics are always collected",
    "credential_validator.*": "every password is taken",
    "default_worker_pool_size": _ERLANG,
    "definitions.hashing.algorithm": "a file that is unchanged is imported all the same",
    "definitions.https.url": "definitions come from a file",
    "definitions.skip_if_unchanged": "a file that is unchanged is imported all the same",
    "definitions.tls.*": "definitions come from a file",
    "delegate_count": _ERLANG,
    "distributed_cookie": _ERLANG,
    "distribution.*": _ERLANG,
    "erlang.*": _ERLANG,
    "event_exchange.vhost": _PLUGIN,
    "hipe_compile": _ERLANG,
    "initial_frame_max": "before log-in a frame may have 4096 bytes",
    "log.channel.file": _OWN_FILE,
    "log.channel.rotation.*": _OWN_FILE,
    "log.connection.file": _OWN_FILE,
    "log.connection.rotation.*": _OWN_FILE,
    "log.console.color_esc_seqs.*": _FORMAT,
    "log.console.formatter.*": _FORMAT,
    "log.console.use_colors": _FORMAT,
    "log.default.rotation.*": _OWN_FILE,
    "log.exchange.formatter.*": _FORMAT,
    "log.federation.*": _PLUGIN,
    "log.file.formatter.*": _FORMAT,
    "log.file.rotation.compress": _ROTATION,
    "log.file.rotation.date": _ROTATION,
    "log.journald": "run it by systemd: the journal then has standard error",
    "log.journald.*": "run it by systemd: the journal then has standard error",
    "log.mirroring.*": "`log.default.level` is about it",
    "log.prelaunch.*": _ERLANG,
    "log.queue.file": _OWN_FILE,
    "log.queue.rotation.*": _OWN_FILE,
    "log.ra.*": _QUORUM,
    "log.syslog": "there is no connection to a syslog server",
    "log.syslog.*": "there is no connection to a syslog server",
    "log.upgrade.*": "there are no upgrades with steps of their own",
    "management.cors.*": "pages of other origins may not ask the management API",
    "management.csp.policy": "the policy is as strict as it can be",
    "management.db_cache_multiplier": _HTTP,
    "management.disable_basic_auth": _HTTP,
    "management.disable_stats": _HTTP,
    "management.enable_queue_totals": _HTTP,
    "management.enable_uaa": _INTERNAL,
    "management.headers.*": "these headers are always sent",
    "management.hsts.policy": _HTTPS,
    "management.http.max_body_size": _HTTP,
    "management.http_log_dir": "requests are not logged",
    "management.listener.server.*": _HTTP,
    "management.listener.ssl": _HTTPS,
    "management.listener.ssl_opts": _HTTPS,
    "management.listener.ssl_opts.*": _HTTPS,
    "management.login_session_timeout": _HTTP,
    "management.sample_retention_policies.$section.$interval": "samples are kept for fixed times",
    "management.ssl.*": _HTTPS,
    "management.tcp.*": _HTTP,
    "management.uaa_client_id": _INTERNAL,
    "management.uaa_location": _INTERNAL,
    "management_agent.*": _HTTP,
    "memory_monitor_interval": "memory is looked at all the time",
    "message_store_shutdown_timeout": "`stop_timeout_s` is about the whole stop",
    "mirroring_sync_batch_size": "a policy says it: `ha-sync-batch-size`",
    "mirroring_sync_max_throughput": "a synchronisation gives way to the queue by itself",
    "mnesia_table_loading_retry_limit": _ERLANG,
    "mnesia_table_loading_retry_timeout": _ERLANG,
    "motd_file": "the start screen has no motto",
    "mqtt.*": "there is no MQTT listener",
    "net_ticktime": _LEASES,
    "num_acceptors.ssl": _SOCKET,
    "num_acceptors.tcp": _SOCKET,
    "product.name": "the product is Penstock",
    "product.version": "the product is Penstock",
    "prometheus.*": _METRICS,
    "queue_leader_locator": _QUORUM,
    "quorum_queue.*": _QUORUM,
    "raft.*": _QUORUM,
    "reverse_dns_lookups": "peers are shown by address",
    "socket_writer.gc_threshold": _ERLANG,
    "ssl_allow_poodle_attack": _TLS,
    "ssl_cert_login_san_index": "a user is named by the subject of a certificate only",
    "ssl_cert_login_san_type": "a user is named by the subject of a certificate only",
    "ssl_handshake_timeout": "`handshake_timeout` is about both handshakes",
    "ssl_options": "the options below it count",
    "ssl_options.*": _TLS,
    "stomp.*": "there is no STOMP listener",
    "stream.*": "there are no streams",
    "sysmon_handler.*": _ERLANG,
    "tcp_listen_options": "the options below it count",
    "tcp_listen_options.*": _SOCKET,
    "trust_store.*": _PLUGIN,
    "vhost_restart_strategy": "a virtual host does not fail alone",
    "vm_memory_calculation_strategy": "the memory that counts is what the process holds",
    "web_mqtt.*": "there is no MQTT listener",
    "web_stomp.*": "there is no STOMP listener",
}
"""Key ─► why it has no effect.  A row above wins over one that ends in ``*``."""
