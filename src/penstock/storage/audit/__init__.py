"""The audit of a data directory: everything is read, nothing is changed."""
