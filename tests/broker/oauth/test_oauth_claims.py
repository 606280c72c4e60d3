"""Scopes and names out of claims, and the setting that says how."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.broker.oauth.claims import scopes_in, user_name
from penstock.broker.oauth.servers import ROOT, OauthOptions, ResourceServer, oauth_options
from penstock.broker.oauth.tokens import TokenRefused
from penstock.core.errors import SettingInvalid


def server(**options: object) -> ResourceServer:
    top = {"resource_server_id": "rmq", "issuer": "https://i", **options}
    return oauth_options(json.dumps(top)).servers["rmq"]


KEYCLOAK = {
    "authorization": {
        "permissions": [
            {"scopes": ["rmq.read:*/*"], "rsid": "2c390fe4"},
            {"scopes": ["rmq.write:*/*", 7], "rsname": "q"},
            {"rsname": "r"},
            "text",
        ]
    }
}
RICH = {
    "authorization_details": [
        {
            "type": "rabbitmq",
            "locations": ["cluster:rmq/vhost:prod-*", "cluster:other", "vhost:none"],
            "actions": ["read", "configure", "dance"],
        },
        {"type": "rabbitmq", "locations": "cluster:r*", "actions": "administrator"},
        {
            "type": "rabbitmq",
            "locations": ["x/cluster:rmq/exchange:e%2F/routing-key:a.*", "cluster:rmq/queue:q"],
            "actions": ["write"],
        },
        {"type": "rabbitmq", "locations": ["cluster:rmq/queue:a/exchange:b"], "actions": ["read"]},
        {"type": "rabbitmq", "locations": ["cluster:%"], "actions": ["read"]},
        {"type": "other", "locations": ["cluster:rmq"], "actions": ["read"]},
        {"type": "rabbitmq", "locations": {"cluster": "rmq"}, "actions": ["read"]},
        7,
    ]
}


@pytest.mark.parametrize(
    "claims, options, scopes",
    [
        ({"scope": "rmq.a rmq.b other.c  rmq.a"}, {}, ["a", "b"]),
        ({"scope": ["rmq.a", ["rmq.b"], 7, None]}, {}, ["a"]),
        ({"scope": {"rmq": "a"}}, {}, []),
        ({}, {}, []),
        ({"scope": "a rmq.b"}, {"scope_prefix": ""}, ["a", "rmq.b"]),
        ({"scope": "api://x.read:*/*"}, {"scope_prefix": "api://x."}, ["read:*/*"]),
        (KEYCLOAK, {}, ["read:*/*", "write:*/*"]),
        ({"roles": "rmq.a rmq.b"}, {"additional_scopes_key": "roles"}, ["a", "b"]),
        ({"roles": ["rmq.a"], "scope": "rmq.b"}, {"additional_scopes_key": "roles"}, ["a", "b"]),
        (
            {"realm": {"roles": ["rmq.a"]}, "roles": "rmq.b"},
            {"additional_scopes_key": "roles realm.roles nothing.here"},
            ["a", "b"],
        ),
        (
            {"access": {"rmq": ["a", "b"], "other": ["c"]}},
            {"additional_scopes_key": "access"},
            ["a", "b"],
        ),
        ({"access": {"rmq": "a b"}}, {"additional_scopes_key": "access"}, ["a", "b"]),
        (
            {"scope": "admin developer"},
            {"scope_aliases": {"admin": "rmq.tag:administrator rmq.read:*/*"}},
            ["read:*/*", "tag:administrator"],
        ),
        (
            {"scope": "admin"},
            {"scope_aliases": {"1": {"alias": "admin", "scope": "rmq.tag:administrator"}}},
            ["tag:administrator"],
        ),
        (RICH, {}, []),
        (
            RICH,
            {"resource_server_type": "rabbitmq"},
            [
                "configure:prod-*/*/*",
                "read:prod-*/*/*",
                "tag:administrator",
                "write:*/e%2F/a.*",
                "write:*/q/*",
            ],
        ),
    ],
)
def test_scopes_are_found_where_rabbitmq_finds_them(
    claims: dict[str, Any], options: dict[str, Any], scopes: list[str]
) -> None:
    assert scopes_in(claims, server(**options)) == scopes


def test_too_many_scopes_are_refused() -> None:
    every = [f"rmq.{n}" for n in range(2049)]
    assert len(scopes_in({"scope": every[1:]}, server())) == 2048
    with pytest.raises(TokenRefused, match="2048"):
        scopes_in({"scope": every}, server())


@pytest.mark.parametrize(
    "claims, name",
    [
        ({"sub": "s", "client_id": "c"}, "s"),
        ({"client_id": "c"}, "c"),
        ({"user": "u", "sub": "s"}, "u"),
        ({"mail": "m", "sub": "s"}, "m"),
    ],
)
def test_the_first_claim_with_a_name_counts(claims: dict[str, Any], name: str) -> None:
    found = server(preferred_username_claims={"2": "mail", "10": "x", "1": "user"})
    assert found.username_claims == ("user", "mail", "x", "sub", "client_id")
    assert user_name(claims, found, "") == name


@pytest.mark.parametrize("claims", [{}, {"sub": ["s"], "client_id": ""}, {"sub": 7}])
def test_a_token_that_names_no_user_is_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused, match="no user: none of user, sub, client_id is a text"):
        user_name(claims, server(preferred_username_claims=["user"]), "")


# -- the setting -----------------------------------------------------------------------------

SEVERAL: dict[str, Any] = {
    "resource_server_type": "t",
    "scope_aliases": {"a": "b c"},
    "default_oauth_provider": "uaa",
    "resource_servers": {
        "one": {},
        "2": {"id": "two", "scope_prefix": "p-", "oauth_provider_id": "keycloak"},
        "three": {"verify_aud": False, "require_exp": False},
    },
    "oauth_providers": {
        "uaa": {
            "issuer": "https://uaa/x/",
            "discovery_endpoint_path": "o/p",
            "discovery_endpoint_params": {"a b": "c&d"},
        },
        "keycloak": {
            "jwks_uri": "https://keycloak/keys",
            "https": {"cacertfile": "/ca", "verify": "verify_none"},
            "algorithms": {"2": "ES256", "1": "RS256"},
        },
    },
}


def several() -> OauthOptions:
    return oauth_options(json.dumps(SEVERAL))


def test_several_resource_servers_and_providers() -> None:
    found = several()
    one, two, three = (found.servers[name] for name in ("one", "two", "three"))
    assert (one.type, one.provider, one.scope_prefix) == ("t", "uaa", "one.")
    assert one.scope_aliases == {"a": ("b", "c")}
    assert (two.provider, two.scope_prefix) == ("keycloak", "p-")
    assert (three.verify_aud, three.require_exp, one.verify_aud) == (False, False, True)
    keycloak, uaa = found.providers["keycloak"], found.providers["uaa"]
    assert uaa.discovery_uri == "https://uaa/x/o/p?a%20b=c%26d"
    assert (keycloak.algorithms, keycloak.ca_file) == (("RS256", "ES256"), "/ca")
    assert (keycloak.verify_peer, uaa.verify_peer) == (False, True)
    assert not {"HS256", "none"} & set(uaa.algorithms)


@pytest.mark.parametrize(
    "audience, server_id",
    [
        ("one", "one"),
        ("x two", "two"),
        (["x", "two"], "two"),
        (None, "three"),
        ("x", "three"),
        ("", "three"),
        (["one", "two"], ""),
        ("one two", ""),
    ],
)
def test_the_audience_chooses_the_resource_server(audience: object, server_id: str) -> None:
    if server_id:
        assert several().server_for(audience).id == server_id
    else:
        with pytest.raises(TokenRefused, match="several"):
            several().server_for(audience)


@pytest.mark.parametrize(
    "change, why",
    [
        ({"resource_servers": {}}, "neither resource_server_id"),
        ({"sesame": 1}, "sesame is not one of"),
        ({"issuer": 1}, "issuer has the wrong type"),
        ({"jwks_uri": "http://far.example/keys"}, "https"),
        ({"jwks_uri": "https://[x/keys"}, "jwks_uri"),
        ({"jwks_uri": "https:///keys"}, "https"),
        ({"algorithms": ["none"]}, "none is not one of"),
        ({"algorithms": [7]}, "no list of texts"),
        ({"https": {"verify": "perhaps"}}, "verify"),
        ({"https": {"depth": 1}}, "depth is not one of"),
        ({"signing_keys": {"a": 7}}, "signing_keys.a"),
        ({"scope_aliases": {"1": {"alias": "a"}}}, "scope_aliases.1"),
        ({"resource_servers": {"a": []}}, "resource_servers.a is no JSON object"),
        ({"default_oauth_provider": "x"}, "no provider 'x'"),
        ({"default_oauth_provider": ROOT}, "neither signing_keys"),
        ({"oauth_providers": {"uaa": {"issuer": "ftp://x"}}}, "https"),
        ({"discovery_endpoint_params": {"a": 1}, "issuer": "https://x"}, "discovery_endpoint_p"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(change: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingInvalid, match=why):
        oauth_options(json.dumps({**SEVERAL, **change}))


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(SettingInvalid, match="JSON"):
        oauth_options(text)


def test_keys_in_plain_come_from_this_machine_only() -> None:
    oauth_options(json.dumps({"resource_server_id": "a", "jwks_uri": "http://127.0.0.1:1/k"}))
