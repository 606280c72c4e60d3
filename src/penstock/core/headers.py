"""Headers of messages, as the broker asks for them, whatever protocol's message they are on.

Features that look at one header of some messages (deduplication, delays) are behind the
wire, where nobody sees protocol bytes.  So they are given a ``HeaderReader``.
"""

from penstock.core.message import Message

DEDUPLICATION_HEADER = "x-deduplication-header"


class HeaderReader:
    """Reads one header; the content stays as it is."""

    def read(self, message: Message, name: str) -> object:
        """The value, None when there is none; cheap when the name does not occur at all."""
        raise NotImplementedError
