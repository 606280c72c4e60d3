"""``Key``: the keys by which a provider's tokens are verified.

A key belongs to one family of algorithms, by its type and curve: an RSA key never checks an HMAC,
whatever the header of a token says.  A key may name the one algorithm that it is for.

    from_pem     a public key, a certificate, or (as RabbitMQ takes it) a private key
    from_json    a JSON web key; symmetric ones only from the configuration
    key_set      the answer of a provider ─► keys by ID

PyJWT and cryptography read keys and check signatures; both come with the extra ``oauth2``.
"""

from collections.abc import Mapping
from typing import Any, Final, cast, final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509 import load_pem_x509_certificate
from jwt.algorithms import get_default_algorithms

from penstock.broker.oauth.tokens import Token, TokenRefused
from penstock.core.errors import PenstockError
from penstock.core.json_reading import json_of

KEYS_MAX: Final = 100
RSA_MIN_BITS: Final = 2048
RSA_MAX_BITS: Final = 8192
"""A larger key makes each check of a signature slow."""
SECRET_MIN_BYTES: Final = 16
RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES: Final = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
OF_EDWARDS: Final = ("EdDSA",)
HMAC: Final = ("HS256", "HS384", "HS512")
UAA_NAMES: Final = {
    "HMACSHA256": "HS256",
    "HMACSHA384": "HS384",
    "HMACSHA512": "HS512",
    "SHA256withRSA": "RS256",
    "SHA512withRSA": "RS512",
}
"""As Cloud Foundry's UAA names algorithms."""
_ALGORITHMS: Final = get_default_algorithms()

Json = dict[str, Any]


class KeyInvalid(PenstockError):
    """Its text says why."""


@final
class Key:
    """``algorithms``: those that it may be used with."""

    def __init__(self, material: object, only: str = "") -> None:
        """``material``: a public key of cryptography, or the octets of a secret.

        Raises KeyInvalid.
        """
        usable = _usable(material)
        if only and only not in usable:
            raise KeyInvalid(f"the key cannot be used with its algorithm {only[:20]}")
        self.algorithms: Final = (only,) if only else usable
        self._material: Final = material

    def signed(self, token: Token) -> bool:
        """Is the signature of this key?"""
        algorithm = _ALGORITHMS[token.algorithm]
        return bool(algorithm.verify(token.signed, cast(Any, self._material), token.signature))


KeyMap = Mapping[str | None, Key]
"""By ID; None: of the key without one."""


def _usable(material: object) -> tuple[str, ...]:
    if isinstance(material, RSAPublicKey):
        if not RSA_MIN_BITS <= material.key_size <= RSA_MAX_BITS:
            raise KeyInvalid(f"an RSA key has {RSA_MIN_BITS} to {RSA_MAX_BITS} bits")
        return RSA
    if isinstance(material, EllipticCurvePublicKey) and material.curve.name in CURVES:
        return CURVES[material.curve.name]
    if isinstance(material, Ed25519PublicKey):
        return OF_EDWARDS
    if isinstance(material, bytes):
        if len(material) < SECRET_MIN_BYTES:
            raise KeyInvalid(f"a secret has {SECRET_MIN_BYTES} bytes at least")
        return HMAC
    raise KeyInvalid("the key is of no known type and curve")


def check_signature(
    token: Token, keys: KeyMap, key_id: str | None, allowed: tuple[str, ...]
) -> None:
    """Raises TokenRefused; ``key_id`` is in ``keys``."""
    key = keys[key_id]
    if token.algorithm not in allowed or token.algorithm not in key.algorithms:
        raise TokenRefused("the token's algorithm is not allowed, or not for its key")
    if not key.signed(token):
        raise TokenRefused("the token's signature is wrong")


def from_pem(data: bytes) -> Key:
    """Raises KeyInvalid."""
    try:
        if b"BEGIN CERTIFICATE" in data:
            return Key(load_pem_x509_certificate(data).public_key())
        if b"PRIVATE KEY" in data:
            return Key(serialization.load_pem_private_key(data, None).public_key())
        return Key(serialization.load_pem_public_key(data))
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyInvalid(f"no public key in PEM: {error}") from None


def from_json(key: Json, *, secrets: bool = False) -> Key:
    """``secrets``: it may be symmetric.  Raises KeyInvalid."""
    alg = key.get("alg") or ""
    only = UAA_NAMES.get(alg, alg) if isinstance(alg, str) else "?"
    if key.get("kty") == "MAC" and isinstance(key.get("value"), str) and secrets:
        return Key(key["value"].encode(), only)
    if key.get("kty") == "oct" and not secrets:
        raise KeyInvalid("a key set that all may read has a symmetric key")
    if key.get("use", "sig") != "sig":
        raise KeyInvalid("the key is not for signatures")
    public = {name: value for name, value in key.items() if name not in ("d", "alg")}
    try:
        return Key(jwt.PyJWK(public).key, only)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        raise KeyInvalid("no JSON web key of a known type and curve") from None


def key_set(data: bytes) -> tuple[dict[str | None, Key], list[str]]:
    """Of a provider's answer: keys that can be used, and why others cannot.  Raises KeyInvalid."""
    try:
        found = json_of(data)
    except ValueError:
        raise KeyInvalid("the key set is no JSON") from None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise KeyInvalid(f"the key set is no JSON object with a list of at most {KEYS_MAX} keys")
    keys: dict[str | None, Key] = {}
    unusable: list[str] = []
    for one in listed:
        key_id = one.get("kid") if isinstance(one, dict) else None
        try:
            if not isinstance(one, dict) or not isinstance(key_id, str | None):
                raise KeyInvalid("an entry is no JSON object, or its ID no text")
            keys[key_id] = from_json(one)
        except KeyInvalid as error:
            unusable.append(str(error))
    if not keys:
        raise KeyInvalid("the key set has no key that can be used: " + "; ".join(unusable[:3]))
    return keys, unusable
