"""Metrics for Prometheus, in its text form: RabbitMQ's names and labels, and our own.

    text       one sample as a line; families with their type and sentence
    families   RabbitMQ's families by name, and which column of an object each of them shows
    own        ours, which begin with ``penstock_``
    gathering  what a page shows, read on the data loop in slices
    pages      /metrics, /metrics/per-object and /metrics/detailed, written piece by piece
    serving    the pages on a port of their own, without login, and on management's, with

Numbers are read by a scrape; nothing is kept between two scrapes.
"""
