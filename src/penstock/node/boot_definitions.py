"""Definitions that a node imports each time it starts: the setting ``load_definitions``.

In: the path of a file in RabbitMQ's JSON.  Out: the broker has what it says, on disk, before the
first client comes; each row that cannot be honoured is a warning in the log.  A file that cannot be
read, or is none, stops the start: a node without its users is worse than none.
"""

import logging
import secrets
from typing import Final

from penstock.broker.administration import Administration, left_out_at_start
from penstock.broker.broker import Broker
from penstock.broker.definitions.importing import DefinitionsImport, ImportPlan
from penstock.core.errors import PreconditionFailed, SettingInvalid
from penstock.core.json_reading import json_of

STEPS: Final = 1000

logger = logging.getLogger("penstock")


def new_salt() -> bytes:
    return secrets.token_bytes(4)


def warn_of_refused(broker: Broker) -> None:
    """What was kept by an older release, and does nothing in this one."""
    for line in left_out_at_start(broker):
        logger.warning("kept, but left out: %s", line)


def load_definitions(path: str, broker: Broker, segment_entries: int) -> None:
    """Of a node that has not joined its cluster yet.  Raises SettingInvalid, naming the file."""
    try:
        with open(path, encoding="utf-8") as file:
            definitions = json_of(file.read())
        work = DefinitionsImport(
            broker, Administration(broker, segment_entries), ImportPlan(definitions), new_salt
        )
    except (OSError, ValueError, PreconditionFailed) as error:
        raise SettingInvalid(f"load_definitions = {path!r}: {error}") from error
    while not work.run(STEPS):
        pass
    broker.definitions.commit()
    for line in work.left_out:
        logger.warning("%s: left out: %s", path, line)
