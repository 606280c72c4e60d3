"""The bottleneck of flow control in one word and one sentence, by the rule of RabbitMQ's operators.

In: what share of the last ten seconds connections, channels and queues were in flow, why
publishers are blocked altogether, if they are, and for which node of the cluster queues wait.  Out:
the stage that makes the others wait.

    connections in flow, no channels    the channels: routing, and the processor
    channels in flow, no queues         the queues: their work, their index, their consumers
    queues in flow                      the message store: the disk
    queues that wait for another node   that node

A stage makes its senders wait, so it is the last one in flow that waits for the bottleneck.  A
stage that is in flow now and then while those before it always are, is not what they wait
for: it must have ``PART`` of their share.
"""

from typing import Final, final

NOTHING: Final = "nothing"
CHANNELS: Final = "channels"
QUEUES: Final = "queues"
STORE: Final = "message store"
NODES: Final = "nodes"
ALARM: Final = "alarm"

LEAST: Final = 0.2
"""Less of the last ten seconds is no bottleneck, only a busy moment."""
PART: Final = 0.5

_TEXTS: Final = {
    NOTHING: "Nothing makes publishers wait.",
    CHANNELS: "The channels are the bottleneck: decoding and routing take all the time there is.",
    QUEUES: "The queues are the bottleneck",
    STORE: (
        "The message store is the bottleneck: the disk takes contents more slowly than they come."
    ),
    NODES: "Another node is the bottleneck",
    ALARM: "Publishers are blocked",
}
_ADVICE: Final = {
    NOTHING: "",
    CHANNELS: (
        "Publish through fewer or simpler bindings (headers exchanges cost most), in fewer and"
        " larger messages, or to more nodes."
    ),
    QUEUES: (
        "Let consumers take more (more of them, a larger prefetch, several tags in one"
        " acknowledgement), spread the messages over more nodes, or publish what may be lost as"
        " transient; a faster disk helps where the index waits for it."
    ),
    STORE: "Use a faster disk, smaller messages, or transient ones where they may be lost.",
    NODES: (
        "Look at the disk and the load of that node, and at the network"
        " (`penstock cluster status`)."
    ),
    ALARM: (
        "Let consumers take what waits, or give the node more room"
        " (`penstock set-vm-memory-high-watermark`, `penstock set-disk-free-limit`)."
    ),
}


@final
class Verdict:
    """``stage`` is one of the constants above; ``advice`` says what to do."""

    def __init__(self, stage: str, sentence: str, advice: str) -> None:
        self.stage = stage
        self.sentence = sentence
        self.advice = advice


def bottleneck(
    connections: float,
    channels: float,
    queues: float,
    blocked: str = "",
    why: str = "",
    awaited: str = "",
) -> Verdict:
    """Shares from 0 to 1; ``blocked``: the alarm's reason; ``why``: what the queues wait for.

    ``awaited``: which queue waits for which node, and why; "" = none does.
    """
    stage = _stage(connections, channels, queues)
    if blocked or awaited:
        stage = ALARM if blocked else NODES
    sentence = _TEXTS[stage]
    if stage in (ALARM, NODES):
        sentence += f": {blocked or awaited}."
    elif stage == QUEUES:
        sentence += f": {why}." if why else "."
    return Verdict(stage, sentence, _ADVICE[stage])


def _stage(connections: float, channels: float, queues: float) -> str:
    if connections < LEAST:
        return NOTHING
    if channels < LEAST or channels < PART * connections:
        return CHANNELS
    if queues < LEAST or queues < PART * channels:
        return QUEUES
    return STORE
