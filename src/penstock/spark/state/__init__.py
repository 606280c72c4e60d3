"""What a pipeline keeps on disk, beside its data.

places  directories, their names, and the lock of each
runs    what became of the runs of a file of pipelines
notes   Spark's notes in a checkpoint: read, and mended after a power cut
"""
