"""``rabbitmq.conf`` and ``RABBITMQ_*``: what each line becomes, and what is said of it."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from penstock.broker.rules.vhost_defaults import VhostDefaults
from penstock.core.errors import SettingInvalid
from penstock.settings.rabbitmq_conf import row_of, translate
from penstock.settings.rabbitmq_keys import FIXED, GATHERED, IGNORED, OBEYED
from penstock.settings.rabbitmq_variables import IGNORED as IGNORED_VARIABLES
from penstock.settings.rabbitmq_variables import SIMPLE
from penstock.settings.settings import DECLARED
from tests.settings.rabbitmq_files import load, terms, values

ROOT = Path(__file__).resolve().parents[2]
VALIDATOR = "credential_validator."
SHA512 = "rabbit_password_hashing_sha512"
STAMP = "message_interceptors.incoming.set_header_timestamp.overwrite"
KEYS = Path(__file__).with_name("rabbitmq-keys.txt")


@pytest.mark.parametrize(
    "line, key, value",
    [
        ("heartbeat = 30", "heartbeat_s", 30),
        ("  frame_max=128KB # as ever", "frame_max", 131_072),
        ("channel_max = 0", "channel_max", 65_535),
        ("connection_max = infinity", "connection_max", 0),
        ("handshake_timeout = 5000", "handshake_timeout_ms", 5000),
        ("vm_memory_high_watermark.relative = 0.6", "vm_memory_high_watermark", "0.6"),
        ("vm_memory_high_watermark.absolute = 2GB", "vm_memory_high_watermark", "2GB"),
        (
            "vm_memory_high_watermark.absolute = 1073741824",
            "vm_memory_high_watermark",
            "1073741824",
        ),
        ("disk_free_limit.relative = 1.5", "disk_free_limit", "mem_relative 1.5"),
        ("disk_free_limit.absolute = 500MiB", "disk_free_limit", "500MiB"),
        ("queue_index_embed_msgs_below = 4kb", "queue_index_embed_msgs_below_bytes", 4096),
        ("total_memory_available_override_value = 1GB", "total_memory_override_bytes", 10**9),
        ("log.console.formatter = json", "log_format", "json"),
        ("log.file = false", "log_file", ""),
        ("log.file.level = notice", "log_file_level", "warning"),
        ("log.connection.level = none", "log_connection_level", "none"),
        ("loopback_users = none", "loopback_users", ()),
        ("loopback_users.guest = false", "loopback_users", ()),
        ("loopback_users.a\\.b = true", "loopback_users", ("a.b",)),
        ("default_user_tags.monitoring = true", "default_user_tags", ("monitoring",)),
        ("listeners.tcp = none", "amqp_listener", False),
        ("listeners.tcp.default = 5673", "amqp_port", 5673),
        ("management.tcp.ip = 0.0.0.0", "http_bind", "0.0.0.0"),
        ("proxy_protocol = true", "proxy_protocol", ("amqp",)),
        ("max_connections = 50", "connection_max", 50),
        ("max_channels_per_connection = 50", "channel_max", 50),
        (f"{STAMP} = true", "message_timestamp", "overwrite"),
        (f"{STAMP} = false", "message_timestamp", "keep"),
        ("shovel.topology.predeclared = true", "shovel_topology_predeclared", True),
        ("cluster_name = rabbits", "cluster_name", "rabbits"),
        (
            f"{VALIDATOR}validation_backend = rabbit_credential_validator_password_regexp",
            "password_rule",
            "password_regexp",
        ),
        (f"{VALIDATOR}min_length = 12", "password_min_length", 12),
        (f"{VALIDATOR}regexp = ^a+$", "password_regexp", "^a+$"),
        (f"password_hashing_module = {SHA512}", "password_hashing", "sha512"),
        ("queue_leader_locator = balanced", "queue_master_locator", "min-masters"),
        ("cluster_tags.a\\.b = c=d", "cluster_tags", ("a.b=c=d",)),
        ("shovel.delete_after_duration_floor = 20", "shovel_delete_after_duration_floor_s", 20),
    ],
)
def test_a_line_is_a_setting(line: str, key: str, value: object) -> None:
    found = translate([("x.conf", line)])
    assert found.values == {key: value}
    assert found.warnings == []
    settings = load(line)
    assert settings.value_of(key) == value
    assert settings.source_of(key) == "file x.conf, line 1"


ASKED = r"""default_vhost = a#b
default_user = 'quoted'
default_pass = p ass
loopback_users.a\.b = true
heartbeat=30
queue_index_embed_msgs_below = 4kb
frame_max = 128KB
# comment
  ## other
