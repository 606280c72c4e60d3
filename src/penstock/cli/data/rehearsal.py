"""What a new broker would make of definitions: their import, into one that is thrown away.

In: definitions.  Out: the lines of what cannot be honoured.  The broker has a temporary directory,
no sockets, and is gone when the answer is there.
"""

import os
import secrets
import tempfile
from functools import partial
from typing import Final

from penstock.backing.factory import BackingMaker
from penstock.broker.administration import Administration
from penstock.broker.broker import Broker
from penstock.broker.definitions.importing import DefinitionsImport, ImportPlan
from penstock.broker.rules.access import SALT_BYTES
from penstock.cli.failure import Failure
from penstock.core.clock_types import MonoMs
from penstock.core.errors import PreconditionFailed
from penstock.protocols.amqp.codec.header_reader import AmqpHeaderReader
from penstock.protocols.amqp.codec.letters import AmqpLetterWriter
from penstock.storage.common.disk_jobs import DiskJob, run_job
from penstock.storage.common.files import RealFileSystem
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import VhostRecord
from penstock.storage.engine.engine import EngineLimits
from penstock.storage.engine.recovery import Opening

ENTRIES: Final = 16_384
MEMORY_BYTES: Final = 1 << 28
STEPS: Final = 1000


def left_out_of(definitions: object) -> list[str]:
    """Raises Failure when these are no definitions."""
    with tempfile.TemporaryDirectory(prefix="penstock-rehearsal-") as directory:
        stored = Definitions(os.path.join(directory, "definitions.db"))
        try:
            return _rehearse(definitions, stored, directory)
        except PreconditionFailed as error:
            raise Failure(str(error), "export them with /api/definitions") from error
        finally:
            stored.close()


def _rehearse(definitions: object, stored: Definitions, directory: str) -> list[str]:
    stored.put_vhost(VhostRecord("/", ENTRIES))
    stored.commit()
    broker = _broker(stored, directory)
    broker.open(stored.load(), 0, MonoMs(0))
    salt = partial(secrets.token_bytes, SALT_BYTES)
    work = DefinitionsImport(broker, Administration(broker, ENTRIES), ImportPlan(definitions), salt)
    while not work.run(STEPS):
        pass
    return work.left_out


def _broker(stored: Definitions, directory: str) -> Broker:
    files = RealFileSystem()
    limits = EngineLimits(4096, 1 << 27, 32_768, MEMORY_BYTES, MEMORY_BYTES)
    opening = Opening(files, directory, limits, {})

    def run(jobs: list[DiskJob]) -> None:
        for job in jobs:
            run_job(job, files)

    opening.run(run, _heard)
    engine = opening.engine
    reader = AmqpHeaderReader()
    make = BackingMaker(engine, "lowest", reader).make
    return Broker(
        stored, engine, make, lambda: secrets.token_hex(16), [], AmqpLetterWriter(), reader
    )


def _heard(_text: str) -> None:
    """It takes too little time for a report of progress."""
