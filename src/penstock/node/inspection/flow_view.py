"""Who waits for whom, in rows for operators: the chain, the waits, the bottleneck.

Reads the flow of a node on the data loop; only stages that were in flow lately are looked at, so
ten thousand quiet queues cost nothing.
"""

from itertools import islice
from typing import Final

from penstock.broker.rules.flow import Flow
from penstock.core.counting.bottleneck import LEAST, bottleneck
from penstock.core.credit import CHANNEL, HISTORY_S, KINDS, NODE, QUEUE, READER, STORE, FlowPeer
from penstock.node.sessions import describe
from penstock.queues.queue import Queue
from penstock.runtime.connection import Connection
from penstock.runtime.loop import Loop
from penstock.runtime.session import Session, Subscriber

WAITS_MAX: Final = 100
LOOKED_AT: Final = 2000
"""Connections, for those that an alarm holds."""

Row = dict[str, object]


def flow_row(loop: Loop) -> Row:
    """What ``GET /api/penstock/flow`` answers."""
    flow = loop.turn.flow
    stages = list(flow.book.flowing)
    shares = {kind: _share(stages, kind) for kind in (READER, CHANNEL, QUEUE)}
    blocked = loop.turn.blocked_reason()
    why = why_most(stages, CHANNEL)
    verdict = bottleneck(
        shares[READER], shares[CHANNEL], shares[QUEUE], blocked, why, _awaited(stages)
    )
    return {
        "window_s": HISTORY_S,
        "enabled": flow.enabled,
        "credit": [int(flow.spec.initial), int(flow.spec.more_after)],
        "message_store_credit": [int(flow.store_spec.initial), int(flow.store_spec.more_after)],
        "stages": [_stage_row(stages, kind, shares[kind]) for kind in (READER, CHANNEL, QUEUE)],
        "held_bytes": int(flow.held_bytes),
        "blocked": blocked,
        "processor": _processor_row(flow),
        "waits": _wait_rows(loop, stages, blocked)[:WAITS_MAX],
        "bottleneck": verdict.stage,
        "sentence": verdict.sentence,
        "advice": verdict.advice,
    }


def _processor_row(flow: Flow) -> Row:
    readers, channels, queues = (round(share, 2) for share in flow.processor_shares())
    return {"connections": readers, "channels": channels, "queues": queues}


def worst_first(stage: FlowPeer) -> tuple[float, int]:
    return -stage.share(), int(stage.kind)


def _share(stages: list[FlowPeer], kind: int) -> float:
    """Of the window, how long at least one of them was in flow."""
    seconds = 0
    for stage in stages:
        if stage.kind == kind:
            seconds |= int(stage.history)
    return seconds.bit_count() / HISTORY_S


def _awaited(stages: list[FlowPeer]) -> str:
    """The queue that waits longest for another node, for which, and why; "" = none does."""
    for stage in sorted(stages, key=worst_first):
        receiver = stage.blocked_by
        if stage.share() < LEAST:
            break
        if stage.kind == QUEUE and receiver is not None and receiver.kind == NODE:
            return f"{stage_name(stage)} waits for {stage_name(receiver)}, {because(receiver)}"
    return ""


def why_most(stages: list[FlowPeer], kind: int) -> str:
    """For what most of them waited."""
    counts: dict[str, int] = {}
    for stage in stages:
        if stage.kind == kind and stage.blocked_by is not None and stage.blocked_by.why:
            why = stage.blocked_by.why
            counts[why] = counts.get(why, 0) + int(stage.history).bit_count()
    return max(counts, key=lambda why: counts[why]) if counts else ""


def _stage_row(stages: list[FlowPeer], kind: int, share: float) -> Row:
    now = [stage for stage in stages if stage.kind == kind and stage.in_flow()]
    return {"kind": KINDS[kind], "in_flow": len(now), "share": round(share, 2)}


def _wait_rows(loop: Loop, stages: list[FlowPeer], blocked: str) -> list[Row]:
    """First the publishers that an alarm holds: they are in no stage, and have no share."""
    held: list[Row] = []
    if blocked:
        for connection in islice(loop.connections.values(), LOOKED_AT):
            session = connection.session
            if session is not None and describe(session).state() == "blocked":
                held.append(_held_row(connection.name, blocked))
    return held + [_wait_row(stage) for stage in sorted(stages, key=worst_first)]


def _held_row(name: str, blocked: str) -> Row:
    return {
        "kind": KINDS[READER],
        "name": name,
        "waits_for": "the node",
        "because": blocked,
        "now": True,
        "share": None,
        "flow_s": 0,
    }


def _wait_row(stage: FlowPeer) -> Row:
    receiver = stage.blocked_by
    assert receiver is not None
    return {
        "kind": KINDS[stage.kind],
        "name": stage_name(stage),
        "waits_for": waited_for(receiver),
        "because": because(receiver),
        "now": stage.in_flow(),
        "share": round(stage.share(), 2),
        "flow_s": int(stage.flow_s),
    }


def waited_for(receiver: FlowPeer) -> str:
    if receiver.kind == QUEUE and receiver.owner is None:
        return "queues"
    return stage_name(receiver)


def because(receiver: FlowPeer) -> str:
    if receiver.kind == STORE:
        return "contents wait for the disk"
    if receiver.kind == CHANNEL:
        return "it waits itself" if receiver.in_flow() else "its share of the turn is used up"
    return receiver.why or "it waits itself"


def stage_name(stage: FlowPeer) -> str:
    """As management names it; what is gone has a name that says so."""
    owner = stage.owner
    if isinstance(owner, Queue):
        return f"queue '{owner.name}' in vhost '{owner.vhost}'"
    if isinstance(owner, Subscriber):
        return f"{_connection_name(owner.session)} ({int(owner.number)})"
    if isinstance(owner, Session):
        return _connection_name(owner)
    if isinstance(owner, str):
        return f"node '{owner}'"
    return KINDS[stage.kind]


def _connection_name(session: Session) -> str:
    carrier = session.carrier
    if isinstance(carrier, Connection):
        return carrier.name
    return session.client.event_name or "a closed connection"
