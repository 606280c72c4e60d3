"""``penstock migrate nsqd``: topics, channels and messages of an nsqd that was stopped.

    nsqd's files ─► DiskQueue ─► batches of messages ─► the queues of a node without listeners

A channel's messages go to its queue, a topic's to its backlog, with their ids, times and attempts.
Nothing of nsqd's is changed.  Each queue that is done stands in the record when its messages are on
disk; one that was interrupted is emptied and filled again.  A topic is paused until all is there,
so that its backlog is not passed on before it is whole.
"""

import os
import resource
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import click

from penstock.broker.broker import Broker
from penstock.broker.topology.topics import Topic, Topics, exchange_name
from penstock.cli.failure import Failure
from penstock.cli.nsq.disk_queues import (
    DiskQueue,
    SavedChannel,
    SavedMessage,
    SavedTopic,
    queue_names,
    read_topics,
    stopped,
)
from penstock.cli.nsq.programs import PROGRAMS, settings_of
from penstock.cli.nsq.record import Record
from penstock.cli.options import option
from penstock.cli.serve import work_offline
from penstock.cli.tables import table
from penstock.clocks import wall_ms
from penstock.core.clock_types import WallMs
from penstock.core.message import PERSISTENT, REDELIVERED, Message, set_attempts
from penstock.core.pending import Pending
from penstock.protocols.nsq.codec.contents import PERSISTENT_MODE, ContentMaker
from penstock.queues.queue import Queue

BATCH_MESSAGES: Final = 2048
BATCHES_PER_SYNC: Final = 32
SAY_EVERY_S: Final = 1.0

T = TypeVar("T")
Sync = Callable[[bool], None]
"""Lets the node work; True: returns when all it was given is on disk."""


class Taken(NamedTuple):
    name: str
    depth: int | None
    """Of nsqd's own note."""
    messages: int
    ready: int
    """In the queue here."""


@click.command(
    name="nsqd",
    epilog="\b\nExample:\n  penstock migrate nsqd /var/lib/nsqd --into /var/lib/penstock",
)
@click.argument("data_path", metavar="DATA-PATH")
@option("--into", "Data directory of the broker, which must be stopped; else DATA-PATH itself.")
def nsqd(data_path: str, into: str | None) -> None:
    """Take over the topics, channels and messages of an nsqd that was stopped.

    DATA-PATH is nsqd's --data-path; nothing in it is removed. Messages keep their ids, times and
    attempts; those that were in flight or deferred at the stop are ready. Interrupted, even
    killed, run it again: it goes on where it was, and no message comes twice. What cannot be read
    is named with its file and offset, and the exit code is then 1; the rest is there all the same.
    """
    source = Path(os.path.realpath(data_path))
    if not source.is_dir():
        raise Failure(f"{source} is no directory", "name nsqd's --data-path")
    settings = settings_of(PROGRAMS[0], {"data-path": [into or str(source)]}, os.environ)
    with stopped(source):
        topics = _with_unnamed(read_topics(source), source)
        queues = [DiskQueue(source, name) for name in queue_names(source)]
        os.makedirs(settings.data_dir, mode=0o700, exist_ok=True)
        record = Record(settings.data_dir)
        _refuse_others(record, source, queues)
        began_s = time.monotonic()
        taken: list[Taken] = []

        def work(broker: Broker, sync: Sync) -> None:
            taking = TakingOver(broker, settings.nsq_vhost, record, sync)
            taken.extend(taking.run(str(source), topics, queues))

        if record.finished and record.source == str(source):
            taken += [known for queue in queues if (known := _known(queue, record)) is not None]
        else:
            work_offline(settings, work)
            record.finish()
    _tell(taken, [fault for queue in queues for fault in queue.faults], time.monotonic() - began_s)


def _known(queue: DiskQueue, record: Record) -> Taken | None:
    """What became of it in an earlier run; None: it is not done."""
    found = record.find(queue.name)
    if found is None or found[1] is None:
        return None
    for _ in queue.messages():
        pass  # reading notes again the messages that cannot be read, for the report
    return Taken(queue.name, queue.depth, found[1], found[1])


def _with_unnamed(topics: list[SavedTopic], source: Path) -> list[SavedTopic]:
    """Also those that have files and that the metadata do not name."""
    known = {topic.name: topic for topic in topics}
    for name in queue_names(source):
        topic, _, channel = name.partition(":")
        found = known.setdefault(topic, SavedTopic(topic, False, []))
        if channel and channel not in {one.name for one in found.channels}:
            found.channels.append(SavedChannel(channel, False))
    return list(known.values())


def _refuse_others(record: Record, source: Path, queues: list[DiskQueue]) -> None:
    if not record.finished and record.source != str(source):
        raise Failure(
            f"{record.source} is being taken over into this directory",
            f"finish it first: `penstock migrate nsqd {record.source}`",
        )
    if record.source != str(source):
        return
    for queue in queues:
        found = record.find(queue.name)
        if found is not None and found[0] != queue.meta:
            raise Failure(
                f"nsqd has changed '{queue.name}' since it was taken over",
                "nsqd was started again: take its messages over into a new directory",
            )


