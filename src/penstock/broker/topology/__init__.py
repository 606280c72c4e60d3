"""Virtual hosts with their exchanges, queues, bindings, topics and internal queues."""
