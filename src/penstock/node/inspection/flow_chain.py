"""The chain of credits, link by link, for the pages that draw it.

    connection ─► channel ─► queue ─► message store
        credit left, of how much; who waits now, and for what share of the last ten seconds

``flow_row`` tells who waits.  This adds the links between them, and those of publishers that do not
wait, as far as there is room: first the stages in flow, then what the first connections of the loop
publish.  At most ``LINKS_MAX`` links and ``LOOKED_AT`` connections are looked at, so it costs the
same whatever is connected.

A channel has a link to a queue only once the queue was behind: what a queue deals with in the same
breath costs no credit.
"""

from collections.abc import Iterator
from typing import Final

from penstock.core.credit import CHANNEL, KINDS, QUEUE, READER, Credit, FlowPeer
from penstock.node.inspection.flow_view import (
    Row,
    because,
    flow_row,
    stage_name,
    waited_for,
    worst_first,
)
from penstock.node.sessions import describe
from penstock.queues.queue import Queue
from penstock.runtime.loop import Loop
from penstock.runtime.publish_credit import PublishCredit
from penstock.runtime.session import Session, Subscriber

LINKS_MAX: Final = 120
LOOKED_AT: Final = 200


def chain_row(loop: Loop) -> Row:
    """What ``GET /api/penstock/flow/chain`` answers: ``flow_row`` with nodes and links."""
    links = _Links()
    store = loop.turn.flow.store
    for stage in sorted(loop.turn.flow.book.flowing, key=worst_first):
        links.around(stage)
    for publisher in _publishers(loop):
        links.of_publisher(publisher)
        if links.full():
            break
    for credit in store.senders():
        links.add(credit)
    return flow_row(loop) | {"nodes": links.nodes(store), "links": links.rows()}


def _publishers(loop: Loop) -> Iterator[PublishCredit]:
    """Of the loop's first connections, those that have published."""
    for looked, connection in enumerate(loop.connections.values()):
        if looked >= LOOKED_AT:
            return
        if connection.session is not None:
            yield from describe(connection.session).publishers()


class _Links:
    """Links found so far, each once, and the stages at their ends."""

    def __init__(self) -> None:
        self._stages: dict[FlowPeer, str] = {}
        self._links: dict[Credit, None] = {}

    def full(self) -> bool:
        return len(self._links) >= LINKS_MAX

    def add(self, credit: Credit) -> None:
        if self.full() or credit.closed:
            return
        self._links[credit] = None
        self._know(credit.sender)
        self._know(credit.receiver)

    def _know(self, stage: FlowPeer) -> None:
        if stage not in self._stages:
            self._stages[stage] = f"{KINDS[stage.kind]} {len(self._stages)}"

    def around(self, stage: FlowPeer) -> None:
        """A stage in flow: what it sends on, and who sends to it."""
        if self.full():
            return
        self._know(stage)
        for credit in stage.blockers:
            self.add(credit)
        if stage.down is not None:
            self.add(stage.down)
        if stage.kind != READER:
            for credit in stage.senders()[:LINKS_MAX]:
                self.add(credit)

    def of_publisher(self, publisher: PublishCredit) -> None:
        self.add(publisher.credit)
        for credit in publisher.by_queue.values():
            self.add(credit)

    def nodes(self, store: FlowPeer) -> list[Row]:
        self._stages.setdefault(store, "message store")
        rows = [_node_row(stage, name) for stage, name in self._stages.items()]
        return sorted(rows, key=lambda row: (KINDS.index(str(row["kind"])), str(row["name"])))

    def rows(self) -> list[Row]:
        return [self._row(credit) for credit in self._links]

    def _row(self, credit: Credit) -> Row:
        return {
            "from": self._stages[credit.sender],
            "to": self._stages[credit.receiver],
            "left": int(credit.balance),
            "of": int(credit.spec.initial),
            "in_hand": int(credit.in_hand),
            "deferred": int(credit.deferred),
            "blocks": credit in credit.sender.blockers,
        }


def _node_row(stage: FlowPeer, name: str) -> Row:
    works = stage.kind == QUEUE and stage.owner is None
    row: Row = {
        "id": name,
        "kind": KINDS[stage.kind],
        "name": "queues" if works else stage_name(stage),
        "label": "queues" if works else _label(stage),
        "in_flow": stage.in_flow(),
        "share": round(stage.share(), 2),
        "flow_s": int(stage.flow_s),
        "waits_for": None,
        "because": None,
    }
    receiver = stage.blocked_by
    if receiver is not None and stage.share() > 0:
        row["waits_for"] = waited_for(receiver)
        row["because"] = because(receiver)
    if isinstance(stage.owner, Queue):
        row["vhost"], row["queue"] = stage.owner.vhost, stage.owner.name
    if stage.kind == CHANNEL:
        row["kept"] = sum(int(credit.kept) for credit in stage.kept)
    return row


def _label(stage: FlowPeer) -> str:
    """Its name in a picture, where there is little room: what tells it from its neighbours."""
    owner = stage.owner
    if isinstance(owner, Queue):
        return owner.name
    if isinstance(owner, Subscriber):
        given = describe(owner.session).given_name()
        return f"{given} ({int(owner.number)})" if given else stage_name(stage)
    if isinstance(owner, Session):
        return describe(owner).given_name() or stage_name(stage)
    return stage_name(stage)
