"""``PublishNotes``: who is told of what goes into a queue before it does, and may make it wait.

A mirrored queue has one: whoever published waits for its mirrors (``core/frontier.py``).
"""

from mypy_extensions import mypyc_attr

from penstock.core.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class PublishNotes:
    """Base of who takes notes."""

    def note(self, messages: list[Message]) -> None:
        """These are about to be published."""
        raise NotImplementedError
