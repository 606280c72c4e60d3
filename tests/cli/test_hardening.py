"""``penstock config check --hardened``: what each row finds, and an example without fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.secrets.hardening import ROWS, shortcomings
from penstock.secrets.modes import open_to_others
from penstock.settings.settings import Settings, load_settings
from tests.helpers.hardened import PAGE, hardened


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("server.pem", "server.key", "server.pass", "operator.pass"):
        (tmp_path / name).write_text("a long secret")
        (tmp_path / name).chmod(0o600)
    return tmp_path


def settings_of(files: Path, more: str = "", **changed: str) -> Settings:
    return load_settings(hardened(files, **changed) + more, {}, {}, "penstock.toml")


def test_the_example_falls_short_in_nothing_and_the_page_has_the_table(files: Path) -> None:
    assert shortcomings(settings_of(files)) == []
    rows = [f"| {row.name} | {row.asked} | {row.cure} |" for row in ROWS]
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8")


SHORT = {
    "plain listeners": [
        {"http_listener": "true"},
        {"prometheus_port": "15692"},
        {"nsq_tls_required": '"no"'},
    ],
    "plain passwords": [{"plain_text_passwords": "true"}],
    "cipher suites": [{"ssl_ciphers": '"AES256-SHA256"'}, {"ssl_ciphers": '"ECDHE+AES"'}],
    "anonymous clients": [
        {"nsq_auth_required": "false", "bind": '"127.0.0.1"'},
        {"nsq_user": '"u"', "nsq_auth_required": "false"},
    ],
    "names in metrics": [{"prometheus_objects_open": "true"}],
    "default user": [
        {"default_user": '"guest"'},
        {"default_pass": '"guest"'},
        {"default_pass": '"file:/no"'},
    ],
    "guest": [{"loopback_users": "[]"}],
    "password hashes": [{"password_hashing": '"sha256"'}],
    "new passwords": [{"password_rule": '"accept_everything"'}, {"password_min_length": "8"}],
    "servers of users": [
        {"auth_backends": '["http"]', "auth_http_user_path": '"http://a.example/u"'},
        {
            "auth_backends": '["cache/internal"]',
            "auth_cache_backend": '"http"',
            "auth_http_ssl_verify": '"verify_none"',
        },
    ],
    "etcd": [{"cluster_etcd_endpoints": '["e.example:2379"]'}],
    "limits": [
        {"connection_max_per_address": "0"},
        {"vhost_defaults": '""'},
        {"vhost_defaults": '"file:/no"'},
    ],
    "audit trail": [{"audit_trail": "false"}],
    "secrets": [
        {"default_pass": '"canary"'},
        {"static_shovels": """'{"s": {"src-uri": "amqp://u:canary@h"}}'"""},
        {"default_pass": '"encrypted:x"', "config_passphrase": '"file:/no"'},
    ],
    "modes": [],
    "missing security": [{"accept_missing_security": "true"}],
}  # fmt: skip


@pytest.mark.parametrize("name", SHORT)
def test_each_row_finds_its_shortcoming(name: str, files: Path) -> None:
    assert list(SHORT) == [row.name for row in ROWS]
    for changed in SHORT[name]:
        found = shortcomings(settings_of(files, **changed))
        assert name in {one.name for one in found}, changed
        assert not any("canary" in one.what for one in found)


def test_each_file_with_a_secret_is_looked_at(files: Path) -> None:
    more = {
        "https_tls": f'["password=file:{files}/a", "certfile={files}/b", "keyfile={files}/c"]',
        "ssl_sni": f'["h={files}/d:{files}/e"]',
        "link_passwords": f'["u@h=file:{files}/f"]',
        "load_definitions": f'"{files}/g"',
        "cluster_tls_keyfile": f'"{files}/h"',
    }
    for name in "abcdefgh":
        (files / name).touch(0o600)
    settings = settings_of(files, **more)
    assert open_to_others(settings) == []
    for name in ("server.key", "server.pass", "operator.pass", *"acefgh"):
        for mode in (0o640, 0o604, 0o602):
            (files / name).chmod(mode)
            (sentence,) = open_to_others(settings)
            assert f"'{files}/{name}' is open to other accounts (mode 0{mode:o})" in sentence
            (one,) = shortcomings(settings)
            assert (one.name, one.what) == ("modes", sentence)
        (files / name).chmod(0o600)
    (files / "server.pem").chmod(0o644)  # a certificate is no secret
    assert open_to_others(settings) == []


def test_a_configuration_with_a_secret_in_it_is_such_a_file(files: Path) -> None:
    config = files / "penstock.toml"
    config.write_text('default_pass = "canary"')
    settings = load_settings(config.read_text(), {}, {}, str(config))
    config.chmod(0o644)
    assert "the configuration, which has secrets" in open_to_others(settings)[0]
    assert (
        open_to_others(load_settings("", {"PENSTOCK_DEFAULT_PASS": "canary"}, {}, str(config)))
        == []
    )


def test_the_command_lists_what_falls_short_and_ends_with_1(files: Path) -> None:
    config = files / "penstock.toml"
    line = ["config", "check", "--hardened", "--config", str(config)]
    data = files / "data"
    data.mkdir(mode=0o700)
    environment = {"PENSTOCK_DATA_DIR": str(data)}
    config.write_text(hardened(files))
    good = CliRunner().invoke(cli, line, env=environment)
    assert (good.exit_code, good.stdout.splitlines()[-1]) == (0, "hardened: nothing falls short"), (
        good.output
    )
    config.write_text(hardened(files, audit_trail="false"))
    data.chmod(0o755)
    bad = CliRunner().invoke(cli, line, env=environment)
    assert bad.exit_code == 1
    assert "audit trail: audit_trail is false\n  cure: audit_trail = true" in bad.output
    assert "modes: data_dir = " in bad.output
