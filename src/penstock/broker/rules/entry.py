"""``EntryRules``: whether a user may log in at all from there, before a password is judged."""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.rules.judges import Source
from penstock.settings.entry import USER, AddressRules

PLAIN_TEXT: Final = "plain_text"
USER_ADDRESS: Final = "user_address"
LIMIT: Final = "limit"
LOCKOUT: Final = "lockout"
REASONS: Final = (PLAIN_TEXT, USER_ADDRESS, LIMIT, LOCKOUT)
UNPROTECTED: Final = (
    "passwords are not taken over a connection without TLS: connect with TLS, or let the"
    " broker's operator set plain_text_passwords"
)
FROM_THERE: Final = "this user may not log in from this address"


@final
class EntryRules:
    """Of one node; ``plain_text``: passwords may come without TLS."""

    def __init__(self, plain_text: bool, rules: AddressRules) -> None:
        self._plain_text = plain_text
        self._rules = rules
        self.counts: dict[str, i64] = dict.fromkeys(REASONS, 0)

    def renew(self, plain_text: bool, rules: AddressRules) -> None:
        """The settings were read again."""
        self._plain_text = plain_text
        self._rules = rules

    def why_not(self, name: str, source: Source, has_password: bool) -> str:
        """Why it is refused, for the client, and counted; "" = it is not."""
        if has_password and not (source.is_local or source.is_encrypted or self._plain_text):
            self.count(PLAIN_TEXT)
            return UNPROTECTED
        if not self._rules.allow(USER + name, source.address):
            self.count(USER_ADDRESS)
            return FROM_THERE
        return ""

    def count(self, reason: str) -> None:
        """One more was refused, and told so."""
        self.counts[reason] += 1
