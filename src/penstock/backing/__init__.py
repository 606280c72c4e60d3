"""Where the messages of a queue rest, behind one interface.

interface.py        ``BackingQueue``: what a queue may ask for
runs.py             messages in order, taken from either end
pending.py          what was handed out and not yet acknowledged
noting.py           who is told what changes the set of messages
ram_target.py       how fast a queue moves, and how much of it may stay in memory
resting.py          q4, q3, delta, q2, q1, and how delta comes back from the disk
peeking.py          looking at messages without taking them
paging.py           alphas to betas to delta, pending contents to disk, lazy mode
ending.py           acknowledged, dropped, purged, expired
returning.py        requeued, moved to the tail
deferrals.py        what waits for its time
delaying.py         published or given back for later; released, cancelled
expiring.py         what is over its time, wherever it rests
placing.py          messages at given places, as a mirror has them
copying.py          what a synchronisation of mirrors reads
variable_queue.py   ``VariableQueue``: the verbs, on top of these
description.py      where the messages are, for people
"""
