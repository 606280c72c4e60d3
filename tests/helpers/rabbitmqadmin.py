"""RabbitMQ's own ``rabbitmqadmin``, as the broker of release 3.10 ships it, unmodified."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = "lib/*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin"
HOME = Path("/usr/lib/rabbitmq")


def find_script() -> Path | None:
    return next(iter(sorted(HOME.glob(SCRIPTS))), None)


def missing_reason() -> str | None:
    """Why there is none here and how to get it; None when there is one."""
    if find_script():
        return None
    return "rabbitmqadmin is not installed (Debian: apt-get install rabbitmq-server)"


def rabbitmqadmin(http_port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As guest; fails when the script does."""
    script = find_script()
    assert script is not None
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(script), "-P", str(http_port), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
