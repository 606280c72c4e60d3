"""Queues and their consumers: which consumer gets which message, and when; of no protocol.

In: batches of messages, settlements.  Out: deliveries, when asked.  Below: ``backing``.

    queue.py       the interface of all queues      context.py     what they share, and identity
    local.py       ready messages meet consumers    consumers.py   windows, outlets, priorities
    schedule.py    things that are due at a time    allocator.py   messages go round in a ring
    limits.py      what a queue may hold            limiting.py    what becomes of the rest
    leases.py      deliveries with a deadline       deferring.py   what is not ready before a time
    range_lease.py a reader of ranges has it all    range_reading.py  what that reader asks
    purging.py     of very many messages            refusals.py    what a queue refuses
    latency.py     how long messages took           sampling.py    the times of a few of them
    counting.py    how much went by                 capacity.py    how long all consumers were full
    scan_loop.py   nsqd's way to find what is due   publish_notes.py  mirrors are told first
    stream.py      each consumer reads all          stream_feed.py a queue takes from a stream
"""
