"""Mirrored queues: synchronisation; which mirror is promoted (promotion), and when (deciding)."""
