"""Messages the broker itself publishes: dead letters, delayed ones, staged batches, replies.

dead_letters.py      messages that ended in a queue go to its dead-letter exchange
delays.py            the delayed exchange (``x-delayed-message``)
replies.py           direct reply-to
staging.py           batches that are published whole or not at all, and once (Spark's sink)
staged.py            their types
batches.py           committed batches that are being published
batch_claims.py      which node of a cluster publishes one
producers.py         the producers of batches that the node remembers
staged_publisher.py  publishes what was accepted before, by the present bindings
deferred_trim.py     removes what a range reader acknowledged, some per turn
"""
