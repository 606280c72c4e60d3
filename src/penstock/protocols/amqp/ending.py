"""``Ending``: what is left of channels, and of their connection, once they are over.

    channels in turn: their deliveries, their consumers ─► exclusive queues ─► the connection

It needs no session: what is left goes on when the line is gone.  Until the last step the connection
and each channel count as open, so that the limits of a user bound what may be left.
"""

from typing import Final, final

from penstock.core.long_work import LongWork
from penstock.core.pending import Ticket
from penstock.protocols.amqp.channel import AmqpChannel
from penstock.protocols.amqp.link import Link


@final
class Ending(LongWork):
    """Of channels that were told to ``close``."""

    def __init__(self, link: Link, channels: list[AmqpChannel], leave: bool) -> None:
        self._link = link
        self._channels: Final = channels[::-1]
        self._leave: Final = leave

    def step(self) -> bool:
        channels = self._channels
        if len(channels) > 0:
            if not channels[-1].end_step():
                channels.pop()
            return len(channels) > 0 or self._leave
        return self._leave and self._link.leave_step()


def end(link: Link, channels: list[AmqpChannel], *, leave: bool = False) -> Ticket | None:
    """``leave``: the connection ends with them.  None: they are over."""
    for channel in channels:
        if not channel.closing:
            channel.publishing.write_confirms()
            channel.close()
    if leave and link.session.user is not None:
        link.broker.changes.owner_gone(link.session)
    return link.broker.queue_turns.long_works.start(Ending(link, channels, leave))
