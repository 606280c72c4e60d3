"""Definitions: virtual hosts, users, exchanges, queues and bindings in one SQLite file."""
