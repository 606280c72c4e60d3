"""``HeaderReader``: headers of a message, independent of its protocol.

Features that look at one header of some messages (deduplication, delays) are in packages that
know no protocol's bytes.  So they are given a ``HeaderReader``.
"""

from typing import Final

from mypy_extensions import mypyc_attr

from penstock.core.clock_types import WallMs
from penstock.core.message import Message

DEDUPLICATION_HEADER: Final = "x-deduplication-header"
CACHE_TTL_HEADER: Final = "x-cache-ttl"
DELAY_HEADER: Final = "x-delay"
DELAY_MAX_MS: Final = 10 * 365 * 86_400_000
"""Ten years; a longer delay becomes this."""


@mypyc_attr(allow_interpreted_subclasses=True)
class HeaderReader:
    """Reads what is asked of a message; the content stays as it is."""

    def read(self, message: Message, name: str) -> object:
        """The value, None when there is none; cheap when the name does not occur at all."""
        raise NotImplementedError

    def marks(self, content: bytes, now_ms: WallMs) -> tuple[int, WallMs]:
        """The flags of a content that was accepted before, and when it expires if it comes now.

        Of flags those a publisher decides: see ``core.message``.
        """
        raise NotImplementedError

    def facts(self, content: bytes) -> dict[str, object]:
        """What exchanges may route it by, besides its key."""
        raise NotImplementedError

    def names(self, address: bytes) -> tuple[str, str]:
        """Exchange and routing key of an address as messages carry it."""
        raise NotImplementedError


def delay_in(value: object) -> int:
    """Milliseconds that a value of ``x-delay`` asks for: a number, or text that is one.

    Anything else is none, as is what is not above 0; a negative one was waited for already.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return 0
    return min(value, DELAY_MAX_MS)
