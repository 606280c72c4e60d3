"""Tokens: read within bounds, judged by clocks that are handed in, verified by keys of a family."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.oauth.keys import (
    KEYS_MAX,
    Key,
    KeyInvalid,
    check_signature,
    from_json,
    from_pem,
    key_set,
)
from penstock.broker.oauth.servers import oauth_options
from penstock.broker.oauth.tokens import (
    TOKEN_MAX_CHARS,
    TokenRefused,
    check_times,
    parse_token,
)
from penstock.broker.oauth.verifying import KeyUnknown, ProviderKeys, TokenUser, Verifier
from penstock.core.clock_types import WallMs
from tests.helpers.oauth_issuer import (
    NOW_S,
    SECRET,
    claims,
    private_key,
    public_jwk,
    public_pem,
    signed,
)

NOW_MS = WallMs(NOW_S * 1000)
ALGORITHMS = ["RS256", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"]


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(header: object, content: object, signature: bytes = b"x") -> str:
    return f"{part(header)}.{part(content)}.{part(signature)}"


def refused(text: str, why: str, check: Callable[[str], object] = parse_token) -> None:
    with pytest.raises(TokenRefused, match=why) as caught:
        check(text)
    for secret in text.split("."):
        assert len(secret) < 8 or secret not in str(caught.value)


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "no token"),
        ("guest", "no token"),
        ("a.b", "no token"),
        ("." * 4, "encrypted"),
        ("." * 1000, "no token"),
        ("..", "cannot be read"),
        ("a.b.c", "base64url"),
        ("e30.e30.é", "names no algorithm"),
        ("e3 0.e30.", "base64url"),
        ("e30=.e30.", "base64url"),
        (token([], {}), "no JSON object"),
        (token({"alg": "RS256"}, "claims"), "no JSON object"),
        (token({"alg": ["RS256"]}, {}), "names no algorithm"),
        (token({"alg": "RS256", "kid": 1}, {}), "key ID"),
        (token({"alg": "RS256", "kid": "k" * 1025}, {}), "key ID"),
        (token({"alg": "RS256", "crit": ["b64"], "b64": False}, {}), "crit"),
        (token({"alg": "RS256"}, b'{"exp": NaN}'), "cannot be read"),
        (token({"alg": "RS256"}, b'{"exp": -Infinity}'), "cannot be read"),
        (token({"alg": "RS256"}, b"\xff"), "cannot be read"),
        (token({"alg": "RS256"}, b'{"sub": "\\ud800"}'), "cannot be read"),
        (part({"alg": "RS256"}) + ".\udc80.", "base64url"),
        (token({"alg": "RS256"}, b"[" * 20_000), "cannot be read"),
        (token({"alg": "RS256"}, b'{"exp": ' + b"9" * 20_000 + b"}"), "cannot be read"),
        ("e30." + "A" * TOKEN_MAX_CHARS + ".", "more than"),
    ],
)
def test_what_is_no_token_is_refused_with_the_reason(text: str, why: str) -> None:
    refused(text, why)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for candidate in (text, f"e30.{text}.", token({"alg": "RS256"}, text.encode())):
        with suppress(TokenRefused):
            parse_token(candidate)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "content, ends_s, why",
    [
        ({"exp": NOW_S + 1}, NOW_S + 1, ""),
        ({"exp": NOW_S + 1.9}, NOW_S + 1, ""),
        ({"exp": NOW_S}, 0, "expired"),
        ({"exp": NOW_S + 0.9}, 0, "expired"),
        ({"exp": 0}, 0, "expired"),
        ({"exp": -1}, 0, "expired"),
        ({"exp": "1"}, 0, "no number"),
        ({"exp": True}, 0, "no number"),
        ({"exp": None}, 0, "no number"),
        ({"exp": 1e999}, 0, "no time"),
        ({"exp": 10**30}, 0, "no time"),
        ({"exp": -(10**400)}, 0, "no time"),
        ({"exp": float("nan")}, 0, "no time"),
        ({}, 0, "no exp"),
        ({"exp": NOW_S + 9, "nbf": NOW_S + 5}, NOW_S + 9, ""),
        ({"exp": NOW_S + 99, "nbf": NOW_S + 11}, 0, "holds from"),
        ({"exp": NOW_S + 9, "nbf": []}, 0, "no number"),
    ],
)
def test_times_are_judged_by_the_clock_that_is_handed_in(
    content: dict[str, Any], ends_s: int, why: str
) -> None:
    if why:
        with pytest.raises(TokenRefused, match=why):
            check_times(content, True, NOW_MS)
    else:
        assert check_times(content, True, NOW_MS) == ends_s * 1000


def test_a_token_without_end_is_taken_where_the_configuration_says_so() -> None:
    assert check_times({}, False, NOW_MS) is None
    with pytest.raises(TokenRefused, match="expired"):
        check_times({"exp": 1}, False, NOW_MS)


# -- keys ------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_signature_is_of_its_key_only(algorithm: str) -> None:
    text = signed(claims(), algorithm)
    mine = {"k": from_pem(public_pem(algorithm))}
    check_signature(parse_token(text), mine, "k", (algorithm,))
    check_signature(parse_token(text), {"k": from_json(public_jwk(algorithm))}, "k", (algorithm,))
    others = {"k": from_pem(public_pem(algorithm, 1))}
    with pytest.raises(TokenRefused, match="signature"):
        check_signature(parse_token(text), others, "k", (algorithm,))
    with pytest.raises(TokenRefused, match="not allowed"):
        check_signature(parse_token(text), mine, "k", ("HS256",))
    head, body, signature = text.split(".")
    for changed in (part(claims(sub="bob")), body[:-1]):
        try:
            wrong = parse_token(f"{head}.{changed}.{signature}")
        except TokenRefused:
            continue
        with pytest.raises(TokenRefused, match="signature"):
            check_signature(wrong, mine, "k", (algorithm,))


def test_a_public_key_is_no_secret_of_hmac() -> None:
    """The oldest trick: the header says HS256, the secret is the text of the public key."""
    pem = public_pem("RS256")
    head, body = part({"alg": "HS256", "kid": "k"}), part(claims())
    mac = hmac.digest(pem, f"{head}.{body}".encode(), hashlib.sha256)
    forged = parse_token(f"{head}.{body}.{part(mac)}")
    every = ("RS256", "HS256", "none")
    with pytest.raises(TokenRefused, match="not for its key"):
        check_signature(forged, {"k": from_pem(pem)}, "k", every)


@pytest.mark.parametrize("name", ["none", "None", "nOnE", "", "RS257"])
def test_no_algorithm_is_no_algorithm(name: str) -> None:
    forged = parse_token(token({"alg": name, "kid": "k"}, claims(), b""))
    with pytest.raises(TokenRefused, match="algorithm"):
        check_signature(forged, {"k": from_pem(public_pem("RS256"))}, "k", (name, "RS256"))


def test_a_key_is_for_the_algorithm_that_it_names() -> None:
    key = from_json({**public_jwk("RS256"), "alg": "RS512"})
    with pytest.raises(TokenRefused, match="not for its key"):
        check_signature(parse_token(signed(claims())), {"k": key}, "k", ("RS256", "RS512"))
    with pytest.raises(KeyInvalid):
        from_json({**public_jwk("RS256"), "alg": "HS256"})


def test_a_secret_comes_from_the_configuration_only() -> None:
    text = parse_token(signed(claims(), "HS256"))
    mac = {"kty": "MAC", "alg": "HMACSHA256", "value": SECRET.decode()}
    for key in (public_jwk("HS256"), mac):
        check_signature(text, {"k": from_json(key, secrets=True)}, "k", ("HS256",))
        with pytest.raises(KeyInvalid):
            from_json(key)
    with pytest.raises(KeyInvalid, match="16 bytes"):
        Key(b"short")


@pytest.mark.parametrize(
    "data, why",
    [
        (b"", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "at most"),
        (b"{}", "at most"),
        (b'{"keys": {}}', "at most"),
        (b'{"keys": []}', "no key that can be used"),
        (b'{"keys": [1, {"kid": 1}, {}, {"kty": "RSA"}]}', "no key that can be used"),
        (json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode(), "at most"),
    ],
)
def test_a_key_set_of_nonsense_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(KeyInvalid, match=why):
        key_set(data)


def test_a_key_set_has_the_keys_that_can_be_used() -> None:
    listed = [
        public_jwk("RS256", "a"),
        public_jwk("ES256", "b"),
        public_jwk("EdDSA", None),
        {**public_jwk("RS256", "c"), "use": "enc"},
        public_jwk("HS256", "d"),
        {**public_jwk("ES256", "e"), "crv": "P-1"},
        {**public_jwk("RS256", "f"), "n": "AQAB"},
        {**public_jwk("RS256", "g"), "alg": 7},
    ]
    keys, unusable = key_set(json.dumps({"keys": listed}).encode())
    assert set(keys) == {"a", "b", None}
    assert len(unusable) == 5


@given(st.dictionaries(st.sampled_from(["kty", "crv", "n", "e", "x", "y", "k", "alg"]), JSON))
def test_a_key_of_any_json_is_read_or_refused(key: dict[str, Any]) -> None:
    for kind in ("RSA", "EC", "OKP", "oct", "MAC"):
        with suppress(KeyInvalid):
            from_json({"kty": kind, **key}, secrets=True)


@pytest.mark.parametrize("data", [b"", b"-----BEGIN PUBLIC KEY-----\nx", b"BEGIN CERTIFICATE"])
def test_a_file_that_is_no_key_is_refused(data: bytes) -> None:
    with pytest.raises(KeyInvalid, match="PEM"):
        from_pem(data)


# -- all of it -------------------------------------------------------------------------------

OPTIONS = {
    "resource_server_id": "rabbitmq",
    "issuer": "https://issuer.example/",
    "preferred_username_claims": ["user_name"],
    "default_key": "k",
}


def verifier(**options: object) -> Verifier:
    found = oauth_options(json.dumps({**OPTIONS, **options}))
    keys = {
        "k": from_pem(public_pem("RS256")),
        "e": from_pem(public_pem("ES256")),
        "h": from_json(public_jwk("HS256"), secrets=True),
    }
    known = ProviderKeys(keys, frozenset({"https://issuer.example"}))
    return Verifier(found, lambda _name: known, check_signature)


def test_a_token_is_a_user_with_tags_and_rights() -> None:
    content = claims("rabbitmq.read:*/q", "rabbitmq.tag:monitoring", "other.write:*/*")
    user: TokenUser = verifier().user_of(signed(content), NOW_MS)
    assert (user.name, user.tags, user.expires_ms) == ("ann", ["monitoring"], NOW_MS + 600_000)
    grants = user.scopes.in_vhost("/")
    assert grants is not None
    assert grants.allows(2, "q")
    assert not grants.allows(1, "q")
    assert verifier().user_of(signed(claims(user_name="bob")), NOW_MS).name == "bob"
    assert verifier().user_of(signed(claims(), "ES256", "e"), NOW_MS).name == "ann"
    assert verifier().user_of(signed(claims(), key_id=None), NOW_MS).name == "ann"


def test_a_user_of_one_issuer_is_none_of_another_issuers() -> None:
    providers = {
        "one": {"issuer": "https://issuer.example", "signing_keys": {"k": "k.pem"}},
        "two": {"signing_keys": {"k": "k.pem"}, "username_prefix": "two:"},
    }
    servers = {name: {"oauth_provider_id": name, "scope_prefix": ""} for name in providers}
    both = verifier(oauth_providers=providers, resource_servers=servers)

    def user(server: str, name: str) -> TokenUser:
        return both.user_of(signed(claims(aud=server, sub=name, user_name=name)), NOW_MS)

    assert (user("one", "ann").name, user("two", "ann").name) == ("ann", "two:ann")
    assert user("two", "two:ann").name == "two:two:ann"
    assert (user("one", "x").issuer, user("two", "x").issuer) == ("https://issuer.example", "two")
    with pytest.raises(TokenRefused, match="username_prefix of another issuer"):
        user("one", "two:ann")
    with pytest.raises(TokenRefused, match="too long"):
        user("two", "x" * 252)


@pytest.mark.parametrize(
    "content, why",
    [
        (claims(aud=None), "another resource server"),
        (claims(aud="other"), "another resource server"),
        (claims(aud=["other", 7, None]), "another resource server"),
        (claims(aud={"rabbitmq": 1}), "another resource server"),
        (claims(iss="https://evil.example"), "another issuer"),
        (claims(iss=None), "another issuer"),
        (claims(iss=["https://issuer.example"]), "another issuer"),
        (claims(exp=NOW_S), "expired"),
        (claims(sub="x" * 300), "too long"),
        (claims(*[f"rabbitmq.read:*/{n}" for n in range(2049)], scope=None), ""),
        (claims(*[f"rabbitmq.read:a/{n:x}" for n in range(1100)]), ""),
    ],
)
def test_a_token_is_refused_with_the_reason(content: dict[str, Any], why: str) -> None:
    if why:
        refused(signed(content), why, lambda text: verifier().user_of(text, NOW_MS))
    else:
        verifier().user_of(signed(content), NOW_MS)


def test_symmetric_keys_are_used_where_the_configuration_lists_them() -> None:
    text = signed(claims(), "HS256", "h")
    refused(text, "not allowed", lambda one: verifier().user_of(one, NOW_MS))
    listed = verifier(algorithms={"1": "HS256", "2": "RS256"})
    assert listed.user_of(text, NOW_MS).name == "ann"
    inline = verifier(signing_keys={"h": public_jwk("HS256")})
    assert inline.user_of(text, NOW_MS).name == "ann"


def test_a_key_that_is_not_there_is_asked_for() -> None:
    with pytest.raises(KeyUnknown) as caught:
        verifier().user_of(signed(claims(), key_id="new"), NOW_MS)
    assert caught.value.provider == ""


def test_a_token_is_judged_in_bounded_time() -> None:
    """The longest that is taken: many scopes, each with many stars."""
    scope = " ".join(f"rabbitmq.read:*/{'*a' * 40}{n}" for n in range(220))
    text = signed(claims(scope=scope))
    assert 20_000 < len(text) <= TOKEN_MAX_CHARS
    began = time.perf_counter()
    grants = verifier().user_of(text, NOW_MS).scopes.in_vhost("/")
    assert grants is not None
    assert not grants.allows(2, "a" * 255)
    assert time.perf_counter() - began < 1


@given(st.dictionaries(st.sampled_from(["aud", "iss", "exp", "nbf", "scope", "sub"]), JSON))
def test_claims_of_any_json_are_judged_or_refused(content: dict[str, Any]) -> None:
    plain = verifier(verify_aud=False, require_exp=False)
    with suppress(TokenRefused):
        plain.user_of(signed({"iss": "https://issuer.example", **content}, "HS256", "h"), NOW_MS)


def test_a_private_key_is_read_as_its_public_half() -> None:
    pem = private_key("RS256").private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    check_signature(parse_token(signed(claims())), {"k": from_pem(pem)}, "k", ("RS256",))
