"""What a pipeline keeps on disk, beside its data.

places  directories, their names, and the lock of each
notes   Spark's notes in a checkpoint: read, and mended after a power cut
"""
