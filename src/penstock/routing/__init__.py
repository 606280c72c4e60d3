"""Routing: (exchange, routing key, headers) become a set of queues.

``exchanges`` holds exchanges, their bindings and ``route``; ``matcher``, ``topic_trie``,
``headers`` and ``consistent_hash`` are the ways of matching.  In comes what clients bind and
publish, out go destination objects; next package: ``queues``, which this one never names.
"""
