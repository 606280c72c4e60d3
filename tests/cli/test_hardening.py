"""``penstock config check --hardened``: what each row finds, and an example without fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.broker.rules.access import SCRYPT, hash_password
from penstock.cli.main import cli
from penstock.secrets.hardened_definitions import DEFINITION_ROWS, definition_shortcomings
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
    "proxies": [
        {"proxy_protocol": '["amqp"]'},
        {"proxy_protocol": '["amqp"]', "address_rules": '["proxy deny 10.0.0.1"]'},
    ],
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
    "links": [{"link_passwords": '["amqp://u@far.example=file:/no"]'}],
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


def user(name: str, password: str, *tags: str, **more: object) -> dict[str, object]:
    sha256 = {"hashing_algorithm": "rabbit_password_hashing_sha256"}
    hashed = {"password_hash": hash_password(password, b"salt")}
    return {"name": name, "tags": list(tags), **hashed, **sha256, **more}


HARDENED: dict[str, list[dict[str, object]]] = {
    "users": [
        user("operator", "a long secret", "administrator", hashing_algorithm=SCRYPT),
        user("shop", "another secret", hashing_algorithm=SCRYPT),
    ],
    "vhosts": [{"name": "v"}],
    "permissions": [
        {"user": "operator", "vhost": "v", "configure": ".*", "write": ".*", "read": ".*"},
        {"user": "shop", "vhost": "v", "configure": "", "write": ".*", "read": "^shop-"},
    ],
    "parameters": [
        {
            "component": "vhost-limits",
            "vhost": "v",
            "name": "limits",
            "value": {"max-connections": 10, "max-queues": 10},
        }
    ],
}
EVERYTHING = {"vhost": "v", "configure": ".*", "write": "^.*$", "read": ".*"}
SHORT_DEFINITIONS: dict[str, list[dict[str, list[dict[str, object]]]]] = {
    "administrators": [{"users": [user("Admin", "x", "administrator", hashing_algorithm=SCRYPT)]}],
    "passwords": [{"users": [user(*one)]} for one in (("a", "a"), ("a", ""), ("a", "guest"))],
    "hashes": [{"users": [user("a", "a long secret")]}],
    "rights": [{"permissions": [{"user": "shop", **EVERYTHING}]}],
    "limits of virtual hosts": [{"vhosts": [{"name": "w"}]}, {"parameters": []}],
}


def test_hardened_definitions_fall_short_in_nothing_and_the_page_has_the_table() -> None:
    assert definition_shortcomings(HARDENED) == []
    rows = [f"| {row.name} | {row.asked} | {row.cure} |" for row in DEFINITION_ROWS]
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SHORT_DEFINITIONS)
def test_each_row_of_definitions_finds_its_shortcoming(name: str) -> None:
    assert list(SHORT_DEFINITIONS) == [row.name for row in DEFINITION_ROWS]
    for changed in SHORT_DEFINITIONS[name]:
        found = definition_shortcomings(HARDENED | changed)
        assert name in {one.name for one in found}, changed


def test_definitions_are_read_from_standard_input(files: Path) -> None:
    config = files / "penstock.toml"
    config.write_text(hardened(files))
    words = ["config", "check", "--config", str(config), "--hardened", "--definitions", "-"]
    good = CliRunner().invoke(cli, words, input=json.dumps(HARDENED))
    assert (good.exit_code, "nothing falls short" in good.output) == (0, True), good.output
    permissions = {"permissions": [{"user": "shop", **EVERYTHING}]}
    short = CliRunner().invoke(cli, words, input=json.dumps(HARDENED | permissions))
    assert short.exit_code == 1
    assert "rights: 'shop' may do everything in 'v'" in short.output
    for text in ("[]", "{", '{"users": 5}', "[" * 100_000):
        wrong = CliRunner().invoke(cli, words, input=text)
        assert (wrong.exit_code, "error: " in wrong.output) == (1, True), wrong.output
    assert CliRunner().invoke(cli, [one for one in words if one != "--hardened"]).exit_code == 2
