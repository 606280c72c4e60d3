"""``rabbitmq.conf``: what it says of TLS, of log-ins, and of security that is not in force."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from penstock.core.errors import SettingInvalid
from penstock.settings.rabbitmq_conf import translate
from penstock.settings.settings import Settings
from penstock.settings.tls import tls_view
from tests.settings.rabbitmq_files import load, terms

TLS = "ssl_options.certfile = c\nssl_options.keyfile = k\nssl_options.verify = verify_peer\n"


def test_tls_is_for_those_who_list_a_listener() -> None:
    found = translate([("x.conf", "listeners.ssl.default = 5671\n" + TLS)])
    assert found.warnings == []
    assert found.values == {
        "ssl_port": 5671,
        "ssl_certfile": "c",
        "ssl_keyfile": "k",
        "ssl_verify": "verify_peer",
    }
    without = translate([("x.conf", TLS)])
    assert without.values == {}
    assert len(without.warnings) == 3
    with pytest.raises(SettingInvalid, match="it needs ssl_options"):
        translate([("x.conf", "listeners.ssl.default = 5671")])


LISTENER = "listeners.ssl.1 = 5671\nssl_options.certfile = c\n"


@pytest.mark.parametrize(
    "line",
    [
        "auth_mechanisms.1 = EXTERNAL",
        "management.disable_basic_auth = true",
        "trust_store.directory = /certs",
    ],
)
def test_security_that_would_not_be_in_force_is_told_apart(line: str) -> None:
    (unsafe,) = load(line).unsafe
    assert line.splitlines()[-1] in unsafe


@pytest.mark.parametrize(
    "versions, least, warnings",
    [
        (["tlsv1.3"], "1.3", 0),
        (["tlsv1.3", "tlsv1.2"], "1.2", 0),
        (["tlsv1.2"], "1.2", 0),
        (["tlsv1.2", "tlsv1.1"], "1.2", 1),
        (["tlsv1.3", "tlsv1.1"], "1.3", 1),
        (["tlsv1.1"], "1.2", 1),
    ],
)
def test_versions_of_tls_are_offered_from_the_oldest_on(
    versions: list[str], least: str, warnings: int
) -> None:
    """But none before 1.2; without a TLS listener they say nothing, as with RabbitMQ."""
    lines = "".join(f"ssl_options.versions.{n} = {one}\n" for n, one in enumerate(versions, 1))
    settings = load(LISTENER + lines)
    assert settings.ssl_min_version == least
    assert settings.unsafe == ()
    assert len(settings.warnings) == warnings
    assert load(lines).ssl_min_version == "1.2"


def test_options_of_tls_are_in_force() -> None:
    settings = load(
        LISTENER + "ssl_options.keyfile = k\nssl_options.password = p\nssl_options.depth = 2\n"
        "ssl_options.ciphers.1 = ECDHE-RSA-AES256-GCM-SHA384\n"
        "ssl_options.ciphers.2 = ECDHE-ECDSA-AES256-GCM-SHA384\n"
        "ssl_options.ciphers.3 = TLS_AES_256_GCM_SHA384\n"
        "ssl_options.versions.1 = tlsv1.2\nssl_options.crl_check = peer\n"
        "ssl_cert_login_from = subject_alt_name\nssl_cert_login_san_type = email\n"
        "ssl_cert_login_san_index = 1\n"
    )
    assert (settings.ssl_password, settings.ssl_depth, settings.ssl_crl_check) == ("p", 2, "peer")
    ciphers = "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384"
    assert (settings.ssl_ciphers, settings.ssl_max_version) == (ciphers, "1.2")
    rule = (settings.ssl_cert_login_from, settings.ssl_cert_login_san_type)
    assert (*rule, settings.ssl_cert_login_san_index) == ("subject_alternative_name", "email", 1)
    (warning,) = settings.warnings
    assert "TLS_AES_256_GCM_SHA384: no effect here" in warning
    assert settings.unsafe == ()


MANAGEMENT_SSL = """\
management.ssl.port = 15671
management.ssl.ip = 10.0.0.1
management.ssl.certfile = /ui.pem
management.ssl.keyfile = /ui.key
management.ssl.verify = verify_peer
management.ssl.versions.1 = tlsv1.3
"""
LISTENER_SSL = """\
management.listener.port = 15671
management.listener.ssl = true
management.listener.ssl_opts.certfile = /ui.pem
management.listener.ssl_opts.keyfile = /ui.key
"""


@pytest.mark.parametrize(
    "text, http, https_port, verify",
    [
        (MANAGEMENT_SSL, False, 15671, "verify_peer"),
        (MANAGEMENT_SSL + "management.tcp.port = 15672\n", True, 15671, "verify_peer"),
        (LISTENER_SSL, False, 15671, "verify_none"),
    ],
)
def test_the_management_api_has_the_ports_that_are_listed(
    text: str, http: bool, https_port: int, verify: str
) -> None:
    settings = load(LISTENER + "ssl_options.verify = verify_peer\n" + text)
    view = tls_view(settings, "https_tls")
    assert (settings.http_listener, settings.https_port) == (http, https_port)
    assert (view.ssl_certfile, view.ssl_keyfile, view.ssl_verify) == ("/ui.pem", "/ui.key", verify)
    assert settings.ssl_certfile == "c"
    assert settings.unsafe == ()


def test_metrics_have_tls_at_their_usual_port() -> None:
    settings = load("prometheus.ssl.certfile = /m.pem\nprometheus.ssl.keyfile = /m.key\n")
    assert (settings.prometheus_port, settings.prometheus_https_port) == (0, 15691)
    assert tls_view(settings, "prometheus_tls").ssl_certfile == "/m.pem"
    both = load("prometheus.ssl.certfile = /m.pem\nprometheus.tcp.port = 15692\n")
    assert (both.prometheus_port, both.prometheus_https_port) == (15692, 15691)


@pytest.mark.parametrize(
    "text",
    [
        "auth_backends.1 = internal\nauth_backends.2 = rabbit_auth_backend_internal",
        "auth_backends.1.authn = internal",
        "auth_mechanisms.1 = PLAIN\nauth_mechanisms.2 = EXTERNAL",
        "management.listener.ssl = false\nmanagement.disable_basic_auth = false",
        LISTENER + "ssl_options.versions.1 = tlsv1.2\nssl_options.versions.2 = tlsv1.1",
        "ssl_options.ciphers.1 = ECDHE-RSA-AES256-GCM-SHA384",  # no TLS listener, as with RabbitMQ
        "auth_ldap.servers.1 = ldap.example.com",  # without effect with RabbitMQ, too
    ],
)
def test_what_lowers_no_security_is_not(text: str) -> None:
    assert load(text).unsafe == ()


def test_security_of_terms_is_told_apart_likewise() -> None:
    (unsafe,) = terms("[{rabbitmq_management,[{disable_basic_auth,true}]}].").unsafe
    assert "management.disable_basic_auth = true" in unsafe


# -- backends of users -------------------------------------------------------------------------

HTTP_EXAMPLE = """\
auth_backends.1 = http
auth_http.http_method   = post
auth_http.user_path     = http://some-server/auth/user
auth_http.vhost_path    = http://some-server/auth/vhost
auth_http.resource_path = http://some-server/auth/resource
auth_http.topic_path    = http://some-server/auth/topic
auth_http.authorization_failure_disclosure = false
"""
CACHED_PAIR = """\
auth_cache.cached_backend.authn = http
auth_cache.cached_backend.authz = internal
"""
HTTP_TERMS = """\
[{rabbit, [{auth_backends, [rabbit_auth_backend_http]}]},
 {rabbitmq_auth_backend_http, [{http_method, post},
   {user_path, "http://some-server/auth/user"}, {vhost_path, "http://some-server/auth/vhost"},
   {resource_path, "http://some-server/auth/resource"},
   {topic_path, "http://some-server/auth/topic"},
   {authorization_failure_disclosure, false}]}].
