"""What a listener with TLS offers and asks for, by handshakes in memory."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.core.errors import SettingInvalid
from penstock.settings.settings import Settings, load_settings
from penstock.settings.tls import tls_view
from penstock.tls.options import TlsOptions, TlsSet, tls_between_nodes, tls_options
from tests.helpers.certificates import MISSING, Authority, encrypted

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> tuple[str, str]:
    return authority.sign("server", "/CN=localhost", "DNS:localhost")


def settings_of(server: tuple[str, str], **more: str) -> Settings:
    return load_settings(None, {}, {"ssl_certfile": server[0], "ssl_keyfile": server[1], **more})


def asks_for(authority: Authority, **more: str) -> dict[str, str]:
    return {"ssl_verify": "verify_peer", "ssl_cacertfile": str(authority.certificate), **more}


def made(settings: Settings) -> TlsOptions:
    options = tls_options(settings)
    assert options is not None
    return options


def shake_hands(
    options: TlsOptions, client: ssl.SSLContext, host: str = "localhost"
) -> tuple[ssl.SSLObject, str | None]:
    """The client's end and the user whom its certificate names; raises what either end raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=host)
    theirs = options.context.wrap_bio(to_server, to_client, server_side=True)
    done = 0
    for _ in range(10):
        for end in (ours, theirs):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
                done += 1
    assert done >= 2
    return ours, options.login(theirs)


def test_a_client_gets_the_certificate_of_the_host_that_it_names(
    authority: Authority, server: tuple[str, str]
) -> None:
    one = authority.sign("one", "/CN=one", "DNS:one.example")
    many = authority.sign("many", "/CN=many", "DNS:*.many.example")
    Path(f"{many[0]}.both").write_text(Path(many[0]).read_text() + Path(many[1]).read_text())
    sni = f"one.example={one[0]}:{one[1]},*.many.example={many[0]}.both"
    options = made(settings_of(server, ssl_sni=sni))
    client = authority.client_context()
    for host in ("localhost", "one.example", "a.many.example"):
        shake_hands(options, client, host)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(options, client, "other.example")
    assert [len(some) for some in options.certificates.values()] == [1, 2]


def test_keys_with_passwords_are_opened_by_text_file_and_command(
    server: tuple[str, str], tmp_path: Path
) -> None:
    locked = server[0], encrypted(server[1], "se cret")
    file = tmp_path / "password"
    file.write_text("se cret\n")
    for given in (
        {"ssl_password": "se cret"},
        {"ssl_password": f"file:{file}"},
        {"ssl_password": f"command:cat {file}"},
    ):
        made(settings_of(locked, **given))
    for given, text in (
        ({}, "unencrypted key"),
        ({"ssl_password": "wrong"}, "which ssl_password opens"),
        ({"ssl_password": f"file:{tmp_path / 'none'}"}, "No such file"),
        ({"ssl_password": "command:false"}, "the command of ssl_password failed: false ended"),
    ):
        with pytest.raises(SettingInvalid, match=text):
            made(settings_of(locked, **given))


def test_versions_and_ciphers_are_those_of_the_settings(
    authority: Authority, server: tuple[str, str]
) -> None:
    client = authority.client_context()
    newest, _ = shake_hands(made(settings_of(server)), client)
    assert newest.version() == "TLSv1.3"
    only = "ECDHE-ECDSA-AES128-GCM-SHA256"
    older, _ = shake_hands(
        made(settings_of(server, ssl_max_version="1.2", ssl_ciphers=only)), client
    )
    assert (older.version(), (older.cipher() or ("",))[0]) == ("TLSv1.2", only)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake_hands(made(settings_of(server, ssl_min_version="1.3")), client)
    with pytest.raises(SettingInvalid, match="names no cipher suite"):
        made(settings_of(server, ssl_ciphers="NONE-SUCH"))
    with pytest.raises(SettingInvalid, match="is above ssl_max_version"):
        made(settings_of(server, ssl_min_version="1.3", ssl_max_version="1.2"))


def test_a_chain_of_too_many_certificates_is_refused(
    authority: Authority, server: tuple[str, str]
) -> None:
    lower = authority.under("lower")
    certificate, key = lower.sign("deep", "/CN=deep")
    Path(certificate).write_text(Path(certificate).read_text() + lower.certificate.read_text())
    client = authority.client_context((certificate, key))
    shake_hands(made(settings_of(server, **asks_for(authority, ssl_depth="1"))), client)
    with pytest.raises(ValueError, match="1 certificates between"):
        shake_hands(made(settings_of(server, **asks_for(authority, ssl_depth="0"))), client)
    direct = authority.client_context(authority.sign("direct", "/CN=direct"))
    shake_hands(made(settings_of(server, **asks_for(authority, ssl_depth="0"))), direct)


