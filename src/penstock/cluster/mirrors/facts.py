"""The state of one mirrored queue for display, from its views and its group.

In: the queue's view, the ring's, this node's group of it (None = no copy is here), what the policy
says and whether mirrors shall fetch what they lack.  Out: ``MirrorFacts`` (broker/mirrors.py).
Changes nothing.  How far each mirror is only the master's group knows; a mirror's group knows it
of its own copy; a node without a copy knows the members.
"""

from penstock.broker.mirrors import (
    DOWN,
    MASTER,
    MIRROR,
    RUNNING,
    SYNCING,
    WAITING,
    CopyFacts,
    MirrorFacts,
    RingFacts,
    SyncProgress,
)
from penstock.broker.rules.ha_policy import HaPolicy
from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.living_nodes import LivingNodes
from penstock.cluster.agreement.queue_views import PARTIAL, SYNCED, QueueView
from penstock.cluster.agreement.reigns import Reign
from penstock.cluster.mirrors.group import MirrorGroup
from penstock.cluster.mirrors.queue import AnyGroup
from penstock.cluster.mirrors.replica import Replica
from penstock.cluster.mirrors.sync import Joiner
from penstock.cluster.ring.views import View
from penstock.core.clock_types import MonoMs

NO_NODES = LivingNodes("", {}, {})


def mirror_facts(
    view: QueueView,
    ring: View,
    group: AnyGroup | None,
    policy: HaPolicy,
    mono_ms: MonoMs,
    *,
    sync_wanted: bool,
    why: str = "",
    waits: bool = False,
    trouble: str = "",
    nodes: LivingNodes = NO_NODES,
) -> MirrorFacts:
    """``why``: the last decision, in words; ``waits``: a queue that is down may come back.

    ``trouble``: why this node cannot use the queue; a row with it has no other state.
    """
    if view.reign is not None:
        return _of_reign(view, view.reign, group, mono_ms, nodes, trouble or why)
    state, text = (WAITING if waits else DOWN), why
    if view.master:
        state, texts = _state(view, group, nodes, sync_wanted=sync_wanted)
        texts.append(_too_few(view, policy, nodes))
        text = "; ".join(one for one in texts if one)
    members = [view.master, *view.mirrors()] if view.master else []
    return MirrorFacts(
        view.version,
        view.term,
        [_copy(view, member, group, mono_ms) for member in members],
        view.recoverable,
        _ring(ring, group),
        policy_in_words(policy),
        state,
        trouble or text,
    )


def _of_reign(
    view: QueueView,
    reign: Reign,
    group: AnyGroup | None,
    mono_ms: MonoMs,
    nodes: LivingNodes,
    text: str,
) -> MirrorFacts:
    """A node that is wanted and does not vote yet fetches."""
    names = dict.fromkeys([node_of(reign.master), *reign.copies, *view.wanted])
    there = [nodes.members[node] for node in names if node in nodes.members]
    away = [node for node in names if node and node not in nodes.members]
    copies = [_copy(view, member, group, mono_ms) for member in there]
    learning = ", ".join(node for node in view.wanted if node not in reign.copies)
    if reign.master and learning:
        text = f"{learning}: fetching what they lack, then they vote"
    elif reign.master and len(reign.copies) - len(set(away) & set(reign.copies)) < reign.majority():
        text = f"{reign.majority()} of {', '.join(reign.copies)} are needed"
    elif reign.master:
        late = [] if group is None else group.safe.late()
        texts = [f"no copy at {', '.join(away)}"] if away else []
        text = "; ".join([*texts, *[f"{node_of(member)}: {why}" for member, why in late]])
    return MirrorFacts(
        view.version,
        view.term,
        copies if reign.master else [],
        {node: SYNCED if node in reign.copies else PARTIAL for node in away},
        None,
        f"a majority of {len(reign.copies)}",
        RUNNING if reign.master else WAITING,
        text,
        tuple(dict.fromkeys([*reign.copies, *view.wanted])),
    )


def policy_in_words(policy: HaPolicy) -> str:
    if policy.mode == "":
        return "no policy asks for mirrors"
    how = "automatic" if policy.automatic else "manual"
    if policy.mode == "exactly":
        return f"exactly {policy.copies}, {how}"
    if policy.mode == "nodes":
        return f"nodes {', '.join(policy.nodes)}, {how}"
    return f"{policy.mode}, {how}"


def _ring(view: View, group: AnyGroup | None) -> RingFacts | None:
    if view.version == 0:
        return None
    dead = [member for member in view.members if member in view.dead]
    circle = int(view.version), list(view.members), dead
    if not isinstance(group, MirrorGroup) or not view.is_live(group.ring.me):
        return RingFacts(*circle)
    ring = group.ring
    ends = view.left_of(ring.me), view.right_of(ring.me)
    return RingFacts(*circle, *ends, int(ring.kept_bytes()), full=ring.full)


