"""The journal: a write-ahead log of all durable queues of a node."""
