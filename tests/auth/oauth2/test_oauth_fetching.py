"""Keys of a provider over real HTTP: discovery, rotation, faults once and for ever, TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.auth.oauth2 import fetching
from penstock.auth.oauth2.fetching import AGAIN_S, KEY_SET_MAX_BYTES, OLD_S, KeySource
from penstock.broker.oauth.servers import ROOT, oauth_options
from penstock.core.errors import SettingInvalid
from tests.helpers import certificates
from tests.helpers.certificates import Authority
from tests.helpers.oauth_issuer import public_jwk, public_pem
from tests.helpers.oauth_server import DOCUMENT, Issuer


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    yield issuer
    issuer.close()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def source(clock: Callable[[], float] = time.monotonic, **options: object) -> KeySource:
    found = oauth_options(json.dumps({"resource_server_id": "r", **options}))
    return KeySource(found.providers[ROOT], clock)


def refresh(*sources: KeySource) -> None:
    async def all_of_them() -> None:
        await asyncio.gather(*(one.refresh() for one in sources))

    asyncio.run(all_of_them())


def test_the_issuer_says_where_its_keys_are(issuer: Issuer) -> None:
    found = source(issuer=f"{issuer.url}/", discovery_endpoint_params={"a": "b"})
    assert found.known.keys == {}
    refresh(found)
    assert set(found.known.keys) == {"k"}
    assert found.known.issuers == {issuer.url}
    assert issuer.asked == [f"{DOCUMENT}?a=b", "/realm/keys"]


def test_a_provider_may_call_itself_by_another_name(issuer: Issuer) -> None:
    """As UAA does: its name is that of its token endpoint."""
    issuer.document = {"issuer": "https://uaa/oauth/token"}
    found = source(issuer=issuer.url)
    refresh(found)
    assert found.known.issuers == {issuer.url, "https://uaa/oauth/token"}
    careless = source(issuer=issuer.url, verify_iss=False)
    refresh(careless)
    assert careless.known.issuers == frozenset()


@pytest.mark.parametrize("uri", ["http://far.example/keys", "file:///etc/passwd", 7, None, ""])
def test_a_document_cannot_lead_to_an_unsafe_address(issuer: Issuer, uri: object) -> None:
    issuer.document = {"jwks_uri": uri}
    found = source(issuer=issuer.url)
    refresh(found)
    assert found.known.keys == {}
    assert issuer.asked == [DOCUMENT]


def test_one_request_is_made_for_all_and_one_in_a_while(issuer: Issuer) -> None:
    clock = Clock()
    found = source(clock, jwks_uri=issuer.jwks_uri)
    assert found.may_fetch()
    refresh(found, found, found)
    refresh(found)
    assert len(issuer.asked) == 1
    assert not found.may_fetch()
    clock.now = AGAIN_S
    refresh(found, found)
    assert len(issuer.asked) == 2
    assert not found.is_old()
    clock.now += OLD_S
    assert found.is_old()


def test_keys_rotate(issuer: Issuer) -> None:
    """The set of the provider replaces that of before; keys of the configuration stay."""
    clock = Clock()
    own = {"own": public_jwk("ES256")}
    found = source(clock, jwks_uri=issuer.jwks_uri, signing_keys=own)
    refresh(found)
    assert set(found.known.keys) == {"own", "k"}
    issuer.keys = [public_jwk("RS256", "new", 1)]
    clock.now = AGAIN_S
    refresh(found)
    assert set(found.known.keys) == {"own", "new"}


@pytest.mark.parametrize("name", ["", "/", None, 7])
def test_a_provider_without_a_name_adds_none(issuer: Issuer, name: object) -> None:
    """Else tokens whose claim ``iss`` is empty would be of that issuer."""
    issuer.document = {"issuer": name}
    found = source(issuer=issuer.url)
    refresh(found)
    assert found.known.issuers == {issuer.url}


@pytest.mark.parametrize(
    "fault",
    [
        *(404, 500, 204, "redirect", "endless", "huge", "cut", "slow"),
        *(b"", b"[1]", b"{", b"[" * 100_000, b'{"keys": []}', b" " * (KEY_SET_MAX_BYTES + 1)),
    ],
    ids=lambda fault: repr(fault)[:16],
)
def test_a_fault_leaves_the_keys_that_are_known(
    issuer: Issuer, fault: int | str | bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TIMEOUT_S", 0.3)
    clock = Clock()
    found = source(clock, jwks_uri=issuer.jwks_uri)
    refresh(found)
    before = found.known
    issuer.fault = fault
    clock.now = AGAIN_S
    began = time.monotonic()
    refresh(found)
    assert time.monotonic() - began < 2
    assert found.known is before
    assert not found.is_fetching()
    issuer.fault = None
    clock.now = 2 * AGAIN_S
    refresh(found)
    assert set(found.known.keys) == {"k"}
    assert (found.answered, found.failed) == (2, 1)
    assert "/realm/elsewhere" not in issuer.asked


def test_a_provider_that_is_gone_is_a_line_in_the_log(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    found = source(jwks_uri="http://127.0.0.1:9/keys")
    refresh(found)
    assert "OAuth 2: keys of the provider could not be fetched" in caplog.text
    assert found.known.keys == {}


def test_key_files_are_read_at_the_start(tmp_path: Path) -> None:
    pem = tmp_path / "key.pem"
    pem.write_bytes(public_pem("RS256"))
    found = source(signing_keys={"a": str(pem), "b": public_pem("ES256").decode()})
    assert set(found.known.keys) == {"a", "b"}
    assert not found.may_fetch()
    refresh(found)
    pem.write_text("no key")
    for wrong in (str(pem), str(tmp_path / "missing"), {"kty": "RSA"}, {"kty": "MAC"}):
        with pytest.raises(SettingInvalid, match="signing key 'a'"):
            source(signing_keys={"a": wrong})


@pytest.mark.skipif(certificates.MISSING is not None, reason=str(certificates.MISSING))
def test_a_provider_shows_a_certificate_of_the_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("issuer", "/CN=issuer", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    issuer = Issuer(context)
    try:
        trusting = source(
            jwks_uri=issuer.jwks_uri, https={"cacertfile": str(authority.certificate)}
        )
        strict = source(jwks_uri=issuer.jwks_uri)
        blind = source(jwks_uri=issuer.jwks_uri, https={"verify": "verify_none"})
        refresh(trusting, strict, blind)
        assert set(trusting.known.keys) == {"k"}
        assert strict.known.keys == {}
        assert set(blind.known.keys) == {"k"}
    finally:
        issuer.close()
    with pytest.raises(SettingInvalid, match="missing"):
        source(jwks_uri="https://a/k", https={"cacertfile": str(tmp_path / "missing.pem")})
