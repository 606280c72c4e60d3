"""``penstock config``, and the files and variables ``penstock serve`` reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.config_files import read_files, settings_from
from penstock.cli.failure import WrongSetting
from penstock.cli.main import cli
from penstock.settings.listener_table import etcd_risks
from penstock.settings.settings import load_settings


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, ["config", *arguments], env=environment)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    file = tmp_path / "rabbitmq.conf"
    file.write_text("heartbeat = 30\ndefault_pass = secret\nnum_acceptors.tcp = 5\n")
    return file


def test_check_says_what_has_no_effect_and_what_is_wrong(conf: Path) -> None:
    result = run("check", "--config", str(conf))
    assert result.exit_code == 0, result.output
    assert f"warning: file {conf}, line 3: num_acceptors.tcp = 5: no effect" in result.stderr
    assert result.stdout.startswith("ok: 2 of ")
    conf.write_text("heartbeat = x")
    result = run("check", "--config", str(conf))
    assert result.exit_code == 2
    assert f"error: file {conf}, line 1: heartbeat = x; allowed" in result.stderr


def test_show_has_values_and_sources_but_no_password(conf: Path) -> None:
    result = run("show", "--config", str(conf), "-o", "json", PENSTOCK_FRAME_MAX="8192")
    rows = {row["key"]: (row["value"], row["source"]) for row in json.loads(result.stdout)}
    assert rows == {
        "heartbeat_s": ("30", f"file {conf}, line 1"),
        "default_pass": ("(hidden)", f"file {conf}, line 2"),
        "frame_max": ("8192", "environment"),
    }
    assert "loopback_users" in run("show", "--effective", "--config", str(conf)).stdout


def test_explain_knows_both_languages() -> None:
    ours = run("explain", "http_port").stdout
    assert "PENSTOCK_HTTP_PORT" in ours
    assert "management.tcp.port" in ours
    theirs = run("explain", "vm_memory_high_watermark.relative").stdout
    assert "sets vm_memory_high_watermark:" in theirs
    assert "no effect here: there is no MQTT" in run("explain", "mqtt.exchange").stdout
    assert "bind, amqp_port" in run("explain", "listeners.tcp.default").stdout
    assert "auth_backends" in run("explain", "auth_backends.1").stdout
    assert run("explain", "PENSTOCK_HTTP_PORT").stdout == ours
    assert "node_name:" in run("explain", "RABBITMQ_NODENAME").stdout
    assert "no effect here: nodes and tools" in run("explain", "RABBITMQ_ERLANG_COOKIE").stdout
    unknown = run("explain", "hartbeat_s")
    assert unknown.exit_code == 1
    assert "did you mean 'heartbeat_s'?" in unknown.stderr


def test_which_file_counts(conf: Path, tmp_path: Path) -> None:
    toml = tmp_path / "p.toml"
    toml.write_text("heartbeat_s = 1")
    theirs = {"RABBITMQ_CONFIG_FILE": str(conf.with_suffix(""))}
    assert settings_from(None, theirs, {}).heartbeat_s == 30
    assert settings_from(None, theirs | {"PENSTOCK_CONFIG_FILE": str(toml)}, {}).heartbeat_s == 1
    assert settings_from(str(conf), {"PENSTOCK_CONFIG": str(toml)}, {}).heartbeat_s == 30
    assert settings_from(str(toml), theirs, {}).warnings == (
        f"environment: RABBITMQ_CONFIG_FILE is not read, since {toml} was named",
    )
    none = read_files(None, {"RABBITMQ_CONFIG_FILE": str(tmp_path / "none")})
    assert none.conf == []
    assert none.warnings[0].endswith("none, which does not exist")


def test_erlang_terms_are_read_where_rabbitmq_reads_them(conf: Path, tmp_path: Path) -> None:
    classic, more = tmp_path / "rabbitmq.config", tmp_path / "more.config"
    classic.write_text("[{rabbit, [{heartbeat, 7}]}].")
    more.write_text("[{rabbit, [{credit_flow_default_credit, {800, 400}}, {heartbeat, 8}]}].")
    variables = {"RABBITMQ_CONFIG_FILE": str(conf.with_suffix(""))}
    advanced = {"RABBITMQ_ADVANCED_CONFIG_FILE": str(more.with_suffix(""))}
    assert settings_from(str(classic), {}, {}).heartbeat_s == 7
    both = settings_from(None, variables | advanced, {})
    assert both.heartbeat_s == 7, "the older form wins, and no advanced.config is read beside it"
    assert [text for text in both.warnings if "is not read" in text] == [
        f"file {conf} is not read, since there is {classic}",
        f"environment: RABBITMQ_ADVANCED_CONFIG_FILE is not read, since {classic} has Erlang terms",
    ]
    classic.unlink()
    later = settings_from(None, variables | advanced, {})
    assert (later.heartbeat_s, later.credit_flow_initial) == (8, 800)


def test_missing_security_stops_the_start_unless_it_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "rabbitmq.conf"
    file.write_text(
        "management.disable_basic_auth = true\ntrust_store.directory = /certs\nheartbeat = 5"
    )
    refused = run("check", "--config", str(file))
    assert refused.exit_code == 2
    for part in (
        "management.disable_basic_auth = true",
        "trust_store.directory",
        "ACCEPT_MISSING_SECURITY=true",
    ):
        assert part in refused.stderr
    accepted = run("check", "--config", str(file), PENSTOCK_ACCEPT_MISSING_SECURITY="true")
    assert accepted.exit_code == 0
    assert accepted.stderr.count("warning: file ") == 2


@pytest.mark.parametrize(
    "lines, words",
    [
        ('["10.0.0.9:2379"]', "without a user (cluster_etcd_user) and TLS (cluster_etcd_tls)"),
        (
            '["127.0.0.1:2379", "10.0.0.9:2379"]\ncluster_etcd_tls = true',
            "10.0.0.9:2379 is used with",
        ),
        ('["127.example.org:2379"]', "127.example.org:2379 is used"),
        ('["localhost:2379", "127.0.0.9:1", "[::1]:2379", "unix:/run/c"]', ""),
        ('["10.0.0.9:2379"]\ncluster_etcd_tls = true\ncluster_etcd_user = "penstock"', ""),
    ],
)
def test_an_etcd_that_others_may_write_is_named(lines: str, words: str) -> None:
    warnings = etcd_risks(load_settings("cluster_etcd_endpoints = " + lines, {}, {}))
    assert [one for one in warnings if words in one] if words else warnings == []


def test_the_check_names_an_etcd_that_others_may_write(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('cluster_etcd_endpoints = ["10.0.0.9:2379"]')
    assert (
        "warning: etcd at 10.0.0.9:2379 is used without"
        in run("check", "--config", str(file)).stderr
    )


def test_a_directory_of_files(tmp_path: Path) -> None:
    (tmp_path / "10-a.conf").write_text("heartbeat = 1\nchannel_max = 5")
    (tmp_path / "20-b.conf").write_text("heartbeat = 2")
    (tmp_path / "notes.txt").write_text("none of this")
    settings = settings_from(None, {"RABBITMQ_CONFIG_FILES": str(tmp_path)}, {})
    assert (settings.heartbeat_s, settings.channel_max) == (2, 5)
    with pytest.raises(WrongSetting, match="cannot read the directory"):
        settings_from(None, {"RABBITMQ_CONFIG_FILES": str(tmp_path / "gone")}, {})
