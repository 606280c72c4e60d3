"""``PublishNotes``: hears of messages before they go into a queue, and may make the publisher wait.

A mirrored queue has one: a publisher waits for its mirrors (``core/confirm_watermark.py``).
"""

from mypy_extensions import mypyc_attr

from penstock.core.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class PublishNotes:
    """Of one queue."""

    def note(self, messages: list[Message]) -> bool:
        """These are about to be published; False: the queue is not to take them.

        Then the publisher's wait says so, in a later turn.
        """
        raise NotImplementedError

    def is_alone(self) -> bool:
        """Will ``note`` refuse what comes now?"""
        raise NotImplementedError
