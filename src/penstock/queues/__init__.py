"""Who gets what, when: queues and their consumers, neutral of any protocol.

In: batches of messages, settlements.  Out: deliveries, when asked.  Below: ``backing``.

    queue.py       ready messages meet consumers      consumers.py   windows and outlets
    schedule.py    things that are due at a time    dealing.py     messages go round in a ring
    limits.py      what a queue may hold            limiting.py    what becomes of the rest
    leases.py      deliveries with a deadline       leasing.py     what comes back, and when
    refusals.py    what a queue refuses             scan_loop.py   nsqd's way to find what is due
    latency.py     how long messages took           sampling.py    the times of a few of them
    counting.py    how much went by                capacity.py    how long nobody could take more
"""
