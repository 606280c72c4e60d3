"""The start screen: addresses and credentials for a first use of the broker.

The last line begins with ``ready in``: scripts and tests wait for it.
"""

from collections.abc import Sequence

from penstock.settings.listener_table import (
    LISTENERS,
    etcd_risks,
    host_and_port,
    open_listeners,
    plain_text_risks,
    stays_here,
)
from penstock.settings.settings import Settings


def start_screen(
    settings: Settings,
    *,
    version: str,
    pid: int,
    compiled: bool,
    listeners: Sequence[tuple[str, str, int]],
    recovery: str,
    log_in: bool,
    ready_ms: float,
) -> str:
    """The text, lines ended; the ports are the bound ones, ``recovery`` says what was found.

    ``listeners``: protocol, host and port each.  ``log_in``: the default user of the settings
    exists with that password; a data directory keeps the users it was made with.
    """
    build = "compiled" if compiled else "interpreted, slower: no compiled files"
    lines = [
        f"Penstock {version}, pid {pid}, {build}",
        *(_listener_line(*listener) for listener in listeners),
        f"  data        {settings.data_dir} ({settings.source_of('data_dir')})",
        f"  recovered   {recovery}",
        f"  config      {settings.file_name or 'no file'}",
        f"  log         {_log(settings)}",
        f"  log in as   {_credentials(settings, log_in)}",
    ]
    warnings = [*(_warnings(settings) if log_in else []), *_wide_open(settings)]
    warnings += [*etcd_risks(settings), *plain_text_risks(settings)]
    lines.extend(f"  warning     {text}" for text in warnings)
    lines.append(f"ready in {ready_ms:.0f} ms")
    return "\n".join(lines) + "\n"


def _log(settings: Settings) -> str:
    places = []
    if settings.log_console:
        places.append(f"standard error, {settings.log_level}, {settings.log_format}")
    if settings.log_file:
        places.append(f"file {settings.log_file}")
    return ", ".join(places) or "none"


def _listener_line(protocol: str, host: str, port: int) -> str:
    """``port`` 0: a Unix socket, whose path is ``host``."""
    is_unix = port == 0
    kind = next(one for one in LISTENERS if one.protocol == protocol and one.is_unix == is_unix)
    return f"  {kind.title:<11} {kind.url.format(host if is_unix else host_and_port(host, port))}"


def _credentials(settings: Settings, log_in: bool) -> str:
    if not log_in:
        return "a user of the data directory"
    user = settings.default_user
    password = settings.default_pass
    shown = password if _is_well_known(settings) else "(the password you set)"
    where = ", from this machine only" if user in settings.loopback_users else ""
    return f"{user} / {shown}{where}"


def _warnings(settings: Settings) -> list[str]:
    """For an operator who opened the broker to a network."""
    if stays_here(settings.bind) or not _is_well_known(settings):
        return []
    if settings.default_user in settings.loopback_users:
        return ["no client can log in from the network: set default_user and default_pass"]
    return ["everybody on the network knows guest / guest: set default_pass"]


def _wide_open(settings: Settings) -> list[str]:
    return [
        f"{kind.title} at {kind.place(settings)} needs no log-in: {kind.without_log_in(settings)}"
        for kind in open_listeners(settings)
        if kind.is_wide_open(settings)
    ]


def _is_well_known(settings: Settings) -> bool:
    return (settings.default_user, settings.default_pass) == ("guest", "guest")
