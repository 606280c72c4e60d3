"""Queues whose master is on another node, from both sides."""
