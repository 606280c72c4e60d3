"""The name a client's certificate gives its user, spelt as RabbitMQ spells it.

In: the certificate as Python's ``ssl`` shows a verified one.  Out: its distinguished name in the
form of RFC 4514 (the last attribute first), its common name, or one of its alternative names.
Users are looked up by exactly this text, so every character of the spelling counts; what was asked
of the real broker is in the tests.
"""

from collections.abc import Mapping
from typing import Final

Subject = tuple[tuple[tuple[str, str], ...], ...]
AlternativeNames = tuple[tuple[str, str], ...]

KINDS: Final[Mapping[str, str]] = {"dns": "DNS", "ip": "IP Address", "email": "email", "uri": "URI"}
"""Of alternative names: RabbitMQ's word for a kind, and that of Python's ``ssl``."""

_SHORT: Final[Mapping[str, str]] = {
    "surname": "SN",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "title": "TITLE",
    "countryName": "C",
    "serialNumber": "SERIALNUMBER",
    "pseudonym": "PSEUDONYM",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "userId": "UID",
    # RabbitMQ has no name for these.
    "streetAddress": "2.5.4.9",
    "dnQualifier": "2.5.4.46",
}
_ESCAPED: Final = '",+;<>\\'
_FIRST_PRINTABLE: Final = 32
_PRINTABLE_BELOW: Final = 126


def distinguished_name(subject: Subject) -> str:
    """All of the subject."""
    return ",".join(
        "+".join(f"{_SHORT.get(kind, kind)}={_escape(value)}" for kind, value in attributes)
        for attributes in reversed(subject)
    )


def common_name(subject: Subject) -> str:
    """The common name as it stands, or several with commas; "" when there is none."""
    names = [value for attributes in subject for kind, value in attributes if kind == "commonName"]
    return ",".join(names)


def alternative_name(names: AlternativeNames, kind: str, index: int) -> str:
    """The one at ``index`` of those of a kind (``KINDS``); "" when there are not so many."""
    found = [value for name, value in names if name == KINDS[kind]]
    return found[index] if index < len(found) else ""


def _escape(value: str) -> str:
    spelt = "".join(_escape_character(character) for character in value)
    if spelt.startswith((" ", "#")):
        spelt = "\\" + spelt
    if spelt.endswith(" ") and len(value) > 1:
        spelt = spelt[:-1] + "\\ "
    return spelt


def _escape_character(character: str) -> str:
    if character in _ESCAPED:
        return "\\" + character
    if _FIRST_PRINTABLE <= ord(character) < _PRINTABLE_BELOW:
        return character
    return "".join(f"\\{byte:02X}" for byte in character.encode())
