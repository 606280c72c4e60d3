"""Which member becomes a queue's master when there is none, and when none does: pure decisions.

In: the queue's view, the live members, the policy.  Out: a ``Decision``, with the reason in
words.  Nothing here changes anything; the caller proposes the view that follows from it.

**The master has gone** (``when_master_goes``), its lease ended, or it stops:

    a synced mirror lives        the eldest of these                            PROMOTE
    only others live             the policy for this way of going says always   PROMOTE the eldest
                                 it says when-synced                            DOWN
    no member lives                                                             DOWN

``ha-promote-on-failure`` is for a master that failed, ``ha-promote-on-shutdown`` for one that
stops.  Both are ``when-synced`` unless a policy says ``always``: RabbitMQ promotes unsynchronised
mirrors after a failure unless told otherwise, and loses confirmed messages (K3).

**All were gone, and some return** (``when_some_return``).  The master went last, or went when no
mirror had everything: its copy is never behind.  So it is given time to return; but a mirror that
was synced when the queue went down has the same.

    the former master is back                                                   PROMOTE it
    a synced copy is back        30 s have not passed since the first return    WAIT
                                 they have, or the former master has lost its
                                 copy, so that it cannot return                 PROMOTE the first
    only others are back         the policy (of how the last master went) says
                                 always, and 30 s have passed                   PROMOTE the first
                                 else                                           WAIT
    no node is back                                                             WAIT
"""

from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from penstock.broker.rules.ha_policy import ALWAYS
from penstock.cluster.agreement.queue_views import PARTIAL, SYNCED, QueueView

PROMOTE, DOWN, WAIT = range(3)
RETURN_WAIT_MS: Final = 30_000


class Decision(NamedTuple):
    kind: int
    who: str  # a member, or of those that return a node; only to ``PROMOTE``
    why: str
    heard_all: bool = False  # of what its predecessor did; see QueueView


def when_master_goes(
    view: QueueView, live: Container[str], on_failure: str, on_shutdown: str, *, graceful: bool
) -> Decision:
    """``live``: the members that have a lease, without the master."""
    mirrors = [member for member in view.mirrors() if member in live]
    synced = [member for member in mirrors if member in view.synced]
    if synced:
        return Decision(PROMOTE, synced[0], "the eldest synchronised mirror", heard_all=True)
    rule = on_shutdown if graceful else on_failure
    key = "ha-promote-on-shutdown" if graceful else "ha-promote-on-failure"
    if not mirrors:
        return Decision(DOWN, "", "no mirror is there")
    if rule == ALWAYS:
        why = f"no mirror is synchronised, and {key} says always"
        # It has less than the others may have: they begin anew.
        return Decision(PROMOTE, mirrors[0], why)
    return Decision(DOWN, "", f"no mirror is synchronised, and {key} says when-synced")


def when_some_return(
    view: QueueView,
    former_master: str,
    returned: Sequence[str],
    waited_ms: int,
    on_failure: str,
    on_shutdown: str,
) -> Decision:
    """``returned``: nodes, in the order they came; ``waited_ms`` since the first of them did."""
    if former_master in returned:
        return Decision(PROMOTE, former_master, "the former master is back")
    synced = [node for node in returned if view.recoverable.get(node) == SYNCED]
    others = [node for node in returned if view.recoverable.get(node) == PARTIAL]
    if not synced and not others:
        return Decision(WAIT, "", "no node with a copy is back")
    late = waited_ms >= RETURN_WAIT_MS
    if synced:
        if former_master not in view.recoverable:
            return Decision(PROMOTE, synced[0], "the former master has lost its copy")
        if late:
            return Decision(PROMOTE, synced[0], "the former master has not come back for 30 s")
        return Decision(WAIT, "", "the former master is given 30 s")
    rule = on_shutdown if view.graceful else on_failure
    key = "ha-promote-on-shutdown" if view.graceful else "ha-promote-on-failure"
    if rule != ALWAYS:
        return Decision(WAIT, "", f"no synchronised copy is back, and {key} says when-synced")
    if late:
        return Decision(PROMOTE, others[0], f"no synchronised copy came, and {key} says always")
    return Decision(WAIT, "", "the former master is given 30 s")
