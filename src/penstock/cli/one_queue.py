"""The group ``penstock queue``: its commands are in several files, which are read here."""

from penstock.cli import entities, queue_actions, queue_messages, queue_mirrors, storage

queue = storage.queue

__all__ = ["entities", "queue", "queue_actions", "queue_messages", "queue_mirrors"]
