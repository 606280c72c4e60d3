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
from penstock.settings.cluster import LEADER_LOCATORS
from penstock.settings.kinds import Value
from penstock.settings.secrets import CIPHERS, HASHES

BYTES: Final = re.compile(r"([0-9]{1,19})([kmg]b)?", re.IGNORECASE)
POWERS: Final = {"": 0, "kb": 1, "mb": 2, "gb": 3}
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


def _one_of(*words: str) -> Callable[[str], str | None]:
    return lambda text: text if text in words else None


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
    if re.fullmatch(r"([0-9]{1,9}(ms|[smhdwf]))+", text) is None:
        return None
    return sum(int(n) * SPANS_MS[unit] for n, unit in re.findall(r"([0-9]+)([a-z]+)", text))


def _names(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


def _share(text: str) -> str | None:
    share = parse_number(text)
    return text if share is not None and share <= 1 else None


def _mem_relative(text: str) -> str | None:
    return f"mem_relative {text}" if parse_number(text) is not None else None


def _size(text: str) -> str | None:
    return None if parse_size(text) is None else text


def _ip(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def _https(text: str) -> str | None:
    return text if re.fullmatch(r"https://[^/\s].*", text) else None


NUMBER: Final = Kind("a whole number", _number)
TIME_MS: Final = Kind("milliseconds, or infinity, here an hour", _or_word("infinity", 3_600_000))
MOST: Final = Kind("a whole number, or infinity", _or_word("infinity", 0))
CHANNELS: Final = Kind("a whole number; 0: as many as possible", _none_means(65_535))
FRAME: Final = Kind("bytes, or with KB or MB (1024); 0: as large as possible", _none_means(1 << 27))
BYTE_SIZE: Final = Kind("bytes, or with KB, MB, GB (1024)", _bytes)
SHARE: Final = Kind("a number from 0 to 1 such as 0.4", _share)
RATIO: Final = Kind("a number such as 0.5", parse_number)
MEMORIES: Final = Kind("a number such as 1.0: that many times the memory", _mem_relative)
SIZE: Final = Kind("bytes, or with a unit: kB is 1000, k and kiB are 1024", _size)
SIZE_BYTES: Final = Kind(SIZE.allowed, parse_size)
TRUTH: Final = Kind("true, false", {"true": True, "false": False}.get)
TEXT: Final = Kind("text", lambda text: text)
ADDRESS: Final = Kind("an IP address", _ip)
LEVEL: Final = Kind(", ".join(LEVELS), LEVELS.get)
FORMATTER: Final = Kind("plaintext, json", {"plaintext": "text", "json": "json"}.get)
STAMPS: Final = Kind("true, false", {"true": "overwrite", "false": "keep"}.get)
NAME_OR_NONE: Final = Kind("text, or none", lambda text: "" if text == "none" else text)
FILE: Final = Kind("a file name, or false", lambda text: "" if text == "false" else text)

QUOTED: Final = Kind("text", lambda text: "" if text == "''" else text)
HTTPS_ADDRESS: Final = Kind("an address that begins with https://", _https)
CHECKED: Final = Kind("verify_peer, verify_none", _one_of("verify_peer", "verify_none"))
_VALIDATOR: Final = "rabbit_credential_validator_"
_VALIDATORS: Final = {
    _VALIDATOR + name: name
    for name in ("accept_everything", "min_password_length", "password_regexp")
}
VALIDATOR: Final = Kind(", ".join(_VALIDATORS), _VALIDATORS.get)
_HASHINGS: Final = {f"rabbit_password_hashing_{name}": name for name in ("sha256", "sha512")}
HASHING: Final = Kind(", ".join(_HASHINGS), _HASHINGS.get)
POSITIVE: Final = Kind("a whole number above 0", lambda text: _number(text) or None)
SPAN_MS: Final = Kind("a time such as 90s or 1h30m: ms, s, m, h, d, w, f", _span_ms)
POSITIVE_SIZE: Final = Kind(f"{BYTE_SIZE.allowed}, above 0", lambda text: _bytes(text) or None)
_CIPHERS: Final = {
    **{name: name for name in CIPHERS},
    **{f"aes_cbc{name[4:7]}": name for name in CIPHERS},
}
CIPHER: Final = Kind(", ".join(_CIPHERS), _CIPHERS.get)
DIGEST: Final = Kind(", ".join(HASHES), _one_of(*HASHES))
LOCATOR: Final = Kind(", ".join(LEADER_LOCATORS), LEADER_LOCATORS.get)
NAMES: Final = Kind("names with commas between them", _names)
CRL_CHECKS: Final = {"true": "chain", "peer": "peer", "best_effort": "chain", "false": "no"}
CRL_CHECK: Final = Kind(", ".join(CRL_CHECKS), CRL_CHECKS.get)
LOGIN_FROM: Final = Kind(
    "distinguished_name, common_name, subject_alternative_name",
    lambda text: "subject_alternative_name" if text == "subject_alt_name" else text,
)
OLD_TLS: Final = "TLS 1.2 and newer are offered"
TLS_VERSIONS: Final = {"tlsv1.2": "1.2", "tlsv1.3": "1.3"}


class HttpsKeys(NamedTuple):
    """A listener whose options of TLS are keys of their own, with a prefix."""

    overrides: str
    """Our setting that has them."""
    port: str
    usual_port: int
    plain: str
    """How the keys begin of the same listener without TLS; where none is there, it is closed."""
    closed: tuple[str, Value]
    """The setting that closes it."""


_UI: Final = HttpsKeys(
    "https_tls", "https_port", 15671, "management.tcp.", ("http_listener", False)
)
HTTPS: Final[Mapping[str, HttpsKeys]] = {
    "management.ssl.": _UI,
    "management.listener.ssl_opts.": _UI,
    "prometheus.ssl.": HttpsKeys(
        "prometheus_tls", "prometheus_https_port", 15691, "prometheus.tcp.", ("prometheus_port", 0)
    ),
}
HTTPS_WORDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("certfile", "keyfile", "cacertfile", "password", "verify"), TEXT),
    "fail_if_no_peer_cert": TRUTH,
    "depth": NUMBER,
    "crl_check": CRL_CHECK,
}
"""Keys behind these prefixes that are words of our setting."""
NOT_INHERITED: Final = (
    *("verify=verify_none", "fail_if_no_peer_cert=false", "crl_check=no", "cert_login_from="),
    *("ciphers=", "min_version=1.2", "max_version=1.3"),
)
"""What such a listener has with RabbitMQ whatever `ssl_options` say."""

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
    "initial_frame_max": ("initial_frame_max_bytes", BYTE_SIZE),
    "channel_max": ("channel_max", CHANNELS),
    "queue_master_locator": ("queue_master_locator", TEXT),
    "queue_leader_locator": ("queue_master_locator", LOCATOR),
    "max_channels_per_connection": ("channel_max", CHANNELS),
    "connection_max": ("connection_max", MOST),
    "channel_max_per_node": ("channel_max_per_node", MOST),
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
    "ssl_options.password": ("ssl_password", TEXT),
    "ssl_options.depth": ("ssl_depth", NUMBER),
    "ssl_options.crl_check": ("ssl_crl_check", CRL_CHECK),
    "ssl_cert_login_from": ("ssl_cert_login_from", LOGIN_FROM),
    "ssl_cert_login_san_type": ("ssl_cert_login_san_type", TEXT),
    "ssl_cert_login_san_index": ("ssl_cert_login_san_index", NUMBER),
    "default_user": ("default_user", TEXT),
    "default_pass": ("default_pass", TEXT),
    "credential_validator.validation_backend": ("password_rule", VALIDATOR),
    "credential_validator.min_length": ("password_min_length", NUMBER),
    "credential_validator.regexp": ("password_regexp", TEXT),
    "password_hashing_module": ("password_hashing", HASHING),
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
    "auth_http.http_method": ("auth_http_method", TEXT),
    "auth_http.user_path": ("auth_http_user_path", TEXT),
    "auth_http.vhost_path": ("auth_http_vhost_path", TEXT),
    "auth_http.resource_path": ("auth_http_resource_path", TEXT),
    "auth_http.topic_path": ("auth_http_topic_path", TEXT),
    "auth_http.request_timeout": ("auth_http_request_timeout_ms", NUMBER),
    "auth_http.connection_timeout": ("auth_http_connection_timeout_ms", NUMBER),
    "auth_http.authorization_failure_disclosure": ("auth_http_disclosure", TRUTH),
    "auth_http.ssl_options.cacertfile": ("auth_http_ssl_cacertfile", TEXT),
    "auth_http.ssl_options.certfile": ("auth_http_ssl_certfile", TEXT),
    "auth_http.ssl_options.keyfile": ("auth_http_ssl_keyfile", TEXT),
    "auth_http.ssl_options.password": ("auth_http_ssl_password", TEXT),
    "auth_http.ssl_options.verify": ("auth_http_ssl_verify", TEXT),
    "auth_http.ssl_options.sni": ("auth_http_ssl_server_name", NAME_OR_NONE),
    "auth_cache.cache_ttl": ("auth_cache_ttl_ms", NUMBER),
    "auth_cache.cache_refusals": ("auth_cache_refusals", TRUTH),
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
    "config_entry_decoder.passphrase": ("config_passphrase", TEXT),
    "config_entry_decoder.cipher": ("config_cipher", CIPHER),
    "config_entry_decoder.hash": ("config_hash", DIGEST),
    "config_entry_decoder.iterations": ("config_iterations", POSITIVE),
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