heartbeat = 31
default_user_tags.policymaker = true
default_user_tags.administrator = false
"""
ANSWERED = {
    "default_vhost": "a",
    "default_user": "'quoted'",
    "default_pass": "p ass",
    "loopback_users": ("a.b",),
    "heartbeat_s": 31,
    "queue_index_embed_msgs_below_bytes": 4096,
    "frame_max": 131_072,
    "default_user_tags": ("policymaker",),
}
"""What RabbitMQ 3.10.8 said of its environment when it was started with that file."""


def test_a_file_means_what_it_means_to_rabbitmq() -> None:
    assert values(ASKED) == ANSWERED


def test_a_listener_with_an_address_is_two_settings() -> None:
    assert values("listeners.tcp.1 = 10.0.0.1:5673") == {"bind": "10.0.0.1", "amqp_port": 5673}
    assert values("listeners.tcp.1 = ::1:5673") == {"bind": "::1", "amqp_port": 5673}
    text = "listeners.tcp.1 = 127.0.0.1:5672\nlisteners.tcp.2 = ::1:5672"
    found = translate([("x.conf", text)])
    assert found.values == {"bind": "127.0.0.1", "amqp_port": 5672}
    assert found.warnings == [
        (
            "file x.conf, line 2: listeners.tcp.2 = ::1:5672: no effect here: there is one listener"
            " of this kind, listeners.tcp.1"
        )
    ]


@pytest.mark.parametrize(
    "text, words",
    [
        (
            "hartbeat = 30",
            "line 1: Penstock does not know the key 'hartbeat' of rabbitmq.conf; did you mean",
        ),
        ("\n\nheartbeat = soon", "line 3: heartbeat = soon; allowed: a whole number"),
        ("heartbeat = 70000", "line 1: heartbeat_s = 70000; allowed: a whole number from 0"),
        ("heartbeat 30", "line 1: 'heartbeat 30' is no 'key = value'"),
        (
            "vm_memory_high_watermark.relative = 3",
            "vm_memory_high_watermark.relative = 3; allowed: a number from 0 to 1",
        ),
        ("log.console = yes", "log.console = yes; allowed: true, false"),
        ("vm_memory_high_watermark.relative = 3", "allowed: a number from 0 to 1 such as 0.4"),
        ("vm_memory_high_watermark.absolute = 3", "or bytes, at least 1000000"),
        ("listeners.tcp.default = 70000", "allowed: a port, or an IP address, a colon and a port"),
        ("listeners.tcp = 5672", "listeners.tcp = 5672; allowed: none"),
        ("ssl_cert_login_from = common_nam", "allowed: nothing, distinguished_name"),
    ],
)
def test_what_is_wrong_names_its_line(text: str, words: str) -> None:
    with pytest.raises(SettingInvalid, match=re.escape(words)):
        load(text)


def test_a_password_is_never_shown() -> None:
    with pytest.raises(SettingInvalid) as caught:
        load("default_pass = " + "s" * 5000)
    assert "sss" not in str(caught.value)


def test_what_has_no_effect_is_said_once_a_line() -> None:
    text = "mqtt.allow_anonymous = false\ncluster_partition_handling = autoheal\n"
    text += "tcp_listen_options.nodelay = true\ntcp_listen_options.keepalive = false\n"
    assert translate([("x.conf", text)]).warnings == [
        (
            "file x.conf, line 1: mqtt.allow_anonymous = false: no effect here: there is no MQTT"
            " listener"
        ),
        (
            "file x.conf, line 2: cluster_partition_handling = autoheal: no effect here:"
            " a node that does not reach etcd's majority waits for it, and changes nothing"
        ),
        (
            "file x.conf, line 4: tcp_listen_options.keepalive = false: no effect here: a peer that"
            " vanished is noticed after a minute"
        ),
    ]


@pytest.mark.parametrize(
    "text, found",
    [
        (
            "vm_memory_high_watermark.relative = 0.5\nvm_memory_high_watermark.absolute = 1GB",
            {"vm_memory_high_watermark": "0.5"},
        ),
        (
            "disk_free_limit.absolute = 1GB\ndisk_free_limit.relative = 1.0",
            {"disk_free_limit": "mem_relative 1.0"},
        ),
        ("loopback_users.bob = true\nloopback_users = none", {"loopback_users": ()}),
        ("listeners.tcp = none\nlisteners.tcp.default = 5672", {"amqp_listener": False}),
    ],
)
def test_which_of_two_counts(text: str, found: dict[str, object]) -> None:
    """As RabbitMQ's schema has it, whichever comes first."""
    translated = translate([("x.conf", text)])
    assert translated.values == found
    assert len(translated.warnings) == 1
    assert translated.warnings[0].endswith(" counts")


