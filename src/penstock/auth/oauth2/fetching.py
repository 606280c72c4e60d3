"""``KeySource``: the keys of one provider of tokens, of the configuration and fetched.

    issuer ─► discovery document ─► jwks_uri ─► key set ─► keys by their ID

Fetched at the start, for a token whose key is not there, and on the first use after ``OLD_S``.
There is one request at a time and one in ``AGAIN_S``, whatever tokens name; an answer has an end
in bytes and in time, and no redirect is followed.  While the provider fails, the last good set is
used; each good one replaces it, so that a key which the provider has withdrawn is not taken.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp

from penstock.broker.oauth.keys import Key, KeyInvalid, from_json, from_pem, key_set
from penstock.broker.oauth.servers import Provider, is_safe_address
from penstock.broker.oauth.verifying import ProviderKeys
from penstock.core.errors import SettingInvalid
from penstock.core.json_reading import json_of
from penstock.runtime.http_asking import ASKING, PLAIN, read_answer

AGAIN_S: Final = 10.0
OLD_S: Final = 3600.0
TIMEOUT_S: Final = 5.0
CONNECT_S: Final = 3.0
KEY_SET_MAX_BYTES: Final = 512 * 1024
DOCUMENT_MAX_BYTES: Final = 64 * 1024
OK: Final = 200

logger = logging.getLogger("penstock.auth")


class FetchFailed(aiohttp.ClientError):
    """Its text says why."""


class KeySource:
    """``known`` may be read by any thread; ``refresh`` belongs to one event loop."""

    def __init__(self, provider: Provider, clock: Callable[[], float] = time.monotonic) -> None:
        """Reads key files.  Raises SettingInvalid."""
        self._provider: Final = provider
        self._clock: Final = clock
        self._configured: Final = _configured_keys(provider)
        self._tls: Final = _tls_context(provider)
        self._names: Final = {provider.issuer.rstrip("/")} - {""}
        self.known = self._with({}, set())
        self._is_remote: Final = bool(provider.jwks_uri or provider.discovery_uri)
        self.answered = self.failed = 0  # requests for keys
        self._asked_at: float | None = None
        self._fetch: asyncio.Task[None] | None = None

    def may_fetch(self) -> bool:
        """Is there anything to fetch, and the last request long enough ago?"""
        asked_at = self._asked_at
        return self._is_remote and (asked_at is None or self._clock() - asked_at >= AGAIN_S)

    def is_fetching(self) -> bool:
        return self._fetch is not None

    def is_old(self) -> bool:
        asked_at = self._asked_at
        return self._is_remote and (asked_at is None or self._clock() - asked_at >= OLD_S)

    async def refresh(self) -> None:
        """Wait for the request under way, or for another if it is time for one."""
        if self._fetch is None:
            if not self.may_fetch():
                return
            self._asked_at = self._clock()
            self._fetch = asyncio.create_task(self._renew())
        await asyncio.shield(self._fetch)

    async def _renew(self) -> None:
        title = f"provider {self._provider.name!r}" if self._provider.name else "the provider"
        try:
            keys, unusable, names = await self._fetched()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyInvalid) as error:
            why = str(error) or type(error).__name__
            logger.warning("OAuth 2: keys of %s could not be fetched: %s", title, why)
            self.failed += 1
        else:
            self.known = self._with(keys, names)
            self.answered += 1
            logger.info("OAuth 2: %d keys of %s fetched", len(keys), title)
            for why in sorted(set(unusable)):
                logger.warning("OAuth 2: a key of %s is not used: %s", title, why)
        finally:
            self._fetch = None

    def _with(self, fetched: Mapping[str | None, Key], names: set[str]) -> ProviderKeys:
        issuers = frozenset({*self._names, *names}) if self._provider.verify_iss else frozenset()
        return ProviderKeys({**self._configured, **fetched}, issuers)

    async def _fetched(self) -> tuple[dict[str | None, Key], list[str], set[str]]:
        """Keys, why others are not used, and how the provider calls itself."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S, connect=CONNECT_S)
        async with aiohttp.ClientSession(timeout=timeout, **PLAIN) as session:
            uri, names = self._provider.jwks_uri, set()
            if not uri:
                uri, name = _read_document(
                    await self._get(session, self._provider.discovery_uri, DOCUMENT_MAX_BYTES)
                )
                names = {name} - {""}
            keys, unusable = key_set(await self._get(session, uri, KEY_SET_MAX_BYTES))
            return keys, unusable, names

    async def _get(self, session: aiohttp.ClientSession, uri: str, most_bytes: int) -> bytes:
        async with session.get(uri, ssl=self._tls, **ASKING) as response:
            if response.status != OK:
                raise FetchFailed(f"{uri} is answered with status {response.status}")
            return await read_answer(response, most_bytes)


def _read_document(data: bytes) -> tuple[str, str]:
    """Of an OpenID provider: where its keys are, and its name, "" = none.  Raises FetchFailed."""
    try:
        document = json_of(data)
    except ValueError:
        raise FetchFailed("the discovery document is no JSON") from None
    uri = document.get("jwks_uri") if isinstance(document, dict) else None
    if not isinstance(uri, str) or not is_safe_address(uri):
        raise FetchFailed("the discovery document names no jwks_uri of https")
    name = document.get("issuer")
    return uri, name.rstrip("/") if isinstance(name, str) else ""


def _configured_keys(provider: Provider) -> dict[str | None, Key]:
    keys: dict[str | None, Key] = {}
    for key_id, value in provider.signing_keys.items():
        where = f"auth_oauth2: signing key {key_id!r}"
        try:
            keys[key_id] = _configured_key(value)
        except (OSError, KeyInvalid) as error:
            raise SettingInvalid(f"{where}: {error}") from error
    return keys


def _configured_key(value: str | dict[str, object]) -> Key:
    if isinstance(value, dict):
        return from_json(value, secrets=True)
    if value.startswith("-----BEGIN"):
        return from_pem(value.encode())
    with open(value, "rb") as file:
        return from_pem(file.read())


def _tls_context(provider: Provider) -> ssl.SSLContext | bool:
    """True: as is usual; not made without need, for reading all authorities takes a while.

    Raises SettingInvalid.
    """
    if provider.verify_peer and not provider.ca_file:
        return True
    try:
        context = ssl.create_default_context(cafile=provider.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise SettingInvalid(f"auth_oauth2: {provider.ca_file}: {error}") from error
    if not provider.verify_peer:
        logger.warning(
            "OAuth 2: certificates of %s are not checked", provider.issuer or "providers"
        )
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
