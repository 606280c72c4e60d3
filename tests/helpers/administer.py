"""A broker's own command line, asked as an operator asks it: rabbitmqctl or penstock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.helpers.broker_process import BrokerProcess
from tests.helpers.live_broker import LiveBroker
from tests.helpers.rabbit import RabbitServer, find_script

MEMORY: Final = "set_vm_memory_high_watermark"
DISK: Final = "set_disk_free_limit"
TIMEOUT_S: Final = 60


def administer(broker: BrokerProcess, *words: str) -> str:
    """Run the broker's own command; what it said."""
    environment = None
    if isinstance(broker, RabbitServer):
        environment = broker.environment()
        script = find_script()
        assert script is not None
        rabbitmqctl = str(Path(script).with_name("rabbitmqctl"))
        command = [rabbitmqctl, "-n", environment["RABBITMQ_NODENAME"], *words]
    else:
        assert isinstance(broker, LiveBroker)
        command = [sys.executable, "-m", "penstock", *words, "--url", broker.http_url]
    done = subprocess.run(
        command,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout
