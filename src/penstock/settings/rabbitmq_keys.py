"""The keys of ``rabbitmq.conf`` and their meaning in Penstock.

Three kinds of rows; every key that RabbitMQ 3.10 to 4.3 and its plugins know is in one of them:

    OBEYED   a setting of ours has the value from then on
    FIXED    this value is what the broker does anyway; any other earns a warning
    IGNORED  known to RabbitMQ, without effect here: each line of it earns a warning that says why

Of the last two, lines of the rows in ``UNSAFE`` stop the start: security would be lower than asked.

``$name`` stands for one part of a key, ``*`` at the end for all that follow.  docs/guide/
rabbitmq-conf.md shows the same rows, and a test holds one against the other.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.core.capacity import parse_number, parse_size
from penstock.settings.kinds import Value

BYTES: Final = re.compile(r"([0-9]{1,19})([kmg]b)?", re.IGNORECASE)
POWERS: Final = {"": 0, "kb": 1, "mb": 2, "gb": 3}
LOCATORS: Final[Mapping[str, str]] = {
    "client-local": "client-local",
    "balanced": "min-masters",
    "least-leaders": "min-masters",
    "random": "random",
}
SPANS_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "f": 1_209_600_000,
}
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


def _span_ms(text: str) -> int | None:
    """Parts with units, each once."""
    if re.fullmatch(r"([0-9]{1,9}(ms|[smhdwf]))+", text) is None:
        return None
    return sum(int(n) * SPANS_MS[unit] for n, unit in re.findall(r"([0-9]+)([a-z]+)", text))


def _names(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


def _share(text: str) -> str | None:
    share = parse_number(text)
    return text if share is not None and share <= 1 else None


def _float(text: str) -> float | None:
    return parse_number(text)


def _mem_relative(text: str) -> str | None:
    return f"mem_relative {text}" if parse_number(text) is not None else None


def _size(text: str) -> str | None:
    return None if parse_size(text) is None else text


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
SHARE: Final = Kind("a number from 0 to 1 such as 0.4", _share)
RATIO: Final = Kind("a number such as 0.5", _float)
MEMORIES: Final = Kind("a number such as 1.0: that many times the memory", _mem_relative)
SIZE: Final = Kind("bytes, or with a unit: kB is 1000, k and kiB are 1024", _size)
SIZE_BYTES: Final = Kind(SIZE.allowed, _size_bytes)
TRUTH: Final = Kind("true, false", _truth)
TEXT: Final = Kind("text", lambda text: text)
ADDRESS: Final = Kind("an IP address", _ip)
LEVEL: Final = Kind(", ".join(LEVELS), LEVELS.get)
FORMATTER: Final = Kind("plaintext, json", _formatter)
STAMPS: Final = Kind("true, false", {"true": "overwrite", "false": "keep"}.get)
FILE: Final = Kind("a file name, or false", _file_or_false)

POSITIVE: Final = Kind("a whole number above 0", lambda text: _number(text) or None)
SPAN_MS: Final = Kind("a time such as 90s or 1h30m: ms, s, m, h, d, w, f", _span_ms)
POSITIVE_SIZE: Final = Kind(f"{BYTE_SIZE.allowed}, above 0", lambda text: _bytes(text) or None)
LOCATOR: Final = Kind(", ".join(LOCATORS), LOCATORS.get)
NAMES: Final = Kind("names with commas between them", _names)

POLICY_PATTERNS: Final = ("vhost_pattern", "queue_pattern", "apply_to")
POLICY_KEYS: Final = (
    ("expires", SPAN_MS),
    ("message_ttl", SPAN_MS),
    ("max_length", POSITIVE),
    ("max_length_bytes", POSITIVE_SIZE),
    ("max_in_memory_bytes", POSITIVE_SIZE),
    ("max_in_memory_length", POSITIVE),
    ("delivery_limit", POSITIVE),
)
NOT_OF_OPERATORS: Final = ("ha_mode", "ha_params", "ha_sync_mode", "queue_version")
USER_TEXTS: Final = ("vhost_pattern", "password", "configure", "read", "write")
OBEYED: Final[Mapping[str, tuple[str, Kind]]] = {
    "nodename": ("node_name", TEXT),
    "cluster_name": ("cluster_name", TEXT),
    "handshake_timeout": ("handshake_timeout_ms", TIME_MS),
    "heartbeat": ("heartbeat_s", NUMBER),
    "frame_max": ("frame_max", FRAME),
    "channel_max": ("channel_max", CHANNELS),
    "queue_master_locator": ("queue_master_locator", TEXT),
    "queue_leader_locator": ("queue_master_locator", LOCATOR),
    "max_channels_per_connection": ("channel_max", CHANNELS),
    "connection_max": ("connection_max", MOST),
    "max_connections": ("connection_max", MOST),
    "message_interceptors.incoming.set_header_timestamp.overwrite": ("message_timestamp", STAMPS),
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
    "default_queue_type": ("default_queue_type", TEXT),
    "quorum_queue.property_equivalence.relaxed_checks_on_redeclaration": (
        "quorum_relaxed_checks_on_redeclaration",
        TRUTH,
    ),
    "load_definitions": ("load_definitions", TEXT),
    "management.load_definitions": ("load_definitions", TEXT),
    "definitions.local.path": ("load_definitions", TEXT),
    "vm_memory_high_watermark.relative": ("vm_memory_high_watermark", SHARE),
    "vm_memory_high_watermark.absolute": ("vm_memory_high_watermark", SIZE),
    "vm_memory_high_watermark_paging_ratio": ("vm_memory_high_watermark_paging_ratio", RATIO),
    "total_memory_available_override_value": ("total_memory_override_bytes", SIZE_BYTES),
    "disk_free_limit.relative": ("disk_free_limit", MEMORIES),
    "disk_free_limit.absolute": ("disk_free_limit", SIZE),
    "shovel.delete_after_duration_floor": ("shovel_delete_after_duration_floor_s", NUMBER),
    "shovel.topology.predeclared": ("shovel_topology_predeclared", TRUTH),
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
    "event_exchange.vhost": ("event_exchange_vhost", TEXT),
    "log.exchange": ("log_exchange", TRUTH),
    "log.exchange.level": ("log_exchange_level", LEVEL),
    "log.exchange.formatter": ("log_exchange_format", FORMATTER),
}
"""Key ─► our setting, and how the value is written."""

TERMS_ONLY: Final[Mapping[str, tuple[str, Kind]]] = {
    "credit_flow_default_credit.initial": ("credit_flow_initial", NUMBER),
    "credit_flow_default_credit.more_after": ("credit_flow_more_after", NUMBER),
    "msg_store_credit_disc_bound.initial": ("msg_store_credit_initial", NUMBER),
    "msg_store_credit_disc_bound.more_after": ("msg_store_credit_more_after", NUMBER),
    "shovel.shovels": ("static_shovels", TEXT),
}
"""The same for what only the Erlang terms of rabbitmq.config and advanced.config can say."""

_LIMITED: Final = "default_limits.vhosts.$name."
_POLICY: Final = "default_policies.operator.$name."
_USER: Final = "default_users.$name."
SEEDS: Final[Mapping[str, tuple[str, str, Kind]]] = {
    _LIMITED + "pattern": ("limits", "vhost_pattern", TEXT),
    _LIMITED + "max_connections": ("limits", "max-connections", POSITIVE),
    _LIMITED + "max_queues": ("limits", "max-queues", POSITIVE),
    **{_POLICY + key: ("policies", key, TEXT) for key in POLICY_PATTERNS},
    **{_POLICY + key: ("policies", key.replace("_", "-"), kind) for key, kind in POLICY_KEYS},
    **{_USER + key: ("users", key, TEXT) for key in USER_TEXTS},
    _USER + "tags": ("users", "tags", NAMES),
}
"""Key ─► section and field of the setting ``vhost_defaults``, and how the value is written."""

GATHERED: Final[Mapping[str, str]] = {
    **dict.fromkeys(SEEDS, "vhost_defaults"),
    "cluster_tags.$tag": "cluster_tags",
    "listeners.tcp": "amqp_listener",
    "listeners.tcp.$name": "bind, amqp_port",
    "listeners.ssl": "ssl_certfile",
    "listeners.ssl.$name": "ssl_bind, ssl_port",
    "loopback_users": "loopback_users",
    "loopback_users.$user": "loopback_users",
    "default_user_tags.$tag": "default_user_tags",
    "proxy_protocol": "proxy_protocol",
    "ssl_options.versions.$version": "ssl_min_version",
}
"""Keys of which several lines make one setting, or one line two; ``rabbitmq_conf`` reads them."""

FIXED: Final[Mapping[str, tuple[str, str]]] = {
    "tcp_listen_options.nodelay": ("true", "small answers are never held back"),
    "tcp_listen_options.keepalive": ("true", "a peer that vanished is noticed after a minute"),
    "auth_backends.$num": ("internal", "users are the broker's own"),
    "auth_backends.$num.authn": ("internal", "users are the broker's own"),
    "auth_backends.$num.authz": ("internal", "users are the broker's own"),
    "credential_validator.validation_backend": (
        "rabbit_credential_validator_accept_everything",
        "every password is taken",
    ),
    "management.disable_basic_auth": ("false", "the management API takes passwords"),
    "management.listener.ssl": (
        "false",
        "the management API speaks plain HTTP: put a proxy in front of it",
    ),
    "ssl_options.crl_check": ("false", "revocation lists are not looked at"),
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
_MAJORITY: Final = "a node that does not reach etcd's majority waits for it, and changes nothing"
_QUORUM: Final = "quorum queues have no settings here"
_FORMAT: Final = "log lines have one form as text and one as JSON"
_ROTATION: Final = "the one log file is put aside by size"
_OWN_FILE: Final = "there is one log file for all categories"
_TLS: Final = "TLS 1.2 and newer with the ciphers of OpenSSL's defaults are offered"
_HTTP: Final = "the management API has no such setting"
_HTTPS: Final = "the management API speaks plain HTTP: put a proxy in front of it"
_METRICS: Final = "metrics are served at the management API's address"
_CLIENTS: Final = "there is no client of other brokers within"
_LIMITS: Final = "virtual hosts and users have limits: `/api/vhost-limits`, `/api/user-limits`"
_OAUTH: Final = "the management API takes no tokens"
_SOCKET: Final = "the broker sets its sockets up itself"

IGNORED: Final[Mapping[str, str]] = {
    "amqp10_client.*": _CLIENTS,
    "amqp1_0.*": _PLUGIN,
    "amqp_client.*": _CLIENTS,
    "anonymous_login_pass": "every client logs in",
    "anonymous_login_user": "every client logs in",
    "auth_cache.*": _INTERNAL,
    "auth_http.*": _INTERNAL,
    "auth_ldap.*": _INTERNAL,
    "auth_mechanisms.$name": "PLAIN and AMQPLAIN are offered, EXTERNAL with `ssl_cert_login_from`",
    "auth_oauth2.*": _INTERNAL,
    "aws.*": _PLUGIN,
    "background_gc_enabled": _ERLANG,
    "background_gc_target_interval": _ERLANG,
    "channel_interceptor.*": _PLUGIN,
    "channel_max_per_node": _LIMITS,
    "cluster_exchange_limit": _LIMITS,
    "cluster_formation.*": _MEMBERS,
    "cluster_keepalive_interval": _LEASES,
    "cluster_partition_handling": _MAJORITY,
    "cluster_partition_handling.*": _MAJORITY,
    "cluster_queue_limit": _LIMITS,
    "collect_statistics": "statistics are always collected",
    "consumer_disconnected_timeout": _QUORUM,
    "consumer_max_per_channel": _LIMITS,
    "credential_validator.*": "every password is taken",
    **dict.fromkeys(
        [f"{_POLICY}classic_queues.{key}" for key in NOT_OF_OPERATORS],
        "no operator policy has this key",
    ),
    "default_worker_pool_size": _ERLANG,
    "definitions.hashing.algorithm": "a file that is unchanged is imported all the same",
    "definitions.https.url": "definitions come from a file",
    "definitions.skip_if_unchanged": "a file that is unchanged is imported all the same",
    "definitions.tls.*": "definitions come from a file",
    "delegate_count": _ERLANG,
    "deprecated_features.*": "no feature is on its way out",
    "distributed_cookie": _ERLANG,
    "distribution.*": _ERLANG,
    "erlang.*": _ERLANG,
    "event_exchange.protocol": "messages are those of AMQP 0-9-1",
    "exchange_types.*": "all types of exchanges are there",
    "federation.*": "links end and begin by themselves, each in a thread of its own",
    "hipe_compile": _ERLANG,
    "http_dispatch.*": _HTTP,
    "http_dispatch.auth_backends.*": _INTERNAL,
    "initial_frame_max": "before log-in a frame may have 4096 bytes",
    "link_max_per_session": "there is no AMQP 1.0 listener",
    "log.channel.file": _OWN_FILE,
    "log.channel.rotation.*": _OWN_FILE,
    "log.connection.file": _OWN_FILE,
    "log.connection.rotation.*": _OWN_FILE,
    "log.console.color_esc_seqs.*": _FORMAT,
    "log.console.formatter.*": _FORMAT,
    "log.console.use_colors": _FORMAT,
    "log.default.rotation.*": _OWN_FILE,
    "log.error_logger_format_depth": _ERLANG,
    "log.exchange.formatter.*": _FORMAT,
    "log.federation.*": "`log.connection.level` is about it",
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
    "log.summarize_process_state": _ERLANG,
    "log.syslog": "there is no connection to a syslog server",
    "log.syslog.*": "there is no connection to a syslog server",
    "log.upgrade.*": "there are no upgrades with steps of their own",
    "log.user.*": "`log.default.level` is about it",
    "management.cors.*": "pages of other origins may not ask the management API",
    "management.credential_encryption_secret": _HTTP,
    "management.csp.policy": "the policy is as strict as it can be",
    "management.db_cache_multiplier": _HTTP,
    "management.definitions.*": _HTTP,
    "management.delegate_count": _ERLANG,
    "management.disable_stats": _HTTP,
    "management.enable_queue_totals": _HTTP,
    "management.enable_uaa": _INTERNAL,
    "management.headers.*": "these headers are always sent",
    "management.hsts.policy": _HTTPS,
    "management.http.*": _HTTP,
    "management.http.max_body_size": _HTTP,
    "management.http_log_dir": "requests are not logged",
    "management.listener.server.*": _HTTP,
    "management.listener.ssl_opts": _HTTPS,
    "management.listener.ssl_opts.*": _HTTPS,
    "management.login_session_timeout": _HTTP,
    "management.oauth_authorization_endpoint_params.*": _OAUTH,
    "management.oauth_client_id": _OAUTH,
    "management.oauth_client_secret": _OAUTH,
    "management.oauth_disable_basic_auth": _OAUTH,
    "management.oauth_enabled": _OAUTH,
    "management.oauth_initiated_logon_type": _OAUTH,
    "management.oauth_metadata_url": _OAUTH,
    "management.oauth_provider_url": _OAUTH,
    "management.oauth_resource_servers.*": _OAUTH,
    "management.oauth_response_type": _OAUTH,
    "management.oauth_scopes": _OAUTH,
    "management.oauth_token_endpoint_params.*": _OAUTH,
    "management.require_auth_for_api_reference": _HTTP,
    "management.restrictions.*": _HTTP,
    "management.sample_retention_policies.$section.$interval": "samples are kept for fixed times",
    "management.ssl.*": _HTTPS,
    "management.tcp.*": _HTTP,
    "management.test_config": _HTTP,
    "management.uaa_client_id": _INTERNAL,
    "management.uaa_client_secret": _INTERNAL,
    "management.uaa_location": _INTERNAL,
    "management_agent.*": _HTTP,
    "memory_monitor_interval": "memory is looked at all the time",
    "message_interceptors.*": "messages get no other header than `timestamp_in_ms`",
    "message_store_shutdown_timeout": "`stop_timeout_s` is about the whole stop",
    "metadata_store.*": _MEMBERS,
    "mirroring_sync_batch_size": "a policy says it: `ha-sync-batch-size`",
    "mirroring_sync_max_throughput": "a synchronisation gives way to the queue by itself",
    "mnesia_table_loading_retry_limit": _ERLANG,
    "mnesia_table_loading_retry_timeout": _ERLANG,
    "motd_file": "the start screen has no motto",
    "mqtt.*": "there is no MQTT listener",
    "net_ticktime": _LEASES,
    "node_tags.*": "a node has no tags",
    "num_acceptors.ssl": _SOCKET,
    "num_acceptors.tcp": _SOCKET,
    "prevent_startup_if_node_was_reset": "a node without its data starts as a new one",
    "product.name": "the product is Penstock",
    "product.version": "the product is Penstock",
    "prometheus.*": _METRICS,
    "prometheus.ssl.*": "metrics are served over plain HTTP",
    "queue_types.*": "a declaration names another type",
    "quorum_queue.*": _QUORUM,
    "raft.*": _QUORUM,
    "ranch_connection_max": "`connection_max` is about it",
    "reverse_dns_lookups": "peers are shown by address",
    "runtime_parameters.*": _LIMITS,
    "session_max_per_connection": "there is no AMQP 1.0 listener",
    "shovel.local.max_credit": "a shovel within the node has the credit of any client",
    "shovel.operating_mode": "this node runs its shovels",
    "socket_writer.gc_threshold": _ERLANG,
    "ssl_allow_poodle_attack": _TLS,
    "ssl_cert_login_san_index": "a user is named by the subject of a certificate only",
    "ssl_cert_login_san_type": "a user is named by the subject of a certificate only",
    "ssl_handshake_timeout": "`handshake_timeout` is about both handshakes",
    "ssl_options": "the options below it count",
    "ssl_options.*": _TLS,
    "ssl_options.ciphers.$cipher": _TLS,
    "stomp.*": "there is no STOMP listener",
    "stream.*": "there is no stream protocol; streams are read by AMQP 0-9-1",
    "sysmon_handler.*": _ERLANG,
    "tcp_listen_options": "the options below it count",
    "tcp_listen_options.*": _SOCKET,
    "tracing.*": "tracing has no files: `penstockctl trace_on`",
    "trust_store.*": _PLUGIN,
    "vhost_max": _LIMITS,
    "vhost_restart_strategy": "a virtual host does not fail alone",
    "vm_memory_calculation_strategy": "the memory that counts is what the process holds",
    "web_mqtt.*": "there is no MQTT listener",
    "web_stomp.*": "there is no STOMP listener",
}
"""Key ─► why it has no effect.  A row above wins over one that ends in ``*``."""

UNSAFE: Final = frozenset(
    {
        *("auth_backends.$num", "auth_backends.$num.authn", "auth_backends.$num.authz"),
        *("credential_validator.validation_backend", "http_dispatch.auth_backends.*"),
        *(
            "management.disable_basic_auth",
            "management.listener.ssl",
            "management.listener.ssl_opts",
        ),
        *("management.listener.ssl_opts.*", "management.ssl.*", "prometheus.ssl.*"),
        *("ssl_options.ciphers.$cipher", "ssl_options.crl_check", "trust_store.*"),
    }
)
"""Rows of the two tables above whose lines ask for security that is not in force here."""

SYNONYMS: Final[Mapping[str, str]] = {"rabbit_auth_backend_internal": "internal"}
"""Values that RabbitMQ takes for another."""
