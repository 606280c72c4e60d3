"""The state of one mirrored queue for display, from its views and its group.

In: the queue's view, the ring's, this node's group of it (None = no copy is here), what the policy
says and whether mirrors shall fetch what they lack.  Out: ``MirrorFacts`` (broker/mirrors.py).
Changes nothing.  How far each mirror is only the master's group knows; a mirror's group knows it
of its own copy; a node without a copy knows who there is.
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
from penstock.cluster.agreement.queue_views import QueueView, node_of
from penstock.cluster.mirrors.backing import MirroredBacking
from penstock.cluster.mirrors.group import MirrorGroup
from penstock.cluster.ring.views import View


def mirror_facts(
    view: QueueView,
    ring: View,
    group: MirrorGroup | None,
    policy: HaPolicy,
    mono_ms: int,
    *,
    sync_wanted: bool,
    why: str = "",
    waits: bool = False,
) -> MirrorFacts:
    """``why``: the last decision, in words; ``waits``: a queue that is down may come back."""
    members = [view.master, *view.mirrors()] if view.master else []
    copies = [_copy(view, member) for member in members]
    facts = MirrorFacts(view.version, view.term, copies, view.recoverable, _ring(ring, group))
    facts.mode = policy_in_words(policy)
    if group is not None:
        for copy in copies:
            _add_progress(copy, group, mono_ms)
    if view.master == "":
        facts.state, facts.why = (WAITING if waits else DOWN), why
    else:
        facts.state, facts.why = _state(view, sync_wanted=sync_wanted)
        facts.why = "; ".join(one for one in (facts.why, _too_few(view, policy)) if one)
    return facts


def policy_in_words(policy: HaPolicy) -> str:
    if policy.mode == "":
        return "no policy asks for mirrors"
    how = "automatic" if policy.automatic else "manual"
    if policy.mode == "exactly":
        return f"exactly {policy.copies}, {how}"
    if policy.mode == "nodes":
        return f"nodes {', '.join(policy.nodes)}, {how}"
    return f"{policy.mode}, {how}"


def _copy(view: QueueView, member: str) -> CopyFacts:
    role = MASTER if member == view.master else MIRROR
    return CopyFacts(node_of(member), member, role, synced=member in view.synced)


def _ring(view: View, group: MirrorGroup | None) -> RingFacts | None:
    if view.version == 0:
        return None
    dead = [member for member in view.members if member in view.dead]
    ring = RingFacts(int(view.version), list(view.members), dead)
    if group is not None and view.is_live(group.ring.me):
        ring.left = view.left_of(group.ring.me)
        ring.right = view.right_of(group.ring.me)
        ring.kept_bytes = int(group.ring.kept_bytes())
        ring.full = bool(group.ring.full)
    return ring


def _state(view: QueueView, *, sync_wanted: bool) -> tuple[str, str]:
    behind = [node_of(one) for one in view.mirrors() if one not in view.synced]
    if not behind:
        return RUNNING, ""
    who = ", ".join(behind)
    if sync_wanted:
        return SYNCING, f"{who}: fetching what they lack"
    return RUNNING, f"{who}: not synchronised, and no synchronisation was asked for"


def _too_few(view: QueueView, policy: HaPolicy) -> str:
    """Copies that the policy wants, and for which no node is there."""
    count = len(view.members)
    if policy.mode == "exactly" and count < policy.copies:
        return f"{count} of {policy.copies} copies, for want of nodes"
    there = [node_of(one) for one in view.members]
    wanted = sorted(view.recoverable) if policy.mode == "all" else policy.nodes
    missing = [node for node in wanted if node not in there]
    return f"no copy at {', '.join(missing)}" if missing else ""


# -- progress ------------------------------------------------------------------------------


def _add_progress(copy: CopyFacts, group: MirrorGroup, mono_ms: int) -> None:
    mirrored, replica = group.mirrored, group.replica
    if mirrored is not None:
        _as_master_sees(copy, group, mirrored, mono_ms)
    elif replica is not None and copy.member == group.me:
        copy.applied = int(replica.number)
        copy.durable = int(replica.durable_number())
        joiner = group.joiner
        if joiner is not None and not replica.is_complete() and joiner.received_bytes > 0:
            done = int(joiner.received_count)
            sent = int(joiner.received_bytes)
            copy.sync = SyncProgress(done, done + int(joiner.left), sent, None, -1)


def _as_master_sees(
    copy: CopyFacts, group: MirrorGroup, mirrored: MirroredBacking, mono_ms: int
) -> None:
    told = int(mirrored.number)
    if copy.member == group.me:
        copy.applied = told
        copy.behind = 0
        return
    answer = group.safe.answers.get(copy.member)
    if answer is not None:
        copy.applied = int(answer.applied)
        copy.durable = int(answer.durable)
        copy.behind = told - copy.applied
    syncer = group.syncing.syncers.get(copy.member)
    if syncer is not None and not (answer is not None and answer.is_complete):
        done = int(syncer.looked_count)
        rate, eta_ms = int(syncer.rate(mono_ms)), int(syncer.eta_ms(mono_ms))
        copy.sync = SyncProgress(
            done, done + int(syncer.left), int(syncer.sent_bytes), rate, eta_ms
        )
