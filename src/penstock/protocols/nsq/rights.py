"""Permissions of an NSQ client: those of a user of this broker, and those an authority granted.

    PUB, MPUB, DPUB    write on the exchange ``nsq.T``, configure if it has to be made
    SUB                read on the queue ``nsq.T:C``, configure on what has to be made

A client that did not authenticate acts as ``nsq_user``; with the callback of nsqd, what that user
may do is narrowed by what the callback granted to the connection.
"""

import json
import re
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from penstock.broker.rules.rights import Rights
from penstock.broker.topology.topics import exchange_name, queue_name
from penstock.broker.topology.vhost import Vhost

PUBLISH: Final = "publish"
SUBSCRIBE: Final = "subscribe"


@final
class Grant:
    """One entry of a callback's answer: patterns, searched in the names."""

    def __init__(self, topic: str, channels: list[str], permissions: list[str]) -> None:
        self.topic = re.compile(topic)
        self.channels = [re.compile(channel) for channel in channels]
        self.permissions = permissions

    def allows(self, topic: str, channel: str) -> bool:
        """No channel: to publish."""
        if (SUBSCRIBE if channel else PUBLISH) not in self.permissions:
            return False
        if self.topic.search(topic) is None:
            return False
        for pattern in self.channels:  # noqa: SIM110 - compiled code has no cheap generators
            if pattern.search(channel) is not None:
                return True
        return False


@final
class Identified:
    """What a connection's secret was answered with; 0 = it holds for ever."""

    def __init__(self, identity: str, url: str, grants: list[Grant], ttl_ms: i64) -> None:
        self.identity = identity
        self.url = url
        self.grants = grants
        self.ttl_ms: i64 = ttl_ms

    def welcome(self, permissions: int) -> bytes:
        """As AUTH is answered."""
        answer = {
            "identity": self.identity,
            "identity_url": self.url,
            "permission_count": permissions,
        }
        return json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode()

    def allows(self, topic: str, channel: str) -> bool:
        for grant in self.grants:  # noqa: SIM110 - as above
            if grant.allows(topic, channel):
                return True
        return False


@mypyc_attr(allow_interpreted_subclasses=True)
class AuthRequest:
    """A question under way; ``answer`` is None when no authority could answer.

    ``reason``: why there is none, for the log.
    """

    def __init__(self) -> None:
        self.wanted: bool = True
        self.done: bool = False
        self.answer: Identified | None = None
        self.reason: str = ""

    def drop(self) -> None:
        """The connection that asked has gone."""
        self.wanted = False

    def answered(self, answer: Identified) -> None:
        """By any thread; ``end`` follows."""
        self.answer = answer

    def failed(self, reason: str) -> None:
        """Likewise."""
        self.reason = reason

    def end(self) -> None:
        """Nothing more is asked for it."""
        self.done = True


def check_publish(rights: Rights, vhost: Vhost, topic: str) -> None:
    """Raises AccessRefused."""
    name = exchange_name(topic)
    if topic not in vhost.topics.topics:
        rights.configure("exchange", name)
    rights.write("exchange", name)


def check_subscribe(rights: Rights, vhost: Vhost, topic: str, channel: str) -> None:
    """Raises AccessRefused."""
    name = queue_name(topic, channel)
    known = vhost.topics.topics.get(topic)
    if known is None:
        rights.configure("exchange", exchange_name(topic))
    if known is None or channel not in known.channels:
        rights.configure("queue", name)
    rights.read("queue", name)
