"""Bytes on disk: what must be true after a crash is written and read here.

In: messages and acknowledgements of durable queues, and the entities (exchanges, queues,
bindings, users) that must survive.  Out: sealed groups of bytes for ``server.committer``,
which alone writes and syncs while the broker runs; and, at start, everything back.

    files.py         the only file that opens files; a test may put a false disk in its place
    seq_ranges.py    sets of seq_ids as ranges
    log_codec.py     the bytes of the message log, both ways
    log_files.py     which bytes of which log file are alive, and which files may go
    message_log.py   appends, seals groups, drops and compacts files
    log_recovery.py  reads the log at start, right to left, and mends what a crash left
    definitions.py   the entities, in SQLite
    audit.py         looks at a log directory without changing it

Each format has a page in docs/formats.
"""
