"""``penstock serve``: from arguments, environment and file to what the node is given."""

from __future__ import annotations

import errno
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.failure import WrongSetting
from penstock.cli.main import cli
from penstock.cli.serve import LINK, choose_data_dir, serve
from penstock.core.errors import Corrupt, DataDirLocked
from penstock.settings.kinds import Integer
from penstock.settings.settings import DECLARED, SECTIONS, Settings


class Node(types.ModuleType):
    """Stands in for ``penstock.node.node``: remembers its settings, ends as told."""

    def __init__(self, end: Callable[[], int]) -> None:
        super().__init__("penstock.node.node")
        self.settings: Settings | None = None
        self._end = end

    def run(self, settings: Settings, reread: Callable[[], Settings]) -> int:
        self.settings = settings
        self.reread = reread
        return self._end()


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Result, Settings | None]]:
    def run(
        *arguments: str,
        environment: dict[str, str] | None = None,
        end: Callable[[], int] = lambda: 0,
    ) -> tuple[Result, Settings | None]:
        node = Node(end)
        monkeypatch.setitem(sys.modules, "penstock.node.node", node)
        monkeypatch.setattr("penstock.node.node", node, raising=False)
        for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
            monkeypatch.delenv(name)
        result = CliRunner().invoke(cli, ["serve", *arguments], env=environment)
        return result, node.settings

    return run


Start = Callable[..., tuple[Result, Settings | None]]


def test_every_setting_is_a_flag_with_its_default_in_the_help() -> None:
    result = CliRunner().invoke(serve, ["--help"], terminal_width=1000)
    for setting in DECLARED.values():
        assert setting.flag + " " in result.output
        assert LINK.sub(r"\1", setting.doc).replace("`", "") in result.output
        if isinstance(setting, Integer):
            assert f"[default: {setting.default}]" in result.output
    assert "](" not in result.output


def test_the_help_lists_the_settings_by_section() -> None:
    lines = CliRunner().invoke(serve, ["--help"], terminal_width=1000).output.splitlines()
    places = [lines.index(f"{title}:") for title in ("Options", *SECTIONS)]
    assert places == sorted(places)
    port = next(at for at, line in enumerate(lines) if "--nsq-port " in line)
    assert lines.index("NSQ:") < port < lines.index("Event log:")


