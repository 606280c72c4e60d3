"""Threads that write to the disk: the group commit of the journal, and all other disk work."""
