"""``SetNotes``: hears every change to the set of messages of a backing.

Mirrors of a queue have the same set of messages, and nothing else of it (docs/design/clusters.md):
so they must hear of what comes, ends, is delayed, is counted or gets another place, and of nothing
that only says which consumer has what.  A ``VariableQueue`` tells its ``notes``, if it has any,
together with the journal; of messages it keeps in memory only as well.

A hook down here, and not a wrapper around the backing: what ``purge`` or ``drop_below`` end is
known here as a stretch of positions, without one being looked at; verbs that only some callers use
(``requeue_to_tail``, ``ack_behind``, ``cancel_delayed``) are noted too; the class of a backing does
not depend on whether it has notes.  Without notes it costs a comparison per batch.

Not told: fetches and requeues; that a time has come (mirrors have clocks); the deletion of the
queue; that a start found less than there was, which it does not know.
"""

from mypy_extensions import i64, mypyc_attr

from penstock.core.clock_types import WallMs
from penstock.core.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class SetNotes:
    """Of one part of a backing.  Batches are not kept: an implementation copies what it needs."""

    def published(self, messages: list[Message], until_ms: WallMs) -> None:
        """New ones, at places that were never used; contents at hand.  0 = ready at once."""
        raise NotImplementedError

    def ended(self, messages: list[Message]) -> None:
        raise NotImplementedError

    def ended_between(self, start: i64, end: i64) -> None:
        """Nothing is left from ``start`` up to and without ``end``."""
        raise NotImplementedError

    def let_go(self, seq_ids: list[int]) -> None:
        """Ended here because they live on elsewhere, as something published in this same turn."""
        raise NotImplementedError

    def delayed(self, messages: list[Message], until_ms: WallMs) -> None:
        raise NotImplementedError

    def counted(self, messages: list[Message]) -> None:
        """The attempts in their flags have changed."""
        raise NotImplementedError

    def marked(self, kind: i64, count: i64, rows: bytes) -> None:
        """Of a stream: all its marks of that kind (``streams/marks.py``), so many."""
        raise NotImplementedError
