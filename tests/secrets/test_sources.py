"""Where secrets are written: files, commands, and values that a real RabbitMQ has encrypted."""

from __future__ import annotations

import json
import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.client.endpoint import ClientError
from penstock.core.amqp_uri import FILES, parse_amqp_uri
from penstock.core.errors import SettingInvalid
from penstock.links.dialing import Dialer
from penstock.node.link_control import static_shovels_in
from penstock.secrets.encryption import Encryption, WrongKey, term_as_written, term_of_text
from penstock.secrets.links import link_uri
from penstock.secrets.sources import revealed, secret_of
from penstock.settings.rabbitmq_keys import OBEYED
from penstock.settings.settings import DECLARED, SECRETS, Settings, load_settings

# RabbitMQ 3.10.8 printed these: rabbitmqctl encode VALUE pass.
BINARY = "bggYTLS47vgtfZGsS0xtMihyqwPj454yq4oD5Zdu4S3oISVPfLJrPtiE9K8rUq2g"
STRING = "Jqm/qOV8hs5a3rxiaOTXcc/Tj09FGGYQrCPLJYjPBGLOEr1dvLWcEqoaEoMDC6xO"
UMLAUT = "To0QVLRHeOxgOq4C4VMCiSzPTQS/W3uVVHU/cLuKx+rbhJmpbo2Nq5g8M4DUIdNO"
NUMBERS = "yWC/2/30AX1iKJqk3xSw3ox605tYwUVW2J8K5/9I9F2OKpBpS4Es2b+MoKAkUwDZ"
# … encode "'a b'" pass --cipher aes_256_cbc --hash sha512 --iterations 5
OTHERWISE = "hf5WDlEwquFXJCchA3wsCeoLW+G4EwWvGb/axZ2DQt0xH/BjL4G5MbW6E4uMZBkM"
PASS = {"config_passphrase": "pass"}


def settings_of(**given: str) -> Settings:
    return load_settings("", {}, given)


def of_terms(text: str) -> Settings:
    return load_settings("", {}, {}, conf=[("advanced.config", text)])


# -- files and commands ----------------------------------------------------------------------------


