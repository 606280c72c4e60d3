"""An AMQP connection and its channels as management shows them.

Of what consumers were given and have not settled, each channel that consumes from a queue shows
its oldest open deliveries, with the time at which the channel would be closed for them.  A channel
may have a hundred thousand open, so only the first some hundred places of its ledger are looked at.
"""

from collections.abc import Iterator, Sequence
from typing import Final, cast

from penstock.core.clock_types import WallMs
from penstock.core.counting.traffic import Traffic
from penstock.management.facts.sessions import (
    ChannelFacts,
    ConnectionFacts,
    ConnectionTerms,
    OpenDelivery,
)
from penstock.protocols.amqp.channel import AmqpChannel
from penstock.protocols.amqp.deadlines import timeout_of
from penstock.protocols.amqp.session import RUNNING, AmqpSession
from penstock.protocols.description import SessionDescription, connection_facts
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.runtime.connection import Connection
from penstock.runtime.publish_credit import PublishCredit

PROTOCOL: Final = "AMQP 0-9-1"
PLACES_PER_DELIVERY: Final = 4
"""Of the places that are looked at some are settled, some are another queue's."""


class AmqpDescription(SessionDescription):
    """Of one session."""

    def __init__(self, session: AmqpSession) -> None:
        super().__init__(session)
        self._session = session

    def is_entered(self) -> bool:
        return self._session.decoder.opened

    def state(self) -> str:
        return self._session.state_name

    def vhost_name(self) -> str | None:
        session = self._session
        return session.link.vhost.name if session.state == RUNNING else None

    def given_name(self) -> str:
        given = self._session.opening.client_properties.get("connection_name")
        return given if isinstance(given, str) else ""

    def facts(self, connection: Connection) -> ConnectionFacts:
        session = self._session
        opening = session.opening
        user = session.user
        assert user is not None
        names = (user.name, session.link.vhost.name, self.state(), PROTOCOL)
        terms = ConnectionTerms(
            opening.log_in.mechanism,
            opening.client_properties,
            heartbeat_s=int(opening.heartbeat.interval_ms // 1000),
            frame_max=int(session.decoder.frame_max),
            channel_max=int(opening.channel_max),
        )
        connected_at_ms = opening.connected_at_ms
        return connection_facts(connection, names, connected_at_ms, terms, len(session.channels))

    def close(self, reason: str) -> None:
        self._session.force_close(reason)

    def channel_numbers(self) -> list[int]:
        return sorted(self._session.channels)

    def channels(self, numbers: Sequence[int]) -> list[ChannelFacts]:
        return [_channel_facts(number, channel) for number, channel in self._chosen(numbers)]

    def traffics(self, numbers: Sequence[int]) -> list[tuple[int, Traffic]]:
        return [(number, channel.traffic) for number, channel in self._chosen(numbers)]

    def _chosen(self, numbers: Sequence[int]) -> list[tuple[int, AmqpChannel]]:
        channels = self._session.channels
        return [(number, channels[number]) for number in numbers if number in channels]

    def channel_states(self) -> Iterator[tuple[int, object, str]]:
        for number, channel in list(self._session.channels.items()):
            if not channel.closing:
                yield number, channel, _state(channel)

    def consumers(self, number: int) -> list[Consumer]:
        channel = self._session.channels.get(number)
        return [] if channel is None else list(channel.consumers.values())

    def publishers(self) -> Iterator[PublishCredit]:
        for channel in self._session.channels.values():
            if channel.traffic.published > 0:
                yield channel.intake


def _state(channel: AmqpChannel) -> str:
    now_ms = channel.link.broker.events.now_ms
    return channel.intake.stage.state(now_ms - channel.active_at_ms)


def _channel_facts(number: int, channel: AmqpChannel) -> ChannelFacts:
    stage = channel.intake.stage
    transaction = channel.transaction
    confirms = channel.publishing.confirms if transaction is None else None
    return ChannelFacts(
        number,
        "closing" if channel.closing else _state(channel),
        channel.traffic.counts(),
        consumer_count=len(channel.consumers),
        prefetch=int(channel.prefetch),
        unacknowledged_count=int(channel.ledger.open_count),
        flow_s=int(stage.flow_s),
        shared_prefetch=max(0, int(channel.shared.limit)),
        active_at_ms=channel.active_at_ms,
        confirm=confirms is not None,
        transactional=transaction is not None,
        uncommitted_count=int(channel.publishing.held_count),
        uncommitted_ack_count=0 if transaction is None else transaction.judged_count(),
        unconfirmed_count=0 if confirms is None else int(confirms.unconfirmed_count()),
    )


def open_deliveries(queue: Queue, at_most: int) -> list[OpenDelivery]:
    """``SessionInspector.open_deliveries``."""
    channels: dict[int, AmqpChannel] = {}
    for consumer in queue.consumers:
        if isinstance(consumer.holder, AmqpChannel):
            channels[id(consumer.holder)] = consumer.holder
    found: list[OpenDelivery] = []
    for channel in channels.values():
        found += _of_channel(channel, queue, at_most - len(found))
        if len(found) >= at_most:
            break
    return found


def _of_channel(channel: AmqpChannel, queue: Queue, at_most: int) -> list[OpenDelivery]:
    ledger = channel.ledger
    if ledger.open_count == 0:
        return []
    broker = channel.link.broker
    default_ms = broker.options.consumer_timeout_ms
    to_wall_ms = int(broker.events.now_ms - broker.idleness.now_ms)  # both are the turn's
    last = int(ledger.oldest_tag()) + PLACES_PER_DELIVERY * at_most
    found: list[OpenDelivery] = []
    for tag in ledger.open_tags(min(last, int(ledger.next_tag) - 1)):
        consumer = cast(Consumer, ledger.holder(tag))
        if consumer.queue is not queue:
            continue
        begun_ms = WallMs(channel.deadlines.begun_ms(tag) + to_wall_ms)
        timeout_ms = int(timeout_of(consumer, default_ms))
        due_ms = WallMs(begun_ms + timeout_ms if timeout_ms > 0 else 0)
        found.append(OpenDelivery(ledger.message(tag), consumer.tag, begun_ms, due_ms))
        if len(found) >= at_most:
            break
    return found
