"""Encrypted values of a configuration: ``rabbitmqctl encode`` and ``decode``, without a node."""

import re
import secrets
from typing import Final

from penstock.core.errors import SettingInvalid
from penstock.ctl.call import Call
from penstock.ctl.faults import DATA, UNAVAILABLE, Fault, Invalid
from penstock.ctl.users import asked
from penstock.secrets.encryption import (
    BLOCK_BYTES,
    SALT_BYTES,
    Encryption,
    WrongKey,
    term_as_written,
    term_of_text,
)
from penstock.settings.secrets import CIPHER, CIPHERS, HASHES, HASHING, ITERATIONS

ENCRYPTED: Final = re.compile(
    r'\{\s*encrypted\s*,\s*(?:<<)?"([^"]*)"(?:>>)?\s*\}|(?:encrypted:)?(.*)'
)
WRONG: Final = (
    "Error:\nFailed to decrypt the value. Things to check: is the passphrase correct? Are the"
    " cipher and hash algorithms the same as those used for encryption?"
)


def encode(call: Call) -> str:
    value, encryption = _asked(call, "Encrypting value ...")
    salt, vector = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(BLOCK_BYTES)
    try:
        return f'{{encrypted,<<"{encryption.encrypt(term_of_text(value), salt, vector)}">>}}'
    except SettingInvalid as error:
        raise Fault(UNAVAILABLE, f"Error:\n{error}") from error


def decode(call: Call) -> str:
    value, encryption = _asked(call, "Decrypting value...")
    found = ENCRYPTED.fullmatch(value.strip())
    assert found is not None
    try:
        return term_as_written(encryption.decrypt(found[1] or found[2] or ""))
    except WrongKey as error:
        raise Fault(UNAVAILABLE, WRONG) from error
    except SettingInvalid as error:
        raise Fault(UNAVAILABLE, f"Error:\n{error}") from error


def list_known(call: Call) -> str:
    is_cipher = call.verb == "list_ciphers"
    call.say(f"Listing supported {'ciphers' if is_cipher else 'hash algorithms'} ...")
    return f"[{','.join(CIPHERS if is_cipher else HASHES)}]"


def _asked(call: Call, title: str) -> tuple[str, Encryption]:
    value, *given = call.take(1, 2)
    cipher, hashing = call.text("cipher", CIPHER), call.text("hash", HASHING)
    iterations = call.number("iterations", ITERATIONS)
    for name, known, what in ((cipher, CIPHERS, "cipher"), (hashing, HASHES, "hash")):
        if name not in known:
            raise Invalid(f"Bad argument: The requested {what} is not supported.", DATA)
    if iterations < 1:
        raise Invalid("Bad argument: The requested number of iterations is incorrect", DATA)
    call.say(title)
    passphrase = given[0] if given else asked(call, "Passphrase: ")
    if not passphrase:
        raise Fault(UNAVAILABLE, "Error:\nnot_enough_args")
    return value, Encryption(passphrase.encode(), cipher, hashing, iterations)
