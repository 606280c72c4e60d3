"""Metrics for Prometheus, in its text form: RabbitMQ's names and labels, and our own.

    families   a family as lines of text; RabbitMQ's by name, and which column of an object each of
               them shows
    own        ours, which begin with ``penstock_``
    gathering  the numbers of all families, computed on the data loop from queues, channels, node
    pages      /metrics, /metrics/per-object and /metrics/detailed, written piece by piece,
               and shared for a second

Numbers are read by a scrape; nothing is kept between two scrapes.
"""
