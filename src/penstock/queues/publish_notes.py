"""``PublishNotes``: who is told of what goes into a queue before it does, and may make it wait.

A mirrored queue has one: whoever published waits for its mirrors (``core/frontier.py``).
"""

from penstock.core.message import Message


class PublishNotes:
    """Base of who takes notes."""

    def note(self, messages: list[Message]) -> None:
        """These are about to be published."""
        raise NotImplementedError
