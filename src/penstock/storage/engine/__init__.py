"""The engine: what the queues of a node share on their way to the disk, and recovery at start."""