def test_each_secret_comes_from_its_text_a_file_or_a_command(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(" a secret \n")
    assert {"default_pass", "cluster_etcd_password", "ssl_password"} < SECRETS
    for key in SECRETS:
        for text, meant in (
            ("a secret", "a secret"),
            ("plain:file:x", "file:x"),
            (f"file:{file}", "a secret"),
            (f"command:cat {file}", "a secret"),
        ):
            assert secret_of(settings_of(**{key: text}), key) == meant


@pytest.mark.parametrize(
    "text, why",
    [
        ("file:/none/such", "No such file"),
        ("command:false", "the command of default_pass failed: false ended with 1"),
        ("command:", "the command of default_pass failed"),
        ("command:none-such-command", "No such file"),
        ('command:"', "No closing quotation"),
        (f"encrypted:{BINARY}", "config_passphrase .* is empty"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, why: str) -> None:
    with pytest.raises(SettingInvalid, match=why) as raised:
        secret_of(settings_of(default_pass=text), "default_pass")
    assert "default_pass" in str(raised.value)


def test_what_a_command_prints_is_in_no_error(tmp_path: Path) -> None:
    script = f"{sys.executable} -c \"print('canary'); raise SystemExit(3)\""
    with pytest.raises(SettingInvalid) as raised:
        revealed(f"command:{script}", "x")
    assert "canary" not in str(raised.value)
    assert "ended with 3" in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_large_file_is_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_text("x" * (1 << 20) + "x")
    with pytest.raises(SettingInvalid, match="larger than"):
        revealed(f"file:{file}", "x")


def test_a_secret_on_the_command_line_is_warned_of_and_a_file_is_not() -> None:
    for text, count in (("canary", 1), ("plain:canary", 1), ("file:x", 0), ("", 0)):
        warnings = load_settings("", {}, {"ssl_password": text}).warnings
        assert len(warnings) == count
        assert "canary" not in "".join(warnings)
    assert not load_settings("", {"PENSTOCK_SSL_PASSWORD": "canary"}, {}).warnings


# -- encrypted values ------------------------------------------------------------------------------


def test_what_rabbitmq_has_encrypted_is_decrypted() -> None:
    settings = settings_of(default_pass=f"encrypted:{BINARY}", ssl_password="", **PASS)
    assert secret_of(settings, "default_pass") == "canary"
    for text, meant in ((STRING, "canary"), (UMLAUT, "grün")):
        assert revealed(f"encrypted:{text}", "x", settings) == meant
    others = {"config_cipher": "aes_256_cbc", "config_hash": "sha512", "config_iterations": "5"}
    assert revealed(f"encrypted:{OTHERWISE}", "x", settings_of(**others, **PASS)) == "a b"


@pytest.mark.parametrize(
    "text, given, why",
    [
        (BINARY, {"config_passphrase": "wrong"}, "does not open"),
        (BINARY, {**PASS, "config_hash": "sha512"}, "does not open"),
        (BINARY, {**PASS, "config_iterations": "2"}, "does not open"),
        (BINARY[:-8], PASS, "does not open|not as long"),
        ("no base64!", PASS, "not base64"),
        (NUMBERS, PASS, "\x01\x02|no text"),
    ],
)
def test_what_does_not_open_is_refused_by_name(text: str, given: dict[str, str], why: str) -> None:
    settings = settings_of(default_pass=f"encrypted:{text}", **given)
    if text == NUMBERS:  # RabbitMQ's string of two characters is a list of two numbers, too
        assert secret_of(settings, "default_pass") == "\x01\x02"
        return
    with pytest.raises(SettingInvalid, match=f"default_pass cannot be decrypted: .*({why})"):
        secret_of(settings, "default_pass")


def test_an_advanced_config_with_encrypted_values(tmp_path: Path) -> None:
    file = tmp_path / "passphrase"
    file.write_text("pass\n")
    for passphrase in ('<<"pass">>', '"pass"', f'{{file, "{file}"}}'):
        settings = of_terms(
            f"""[{{rabbit, [
                {{default_pass, {{encrypted, <<"{BINARY}">>}}}},
                {{config_entry_decoder, [{{passphrase, {passphrase}}}, {{cipher, aes_cbc128}},
                                         {{hash, sha256}}, {{iterations, 1}}]}}]}}]."""
        )
        assert settings.value_of("default_pass") == f"encrypted:{BINARY}"
        assert secret_of(settings, "default_pass") == "canary"
        assert not settings.warnings


def test_the_uris_of_a_static_shovel_may_be_encrypted() -> None:
    uri = Encryption(b"pass").encrypt(term_of_text('"amqp://u:canary@h"'), bytes(16), bytes(16))
    encrypted = f'{{encrypted, <<"{uri}">>}}'
    for uris in (encrypted, f"[{encrypted}]"):
        settings = of_terms(
            f"""[{{rabbit, [{{config_entry_decoder, [{{passphrase, "pass"}}]}}]}},
                 {{rabbitmq_shovel, [{{shovels, [{{s, [
                    {{source, [{{protocol, amqp091}}, {{uris, {uris}}}, {{queue, <<"q">>}}]}},
                    {{destination, [{{protocol, amqp091}}, {{uris, ["amqp://"]}}]}}]}}]}}]}}]."""
        )
        assert "canary" not in str(settings.value_of("static_shovels"))
        assert static_shovels_in(settings)["s"]["src-uri"] == ["amqp://u:canary@h"]


@pytest.mark.parametrize(
    "entry, why",
    [
        (f'{{default_user, {{encrypted, <<"{BINARY}">>}}}}', "default_user is no secret"),
        ("{config_entry_decoder, [{passphrase, prompt}]}", "a passphrase is not asked for"),
        ('{config_entry_decoder, [{passphrase, "p"}, {cipher, rc4}]}', "aes_256_cbc"),
        ('{config_entry_decoder, [{passphrase, "p"}, {hash, md5}]}', "sha512"),
    ],
)
def test_what_is_not_decrypted_here_stops_the_start(entry: str, why: str) -> None:
    with pytest.raises(SettingInvalid, match=why):
        of_terms(f"[{{rabbit, [{entry}]}}].")


def test_the_encrypted_password_of_a_seeded_user_is_refused_and_not_taken_for_the_password() -> (
    None
):
    line = f"default_users.one.password = encrypted:{BINARY}"
    with pytest.raises(SettingInvalid, match="not encrypted"):
        load_settings("", {}, {}, conf=[("rabbitmq.conf", line)])


@pytest.mark.parametrize("text", ['<<"grün">>', '"x"', "atom", '<<"a\\"b">>'])
def test_what_is_encrypted_here_opens_again(text: str) -> None:
    encryption = Encryption(b"p", "aes_192_cbc", "sha", 3)
    sealed = encryption.encrypt(term_of_text(text), os.urandom(16), os.urandom(16))
    assert term_as_written(encryption.decrypt(sealed)) == text.replace("\\", "")


@pytest.mark.parametrize("text", ["[1]", "{a,b}", '""', "<<1>>", '"€"', "1"])
def test_what_is_no_text_is_not_encrypted(text: str) -> None:
    with pytest.raises(WrongKey):
        term_of_text(text)


# -- links -----------------------------------------------------------------------------------------


def of_link(entries: str, uri: str) -> str | None:
    """``pass`` stands for the password, None for no entry, "" for a refusal."""
    settings = settings_of(link_passwords=entries, link_tls_dirs="/tls")
    try:
        return link_uri(settings, parse_amqp_uri(uri)).password
    except SettingInvalid:
        return ""


def test_the_password_of_a_link_goes_to_its_scheme_host_port_and_user_only(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pass")
    tls = f"amqps://ann@a.example=file:{secret}"
    assert of_link(tls, "amqps://ann@a.example") == "pass"
    assert of_link(tls, "amqps://ann@A.example:5671/v?cacertfile=/tls/c.pem") == "pass"
    assert of_link(tls, "amqps://bob@a.example") is None
    assert of_link(tls, "amqps://ann@b.example") is None
    for elsewhere in ("amqps://ann@a.example:5672", "amqp://ann@a.example:5671"):
        assert of_link(tls, elsewhere) == ""
    clear = f"amqp://ann@a.example:7=file:{secret}"
    assert of_link(clear, "amqp://ann@a.example:7") == "pass"
    for elsewhere in ("amqps://ann@a.example:7", "amqp://ann@a.example"):
        assert of_link(clear, elsewhere) == ""
    both = f"{tls},{clear}"
    assert of_link(both, "amqps://ann@a.example") == of_link(both, "amqp://ann@a.example:7")
    assert of_link(f"amqps://ann%40x@[::1]=file:{secret}", "amqps://ann%40x@[::1]") == "pass"


def test_an_entry_without_a_scheme_means_tls_and_on_this_machine_plain_amqp_too(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pass")
    far = f"ann@a.example=file:{secret}"
    assert of_link(far, "amqps://ann@a.example") == "pass"
    for elsewhere in (
        "amqp://ann@a.example",
        "amqp://ann@a.example:5671",
        "amqps://ann@a.example:1",
    ):
        assert of_link(far, elsewhere) == ""
    for host in ("localhost", "127.0.0.1", "[::1]"):
        near = f"ann@{host}=file:{secret}"
        assert of_link(near, f"amqp://ann@{host}") == of_link(near, f"amqps://ann@{host}") == "pass"
        assert of_link(near, f"amqp://ann@{host}:5671") == ""
        near = f"ann@{host}:7=file:{secret}"
        assert of_link(near, f"amqp://ann@{host}:7") == of_link(near, f"amqps://ann@{host}:7")
        assert of_link(f"amqps://{near}", f"amqp://ann@{host}:7") == ""


def test_the_password_of_a_link_goes_to_no_server_that_proves_another_name(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pass")
    entry = f"amqps://ann@a.example=file:{secret}"
    for option in ("verify=verify_none", "server_name_indication=b.example"):
        assert of_link(entry, f"amqps://ann@a.example?{option}") == ""
    for option in ("verify=verify_peer", "server_name_indication=a.example"):
        assert of_link(entry, f"amqps://ann@a.example?{option}") == "pass"


@pytest.mark.parametrize("option", FILES)
@pytest.mark.parametrize("password", ["", ":p"])
def test_a_uri_names_files_of_the_operators_directories_only(
    tmp_path: Path, option: str, password: str
) -> None:
    """The refusal does not tell whether there is such a file."""
    (tmp_path / "tls" / "data").mkdir(parents=True)
    (tmp_path / "links").symlink_to(tmp_path / "tls")
    (tmp_path / "tls" / "out").symlink_to(tmp_path)
    more = {
        "link_tls_dirs": f"{tmp_path}/links,{tmp_path}/more",
        "data_dir": f"{tmp_path}/tls/data",
    }
    for given, place, why in (
        (more, "tls/c.pem", ""),
        (more, "links/c.pem", ""),
        (more, "more/deep/c.pem", ""),
        (more, "tls2/c.pem", "link_tls_dirs"),
        (more, "tls/../c.pem", "link_tls_dirs"),
        (more, "tls/out/c.pem", "link_tls_dirs"),
        (more, "tls/data/messages", "must not be in data_dir"),
        (more, "links/data/messages", "must not be in data_dir"),
        ({}, "tls/c.pem", "link_tls_dirs"),
    ):
        settings = settings_of(**given)
        uri = parse_amqp_uri(f"amqps://ann{password}@a.example?{option}={tmp_path}/{place}")
        if why:
            with pytest.raises(SettingInvalid, match=option) as refused:
                link_uri(settings, uri)
            assert why in str(refused.value)
        else:
            assert link_uri(settings, uri) == uri


def test_the_directories_of_files_of_links_are_absolute() -> None:
    with pytest.raises(SettingInvalid, match="allowed: directories such as /etc"):
        settings_of(link_tls_dirs="tls")


@pytest.mark.parametrize(
    "wrong",
    [
        *("ann@a=canary", "ann=file:x", "@a=file:x", "ann@=file:x", "ann@a=plain:x"),
        *("http://ann@a=file:x", "amqps://a=file:x", "ann@a:0x=file:x", "ann:p@a=file:x"),
        *("ann@::1=file:x", "amqps://ann@a/v=file:x", "ann@a?verify=file:x", "ann@a:99999=file:x"),
    ],
)
def test_an_entry_of_link_passwords_that_names_no_place_is_refused(wrong: str) -> None:
    with pytest.raises(SettingInvalid, match="allowed: entries such as amqps://"):
        settings_of(link_passwords=wrong)


def test_a_dialer_asks_for_the_password_of_the_place_it_dials(tmp_path: Path) -> None:
    """A link to another port of the host shows the missing entry, and opens no socket."""
    settings = settings_of(link_passwords="ann@localhost:5672=file:/nowhere")
    dialer = Dialer(lambda user: None, partial(link_uri, settings))  # type: ignore[arg-type, return-value]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        server.settimeout(0.2)
        with pytest.raises(ClientError, match=f"an entry amqp://ann@localhost:{port}=… "):
            dialer.dial([f"amqp://ann@localhost:{port}"], "n", "guest")
        with pytest.raises(TimeoutError):
            server.accept()


def test_every_key_of_rabbitmq_that_sets_a_secret_is_hidden_in_messages() -> None:
    """Each is misspelt in its value (a text that is too long), and must not be shown."""
    canary = "canary" * 1000
    for key, (ours, _kind) in OBEYED.items():
        if ours in SECRETS:
            try:
                said = str(
                    load_settings("", {}, {}, conf=[("c.conf", f"{key} = {canary}")]).warnings
                )
            except SettingInvalid as error:
                said = str(error)
            assert ours in said or key in said
            assert "canary" not in said


def test_secrets_are_declared_as_such() -> None:
    """A setting that is named like a secret is one, or names a file, or how it is hashed."""
    found: Any = {
        key
        for key in DECLARED
        if any(word in key for word in ("pass", "secret", "oauth2", "shovels"))
    }
    rest = {"cluster_secret_file", "link_passwords", "plain_text_passwords"}
    assert {key for key in found - SECRETS - rest if not key.startswith("password_")} == set()
    assert json.dumps(sorted(SECRETS))