# -- Erlang terms ----------------------------------------------------------------------------

CLASSIC = """\
%% A file as of RabbitMQ 3.6.
[{rabbit, [
   {tcp_listeners, [{"127.0.0.1", 5673}]},
   {ssl_listeners, [5671]},
   {ssl_options, [{cacertfile, "/ca.pem"}, {certfile, "/c.pem"}, {keyfile, "/k.pem"},
                  {verify, verify_peer}, {fail_if_no_peer_cert, true}, {depth, 2}]},
   {vm_memory_high_watermark, 0.6},
   {vm_memory_high_watermark_paging_ratio, 0.75},
   {disk_free_limit, {mem_relative, 1.0}},
   {heartbeat, 30}, {frame_max, 131072}, {channel_max, 128},
   {default_user, <<"ann">>}, {default_pass, <<"s3cret">>}, {default_vhost, <<"/shop">>},
   {default_user_tags, [administrator, monitoring]},
   {default_permissions, [<<"a.*">>, <<"b.*">>, <<".*">>]},
   {loopback_users, []},
   {tcp_listen_options, [binary, {backlog, 4096}, {nodelay, true}]},
   {credit_flow_default_credit, {800, 400}},
   {msg_store_credit_disc_bound, {2000, 500}},
   {auth_backends, [rabbit_auth_backend_internal]},
   {auth_mechanisms, ['PLAIN', 'AMQPLAIN']},
   {log, [{console, [{enabled, true}, {level, debug}]},
          {categories, [{connection, [{level, warning}]}]}]},
   {queue_index_embed_msgs_below, 2048},
   {hipe_compile, false},
   {no_such_key, 1}
 ]},
 {kernel, [{inet_dist_listen_min, 44001}]},
 {rabbitmq_management, [{listener, [{port, 15673}, {ip, "127.0.0.1"}]}, {rates_mode, none}]},
 {rabbitmq_prometheus, [{tcp_config, [{port, 15693}]}]}
].
"""


def test_erlang_terms_are_settings() -> None:
    settings = terms(CLASSIC)
    found = {
        key: settings.value_of(key) for key in DECLARED if settings.source_of(key) != "default"
    }
    assert found == {
        "auth_backends": ("internal",),
        "bind": "127.0.0.1",
        "amqp_port": 5673,
        "ssl_port": 5671,
        "ssl_cacertfile": "/ca.pem",
        "ssl_certfile": "/c.pem",
        "ssl_keyfile": "/k.pem",
        "ssl_verify": "verify_peer",
        "ssl_fail_if_no_peer_cert": True,
        "ssl_depth": 2,
        "vm_memory_high_watermark": "0.6",
        "vm_memory_high_watermark_paging_ratio": 0.75,
        "disk_free_limit": "mem_relative 1.0",
        "heartbeat_s": 30,
        "frame_max": 131_072,
        "channel_max": 128,
        "default_user": "ann",
        "default_pass": "s3cret",
        "default_vhost": "/shop",
        "default_user_tags": ("administrator", "monitoring"),
        "default_permissions_configure": "a.*",
        "default_permissions_write": "b.*",
        "default_permissions_read": ".*",
        "loopback_users": (),
        "listen_backlog": 4096,
        "credit_flow_initial": 800,
        "credit_flow_more_after": 400,
        "msg_store_credit_initial": 2000,
        "msg_store_credit_more_after": 500,
        "log_console": True,
        "log_console_level": "debug",
        "log_connection_level": "warning",
        "queue_index_embed_msgs_below_bytes": 2048,
        "http_port": 15_673,
        "http_bind": "127.0.0.1",
        "rates_mode": "none",
        "prometheus_port": 15_693,
    }
    assert settings.source_of("heartbeat_s") == "file x.config, line 10"
    assert settings.unsafe == ()
    said = "\n".join(settings.warnings)
    for name in ("hipe_compile", "no_such_key", "kernel", "auth_mechanisms.1"):
        assert name in said


