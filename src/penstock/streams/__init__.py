"""Streams: append-only logs on disk that any number of readers read, each from its own offset.

In: batches of messages to append, offsets and times to read from, limits of retention.  Out:
sealed groups of blocks for the group commit, jobs that read blocks, and the blocks themselves.
docs/formats/streams.md is the page of the files.

    log         one stream: append, seal, offsets, retention
    cursor      the place of one reader, and the messages that come next
    reading     jobs that read blocks, and the blocks that readers share
    writer      puts sealed groups on the disk, for the committer's thread
    recovery    reads the files of a stream at start, and cuts what a crash left
    segments    where segments begin, in offsets and in time
    holding     what readers keep retention from
    filtering   the filter of a block: which values its messages may have
    block_codec the bytes of blocks
    audit       reads everything for ``penstock audit``, changes nothing
"""