def test_a_revoked_certificate_is_refused_and_others_are_not(
    authority: Authority, server: tuple[str, str], tmp_path: Path
) -> None:
    good, bad = authority.sign("good", "/CN=good"), authority.sign("bad", "/CN=bad")
    listed = authority.revocation_list(bad[0])
    for check in ("peer", "chain"):
        given = asks_for(authority, ssl_crl_check=check, ssl_crlfile=listed)
        options = made(settings_of(server, **given))
        shake_hands(options, authority.client_context(good))
        with pytest.raises(ssl.SSLError, match="revoked"):
            shake_hands(options, authority.client_context(bad))
    with pytest.raises(SettingInvalid, match="needs ssl_crlfile"):
        made(settings_of(server, **asks_for(authority, ssl_crl_check="peer")))
    with pytest.raises(SettingInvalid, match="needs ssl_verify"):
        made(settings_of(server, ssl_crl_check="peer", ssl_crlfile=listed))


@pytest.mark.parametrize(
    "rule, user",
    [
        ({}, "ann.example"),
        ({"ssl_cert_login_san_index": "1"}, "bob.example"),
        ({"ssl_cert_login_san_index": "2"}, ""),
        ({"ssl_cert_login_san_type": "email"}, "ann@example.com"),
        ({"ssl_cert_login_san_type": "uri"}, "spiffe://example.com/ann"),
        ({"ssl_cert_login_san_type": "ip"}, "192.0.2.7"),
    ],
)
def test_an_alternative_name_names_the_user(
    authority: Authority, server: tuple[str, str], rule: dict[str, str], user: str
) -> None:
    names = "DNS:ann.example,email:ann@example.com,DNS:bob.example,IP:192.0.2.7"
    own = authority.sign("ann", "/CN=other", f"{names},URI:spiffe://example.com/ann")
    given = asks_for(authority, ssl_cert_login_from="subject_alternative_name", **rule)
    _, login = shake_hands(made(settings_of(server, **given)), authority.client_context(own))
    assert login == user


def test_a_listener_differs_in_what_its_list_says(
    authority: Authority, server: tuple[str, str]
) -> None:
    other = authority.sign("ui", "/CN=ui.example", "DNS:ui.example")
    own = ("verify=verify_peer", f"certfile={other[0]}", f"keyfile={other[1]}")
    settings = settings_of(server, ssl_cacertfile=str(authority.certificate), https_port="1")
    settings = settings.with_values({"https_tls": own}, "test")
    view = tls_view(settings, "https_tls")
    assert (view.ssl_certfile, view.ssl_verify) == (other[0], "verify_peer")
    shake_hands(made(view), authority.client_context(), "ui.example")
    shake_hands(made(settings), authority.client_context(), "localhost")
    assert {"", "https_tls"} <= set(TlsSet(settings).by_key)


@pytest.mark.parametrize(
    "given, text",
    [
        ({"https_port": "1"}, "https_port is set, but neither ssl_certfile nor"),
        ({"nsqlookupd_tls_port": "1"}, "nsqlookupd_tls_port is set, but neither"),
        ({"cluster_tls": "depth=1"}, "cluster_tls needs cluster_tls_certfile"),
    ],
)
def test_a_listener_that_would_have_no_tls_stops_the_start(
    given: dict[str, str], text: str
) -> None:
    with pytest.raises(SettingInvalid, match=text):
        TlsSet(load_settings(None, {}, given))


@pytest.mark.parametrize("entry", ["none=1", "verify", "verify=perhaps", "depth=-1"])
def test_a_wrong_entry_of_such_a_list_is_refused(entry: str) -> None:
    with pytest.raises(SettingInvalid, match="without this prefix"):
        load_settings(None, {}, {"https_tls": entry})


@pytest.mark.parametrize(
    "entries",
    [
        "fail_if_no_peer_cert=false",
        "verify=verify_none,fail_if_no_peer_cert=false",
    ],
)
def test_both_nodes_show_a_certificate_in_any_case(
    authority: Authority, server: tuple[str, str], entries: str
) -> None:
    files = dict(zip(("certfile", "keyfile"), server, strict=True))
    files["cacertfile"] = str(authority.certificate)
    given = {f"cluster_tls_{word}": path for word, path in files.items()}
    assert tls_between_nodes(load_settings(None, {}, {**given, "cluster_tls": "depth=1"}))
    with pytest.raises(SettingInvalid, match="both nodes show a certificate in any case"):
        tls_between_nodes(load_settings(None, {}, {**given, "cluster_tls": entries}))
