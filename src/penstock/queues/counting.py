"""What a queue counts, for people who watch: the part of ``Queue`` that knows how much went by.

Numbers since the queue was opened.  They grow once per batch; single messages are looked at only
while some that were given back have not been handed out again, because then a batch may hold some
of them.
"""

from mypy_extensions import i64

from penstock.core.message import REDELIVERED, Message
from penstock.queues.consumers import Consumer


class CountedMessages:
    """``delivered_count`` is all that was handed out; those below it are parts of it."""

    def __init__(self) -> None:
        self.active_at_ms: i64 = 0  # when it last took or gave messages
        self.published_count: i64 = 0
        self.delivered_count: i64 = 0
        self.no_ack_count: i64 = 0  # to who acknowledges nothing
        self.got_count: i64 = 0  # one by one, when asked
        self.got_no_ack_count: i64 = 0  # both
        self.again_count: i64 = 0  # not for the first time
        self.empty_count: i64 = 0  # asked, and there was nothing
        self.acked_count: i64 = 0
        self.redelivered_count: i64 = 0  # given back
        self.requeued_count: i64 = 0  # given back before their time
        self.timed_out_count: i64 = 0
        self._returned: i64 = 0  # of those given back, so many may still be here

    def _count_out(self, consumer: Consumer, count: i64) -> None:
        self.delivered_count += count
        consumer.delivered_count += count
        if consumer.no_ack:
            self.no_ack_count += count

    def _count_get(self, account: Consumer) -> None:
        """What was just counted was asked for."""
        self.got_count += 1
        if account.no_ack:
            self.got_no_ack_count += 1

    def _count_again(self, messages: list[Message]) -> i64:
        """How many of these, which are handed out, are not so for the first time."""
        count: i64 = 0
        for message in messages:
            if message.flags & REDELIVERED:
                count += 1
        self.again_count += count
        # After a crash more have the mark than were given back since.
        self._returned = self._returned - count if self._returned > count else 0
        return count

    def _limit_returned(self, ready: i64) -> None:
        """So many are still here: some that came back may have expired, been dropped or moved."""
        if self._returned > ready:
            self._returned = ready