BACKENDS: Final = ("auth_backends.$num", "auth_backends.$num.authn", "auth_backends.$num.authz")
CACHED: Final = (
    *("auth_cache.cached_backend", "auth_cache.cached_backend.authn"),
    "auth_cache.cached_backend.authz",
)
BACKEND_PREFIX: Final = "rabbit_auth_backend_"
"""Of the modules, by which RabbitMQ takes a backend as well."""
KNOWN_BACKENDS: Final = ("internal", "internal_loopback", "http", "cache", "oauth2")
OTHER_BACKENDS: Final = ("ldap", "amqp", "dummy")
_RESOURCE_SERVER: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("resource_server_type", "scope_prefix", "additional_scopes_key"), QUOTED),
    **dict.fromkeys(("verify_aud", "require_exp"), TRUTH),
    "preferred_username_claims.$number": TEXT,
    "scope_aliases.$alias": TEXT,
    "scope_aliases.$number.alias": TEXT,
    "scope_aliases.$number.scope": TEXT,
}
_PROVIDER: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("issuer", "jwks_uri", "token_endpoint"), HTTPS_ADDRESS),
    **dict.fromkeys(("authorization_endpoint", "end_session_endpoint"), HTTPS_ADDRESS),
    "discovery_endpoint_path": TEXT,
    "discovery_endpoint_params.$name": TEXT,
    "default_key": TEXT,
    "signing_keys.$id": TEXT,
    "algorithms.$number": TEXT,
    "https.verify": CHECKED,
    "https.cacertfile": TEXT,
}
_SIGN_ON: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("oauth_client_id", "oauth_client_secret", "oauth_scopes"), TEXT),
    **dict.fromkeys(("oauth_provider_url", "oauth_metadata_url"), TEXT),
    "oauth_response_type": Kind("code", _one_of("code")),
    "oauth_initiated_logon_type": Kind(
        "sp_initiated, idp_initiated", _one_of("sp_initiated", "idp_initiated")
    ),
    "oauth_authorization_endpoint_params.$name": TEXT,
    "oauth_token_endpoint_params.$name": TEXT,
}
OAUTH2: Final[Mapping[str, Kind]] = {
    "auth_oauth2.resource_server_id": TEXT,
    "auth_oauth2.default_oauth_provider": TEXT,
    "auth_oauth2.jwks_url": HTTPS_ADDRESS,
    "auth_oauth2.https.peer_verification": CHECKED,
    **{f"auth_oauth2.{key}": kind for key, kind in {**_RESOURCE_SERVER, **_PROVIDER}.items()},
    "auth_oauth2.resource_servers.$name.id": TEXT,
    "auth_oauth2.resource_servers.$name.oauth_provider_id": TEXT,
    **{f"auth_oauth2.resource_servers.$name.{key}": one for key, one in _RESOURCE_SERVER.items()},
    **{f"auth_oauth2.oauth_providers.$name.{key}": kind for key, kind in _PROVIDER.items()},
    **dict.fromkeys(("management.oauth_enabled", "management.oauth_disable_basic_auth"), TRUTH),
    **{f"management.{key}": kind for key, kind in _SIGN_ON.items()},
    "management.oauth_resource_servers.$name.id": TEXT,
    "management.oauth_resource_servers.$name.label": TEXT,
    "management.oauth_resource_servers.$name.disabled": TRUTH,
    **{f"management.oauth_resource_servers.$name.{key}": kind for key, kind in _SIGN_ON.items()},
}
"""Key of a setting that is JSON, a level for each dot ─► how the value is written."""
JSON_SETTINGS: Final = {"auth_oauth2": "auth_oauth2", "management": "management_oauth"}
"""How these keys begin ─► the setting."""

