"""``CopyChanges``: what became of the copies of mirrored queues, as this node hears of it.

In: the news of each view.  Out: sentences for the log of every node; an event and a count at one of
them, so that a sum over all nodes counts each change once.
"""

from collections.abc import Sequence
from typing import final

from penstock.cluster.agreement.mirror_keys import Place
from penstock.cluster.agreement.queue_views import CHANGES, CopyNews
from penstock.core.events.book import EventBook


@final
class CopyChanges:
    """``counts``: by kind of change, of those that were told here."""

    def __init__(self, events: EventBook) -> None:
        self.counts: dict[str, int] = dict.fromkeys(CHANGES, 0)
        self._events = events
        self._sentences: list[str] = []

    def note(self, place: Place, news: Sequence[CopyNews], why: str, *, is_told_here: bool) -> None:
        """``why``: "" where another node has decided it."""
        if not news:
            return
        reason = f" ({why})" if why else ""
        texts = "; ".join([str(one) for one in news])
        self._sentences.append(
            f"Mirrored queue '{place[1]}' in vhost '{place[0]}': {texts}{reason}"
        )
        if is_told_here:
            for change, node in news:
                self.counts[change] += 1
                self._events.note("mirror_changed", (*place, node, change, why))

    def take_sentences(self) -> list[str]:
        """Since the last time, one for each view that changed something."""
        sentences, self._sentences = self._sentences, []
        return sentences
