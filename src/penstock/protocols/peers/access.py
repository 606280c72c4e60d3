"""What proves that a node belongs to a cluster: the secret; and where other nodes come in.

The secret is the same on all nodes.  It is read from a file that only its owner may read,
because a process that has it counts as a node: it may send any message into any queue.
"""

import os
import platform
import stat
from pathlib import Path
from typing import Final

from penstock.core.errors import SettingInvalid
from penstock.protocols.peers.codec.hello import SECRET_MIN_BYTES
from penstock.runtime.listener import Listener, tcp_socket, unix_socket
from penstock.settings.listener_table import PEER
from penstock.tls.options import TlsOptions

UNIX_MODE: Final = 0o600
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def read_secret(key: str, path: str) -> bytes:
    """``key``: the setting that named the file.  White space around the secret does not count."""
    try:
        mode = os.stat(path).st_mode
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise SettingInvalid(f"{key} = {path!r}: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        allowed = f"{stat.S_IMODE(mode):04o}"
        raise SettingInvalid(
            f"{key} = {path!r} may be read or changed by others (mode {allowed}); chmod 600 it"
        )
    return check_secret(f"{key} = {path!r}", secret)


def check_secret(where: str, secret: bytes) -> bytes:
    """A listener between two nodes may try out guesses at leisure: it has to be long."""
    if len(secret) < SECRET_MIN_BYTES:
        raise SettingInvalid(
            f"{where}: a secret of {len(secret)} bytes, at least {SECRET_MIN_BYTES} are needed; "
            "`openssl rand -hex 32` makes a good one"
        )
    return secret


def peer_listener(
    address: str = "", port: int = 0, tls: TlsOptions | None = None, unix_path: str = ""
) -> Listener:
    """Where other nodes come in; raises OSError that names the place."""
    if unix_path:
        return Listener(unix_socket(os.path.abspath(unix_path), UNIX_MODE), protocol=PEER)
    return Listener(tcp_socket(address, port), tls, protocol=PEER)


def unix_address(path: str) -> str:
    """How a node names its Unix socket to others: with the machine on which it is one."""
    return f"{_machine()}:{os.path.abspath(path)}"


def unix_path_of(address: str) -> str:
    """The path, if it is on this machine and can be seen from here (not from another container)."""
    machine, _, path = address.partition(":")
    return path if machine == _machine() and os.path.exists(path) else ""


def _machine() -> str:
    try:
        return Path(BOOT_ID).read_text().strip()
    except OSError:
        return platform.node()