GATHERED: Final[Mapping[str, str]] = {
    **dict.fromkeys(SEEDS, "vhost_defaults"),
    **dict.fromkeys(BACKENDS, "auth_backends"),
    **dict.fromkeys(CACHED, "auth_cache_backend"),
    **{key: JSON_SETTINGS[key.partition(".")[0]] for key in OAUTH2},
    "cluster_tags.$tag": "cluster_tags",
    "listeners.tcp": "amqp_listener",
    "listeners.tcp.$name": "bind, amqp_port",
    "listeners.ssl": "ssl_certfile",
    "listeners.ssl.$name": "ssl_bind, ssl_port",
    "loopback_users": "loopback_users",
    "loopback_users.$user": "loopback_users",
    "default_user_tags.$tag": "default_user_tags",
    "proxy_protocol": "proxy_protocol",
    "ssl_options.versions.$version": "ssl_min_version, ssl_max_version",
    "ssl_options.ciphers.$cipher": "ssl_ciphers",
    "management.listener.ssl": "https_port, http_listener",
    "management.ssl.ip": "https_bind",
    "management.ssl.port": "https_port",
    "prometheus.ssl.port": "prometheus_https_port",
    **{
        prefix + key: listener.overrides
        for prefix, listener in HTTPS.items()
        for key in (*HTTPS_WORDS, "versions.$version", "ciphers.$cipher")
    },
}
"""Keys of which several lines make one setting, or one line two; ``rabbitmq_conf`` reads them."""

