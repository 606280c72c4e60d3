"""The group ``penstock queue``: its commands are in several files, which are read here."""

from penstock.cli.admin import entities
from penstock.cli.data import storage
from penstock.cli.queue import actions as queue_actions
from penstock.cli.queue import mirrors as queue_mirrors

queue = storage.queue

__all__ = ["entities", "queue", "queue_actions", "queue_mirrors"]
