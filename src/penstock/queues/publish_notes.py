"""``PublishNotes``: who is told of what goes into a queue before it does, and may make it wait.

A mirrored queue has one: a publisher waits for its mirrors (``core/confirm_watermark.py``).
"""

from mypy_extensions import mypyc_attr

from penstock.core.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class PublishNotes:
    """Base of who takes notes."""

    def note(self, messages: list[Message]) -> bool:
        """These are about to be published; False: the queue is not to take them.

        Then the publisher's wait says so, in a later turn.
        """
        raise NotImplementedError

    def is_alone(self) -> bool:
        """Will ``note`` refuse what comes now?"""
        raise NotImplementedError
