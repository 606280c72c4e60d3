"""Mirrored queues: roles, synchronisation, promotion.

mirroring.py    ``Mirroring``: this node's part in all mirrored queues
queue.py        one mirrored queue as this node sees it, and its role in it
group.py        ring, role and safe position of one queue at one member
star_group.py   one queue whose confirms need a majority, at one node with a copy
copy_positions.py  how far a copy is complete, and what it has heard, on its disk
backing.py      the master's side: what it does to its messages goes round the ring
replica.py      the mirror's side: its copy of them
part_copy.py    one part of such a copy
stream_copy.py  the copy of a stream, and what its master sends of it
sync.py         how a joining mirror gets the older messages: ``Joiner`` asks, ``Syncer`` answers
syncing.py      all synchronisations of one master
joinings.py     which joining of a member counts in the ring
safety.py       confirms that wait for mirrors
telling.py      which copies hear the next parcel of a master that needs a majority
deciding.py     the next view of a queue, if one is due
promotion.py    which mirror becomes master
succession.py   the masters of a queue one after the other, as a member hears of them
first_views.py  the first view of a queue that needs mirrors
masters.py      where masters are, by the newest view
isolated_masters.py  masters that cannot reach their mirrors
scrubbing.py    reading of the copies here, to find damage early
verbs.py        the operator's commands
facts.py        the state for display
operations.py, group_codec.py, sync_codec.py  the bytes
"""