"""


@pytest.mark.parametrize("of", [lambda: load(HTTP_EXAMPLE), lambda: terms(HTTP_TERMS)])
def test_the_example_of_the_http_backend_is_taken_unchanged(of: Callable[[], Settings]) -> None:
    settings = of()
    assert (settings.auth_backends, settings.auth_http_method) == (("http",), "post")
    assert settings.auth_http_user_path == "http://some-server/auth/user"
    assert settings.auth_http_topic_path == "http://some-server/auth/topic"
    assert settings.warnings == settings.unsafe == ()


@pytest.mark.parametrize(
    "text, chain, cached",
    [
        ("auth_backends.2 = http\nauth_backends.1 = internal", ("internal", "http"), "internal"),
        (
            "auth_backends.1.authn = http\nauth_backends.1.authz = rabbit_auth_backend_internal",
            ("http/internal",),
            "internal",
        ),
        ("auth_backends.1.authz = http", ("http",), "internal"),
        ("auth_backends.1 = cache\nauth_cache.cached_backend = http", ("cache",), "http"),
        (
            "auth_backends.1 = cache\n" + CACHED_PAIR,
            ("cache",),
            "http/internal",
        ),
    ],
)
def test_a_chain_of_backends(text: str, chain: tuple[str, ...], cached: str) -> None:
    settings = load(text)
    assert (settings.auth_backends, settings.auth_cache_backend) == (chain, cached)


@pytest.mark.parametrize(
    "text, words",
    [
        ("auth_backends.1 = ldap", "let an HTTP server ask it"),
        ("auth_backends.2.authn = rabbit_auth_backend_amqp", "let an HTTP server ask it"),
        ("auth_cache.cached_backend = ldap", "let an HTTP server ask it"),
        ("auth_backends.1 = htpp", "allowed: internal, internal_loopback, http, cache"),
        ("auth_backends.first = http", "a place in the chain is a whole number"),
        ("auth_backends.1 = http\nauth_backends.1.authn = internal", "another line has said that"),
    ],
)
def test_a_backend_that_is_not_there_stops_the_start(text: str, words: str) -> None:
    with pytest.raises(SettingInvalid, match=re.escape(words)):
        load(text)
