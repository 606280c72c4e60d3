"""Direct reply-to: answers that go to a channel without a queue.

    basic.consume amq.rabbitmq.reply-to ─► a name of its own, known to who is told it
    request, reply_to = amq.rabbitmq.reply-to ─► rewritten to that name
    answer, default exchange, that name as routing key ─► taken here ─► the turn ─► channel

A name is a key that cannot be guessed.  It is no queue: nothing rests behind it,
and an answer to a channel that is gone is gone too.  As in RabbitMQ it works from any virtual
host, and a mandatory answer is returned even when it arrives.
"""

from typing import Final, final

from penstock.core.message import Message

REPLY_TO: Final = "amq.rabbitmq.reply-to"
REPLY_PREFIX: Final = "amq.rabbitmq.reply-to."


@final
class ReplyConsumer:
    """Who waits for answers; ``holder`` is the session's affair and opaque here."""

    def __init__(self, holder: object, tag: str, name: str) -> None:
        self.holder = holder
        self.tag = tag
        self.name = name
        self.answers: list[Message] = []  # to be delivered in this turn

    def take_answers(self) -> list[Message]:
        answers = self.answers
        self.answers = []
        return answers


@final
class Replies:
    """All of a broker's reply consumers, by the names of theirs."""

    def __init__(self) -> None:
        self.consumers: dict[str, ReplyConsumer] = {}
        self.answered: Final[list[ReplyConsumer]] = []

    def add(self, consumer: ReplyConsumer) -> None:
        self.consumers[consumer.name] = consumer

    def remove(self, consumer: ReplyConsumer) -> None:
        del self.consumers[consumer.name]
        consumer.take_answers()

    def publish(self, routing_keys: list[str], messages: list[Message]) -> bool:
        """Take them for the consumers of these names; False = there is none, the usual case."""
        if len(self.consumers) == 0:
            return False
        found = False
        for name in dict.fromkeys(routing_keys):
            consumer = self.consumers.get(name)
            if consumer is None:
                continue
            if len(consumer.answers) == 0:
                self.answered.append(consumer)
            consumer.answers.extend(messages)
            found = True
        return found

    def take_answered(self) -> list[ReplyConsumer]:
        """Those who have answers, or had and are gone."""
        answered = self.answered[:]
        self.answered.clear()
        return answered
