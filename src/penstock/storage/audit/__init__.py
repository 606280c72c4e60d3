"""The audit of a data directory: reads everything, changes nothing."""
