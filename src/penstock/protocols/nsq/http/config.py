"""``/info`` and ``/config``: nsqd's options, as far as this broker has them.

In: the settings and the bound ports.  Out: values in nsqd's form (durations in nanoseconds, the log
level as a number).  Two may be changed while the broker runs, as there: ``log_level``, and
``nsqlookupd_tcp_addresses``, of which ``follow`` is told.  An option without a meaning here is
INVALID_OPTION, like one nsqd does not know.
"""

import logging
import platform
from collections.abc import Callable
from typing import Final

from penstock.core.json_reading import json_of
from penstock.protocols.nsq.http.answers import VERSION, HttpRefused
from penstock.protocols.nsq.http.statsd import full_prefix
from penstock.runtime.http_asking import is_host
from penstock.settings.listener_table import listener_at
from penstock.settings.settings import Settings

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
LOOKUPS_MAX: Final = 64
"""At so many nsqlookupds a node may register."""
LEVELS: Final = {
    "debug": (1, logging.DEBUG),
    "info": (2, logging.INFO),
    "warn": (3, logging.WARNING),
    "error": (4, logging.ERROR),
    "fatal": (5, logging.CRITICAL),
}
"""nsqd's names of levels: its number, and ours."""


TLS: Final = "tls://"


def is_address(text: object) -> bool:
    """``host:port``; an address of IPv6 may have brackets."""
    if not isinstance(text, str):
        return False
    host, _, port = text.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    return is_port and is_host(host.removeprefix("[").removesuffix("]"))


def is_lookup_address(text: object) -> bool:
    """The same, behind ``tls://`` where it is spoken to by TLS."""
    return is_address(text.removeprefix(TLS) if isinstance(text, str) else text)


class NsqConfig:
    """Read from any thread; changed by requests only."""

    def __init__(
        self, settings: Settings, started_s: int, follow: Callable[[list[str]], None]
    ) -> None:
        self.tcp_port = settings.nsq_broadcast_port_tcp or settings.nsq_port
        self.http_port = settings.nsq_broadcast_port_http or settings.nsq_http_port
        self.lookup_addresses = list(settings.nsqlookupd_tcp_addresses)
        self.hostname = platform.node()
        self.broadcast_address = settings.nsq_broadcast_address or self.hostname
        self._settings = settings
        self._started_s = started_s
        self._follow = follow
        name = settings.log_level
        theirs = {"warning": "warn", "critical": "fatal", "none": "fatal"}.get(name, name)
        self._level = LEVELS[theirs][0]

    def info(self) -> dict[str, object]:
        settings = self._settings
        return {
            "version": VERSION,
            "broadcast_address": self.broadcast_address,
            "hostname": self.hostname,
            "http_port": self.http_port,
            "tcp_port": self.tcp_port,
            "start_time": self._started_s,
            "max_heartbeat_interval": settings.nsq_max_heartbeat_interval_ms * NS_PER_MS,
            "max_output_buffer_size": settings.nsq_max_output_buffer_size_bytes,
            "max_output_buffer_timeout": settings.nsq_max_output_buffer_timeout_ms * NS_PER_MS,
            "max_deflate_level": settings.nsq_max_deflate_level,
        }

    def value(self, option: str) -> object:
        """Raises HttpRefused."""
        options = self._options()
        if option not in options:
            raise HttpRefused(400, "INVALID_OPTION")
        return options[option]

    def change(self, option: str, body: bytes) -> None:
        """Raises HttpRefused."""
        if option == "nsqlookupd_tcp_addresses":
            self._change_addresses(body)
        elif option == "log_level":
            level = LEVELS.get(body.decode("utf-8", "replace").lower())
            if level is None:
                raise HttpRefused(400, "INVALID_VALUE")
            self._level = level[0]
            logging.getLogger().setLevel(level[1])
        else:
            raise HttpRefused(400, "INVALID_OPTION")

    def _change_addresses(self, body: bytes) -> None:
        try:
            found = json_of(body)
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(is_lookup_address(one) for one in found):
            raise HttpRefused(400, "INVALID_VALUE")
        found = list(dict.fromkeys(found))
        if len(found) > LOOKUPS_MAX:  # each has a task and a connection
            raise HttpRefused(400, "INVALID_VALUE")
        if found and self.tcp_port == 0:  # consumers could not connect to what it registers
            raise HttpRefused(400, "INVALID_VALUE")
        self.lookup_addresses = found
        self._follow(found)

    def _options(self) -> dict[str, object]:
        settings = self._settings
        window_s = settings.nsq_e2e_processing_latency_window_time_s
        return {
            "log_level": self._level,
            "tcp_address": _address(settings, "nsq_unix_socket", "nsq_port"),
            "http_address": _address(settings, "nsq_http_unix_socket", "nsq_http_port"),
            "broadcast_address": self.broadcast_address,
            "broadcast_tcp_port": self.tcp_port,
            "broadcast_http_port": self.http_port,
            "nsqlookupd_tcp_addresses": self.lookup_addresses,
            "auth_http_addresses": list(settings.nsq_auth_http_addresses),
            "data_path": settings.data_dir,
            "msg_timeout": settings.nsq_msg_timeout_ms * NS_PER_MS,
            "max_msg_timeout": settings.nsq_max_msg_timeout_ms * NS_PER_MS,
            "max_msg_size": settings.nsq_max_msg_size_bytes,
            "max_body_size": settings.nsq_max_body_size_bytes,
            "max_req_timeout": settings.nsq_max_req_timeout_ms * NS_PER_MS,
            "max_heartbeat_interval": settings.nsq_max_heartbeat_interval_ms * NS_PER_MS,
            "max_rdy_count": settings.nsq_max_rdy_count,
            "max_output_buffer_size": settings.nsq_max_output_buffer_size_bytes,
            "max_output_buffer_timeout": settings.nsq_max_output_buffer_timeout_ms * NS_PER_MS,
            "min_output_buffer_timeout": settings.nsq_min_output_buffer_timeout_ms * NS_PER_MS,
            "max_channel_consumers": settings.nsq_max_channel_consumers,
            "e2e_processing_latency_window_time": window_s * NS_PER_S,
            "e2e_processing_latency_percentiles": list(
                settings.nsq_e2e_processing_latency_percentiles
            ),
            "statsd_address": settings.nsq_statsd_address,
            "statsd_prefix": full_prefix(
                settings.nsq_statsd_prefix, self.broadcast_address, self.http_port
            ),
            "statsd_interval": settings.nsq_statsd_interval_s * NS_PER_S,
            "statsd_mem_stats": settings.nsq_statsd_mem_stats,
            "statsd_udp_packet_size": settings.nsq_statsd_udp_packet_size_bytes,
            "statsd_exclude_ephemeral": settings.nsq_statsd_exclude_ephemeral,
            "deflate": settings.nsq_deflate,
            "max_deflate_level": settings.nsq_max_deflate_level,
            "snappy": settings.nsq_snappy,
        }


def _address(settings: Settings, *place_keys: str) -> str:
    """Of the first listener that is open: nsqd has one of these."""
    open_kinds = [kind for kind in map(listener_at, place_keys) if kind.is_open(settings)]
    return open_kinds[0].place(settings) if open_kinds else ""
