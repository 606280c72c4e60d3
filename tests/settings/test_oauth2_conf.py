"""RabbitMQ's examples of ``auth_oauth2.*`` and ``auth_backends`` configure tokens unchanged."""

from __future__ import annotations

import pytest

from penstock.broker.oauth.servers import ROOT, OauthOptions, oauth_options
from penstock.core.errors import SettingInvalid
from penstock.settings.rabbitmq_conf import Translated, translate

KEY_FILES = """
auth_backends.1 = rabbit_auth_backend_oauth2
auth_oauth2.resource_server_id = new_resource_server_id
auth_oauth2.additional_scopes_key = my_custom_scope_key
auth_oauth2.preferred_username_claims.1 = user_name
auth_oauth2.preferred_username_claims.2 = username
auth_oauth2.default_key = id1
auth_oauth2.signing_keys.id1 = test/config_schema_SUITE_data/certs/key.pem
auth_oauth2.signing_keys.id2 = test/config_schema_SUITE_data/certs/cert.pem
auth_oauth2.algorithms.1 = HS256
auth_oauth2.algorithms.2 = RS256
"""
KEY_SERVER = """
auth_backends.1 = oauth2
auth_backends.2 = internal
auth_oauth2.resource_server_id = new_resource_server_id
auth_oauth2.jwks_uri = https://my-jwt-issuer/jwks.json
auth_oauth2.https.cacertfile = test/config_schema_SUITE_data/certs/cacert.pem
auth_oauth2.https.peer_verification = verify_peer
auth_oauth2.https.depth = 5
auth_oauth2.https.fail_if_no_peer_cert = true
auth_oauth2.https.hostname_verification = wildcard
auth_oauth2.algorithms.1 = HS256
auth_oauth2.algorithms.2 = RS256
"""
PROVIDERS = """
auth_oauth2.resource_server_type = rabbitmq
auth_oauth2.default_oauth_provider = uaa
auth_oauth2.resource_servers.1.id = rabbit_prod
auth_oauth2.resource_servers.1.oauth_provider_id = keycloak
auth_oauth2.resource_servers.rabbit_dev.scope_prefix = api://dev:
auth_oauth2.resource_servers.rabbit_dev.preferred_username_claims.1 = email
auth_oauth2.oauth_providers.uaa.issuer = https://uaa
auth_oauth2.oauth_providers.keycloak.token_endpoint = https://keycloak/token
auth_oauth2.oauth_providers.keycloak.jwks_uri = https://keycloak/keys
auth_oauth2.oauth_providers.keycloak.authorization_endpoint = https://keycloak/authorize
auth_oauth2.oauth_providers.keycloak.end_session_endpoint = https://keycloak/logout
auth_oauth2.oauth_providers.keycloak.https.cacertfile = certs/ca_certificate.pem
auth_oauth2.oauth_providers.keycloak.https.verify = verify_none
auth_oauth2.oauth_providers.keycloak.https.depth = 2
auth_oauth2.oauth_providers.keycloak.default_key = token-key
auth_oauth2.oauth_providers.keycloak.signing_keys.id1 = certs/key.pem
auth_oauth2.oauth_providers.keycloak.discovery_endpoint_path = /.well-known/openid-configuration
auth_oauth2.oauth_providers.keycloak.discovery_endpoint_params.param1 = value1
auth_oauth2.oauth_providers.keycloak.algorithms.1 = HS256
auth_oauth2.oauth_providers.keycloak.algorithms.2 = RS256
"""


def found(text: str) -> Translated:
    return translate([("x.conf", text)])


def options(text: str) -> OauthOptions:
    return oauth_options(str(found(text).values["auth_oauth2"]))


def test_an_example_with_key_files() -> None:
    read = options(KEY_FILES)
    server, provider = read.servers["new_resource_server_id"], read.providers[ROOT]
    assert server.username_claims[:2] == ("user_name", "username")
    assert server.additional_scopes == (("my_custom_scope_key",),)
    assert provider.default_key == "id1"
    assert set(provider.signing_keys) == {"id1", "id2"}
    assert provider.algorithms == ("HS256", "RS256")
    assert found(KEY_FILES).values["auth_backends"] == ("oauth2",)
    assert not found(KEY_FILES).warnings + found(KEY_FILES).unsafe


