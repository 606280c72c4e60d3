"""Storage: the files of a node; what must be true after a crash is written and read here.

In: messages and acknowledgements, and the entities (exchanges, queues, bindings, users) that
must survive.  Out: sealed groups of bytes for ``runtime.disk.committer`` and jobs for
``runtime.disk.worker``, which write and sync them while the broker runs; and, at start,
everything back.  Each format has a page in docs/formats.

    journal      what happened to durable queues, in order: one write-ahead log for the node
    index        the segments of one queue: which messages rest on disk, and where
    store        large contents, one copy each, with a count of references
    definitions  virtual hosts, users, exchanges, queues, bindings, in SQLite
    engine       paging, retirement of journal files, memory limits, recovery
    audit        looks at a data directory without changing it
    common       files, disk jobs, fail points
"""
