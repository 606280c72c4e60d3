"""Where the messages of a queue rest, behind one interface.

interface.py        ``BackingQueue``: what a queue may ask for
message_deque.py    messages in order, taken from either end
pending.py          what was handed out and not yet acknowledged
deferrals.py        what waits for its time
noting.py           listeners to changes of the set of messages
ram_target.py       how fast a queue moves, and how much of it may stay in memory
disk_records.py     what the journal, the index and the stores have of a queue
expiry_times.py     what is known of the times at which messages expire
tiers.py            q4, q3, delta, q2, q1, pending, delayed, and all their counters
read_ahead.py       how delta comes back from the disk
peeking.py          looking at messages without taking them
paging.py           paging out, and in which order: alphas, betas, pending contents; lazy mode
ending.py           acknowledged, dropped, purged
returning.py        moved to the tail
delaying.py         published or given back for later; released, cancelled
expiring.py         what is over its time, wherever it rests
checkpointing.py    what the journal's oldest file has goes to segments
scrubbing.py        reading what rests, to see that the disk still has it
copying.py          what a synchronisation of mirrors reads
placing.py          messages at given places, as a mirror has them
variable_queue.py   ``VariableQueue``: the verbs, on top of these
priorities.py       a variable queue for each priority
deduplication.py    each key once, around any of these
factory.py          makes them, and gives them what the disk remembers
description.py      where the messages are, for people
"""
