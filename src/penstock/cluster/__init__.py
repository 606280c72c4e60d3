"""Several nodes as one broker: what they agree on, how they tell each other, and who has what.

Quiet: time is ``now_ms``, chance a function, bytes go out and come in as values.  The promises
(K1-K8) and the reasons are in docs/design/clusters.md.

    coordinator.py   where the cluster agrees: keys, leases, compare-and-set
    known_keys.py    what a member was told of them, and what it missed
    embedded.py      on SQLite, for the nodes of one machine
    store_service.py the same, served to other processes; store_client.py is their side
    link_session.py  between two members nothing is lost, doubled or put out of order
    views.py         who is in a ring, in which order, and who of them is dead
    ring.py          guaranteed multicast among the members of a group; ring_ready.py, what it says;
                     ring_stream.py, what it has of one member; ring_codec.py, messages ⇄ bytes
    operations.py    bytes that say what changed a queue's set of messages
    mirrored_backing.py  what a master tells its mirrors, once per turn
    membership.py    which nodes are known, and which of them live
    pauses.py        what became of the lease while this node stood still
    forgetting.py    a node never comes back; lost_transients.py: what ends with a node that is gone
    proposing.py     what is declared is proposed; cluster_ask.py: for one who asks, and waits
    remote_queue.py  a queue whose master is elsewhere
    queue_places.py  its master moves
    peer_client.py   what is said to that node
    serving.py       queues of this node as another one uses them; served.py: one of them
    replica.py       a mirror's copy: which places it knows, and what is there
    mirror_sync.py   how a copy gets what was there before it came; sync_codec.py: its bytes
    queue_views.py   the record of who has copies of a queue
    promotion.py     who becomes master, and when nobody does
    placement.py     where copies and masters should be
    locating.py      on which node a new queue has its home
    batch_homes.py   which node publishes a batch from Spark
    mirror_group.py  one mirrored queue at one of its members: ring, role, and what is safe
    mirror_facts.py  what people are told of it
    lone_masters.py  masters that can do nothing that counts, because their node is cut off
"""