_NO_LISTS: Final = "revocation lists are not checked"
FIXED: Final[Mapping[str, tuple[str, str]]] = {
    "tcp_listen_options.nodelay": ("true", "small answers are never held back"),
    "tcp_listen_options.keepalive": ("true", "a peer that vanished is noticed after a minute"),
    "management.disable_basic_auth": ("false", "the management API takes passwords"),
    "auth_oauth2.https.crl_check": ("false", _NO_LISTS),
    "auth_oauth2.oauth_providers.$name.https.crl_check": ("false", _NO_LISTS),
    "definitions.import_backend": ("local_filesystem", "definitions come from a file"),
    "prometheus.return_per_object_metrics": ("false", "`/metrics/per-object` has them"),
    "prometheus.path": ("/metrics", "metrics have one path"),
    "management.path_prefix": ("/", "the management API begins at the root"),
    "cluster_formation.peer_discovery_backend": ("classic_config", "nodes meet in etcd"),
    "log.console.stdio": ("stderr", "the console log goes to standard error"),
    "classic_queue.default_version": ("1", "there is one kind of storage"),
    "ssl_options.honor_cipher_order": ("true", "the server chooses the cipher"),
    "ssl_options.client_renegotiation": ("false", "connections are never renegotiated"),
    "ssl_options.secure_renegotiate": ("true", "connections are never renegotiated"),
}
"""Key ─► the value it may have without a warning, and why it has no other."""

