"""What management, logs and the event log see of a node's sessions and flow."""