def test_every_flag_reaches_the_node(start: Start, tmp_path: Path) -> None:
    values = {
        "data_dir": str(tmp_path),
        "bind": "::1",
        "port_offset": "7",
        "nsq": "true",
        "default_user": "ann",
        "default_pass": "pw",
        "default_vhost": "v",
        "compatibility": "4",
        "default_queue_type": "quorum",
        "quorum_relaxed_checks_on_redeclaration": "true",
        "load_definitions": "definitions.json",
        "loopback_users": "ann,bob",
        "vm_memory_high_watermark": "256MiB",
        "vm_memory_high_watermark_paging_ratio": "0.25",
        "disk_free_limit": "mem_relative 1.5",
        "priority_drop_order": "highest",
        "message_timestamp": "keep",
        "static_shovels": "[]",
        "vhost_defaults": "{}",
        "cluster_tags": "region=eu",
        "shovel_topology_predeclared": "true",
        "event_exchange": "true",
        "event_exchange_vhost": "there",
        "event_log": "false",
        "event_log_dir": "there",
        "otlp_endpoint": "http://127.0.0.1:4318/v1/traces",
        "rates_mode": "none",
        "log_level": "debug",
        "log_format": "json",
        "log_connection_level": "error",
        "log_channel_level": "none",
        "log_queue_level": "debug",
        "log_console": "false",
        "log_console_level": "critical",
        "log_file": "p.log",
        "log_dir": "logs",
        "log_file_level": "warning",
        "log_file_format": "json",
        "log_exchange": "true",
        "log_exchange_level": "error",
        "log_exchange_format": "json",
        "node_name": "n@h",
        "amqp_listener": "false",
        "ssl_listener": "false",
        "ssl_bind": "::",
        "http_bind": "127.0.0.2",
        "nsqlookupd_bind": "127.0.0.3",
        "prometheus_objects_open": "true",
        "http_host_names": "broker.example,b.example",
        "default_user_tags": "monitoring",
        "default_permissions_configure": "a",
        "default_permissions_write": "b",
        "default_permissions_read": "c",
        "ssl_certfile": "c.pem",
        "ssl_keyfile": "k.pem",
        "ssl_min_version": "1.3",
        "ssl_cacertfile": "a.pem",
        "ssl_verify": "verify_peer",
        "ssl_fail_if_no_peer_cert": "true",
        "ssl_cert_login_from": "common_name",
        "ssl_cert_login_san_type": "email",
        "ssl_password": "pw",
        "config_passphrase": "file:p.txt",
        "config_cipher": "aes_128_cbc",
        "config_hash": "sha256",
        "link_passwords": "ann@h=file:p.txt",
        "link_tls_dirs": "/etc/links",
        "ssl_sni": "a.example=a.pem,b.example=b.pem:b.key",
        "ssl_max_version": "1.3",
        "ssl_ciphers": "ECDHE+AESGCM",
        "ssl_crl_check": "chain",
        "ssl_crlfile": "a.crl",
        **dict.fromkeys(
            ("https_tls", "prometheus_tls", "nsq_tls", "nsqlookupd_tls", "cluster_tls"),
            "depth=3,min_version=1.3",
        ),
        "http_listener": "false",
        "https_bind": "127.0.0.8",
        "plain_text_passwords": "true",
        "address_rules": "amqp deny 192.0.2.1,user:ann allow 10.0.0.0/8",
        "accept_missing_security": "true",
        "auth_backends": "internal_loopback,internal",
        "auth_oauth2": "{}",
        "management_oauth": "{}",
        "auth_http_method": "post",
        **{f"auth_http_{kind}_path": f"http://h/{kind}" for kind in ("user", "vhost")},
        **{f"auth_http_{kind}_path": f"http://h/{kind}" for kind in ("resource", "topic")},
        "auth_http_disclosure": "true",
        "auth_http_ssl_cacertfile": "ha.pem",
        "auth_http_ssl_certfile": "hc.pem",
        "auth_http_ssl_keyfile": "hk.pem",
        "auth_http_ssl_password": "pw",
        "auth_http_ssl_verify": "verify_none",
        "auth_http_ssl_server_name": "h",
        "auth_cache_backend": "http",
        "auth_cache_refusals": "true",
        "login_lockout": "address",
        "password_hashing": "scrypt",
        "password_rule": "password_regexp",
        "password_regexp": "a.*",
        "audit_trail": "false",
        "audit_trail_dir": "trail",
        "proxy_protocol": "amqp,amqp/ssl",
        "unix_socket": "here.sock",
        "unix_socket_mode": "0600",
        "cluster_etcd_endpoints": "a:2379,b:2379",
        "shares_ports": "true",
        "cluster_name": "c",
        "cluster_secret_file": "secret",
        "cluster_bind": "::1",
        "cluster_address": "here",
        "cluster_unix_socket": "peer.sock",
        "cluster_scrub_bytes_per_s": "4096",
        "queue_master_locator": "min-masters",
        "cluster_etcd_user": "ann",
        "cluster_etcd_password": "pw",
        "cluster_etcd_seal_records": "false",
        "cluster_etcd_tls": "true",
        "cluster_etcd_cacertfile": "ea.pem",
        "cluster_etcd_certfile": "ec.pem",
        "cluster_etcd_keyfile": "ek.pem",
        "cluster_tls_certfile": "tc.pem",
        "cluster_tls_keyfile": "tk.pem",
        "cluster_tls_cacertfile": "ta.pem",
        "nsq_vhost": "n",
        "nsq_tcp_bind": "127.0.0.4",
        "nsq_http_bind": "127.0.0.5",
        "nsq_https_bind": "127.0.0.6",
        "nsqlookupd_http_bind": "127.0.0.7",
        "nsq_unix_socket": "nsq.sock",
        "nsq_http_unix_socket": "nsq-http.sock",
        "nsq_user": "ann",
        "nsq_user_created": "true",
        "nsq_auth_required": "true",
        "nsq_auth_http_addresses": "127.0.0.1:4180",
        "nsq_tls_required": "tcp-https",
        "nsq_snappy": "false",
        "nsq_deflate": "false",
        "nsq_publish_mode": "fast",
        "nsq_queue_scan": "probabilistic",
        "nsq_requeue_on_disconnect": "true",
        "nsq_broadcast_address": "here",
        "nsq_statsd_address": "127.0.0.1:8125",
        "nsq_statsd_prefix": "n.",
        "nsq_statsd_mem_stats": "false",
        "nsq_statsd_exclude_ephemeral": "true",
        "nsqlookupd_tcp_addresses": "a:4160,b:4160",
        "nsq_e2e_processing_latency_percentiles": "0.99,1.0",
    }
    arguments = []
    for key, setting in DECLARED.items():
        if isinstance(setting, Integer):
            values[key] = str(min(max(7000, setting.minimum), setting.maximum))
        if key == "nodes":
            values[key] = "1"  # more of them are a supervisor's business
        arguments += [setting.flag, values[key]]
    result, settings = start(*arguments)
    assert result.exit_code == 0, result.output
    assert settings is not None
    for key in DECLARED:
        value = settings.value_of(key)
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        assert (text.lower() if isinstance(value, bool) else text) == values[key]


