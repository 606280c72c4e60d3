"""Several nodes as one broker: what they agree on, how they tell each other, and who has what.

Quiet: time is ``now_ms``, chance a function, bytes go out and come in as values.  The promises
(K1-K8) and the reasons are in docs/design/clusters.md.

    agreement  the coordinator's keys; membership, metadata, proposals, placement
    remote     queues whose master is on another node, and links that lose and double nothing
    ring       guaranteed multicast among the copies of one queue
    mirrors    masters and mirrors: views, synchronisation, promotion
"""
