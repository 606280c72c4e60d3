"""Arms the fail point that the environment names: reaching it, the process kills itself.

SIGKILL leaves no chance to tidy up: no ``finally``, no buffers, no exit handlers.  That is a
crash as the kernel sees it, but at a place of a test's choosing (``storage/common/failpoints.py``).
"""

import os
import signal
from collections.abc import Mapping
from typing import Final

from penstock.core.errors import SettingInvalid
from penstock.storage.common.failpoints import arm

VARIABLE: Final = "PENSTOCK_FAILPOINT"


def arm_from(environment: Mapping[str, str]) -> None:
    """Before anything touches the data directory; unset or empty, it does nothing."""
    text = environment.get(VARIABLE, "")
    if not text:
        return
    try:
        arm(text, _die)
    except SettingInvalid as error:
        raise SettingInvalid(f"environment: {VARIABLE}: {error}") from None


def _die(_name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