def test_an_example_with_a_key_server() -> None:
    provider = options(KEY_SERVER).providers[ROOT]
    assert provider.jwks_uri == "https://my-jwt-issuer/jwks.json"
    assert provider.verify_peer
    assert provider.ca_file.endswith("cacert.pem")
    assert found(KEY_SERVER).values["auth_backends"] == ("oauth2", "internal")
    said = [line.partition(": auth_oauth2.https.")[2] for line in found(KEY_SERVER).warnings]
    assert [line.partition(" ")[0] for line in said] == [
        "depth",
        "fail_if_no_peer_cert",
        "hostname_verification",
    ]
    assert not found(KEY_SERVER).unsafe


def test_an_example_with_several_servers_and_providers() -> None:
    read = options(PROVIDERS)
    assert set(read.servers) == {"rabbit_prod", "rabbit_dev"}
    assert read.servers["rabbit_prod"].provider == "keycloak"
    dev = read.servers["rabbit_dev"]
    assert (dev.provider, dev.type, dev.scope_prefix) == ("uaa", "rabbitmq", "api://dev:")
    assert dev.username_claims[0] == "email"
    keycloak = read.providers["keycloak"]
    assert (keycloak.verify_peer, keycloak.default_key) == (False, "token-key")
    assert read.providers["uaa"].discovery_uri == "https://uaa/.well-known/openid-configuration"


@pytest.mark.parametrize(
    "lines",
    [
        """
auth_oauth2.scope_aliases.admin = rabbitmq.tag:administrator
auth_oauth2.scope_aliases.developer = rabbitmq.tag:management rabbitmq.read:*/*
""",
        """
auth_oauth2.scope_aliases.1.alias = admin
auth_oauth2.scope_aliases.1.scope = rabbitmq.tag:administrator
auth_oauth2.scope_aliases.2.alias = developer
auth_oauth2.scope_aliases.2.scope = rabbitmq.tag:management rabbitmq.read:*/*
""",
    ],
)
def test_scope_aliases_are_written_in_two_ways(lines: str) -> None:
    text = f"auth_oauth2.resource_server_id = r\nauth_oauth2.issuer = https://i\n{lines}"
    assert options(text).servers["r"].scope_aliases == {
        "admin": ("rabbitmq.tag:administrator",),
        "developer": ("rabbitmq.tag:management", "rabbitmq.read:*/*"),
    }


def test_an_empty_prefix_is_written_with_quotes() -> None:
    text = "auth_oauth2.resource_server_id = r\nauth_oauth2.issuer = https://i\n"
    assert options(text + "auth_oauth2.scope_prefix = ''").servers["r"].scope_prefix == ""
    assert options(text).servers["r"].scope_prefix == "r."


@pytest.mark.parametrize(
    "line, why",
    [
        ("auth_oauth2.jwks_uri = http://plain/keys", "https://"),
        ("auth_oauth2.https.verify = perhaps", "verify_peer, verify_none"),
        ("auth_oauth2.verify_aud = yes", "true, false"),
        ("auth_oauth2.resource_server = r", "does not know the key"),
        ("auth_oauth2.scope_aliases.a = b\nauth_oauth2.scope_aliases.a.scope = c", "of its own"),
    ],
)
def test_a_wrong_line_is_refused(line: str, why: str) -> None:
    with pytest.raises(SettingInvalid, match=why):
        found(line)


@pytest.mark.parametrize(
    "line",
    [
        "auth_oauth2.https.crl_check = true",
        "auth_oauth2.oauth_providers.a.https.crl_check = peer",
    ],
)
def test_security_that_is_not_there_is_refused_by_name(line: str) -> None:
    assert [text for text in found(line).unsafe if line.partition(" ")[0] in text]
