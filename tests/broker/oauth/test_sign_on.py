"""The setting of single sign-on: RabbitMQ's lines in, ``/api/auth`` as RabbitMQ answers it out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.broker.oauth.sign_on import OFF, SignOn, sign_on
from penstock.core.errors import SettingInvalid
from penstock.settings.rabbitmq_conf import translate
from penstock.settings.settings import load_settings

ONE = """
auth_backends.1 = oauth2
auth_oauth2.resource_server_id = rabbitmq
auth_oauth2.issuer = https://idp.example/realms/shop
auth_oauth2.token_endpoint = https://tokens.example:8443/token
management.oauth_enabled = true
management.oauth_client_id = rabbitmq-ui
management.oauth_scopes = openid profile rabbitmq.tag:management
management.oauth_authorization_endpoint_params.prompt = login
"""
SEVERAL = """
auth_backends.1 = oauth2
auth_backends.2 = internal
auth_oauth2.resource_servers.prod.oauth_provider_id = keycloak
auth_oauth2.resource_servers.dev.oauth_provider_id = uaa
auth_oauth2.resource_servers.old.oauth_provider_id = uaa
auth_oauth2.oauth_providers.keycloak.issuer = https://keycloak
auth_oauth2.oauth_providers.keycloak.end_session_endpoint = https://keycloak/logout
auth_oauth2.oauth_providers.uaa.issuer = https://uaa:8443/uaa
management.oauth_enabled = true
management.oauth_disable_basic_auth = false
management.oauth_resource_servers.1.id = prod
management.oauth_resource_servers.1.label = Production
management.oauth_resource_servers.1.oauth_client_id = prod_ui
management.oauth_resource_servers.dev.oauth_initiated_logon_type = idp_initiated
management.oauth_resource_servers.old.oauth_client_id = old_ui
management.oauth_resource_servers.old.disabled = true
"""


def read(text: str) -> SignOn:
    found = translate([("x.conf", text)])
    assert not found.warnings + found.unsafe
    return sign_on(load_settings(None, {}, {}, conf=[("x.conf", text)]))


def test_one_resource_server() -> None:
    found = read(ONE)
    assert found.answer == {
        "oauth_enabled": True,
        "oauth_disable_basic_auth": True,
        "oauth_client_id": "rabbitmq-ui",
        "oauth_scopes": "openid profile rabbitmq.tag:management",
        "oauth_authorization_endpoint_params": {"prompt": "login"},
        "oauth_resource_servers": {
            "rabbitmq": {
                "id": "rabbitmq",
                "oauth_provider_url": "https://idp.example/realms/shop",
                "oauth_metadata_url": (
                    "https://idp.example/realms/shop/.well-known/openid-configuration"
                ),
                "oauth_authorization_endpoint_params": {"prompt": "login"},
            }
        },
    }
    assert found.origins == ("https://idp.example", "https://tokens.example:8443")
    assert not found.by_provider


def test_several_resource_servers() -> None:
    found = read(SEVERAL)
    servers: dict[str, Any] = found.answer["oauth_resource_servers"]
    assert set(servers) == {"prod", "dev"}
    assert servers["prod"]["label"] == "Production"
    assert servers["prod"]["end_session_endpoint"] == "https://keycloak/logout"
    assert servers["dev"]["oauth_initiated_logon_type"] == "idp_initiated"
    assert found.answer["oauth_disable_basic_auth"] is False
    assert found.origins == ("https://keycloak", "https://uaa:8443")
    assert found.by_provider


def test_it_is_off_unless_it_is_enabled() -> None:
    assert read(ONE.replace("oauth_enabled = true", "oauth_enabled = false")) == OFF


@pytest.mark.parametrize(
    "old, new, why",
    [
        ("auth_backends.1 = oauth2", "auth_backends.1 = internal", "needs oauth2 in auth_backends"),
        ("management.oauth_client_id = rabbitmq-ui", "", "no resource server has a provider"),
        (
            "management.oauth_client_id",
            "management.oauth_resource_servers.other.oauth_client_id",
            "auth_oauth2 has no resource server 'other'",
        ),
        (
            "management.oauth_scopes = ",
            "management.oauth_provider_url = http://",
            "oauth_provider_url is no https:// address",
        ),
        (
            "https://tokens.example:8443/",
            "https://a;script-src/",
            "no host that a browser's policy",
        ),
    ],
)
def test_what_cannot_work_is_refused(old: str, new: str, why: str) -> None:
    assert old in ONE
    with pytest.raises(SettingInvalid, match=why):
        read(ONE.replace(old, new))


@pytest.mark.parametrize(
    "setting, why",
    [
        ({"oauth_response_type": "token"}, "oauth_response_type is not code"),
        ({"oauth_initiated_logon_type": "x"}, "is not one of sp_initiated, idp_initiated"),
        ({"oauth_token_endpoint_params": {"a": 1}}, "values that are no texts"),
        ({"oauth_client": "x"}, "oauth_client is not one of"),
    ],
)
def test_wrong_values_are_refused(setting: dict[str, object], why: str) -> None:
    environment = {"PENSTOCK_MANAGEMENT_OAUTH": json.dumps(setting)}
    with pytest.raises(SettingInvalid, match=why):
        sign_on(load_settings(None, environment, {}))


def test_the_secret_of_the_client_is_in_no_message() -> None:
    text = "management.oauth_client_secret.x = hunter2\n"
    with pytest.raises(SettingInvalid) as refused:
        translate([("x.conf", text)])
    assert "hunter2" not in str(refused.value)
