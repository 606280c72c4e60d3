"""Bytes on disk: what must be true after a crash is written and read here.

In: messages and acknowledgements, and the entities (exchanges, queues, bindings, users) that
must survive.  Out: sealed groups of bytes for ``server.committer`` and jobs for
``server.disk_worker``, which write and sync them while the broker runs; and, at start,
everything back.

    files.py             the only file that opens files; a test may put a false disk in its place
    failpoints.py        places where a test may let the process die
    disk_jobs.py         disk work that waits for a thread
    seq_ranges.py        sets of seq_ids as ranges
    message_record.py    the record of one message, as journal and segments write it
    journal_codec.py     the bytes of the journal, both ways
    journal.py           what happened to durable queues, in order, one journal for the node
    journal_recovery.py  reads it at start
    segment_codec.py     the bytes of a segment, both ways
    segment.py           what is kept in memory of one
    segment_jobs.py      what threads do to segment files
    index_reading.py     the segments of one queue, read back
    queue_index.py       where the messages of one queue rest: written, settled, removed
    index_recovery.py    reads them at start
    store_codec.py       the bytes of the message store, both ways
    store_files.py       its files, as packed rows
    store_groups.py      what is written at once
    store_reads.py       contents back, while files are compacted
    store_gc.py          which files go, and which are compacted
    store_recovery.py    reads the store at start
    message_store.py     large contents, one copy each, with a count of who needs them
    ram.py               how much of all this is in memory
    resting_queue.py     what the engine may ask of a queue's backing
    memory_monitor.py    how much each queue may keep in memory when it is short
    engine.py            what the queues of a node share: paging, retirement of the journal
    terms.py             how everything stood at a clean stop
    recovery.py          opens the engine on a data directory, and closes it
    definition_schema.py the tables of the entities, and upgrades of older ones
    definition_parameters.py  named values of the whole node
    definition_staging.py  what is staged for batches, and what was decided about it
    definition_sweep.py  which bindings are dead, and how they go some at a time
    definition_values.py names and arguments in them
    definition_records.py  their rows as objects
    definitions.py       the entities, in SQLite
    sqlite_errors.py     a full or unreadable disk, as SQLite says it
    coordination.py      where several nodes agree, in SQLite
    range_readers.py     who reads queues by ranges, in there too
    audit_files.py       walks through one file, on behind damage
    audit.py             looks at a data directory without changing it

Each format has a page in docs/formats.
"""