_ALIKE: Final = {
    "links have no such setting": "amqp10_client.* amqp_client.*",
    "there is no such plugin here": "amqp1_0.* aws.* channel_interceptor.* trust_store.*",
    "every client logs in": "anonymous_login_pass anonymous_login_user",
    "a chain of certificates has the length that OpenSSL allows": (
        "auth_oauth2.https.depth auth_oauth2.oauth_providers.$name.https.depth"
    ),
    "a server always has a certificate": (
        "auth_oauth2.https.fail_if_no_peer_cert "
        "auth_oauth2.oauth_providers.$name.https.fail_if_no_peer_cert"
    ),
    "host names are always verified, also by wildcards": (
        "auth_oauth2.https.hostname_verification "
        "auth_oauth2.oauth_providers.$name.https.hostname_verification"
    ),
    "there is no Erlang here": (
        "background_gc_enabled background_gc_target_interval default_worker_pool_size "
        "delegate_count distributed_cookie distribution.* erlang.* hipe_compile "
        "log.error_logger_format_depth log.prelaunch.* log.summarize_process_state "
        "management.delegate_count mnesia_table_loading_retry_limit "
        "mnesia_table_loading_retry_timeout socket_writer.gc_threshold sysmon_handler.*"
    ),
    "virtual hosts and users have limits: `/api/vhost-limits`, `/api/user-limits`": (
        "cluster_exchange_limit cluster_queue_limit consumer_max_per_channel runtime_parameters.* "
        "vhost_max"
    ),
    "the nodes of a cluster meet in etcd: `cluster_etcd_endpoints`": (
        "cluster_formation.* metadata_store.*"
    ),
    "use `cluster_lease_ttl_s` and `cluster_silence_ms`": (
        "cluster_keepalive_interval net_ticktime"
    ),
    "a node that does not reach etcd's majority waits for it, and changes nothing": (
        "cluster_partition_handling cluster_partition_handling.*"
    ),
    "quorum queues have no settings here": (
        "consumer_disconnected_timeout log.ra.* quorum_queue.* raft.*"
    ),
    "unchanged files are imported, too": (
        "definitions.hashing.algorithm definitions.skip_if_unchanged"
    ),
    "definitions come from a file": "definitions.https.url definitions.tls.*",
    "the management API has no such setting": (
        "http_dispatch.* management.credential_encryption_secret management.db_cache_multiplier "
        "management.definitions.* management.disable_stats management.enable_queue_totals "
        "management.hsts.policy management.http.* management.http.max_body_size "
        "management.listener.server.* management.login_session_timeout "
        "management.require_auth_for_api_reference management.restrictions.* management.tcp.* "
        "management.test_config management_agent.*"
    ),
    "use `management.oauth_enabled` and its keys": (
        "management.enable_uaa management.uaa_client_id management.uaa_client_secret "
        "management.uaa_location"
    ),
    "there is no AMQP 1.0 listener": "link_max_per_session session_max_per_connection",
    "there is one log file for all categories": (
        "log.channel.file log.channel.rotation.* log.connection.file log.connection.rotation.* "
        "log.default.rotation.* log.queue.file log.queue.rotation.*"
    ),
    "log lines have one form as text and one as JSON": (
        "log.console.color_esc_seqs.* log.console.formatter.* log.console.use_colors "
        "log.exchange.formatter.* log.file.formatter.*"
    ),
    "the log file is rotated by size": "log.file.rotation.compress log.file.rotation.date",
    "under systemd the journal has standard error": "log.journald log.journald.*",
    "use `log.default.level`": "log.mirroring.* log.user.*",
    "there is no connection to a syslog server": "log.syslog log.syslog.*",
    "use the options below it": "management.listener.ssl_opts ssl_options tcp_listen_options",
    "TLS has no such setting here": (
        "management.listener.ssl_opts.* management.ssl.* prometheus.ssl.* ssl_allow_poodle_attack "
        "ssl_options.*"
    ),
    "there is no MQTT listener": "mqtt.* web_mqtt.*",
    "the broker sets its sockets up itself": (
        "num_acceptors.ssl num_acceptors.tcp tcp_listen_options.*"
    ),
    "the product is Penstock": "product.name product.version",
    "there is no STOMP listener": "stomp.* web_stomp.*",
}
"""Why keys have no effect, and the keys."""
IGNORED: Final[Mapping[str, str]] = {
    **{key: why for why, keys in _ALIKE.items() for key in keys.split()},
    **dict.fromkeys(
        [f"{_POLICY}classic_queues.{key}" for key in NOT_OF_OPERATORS],
        "no operator policy has this key",
    ),
    "auth_cache.*": "there is one cache, in memory",
    "auth_http.*": "the request has no such option",
    "auth_http.ssl_options.*": "TLS to the server is what Python's `ssl` offers by default",
    "auth_http.ssl_options.fail_if_no_peer_cert": "a server always shows its certificate",
    "auth_http.ssl_options.hostname_verification": "wildcards of certificates are understood",
    "auth_ldap.*": "let an HTTP server ask LDAP: `auth_backends.1 = http`",
    "auth_mechanisms.$name": "PLAIN and AMQPLAIN are offered, EXTERNAL with `ssl_cert_login_from`",
    "collect_statistics": "statistics are always collected",
    "deprecated_features.*": "no feature is deprecated",
    "event_exchange.protocol": "messages are those of AMQP 0-9-1",
    "exchange_types.*": "all exchange types are enabled",
    "federation.*": "federation links have no such setting",
    "http_dispatch.auth_backends.*": "the management API uses `auth_backends`",
    "log.federation.*": "use `log.connection.level`",
    "log.upgrade.*": "there is no such log category",
    "management.cors.*": "pages of other origins may not ask the management API",
    "management.csp.policy": "the policy is fixed, and the strictest",
    "management.headers.*": "these headers are always sent",
    "management.http_log_dir": "requests are not logged",
    "management.sample_retention_policies.$section.$interval": "samples are kept for fixed times",
    "memory_monitor_interval": "memory is checked all the time",
    "message_interceptors.*": "messages get no other header than `timestamp_in_ms`",
    "message_store_shutdown_timeout": "use `stop_timeout_s`, for the whole stop",
    "mirroring_sync_batch_size": "use the key `ha-sync-batch-size` of a policy",
    "mirroring_sync_max_throughput": "a synchronisation gives way to the queue by itself",
    "motd_file": "there is no message of the day",
    "node_tags.*": "a node has no tags",
    "prevent_startup_if_node_was_reset": "a node without its data starts as a new one",
    "prometheus.*": "metrics have no such setting",
    "queue_types.*": "all queue types are enabled",
    "ranch_connection_max": "use `connection_max`",
    "reverse_dns_lookups": "peers are shown by address",
    "shovel.local.max_credit": "a shovel within the node has the credit of any client",
    "shovel.operating_mode": "this node runs its shovels",
    "ssl_handshake_timeout": "`handshake_timeout` is for both handshakes",
    "stream.*": "there is no stream protocol; streams are read by AMQP 0-9-1",
    "tracing.*": "tracing has no files: `penstockctl trace_on`",
    "vhost_restart_strategy": "a virtual host does not fail alone",
    "vm_memory_calculation_strategy": "the memory that counts is what the process holds",
}
"""Key ─► why it has no effect.  A row above wins over one that ends in ``*``."""

UNSAFE: Final = frozenset(
    {
        *("http_dispatch.auth_backends.*", "management.disable_basic_auth"),
        "trust_store.*",
        *("auth_oauth2.https.crl_check", "auth_oauth2.oauth_providers.$name.https.crl_check"),
    }
)
"""Rows of the two tables above whose lines ask for security that is not in force here."""