@pytest.mark.parametrize(
    "value, text",
    [
        ("0.4", "0.4"),
        ("{absolute, 1073741824}", "1073741824"),
        ('{absolute, "1024M"}', "1024M"),
        ("0", "0"),
        ("3", "1.0"),  # RabbitMQ 3.10.8 warns and takes 1.0
    ],
)
def test_a_watermark_in_terms(value: str, text: str) -> None:
    settings = terms("[{rabbit,[{vm_memory_high_watermark," + value + "}]}].")
    assert settings.value_of("vm_memory_high_watermark") == text
    assert len(settings.warnings) == (value == "3")


@pytest.mark.parametrize(
    "text, words",
    [
        ("[{rabbit, [}].", "file x.config, line 1: syntax error before '}'"),
        ("{rabbit, []}.", "it is not one list"),
        ("[{rabbit,\n [{heartbeat, soon}]}].", "line 2: heartbeat = soon; allowed: a whole number"),
        ("[{rabbit, [{vm_memory_high_watermark, {relative, 1}}]}].", "cannot be {relative,1}"),
        ("[{rabbit, [{tcp_listeners, 5672}]}].", "tcp_listeners cannot be 5672"),
        ("[{rabbit, [{default_permissions, [<<>>]}]}].", 'default_permissions cannot be [""]'),
        ("[{rabbit, [1]}].", "1 is no {name, value}"),
        ("[{rabbit, 1}].", "rabbit has no list of settings"),
    ],
)
def test_wrong_terms_name_their_line(text: str, words: str) -> None:
    with pytest.raises(SettingInvalid, match=re.escape(words)):
        terms(text)


def test_the_last_line_and_the_last_file_count() -> None:
    files = [("1.conf", "heartbeat = 1\nheartbeat = 2\nlog.dir = a"), ("2.conf", "heartbeat = 3")]
    found = translate(files)
    assert found.values == {"heartbeat_s": 3, "log_dir": "a"}
    assert found.places["heartbeat_s"] == "file 2.conf, line 1"


def test_every_row_leads_to_a_setting_that_exists() -> None:
    ours = [key for key, _ in OBEYED.values()]
    ours += [key for keys in GATHERED.values() for key in keys.split(", ")]
    assert set(ours) | set(SIMPLE.values()) <= set(DECLARED)
    rows = [*OBEYED, *GATHERED, *FIXED, *IGNORED]
    assert len(rows) == len(set(rows)), "a key stands in two tables"


def test_every_key_of_rabbitmq_is_known_here() -> None:
    lines = [line for line in KEYS.read_text("utf-8").splitlines() if not line.startswith("#")]
    keys = [line.split()[1] for line in lines]
    assert len(keys) > 1000
    assert [key for key in keys if not row_of(key.replace("$", "x"))] == []
    assert row_of("deprecated_features.permit.transient_nonexcl_queues")  # in no schema


def test_the_page_says_what_the_tables_say() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "gen_rabbitmq_conf_doc.py"))
    page = (ROOT / "docs" / "guide" / "rabbitmq-conf.md").read_text("utf-8")
    assert page == tool["page"](), "run python tools/gen_rabbitmq_conf_doc.py"
    for row in [*OBEYED, *GATHERED, *FIXED, *IGNORED, *SIMPLE, *IGNORED_VARIABLES]:
        assert f"`{row}`" in page


# -- variables -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, text, key, value",
    [
        ("RABBITMQ_DEFAULT_USER", "ann", "default_user", "ann"),
        ("RABBITMQ_DEFAULT_VHOST", "v", "default_vhost", "v"),
        ("RABBITMQ_NODENAME", "rabbit@here", "node_name", "rabbit@here"),
        ("RABBITMQ_NODE_PORT", "5999", "amqp_port", 5999),
        ("RABBITMQ_MNESIA_BASE", "/var/lib/rabbitmq/", "data_dir", "/var/lib/rabbitmq/penstock"),
        ("RABBITMQ_LOG", "debug", "log_level", "debug"),
        ("RABBITMQ_LOG", "connection=error", "log_connection_level", "error"),
        ("RABBITMQ_VM_MEMORY_HIGH_WATERMARK", "40%", "vm_memory_high_watermark", "0.4"),
        ("RABBITMQ_VM_MEMORY_HIGH_WATERMARK", "256MiB", "vm_memory_high_watermark", "256MiB"),
    ],
)
def test_a_variable_is_a_setting(name: str, text: str, key: str, value: object) -> None:
    settings = load("", **{name: text})
    assert settings.value_of(key) == value
    assert settings.source_of(key) == f"environment, {name}"
    assert settings.warnings == ()