def test_file_environment_and_flag(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('amqp_port = 1\nhttp_port = 1\nbind = "::1"\ndata_dir = "~/x"\n')
    environment = {"PENSTOCK_AMQP_PORT": "2", "PENSTOCK_HTTP_PORT": "2", "HOME": str(tmp_path)}
    result, settings = start("--config", str(file), "--amqp-port", "3", environment=environment)
    assert result.exit_code == 0, result.output
    assert settings is not None
    assert (settings.bind, settings.http_port, settings.amqp_port) == ("::1", 2, 3)
    assert settings.data_dir == str(tmp_path / "x")
    assert settings.file_name == str(file)
    # The variable names the file as well.
    _, settings = start(environment={**environment, "PENSTOCK_CONFIG": str(file)})
    assert settings is not None
    assert settings.bind == "::1"


@pytest.mark.parametrize(
    "arguments, environment, words",
    [
        (["--amqp-port", "70000"], {}, ["flag: --amqp-port = '70000'", "0 to 65535"]),
        ([], {"PENSTOCK_FRAME_MAX": "1"}, ["environment: PENSTOCK_FRAME_MAX = '1'"]),
        ([], {"PENSTOCK_FRAMEMAX": "1"}, ["did you mean 'PENSTOCK_FRAME_MAX'?"]),
        (["--amqp-prot", "1"], {}, ["No such option", "--amqp-port"]),
        (["--config", "/nowhere.toml"], {}, ["cannot read", "/nowhere.toml", "fix: "]),
        (["surplus"], {}, ["unexpected extra argument"]),
    ],
)
def test_what_is_wrong_ends_with_2(
    start: Start, arguments: list[str], environment: dict[str, str], words: list[str]
) -> None:
    result, settings = start(*arguments, environment=environment)
    assert result.exit_code == 2
    assert settings is None, "the node must not start"
    for word in words:
        assert word in result.stderr
    assert "Traceback" not in result.output


def test_a_file_with_a_slip_or_no_text(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text("amqp_prt = 1")
    result, _ = start("--config", str(file))
    assert result.exit_code == 2
    assert (
        f"file {file}: there is no setting 'amqp_prt'; did you mean 'amqp_port'?" in result.stderr
    )
    file.write_bytes(b"\xff")
    result, _ = start("--config", str(file))
    assert result.exit_code == 2
    assert "not UTF-8" in result.stderr


def test_foreign_variables_are_mentioned(start: Start, tmp_path: Path) -> None:
    environment = {"PENSTOCK_COLOUR": "blue", "PENSTOCK_SERVICE_HOST": "10.0.0.1"}
    result, settings = start("--data-dir", str(tmp_path), environment=environment)
    assert result.exit_code == 0
    assert settings is not None
    assert "PENSTOCK_COLOUR is not a setting" in result.stderr
    assert "SERVICE_HOST" not in result.stderr


def raising(error: Exception) -> Callable[[], int]:
    def end() -> int:
        raise error

    return end


@pytest.mark.parametrize(
    "error, words",
    [
        (DataDirLocked("d is in use by process 7"), ["process 7", "--data-dir"]),
        (Corrupt("file x, offset 12"), ["file x, offset 12", "backup"]),
        (OSError(errno.EADDRINUSE, "taken"), ["taken", "--amqp-port", "--port-offset"]),
        (  # as Python 3.13 has it
            OSError(errno.EADDRINUSE, "bind on ('127.0.0.1', 15672): [errno 98] already in use"),
            ["or give --http-port;"],
        ),
        (OSError(errno.EADDRNOTAVAIL, "none"), ["--bind 127.0.0.1"]),
        (PermissionError(errno.EACCES, "denied"), ["denied", "must be able to write"]),
        (OSError(errno.ENOSPC, "full"), ["full", "make room"]),
        (OSError(errno.EIO, "disk"), ["disk"]),
        (MemoryError(), ["memory", "MemoryMax"]),
        (RuntimeError("can't start new thread"), ["can't start new thread", "TasksMax"]),
    ],
)
def test_what_stops_a_start_is_said(
    start: Start, tmp_path: Path, error: Exception, words: list[str]
) -> None:
    result, _ = start("--data-dir", str(tmp_path), end=raising(error))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    for word in words:
        assert word in result.stderr
    assert "Traceback" not in result.output
    assert "fault of penstock" not in result.stderr


def test_the_nodes_exit_code_is_the_commands(start: Start, tmp_path: Path) -> None:
    result, _ = start("--data-dir", str(tmp_path), end=lambda: 3)
    assert result.exit_code == 3


def test_choosing_the_data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "var" / "penstock"
    home = {"HOME": "/home/ann"}
    own = "/home/ann/.local/share/penstock"

    assert choose_data_dir({"STATE_DIRECTORY": "/s/a:/s/b", **home}, str(system)) == (
        "/s/a",
        "from $STATE_DIRECTORY",
    )
    # Neither it nor the directory above exists.
    assert choose_data_dir(home, str(system))[0] == own
    system.parent.mkdir()
    assert choose_data_dir(home, str(system)) == (str(system), "default, writable")
    system.mkdir()
    assert choose_data_dir(home, str(system))[0] == str(system)
    # Root may write everywhere, so the refusal is played.
    monkeypatch.setattr(os, "access", lambda path, _mode: path != str(system))
    path, reason = choose_data_dir(home, str(system))
    assert path == own
    assert str(system) in reason
    with pytest.raises(WrongSetting, match="HOME is not set"):
        choose_data_dir({}, str(system))
