"""Keys and tokens of an issuer of our own."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

NOW_S = 1_790_000_000
SECRET = b"a secret of more than 32 octets, of one machine"
RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}


def private_key(algorithm: str, number: int = 0) -> Any:
    return _made("RS256" if algorithm in RSA else algorithm, number)


@cache
def _made(algorithm: str, _number: int) -> Any:
    """Once per process: an RSA key takes a tenth of a second."""
    if algorithm in CURVES:
        return ec.generate_private_key(CURVES[algorithm]())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm.startswith("HS"):
        return SECRET
    return rsa.generate_private_key(65537, 2048)


def public_pem(algorithm: str, number: int = 0) -> bytes:
    return bytes(
        private_key(algorithm, number)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def public_jwk(algorithm: str, key_id: str | None = "k", number: int = 0) -> dict[str, Any]:
    family = jwt.get_algorithm_by_name(algorithm)
    key: Any = private_key(algorithm, number)
    key = key if isinstance(key, bytes) else key.public_key()
    found = json.loads(family.to_jwk(key))
    return found if key_id is None else {**found, "kid": key_id}


def claims(*scopes: str, **others: Any) -> dict[str, Any]:
    """A claim that is None is left out."""
    every = {
        "iss": "https://issuer.example",
        "sub": "ann",
        "aud": "rabbitmq",
        "exp": NOW_S + 600,
        "scope": " ".join(scopes),
        **others,
    }
    return {key: value for key, value in every.items() if value is not None}


def signed(
    content: dict[str, Any], algorithm: str = "RS256", key_id: str | None = "k", number: int = 0
) -> str:
    headers = {} if key_id is None else {"kid": key_id}
    return jwt.PyJWS().encode(
        json.dumps(content).encode(), private_key(algorithm, number), algorithm, headers
    )