class TakingOver:
    """Into one virtual host of a broker that serves no clients."""

    def __init__(self, broker: Broker, vhost: str, record: Record, sync: Sync) -> None:
        found = broker.vhosts.get(vhost)
        if found is None:
            raise Failure(f"there is no virtual host '{vhost}' (nsq_vhost)", "make it first")
        self._topics: Topics = found.topics
        self._record = record
        self._sync = sync
        self._maker = ContentMaker()
        self._said_s = time.monotonic()

    def run(self, source: str, topics: list[SavedTopic], queues: list[DiskQueue]) -> list[Taken]:
        """Raises Failure, and nothing was changed then, when a queue has messages already."""
        if self._record.source != source:
            self._refuse_used(queues)
            self._record.begin(source)
        kept = [one for one in queues if not one.channel]
        for topic in topics:
            there = self._declared(self._topics.topic(topic.name))
            if any(one.topic == topic.name for one in kept):
                self._topics.pause(there, True)
            for channel in topic.channels:
                self._declared(self._topics.channel(there, channel.name))
        self._sync(True)
        taken = [self._take(queue) for queue in queues]
        for topic in topics:
            there = self._topics.topics[topic.name]
            for channel in topic.channels:
                self._topics.pause_channel(there.channels[channel.name], channel.paused)
            self._topics.pause(there, topic.paused)
        self._sync(True)
        return taken

    def _refuse_used(self, queues: list[DiskQueue]) -> None:
        for saved in queues:
            queue = self._find(saved)
            if queue is not None and _count(queue):
                raise Failure(
                    f"'{saved.name}' has {_count(queue)} messages here already",
                    "take them over into a new directory, or empty the queue first",
                )

    def _find(self, saved: DiskQueue) -> Queue | None:
        topic = self._topics.topics.get(saved.topic)
        if topic is None or not saved.channel:
            return None if topic is None else topic.backlog
        channel = topic.channels.get(saved.channel)
        return None if channel is None else channel.queue

    def _declared(self, made: T | Pending) -> T:
        assert not isinstance(made, Pending), "only in a cluster, which this node has not joined"
        return made

    def _take(self, saved: DiskQueue) -> Taken:
        known = _known(saved, self._record)
        if known is not None:
            return known
        topic = self._topics.topics[saved.topic]
        queue = self._find(saved)
        assert queue is not None
        self._record.put(saved.name, saved.meta, None)
        queue.empty()
        count = self._fill(queue, topic, saved)
        topic.look()
        self._sync(True)
        taken = Taken(saved.name, saved.depth, count, _count(queue))
        self._record.put(saved.name, saved.meta, count)
        return taken

    def _fill(self, queue: Queue, topic: Topic, saved: DiskQueue) -> int:
        wire = exchange_name(topic.name).encode()
        address = bytes([len(wire)]) + wire + b"\0"
        count = 0
        messages = saved.messages()
        for batch in iter(lambda: list(islice(messages, BATCH_MESSAGES)), []):
            made = [self._message(one, address) for one in batch]
            queue.publish(made, wall_ms())
            tried = [one for one, old in zip(made, batch, strict=True) if old.attempts]
            if tried:
                queue.backing.note_attempts(tried)
            count += len(made)
            self._sync(count // BATCH_MESSAGES % BATCHES_PER_SYNC == 0)
            self._say(saved, count)
        return count

    def _message(self, saved: SavedMessage, address: bytes) -> Message:
        self._maker.begin(saved.timestamp_ns, PERSISTENT_MODE, b"")
        content = self._maker.make(saved.id, saved.body)
        flags = PERSISTENT | (REDELIVERED if saved.attempts else 0)
        message = Message(content, address, flags, WallMs(0))
        set_attempts(message, saved.attempts)
        return message

    def _say(self, saved: DiskQueue, count: int) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            depth = "" if saved.depth is None else f" of {saved.depth}"
            click.echo(f"{saved.name}: {count}{depth} messages", err=True)


def _count(queue: Queue) -> int:
    return int(queue.backing.ready_count() + queue.deferred_count())


def _tell(taken: list[Taken], faults: list[str], took_s: float) -> None:
    """Raises Failure unless everything nsqd had is here."""
    rows = [
        (one.name, "unknown" if one.depth is None else one.depth, one.messages, one.ready)
        for one in taken
    ]
    if rows:
        click.echo(table(("topic:channel", "nsqd's count", "read", "here"), rows))
    for fault in faults:
        click.echo(f"not read: {fault}", err=True)
    messages = sum(one.messages for one in taken)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    click.echo(f"took {messages} messages in {took_s:.1f} s, with {peak_mib} MiB of memory at most")
    lost = [one.name for one in taken if one.messages != one.ready]
    if lost:
        raise Failure(f"the counts of {', '.join(lost)} differ", "report it: this is a fault")
    if faults:
        raise Failure(f"{len(faults)} places cannot be read", "the lines above name them")
    other = [one.name for one in taken if one.depth not in (None, one.messages)]
    if other:
        click.echo(f"nsqd was not stopped in good order: it counted {', '.join(other)} otherwise")
