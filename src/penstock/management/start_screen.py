"""What a start prints: one screen with everything needed to use the broker.

The last line begins with ``ready in``: scripts and tests wait for it.
"""

from collections.abc import Sequence

from penstock.core.settings import Settings
from penstock.management.access import is_loopback


def start_screen(
    settings: Settings,
    *,
    version: str,
    pid: int,
    compiled: bool,
    listeners: Sequence[tuple[str, str, int]],
    http_port: int,
    recovery: str,
    ready_ms: float,
) -> str:
    """The text, lines ended; the ports are the bound ones, ``recovery`` says what was found.

    ``listeners``: protocol, host and port each.
    """
    build = "compiled" if compiled else "interpreted, slower: no compiled files"
    bind = settings.http_bind or settings.bind
    host = f"[{bind}]" if ":" in bind else bind
    lines = [
        f"Penstock {version}, pid {pid}, {build}",
        *(_listener_line(*listener) for listener in listeners),
        f"  management  http://{host}:{http_port}/",
        f"  data        {settings.data_dir} ({settings.source_of('data_dir')})",
        f"  recovered   {recovery}",
        f"  config      {settings.file_name or 'no file'}",
        f"  log         {_log(settings)}",
        f"  log in as   {_credentials(settings)}",
    ]
    lines.extend(f"  warning     {text}" for text in _warnings(settings))
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
    if protocol.startswith("nsq"):
        program, _, scheme = protocol.partition("/")
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        name = "NSQ" if program == "nsq" else program
        return f"  {name:<11} {scheme}://{place}/" if scheme else f"  {name:<11} {place}"
    if protocol == "http/prometheus":
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return f"  metrics     http://{place}/metrics"
    return f"  AMQP        {_amqp_url(protocol, host, port)}"


def _amqp_url(protocol: str, host: str, port: int) -> str:
    if port == 0:
        return f"{host} (Unix socket)"
    scheme = "amqps" if protocol.endswith("ssl") else "amqp"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _credentials(settings: Settings) -> str:
    user = settings.default_user
    password = settings.default_pass
    shown = password if _is_well_known(settings) else "(the password you set)"
    where = ", from this machine only" if user in settings.loopback_users else ""
    return f"{user} / {shown}{where}"


def _warnings(settings: Settings) -> list[str]:
    """What somebody who opened the broker to a network should hear."""
    stays_here = settings.bind == "localhost" or is_loopback(settings.bind)
    if stays_here or not _is_well_known(settings):
        return []
    if settings.default_user in settings.loopback_users:
        return ["nobody can log in from the network: set default_user and default_pass"]
    return ["everybody on the network knows guest / guest: set default_pass"]


def _is_well_known(settings: Settings) -> bool:
    return (settings.default_user, settings.default_pass) == ("guest", "guest")
