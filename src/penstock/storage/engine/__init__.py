"""The engine of a node: turns of work, memory shared among queues (memory_monitor), recovery."""
