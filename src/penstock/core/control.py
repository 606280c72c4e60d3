"""The control file: how a command on the broker's own machine finds the broker and is believed.

``penstock serve`` writes it into its data directory when it listens, readable by its own user
only, and removes it when it ends.  A user who can read it could read every message in that
directory too, so its token opens the management API as an administrator; from this machine only.
It takes the place of RabbitMQ's cookie: a user who may read that file needs no password.
"""

import json
from typing import Final, NamedTuple

CONTROL_FILE: Final = "control.json"


class Control(NamedTuple):
    """What the file says."""

    url: str
    """Of the management API."""
    node: str
    pid: int
    token: str
    """Goes into ``Authorization: Bearer``; another one at each start."""
    certificate: str = ""
    """With an address of ``https``: file of the certificate that the node shows."""
    amqp: str = ""
    """Host and port for AMQP without TLS, "" = none."""


def written(control: Control) -> str:
    return json.dumps(control._asdict()) + "\n"


def read(text: str) -> Control | None:
    """What ``written`` made; None for anything else."""
    try:
        found = json.loads(text)
        control = Control(**found)
    except (ValueError, TypeError):
        return None
    texts = (control.url, control.node, control.token, control.certificate, control.amqp)
    if all(isinstance(one, str) for one in texts) and isinstance(control.pid, int):
        return control
    return None