def _state(
    view: QueueView, group: AnyGroup | None, nodes: LivingNodes, *, sync_wanted: bool
) -> tuple[str, list[str]]:
    texts: list[str] = []
    fetching: list[str] = []
    for mirror in view.mirrors():
        if mirror in view.synced:
            continue
        why = nodes.shortage(node_of(mirror))
        rest_ms = 0 if group is None else int(group.safe.rest_ms(mirror))
        if why:
            texts.append(f"{node_of(mirror)}: {why}, and fetches nothing until it is not")
        elif rest_ms > 0:
            rest = f"waited for again in {-(-rest_ms // 1000)} s"
            texts.append(f"{node_of(mirror)}: its disk was slow, it is {rest}")
        else:
            fetching.append(node_of(mirror))
    texts.append(_late(group))
    if not fetching:
        return RUNNING, texts
    names = ", ".join(fetching)
    if sync_wanted:
        return SYNCING, [f"{names}: fetching what they lack", *texts]
    return RUNNING, [f"{names}: not synchronised, and no synchronisation was asked for", *texts]


def _late(group: AnyGroup | None) -> str:
    member, why = ("", "") if group is None else group.safe.latest()
    return f"{node_of(member)} holds publishers: {why}" if member else ""


def _too_few(view: QueueView, policy: HaPolicy, nodes: LivingNodes) -> str:
    """Copies that the policy wants, and for which no node is there."""
    count = len(view.members)
    if policy.mode == "exactly" and count < policy.copies:
        return f"{count} of {policy.copies} copies, for want of nodes"
    there = [node_of(one) for one in view.members]
    all_nodes = sorted({*view.recoverable, *nodes.short})
    wanted = all_nodes if policy.mode == "all" else policy.nodes
    names: list[str] = []
    for node in wanted:
        if node not in there:
            why = nodes.shortage(node)
            names.append(f"{node} ({why})" if why else node)
    return f"no copy at {', '.join(names)}" if names else ""


# -- copies --------------------------------------------------------------------------------


def _copy(view: QueueView, member: str, group: AnyGroup | None, mono_ms: MonoMs) -> CopyFacts:
    role = MASTER if member == view.master else MIRROR
    applied = durable = behind = sync = None
    if group is not None and group.mirrored is not None:
        applied, durable, behind = _as_master_sees(member, group, int(group.mirrored.number))
        sync = _sent(member, group, mono_ms)
    elif group is not None and group.replica is not None and member == group.me:
        applied, durable = int(group.replica.number), int(group.replica.durable_number())
        sync = _received(group.replica, group.joiner)
    return CopyFacts(
        node_of(member),
        member,
        role,
        synced=_is_synced(view, member, group),
        votes=view.reign is not None and node_of(member) in view.reign.copies,
        applied=applied,
        durable=durable,
        behind=behind,
        sync=sync,
    )


def _is_synced(view: QueueView, member: str, group: AnyGroup | None) -> bool:
    if view.reign is None:
        return member in view.synced
    return node_of(member) in view.reign.copies and _follows(member, group)


def _follows(member: str, group: AnyGroup | None) -> bool:
    """Of a copy that votes: is it complete in this term, as far as it is known here?"""
    if group is None:
        return True
    if member != group.me:
        answer = group.safe.answers.get(member)
        return group.mirrored is None or (answer is not None and answer.is_complete)
    return group.mirrored is not None or (group.replica is not None and group.replica.is_complete())


def _as_master_sees(
    member: str, group: AnyGroup, told: int
) -> tuple[int | None, int | None, int | None]:
    """Applied, durable, behind."""
    if member == group.me:
        return told, None, 0
    answer = group.safe.answers.get(member)
    if answer is None:
        return None, None, None
    return int(answer.applied), int(answer.durable), told - int(answer.applied)


def _sent(member: str, group: AnyGroup, mono_ms: MonoMs) -> SyncProgress | None:
    syncer, answer = group.syncing.syncers.get(member), group.safe.answers.get(member)
    if syncer is None or (answer is not None and answer.is_complete):
        return None
    done, left = int(syncer.looked_count), int(syncer.left)
    rate, eta_ms = int(syncer.rate(mono_ms)), int(syncer.eta_ms(mono_ms))
    return SyncProgress(done, done + left, int(syncer.sent_bytes), rate, eta_ms)


def _received(replica: Replica, joiner: Joiner | None) -> SyncProgress | None:
    if joiner is None or replica.is_complete() or joiner.received_bytes == 0:
        return None
    done = int(joiner.received_count)
    return SyncProgress(done, done + int(joiner.left), int(joiner.received_bytes), None, -1)
