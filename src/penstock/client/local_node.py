"""The broker that a command means: the given one, else the one of this machine.

The broker of this machine is found by the control file in its data directory.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock.client.management import DEFAULT_URL, Login, ManagementClient, Trust
from penstock.client.passwords import password_given
from penstock.core.control import CONTROL_FILE, Control, read

SYSTEM_DATA_DIR: Final = "/var/lib/penstock"


GUEST: Final = "guest"
OF_TRUST: Final = ("CACERTFILE", "CERTFILE", "KEYFILE")
"""Variables with ``PENSTOCK_`` before them: files for TLS."""


class Place(NamedTuple):
    """Where to ask, as whom, and what the control file said, if it was it that decided."""

    url: str
    who: Login
    control: Control | None = None
    trust: Trust = Trust()

    def client(self) -> ManagementClient:
        """Raises BadAddress."""
        return ManagementClient(self.url, self.who, self.trust)


def choose_place(
    environment: Mapping[str, str], url: str | None, user: str | None, password: str | None
) -> Place:
    """What is given counts; without address, name and password the control file does.

    A token never goes to an address that was given: it is this machine's secret.
    """
    trust = Trust(*(environment.get(f"PENSTOCK_{word}", "") for word in OF_TRUST))
    if url is None and user is None and password is None:
        control = find_control(environment)
        if control is not None:
            trust = trust._replace(node_certfile=control.certificate)
            return Place(control.url, Login(token=control.token), control, trust)
    password = GUEST if password is None else password_given(password)
    who = Login(GUEST if user is None else user, password)
    return Place(url or DEFAULT_URL, who, trust=trust)


def data_dirs(environment: Mapping[str, str]) -> Iterator[str]:
    """Where ``penstock serve`` would keep its data, the likeliest first; one if it is named."""
    named = environment.get("PENSTOCK_DATA_DIR", "")
    if named:
        yield os.path.expanduser(named)
        return
    given_by_systemd = environment.get("STATE_DIRECTORY", "").split(":")[0]
    if given_by_systemd:
        yield given_by_systemd
    yield SYSTEM_DATA_DIR
    home = environment.get("HOME", "")
    if home:
        yield os.path.join(home, ".local", "share", "penstock")


def find_control(environment: Mapping[str, str]) -> Control | None:
    """Of the first data directory whose control file we may read, and whose broker runs.

    A broker that was killed leaves its file behind: it shall not hide another one that runs.
    """
    for directory in data_dirs(environment):
        try:
            text = Path(directory, CONTROL_FILE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        control = read(text)
        if control is not None and is_running(control.pid):
            return control
    return None


def is_running(pid: int) -> bool:
    """Of any user."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
