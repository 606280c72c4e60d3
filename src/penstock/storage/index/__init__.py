"""The queue index: segments that say which messages of one queue rest on disk, and where."""