def test_the_log_of_a_container() -> None:
    assert load("", RABBITMQ_LOGS="-").log_console
    settings = load("", RABBITMQ_LOGS="/var/log/r.log")
    assert (settings.log_file, settings.log_console) == ("/var/log/r.log", False)


def test_who_wins() -> None:
    settings = load("default_user = file\nheartbeat = 7", RABBITMQ_DEFAULT_USER="variable")
    assert (settings.default_user, settings.heartbeat_s) == ("variable", 7)
    both = {"RABBITMQ_DEFAULT_USER": "theirs", "PENSTOCK_DEFAULT_USER": "ours"}
    assert load("", **both).default_user == "ours"
    assert load("", RABBITMQ_DEFAULT_USER="").default_user == "guest"


def test_variables_without_effect_and_wrong_ones() -> None:
    settings = load("", RABBITMQ_ERLANG_COOKIE="c", RABBITMQ_WHAT="x", RABBITMQ_SERVICE_HOST="h")
    assert settings.warnings == (
        (
            "environment: RABBITMQ_ERLANG_COOKIE has no effect here: nodes and tools log in with"
            " users and passwords"
        ),
        (
            "environment: RABBITMQ_WHAT has no effect here: RabbitMQ's documentation does not know"
            " it either"
        ),
    )
    with pytest.raises(SettingInvalid, match="RABBITMQ_NODE_PORT = 'x'"):
        load("", RABBITMQ_NODE_PORT="x")
    with pytest.raises(SettingInvalid, match="set RABBITMQ_DEFAULT_PASS"):
        load("", RABBITMQ_DEFAULT_PASS_FILE="/run/secrets/pass")
    with pytest.raises(SettingInvalid, match="RABBITMQ_LOG = 'loud'"):
        load("", RABBITMQ_LOG="loud")


# -- new virtual hosts -------------------------------------------------------------------------

SEEDED = """\
default_limits.vhosts.1.pattern = ^dev
default_limits.vhosts.1.max_queues = 50
default_limits.vhosts.1.max_connections = 100
default_policies.operator.short.vhost_pattern = ^dev
default_policies.operator.short.queue_pattern = ^q
default_policies.operator.short.apply_to = queues
default_policies.operator.short.expires = 1h30m
default_policies.operator.short.message_ttl = 500ms
default_policies.operator.short.max_length_bytes = 1KB
default_users.my\\.app.vhost_pattern = ^dev
default_users.my\\.app.password = secret
default_users.my\\.app.tags = management, monitoring
default_users.my\\.app.configure = ^q
"""


def test_what_new_virtual_hosts_begin_with_is_one_setting() -> None:
    settings = load(SEEDED)
    assert settings.warnings == ()
    assert json.loads(settings.vhost_defaults) == {
        "limits": {"1": {"vhost_pattern": "^dev", "max-queues": 50, "max-connections": 100}},
        "policies": {
            "short": {
                "vhost_pattern": "^dev",
                "queue_pattern": "^q",
                "apply_to": "queues",
                "expires": 5_400_000,
                "message-ttl": 500,
                "max-length-bytes": 1024,
            }
        },
        "users": {
            "my.app": {
                "vhost_pattern": "^dev",
                "password": "secret",
                "tags": ["management", "monitoring"],
                "configure": "^q",
            }
        },
    }
    VhostDefaults(settings.vhost_defaults)


@pytest.mark.parametrize(
    "line, words",
    [
        ("default_limits.vhosts.1.max_queues = 0", "allowed: a whole number above 0"),
        ("default_policies.operator.p.expires = soon", "allowed: a time such as 90s"),
        ("default_users.u.pasword = secret", "did you mean"),
    ],
)
def test_a_wrong_seed_names_its_line(line: str, words: str) -> None:
    with pytest.raises(SettingInvalid, match=re.escape(words)):
        load(line)


def test_keys_of_mirrors_are_of_no_operator_policy() -> None:
    text = "default_policies.operator.p.classic_queues.ha_mode = all"
    (warning,) = load(text).warnings
    assert "no operator policy has this key" in warning
