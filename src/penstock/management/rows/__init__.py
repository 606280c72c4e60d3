"""Rows of the API: queues, exchanges, connections and storage as JSON-able dicts."""
