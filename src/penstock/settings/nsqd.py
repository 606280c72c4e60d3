"""``nsqd``'s and ``nsqlookupd``'s flags and configuration files, as settings.

    words of the command line ─► ``parse`` ─┐
                                            ├─► text per flag ─► ``translate`` ─► settings, notes
    text of a TOML file ─► ``read_file`` ───┘

The tables have every flag of release 1.3.0: it sets one or more settings, or has no effect, and its
note says why.  A value that asks for security that is not there is refused.  Words are read as Go's
package flag reads them (one dash or two, ``-name value`` or ``-name=value``, the last one counts,
nothing after the first word that is no flag), a file as nsqd reads it: the key is the flag with
underscores unless the row says otherwise, a number as a duration is milliseconds, and the command
line is stronger.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from penstock.core.errors import SettingInvalid
from penstock.settings.kinds import Value

NSQ_RELEASE: Final = "1.3.0"
Values = dict[str, Value]
Texts = Mapping[str, list[str]]
"""By flag: what was given, in its order."""

_UNITS_MS: Final = {
    "ns": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6,
}  # fmt: skip
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_LEVELS: Final = {"warn": "warning", "fatal": "critical"}
_ADDRESS: Final = re.compile(r"(?:\[(?P<v6>[^]]*)\]|(?P<host>[^:]*)):(?P<port>[0-9]+)")


class Flag(NamedTuple):
    name: str
    kind: Callable[[list[str]], "Value | Values"]
    """Reads all values that were given; the last one counts, unless it is a list.  A value is that
    of each setting of the row.  Raises ValueError, with what is allowed."""
    sets: tuple[str, ...] = ()
    """The settings that it may set; none: it has no effect."""
    note: str = ""
    """For the log, when it is given."""
    file_key: str = ""
    """In a configuration file, unless it is the name with underscores."""

    @property
    def key(self) -> str:
        return self.file_key or self.name.replace("-", "_")

    @property
    def is_switch(self) -> bool:
        return self.kind in (_switch, _tls_required)

    @property
    def help(self) -> str:
        sets = ", ".join(self.sets)
        return "; ".join(filter(None, (sets and f"Sets {sets}", self.note)))

    def read(self, texts: list[str]) -> Values:
        """Raises ValueError."""
        found = self.kind(texts)
        return found if isinstance(found, dict) else dict.fromkeys(self.sets, found)

    def spelt(self, value: object) -> list[str]:
        """What stands in a file, as the command line would have it."""
        if isinstance(value, list):
            return [str(one) for one in value]
        if isinstance(value, bool):
            return [str(value).lower()]
        if isinstance(value, int) and self.kind in (_duration_ms, _duration_s):
            return [f"{value}ms"]
        return str(value).split(",") if self.kind is _names else [str(value)]


class Given(NamedTuple):
    settings: Values
    notes: list[str]


# -- values ----------------------------------------------------------------------------------


def milliseconds(text: str) -> float:
    """A duration as Go writes it, such as 1m30s.  Raises ValueError."""
    if text == "0":
        return 0.0
    pieces = re.findall(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text:
        raise ValueError("a duration such as 250ms or 1m30s")
    return sum(float(number) * _UNITS_MS[unit] for number, unit in pieces)


def _text(texts: list[str]) -> Value:
    return texts[-1]


def _integer(texts: list[str]) -> Value:
    try:
        return int(texts[-1], 0)
    except ValueError:
        raise ValueError("a whole number") from None


def _switch(texts: list[str]) -> Value:
    if texts[-1] not in _BOOLEANS:
        raise ValueError("true or false")
    return _BOOLEANS[texts[-1]]


def _duration_ms(texts: list[str]) -> Value:
    return math.ceil(milliseconds(texts[-1]))


def _duration_s(texts: list[str]) -> Value:
    return math.ceil(milliseconds(texts[-1]) / 1000)


def _names(texts: list[str]) -> Value:
    return tuple(texts)


def _shares(texts: list[str]) -> Value:
    return tuple(one.strip() for text in texts for one in text.split(","))


def _address(bind: str, port: str, unix: str, texts: list[str]) -> Values:
    """What is no ``host:port`` is the path of a Unix socket to nsqd; ``unix``: its setting."""
    text = texts[-1]
    found = _ADDRESS.fullmatch(text)
    if found is None:
        if text and (not unix or ":" in text):
            raise ValueError("host:port" + (", or the path of a Unix socket" if unix else ""))
        return {port: 0, unix: text} if unix else {port: 0}
    if int(found["port"]) == 0:
        raise ValueError("a port from 1 on: 0, which is any free one to nsqd, closes the listener")
    return {bind: found["v6"] or found["host"] or "0.0.0.0", port: int(found["port"])}  # noqa: S104


def _level(texts: list[str]) -> Values:
    name = texts[-1].lower()
    if name not in ("debug", "info", "warn", "error", "fatal"):
        raise ValueError("debug, info, warn, error or fatal")
    return {"log_level": _LEVELS.get(name, name)}


def _tls_required(texts: list[str]) -> Values:
    text = texts[-1].lower()
    if text == "tcp-https":
        return {"nsq_tls_required": text}
    if text not in _BOOLEANS:
        raise ValueError("true, false or tcp-https")
    return {"nsq_tls_required": "yes" if _BOOLEANS[text] else "no"}


def _client_policy(texts: list[str]) -> Values:
    if texts[-1] == "":
        return {}
    if texts[-1] != "require-verify":
        raise ValueError(
            "require-verify, with --tls-root-ca-file: with any other policy nsqd lets in clients"
            " whose certificate is not checked, which proves nothing"
        )
    return {
        "ssl_verify": "verify_peer",
        "ssl_fail_if_no_peer_cert": True,
        "nsq_tls_required": "yes",
    }


def _least_tls(texts: list[str]) -> Values:
    text = texts[-1].lower()
    if text not in ("", "tls1.0", "tls1.1", "tls1.2", "tls1.3"):
        raise ValueError("tls1.0, tls1.1, tls1.2 or tls1.3")
    return {"ssl_min_version": "1.3" if text == "tls1.3" else "1.2"}


# -- the tables ------------------------------------------------------------------------------


def _place(name: str, bind: str, port: str, unix: str = "") -> Flag:
    keys = tuple(filter(None, (bind, port, unix)))
    return Flag(name, partial(_address, bind, port, unix), keys)


_DEPRECATED: Final = "it has no effect in nsqd 1.3.0 either"
_ON_DISK: Final = "a publish is answered when it is on disk (nsq_publish_mode says otherwise)"
_IN_MEMORY: Final = (
    "memory is shared by all queues, in bytes (vm_memory_high_watermark): nothing is lost at a stop"
)
_ASKING: Final = "no effect: servers that are asked over HTTP have five seconds"
_SCANNING: Final = "deadlines are met without a scan, unless nsq_queue_scan is probabilistic"
_PREFIX: Final = "lines of the log begin with time and level"

_BOTH: Final = (
    Flag("log-level", _level, ("log_level",)),
    Flag("log-prefix", _text, (), _PREFIX),
    Flag("verbose", _switch, (), _DEPRECATED),
    Flag("broadcast-address", _text, ("nsq_broadcast_address",)),
)

NSQD: Final = (
    *_BOTH,
    Flag("node-id", _integer, ("nsq_node_id",), file_key="id"),
    Flag("worker-id", _switch, (), _DEPRECATED),
    _place("https-address", "nsq_https_bind", "nsq_https_port"),
    _place("http-address", "nsq_http_bind", "nsq_http_port", "nsq_http_unix_socket"),
    _place("tcp-address", "nsq_tcp_bind", "nsq_port", "nsq_unix_socket"),
    Flag("auth-http-address", _names, ("nsq_auth_http_addresses",), file_key="auth_http_addresses"),
    Flag("broadcast-tcp-port", _integer, ("nsq_broadcast_port_tcp",)),
    Flag("broadcast-http-port", _integer, ("nsq_broadcast_port_http",)),
    Flag("lookupd-tcp-address", _names, ("nsqlookupd_tcp_addresses",),
         file_key="nsqlookupd_tcp_addresses"),
    Flag("http-client-connect-timeout", _duration_ms, (), _ASKING),
    Flag("http-client-request-timeout", _duration_ms, (), _ASKING),
    Flag("data-path", _text, ("data_dir",)),
    Flag("mem-queue-size", _integer, (), _IN_MEMORY),
    Flag("max-bytes-per-file", _integer, (), "sizes of files are journal_file_size_bytes and"
               " msg_store_file_size_limit_bytes"),
    Flag("sync-every", _integer, (), _ON_DISK),
    Flag("sync-timeout", _duration_ms, (), _ON_DISK),
    Flag("queue-scan-worker-pool-max", _integer, ("nsq_queue_scan_worker_pool_max",), _SCANNING),
    Flag("queue-scan-selection-count", _integer, ("nsq_queue_scan_selection_count",), _SCANNING),
    Flag("msg-timeout", _duration_ms, ("nsq_msg_timeout_ms",)),
    Flag("max-msg-timeout", _duration_ms, ("nsq_max_msg_timeout_ms",)),
    Flag("max-msg-size", _integer, ("nsq_max_msg_size_bytes",)),
    Flag("max-req-timeout", _duration_ms, ("nsq_max_req_timeout_ms",)),
    Flag("max-body-size", _integer, ("nsq_max_body_size_bytes",)),
    Flag("max-heartbeat-interval", _duration_ms, ("nsq_max_heartbeat_interval_ms",)),
    Flag("max-rdy-count", _integer, ("nsq_max_rdy_count",)),
    Flag("max-output-buffer-size", _integer, ("nsq_max_output_buffer_size_bytes",)),
    Flag("max-output-buffer-timeout", _duration_ms, ("nsq_max_output_buffer_timeout_ms",)),
    Flag("min-output-buffer-timeout", _duration_ms, ("nsq_min_output_buffer_timeout_ms",)),
    Flag("output-buffer-timeout", _duration_ms, (), "no message waits in an output buffer"),
    Flag("max-channel-consumers", _integer, ("nsq_max_channel_consumers",)),
    Flag("statsd-address", _text, ("nsq_statsd_address",)),
    Flag("statsd-interval", _duration_s, ("nsq_statsd_interval_s",)),
    Flag("statsd-mem-stats", _switch, ("nsq_statsd_mem_stats",)),
    Flag("statsd-prefix", _text, ("nsq_statsd_prefix",)),
    Flag("statsd-udp-packet-size", _integer, ("nsq_statsd_udp_packet_size_bytes",)),
    Flag("statsd-exclude-ephemeral", _switch, ("nsq_statsd_exclude_ephemeral",)),
    Flag("e2e-processing-latency-percentile", _shares,
         ("nsq_e2e_processing_latency_percentiles",),
         file_key="e2e_processing_latency_percentiles"),
    Flag("e2e-processing-latency-window-time", _duration_s,
         ("nsq_e2e_processing_latency_window_time_s",)),
    Flag("tls-cert", _text, ("ssl_certfile",)),
    Flag("tls-key", _text, ("ssl_keyfile",)),
    Flag("tls-client-auth-policy", _client_policy,
         ("ssl_verify", "ssl_fail_if_no_peer_cert", "nsq_tls_required")),
    Flag("tls-root-ca-file", _text, ("ssl_cacertfile",)),
    Flag("tls-required", _tls_required, ("nsq_tls_required",)),
    Flag("tls-min-version", _least_tls, ("ssl_min_version",), "TLS 1.2 is the oldest there is"),
    Flag("deflate", _switch, ("nsq_deflate",)),
    Flag("max-deflate-level", _integer, ("nsq_max_deflate_level",)),
    Flag("snappy", _switch, ("nsq_snappy",)),
)  # fmt: skip

NSQLOOKUPD: Final = (
    *_BOTH,
    _place("tcp-address", "nsqlookupd_bind", "nsqlookupd_tcp_port"),
    _place("http-address", "nsqlookupd_http_bind", "nsqlookupd_http_port"),
    Flag("inactive-producer-timeout", _duration_ms, ("nsqlookupd_inactive_producer_timeout_ms",)),
    Flag("tombstone-lifetime", _duration_ms, ("nsqlookupd_tombstone_lifetime_ms",)),
)

_ALONE: Final[Values] = {
    "amqp_listener": False,
    "ssl_listener": False,
    "http_port": 0,
    "prometheus_port": 0,
}
"""nsqd and nsqlookupd open no other port; several of them are on one machine."""

NSQD_DEFAULTS: Final[Values] = {
    **_ALONE,
    "nsq_tcp_bind": "0.0.0.0",  # noqa: S104 - nsqd's own; the start screen warns
    "nsq_http_bind": "0.0.0.0",  # noqa: S104
    "nsq_https_bind": "0.0.0.0",  # noqa: S104
    "nsq_user": "nsq",
    "nsq_user_created": True,
    "nsqlookupd_tcp_port": 0,
    "nsqlookupd_http_port": 0,
}
"""What differs from Penstock's defaults; the environment is stronger."""

NSQLOOKUPD_DEFAULTS: Final[Values] = {
    **_ALONE,
    "nsq_port": 0,
    "nsq_http_port": 0,
    "nsq_https_port": 0,
    "nsqlookupd_bind": "0.0.0.0",  # noqa: S104 - as above
    "nsqlookupd_http_bind": "0.0.0.0",  # noqa: S104
}


# -- reading ---------------------------------------------------------------------------------


def parse(table: Sequence[Flag], words: Sequence[str]) -> dict[str, list[str]]:
    """Raises SettingInvalid.  The flags that no table has: version, config and help."""
    switches = {"version", "help", "h", *(flag.name for flag in table if flag.is_switch)}
    names = switches | {"config", *(flag.name for flag in table)}
    found: dict[str, list[str]] = {}
    left = list(words)
    while left and re.match(r"--?[^-]", left[0]):
        name, is_given, value = left.pop(0).lstrip("-").partition("=")
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            raise SettingInvalid(
                f"flag: there is no -{name}" + (f"; did you mean -{near[0]}?" if near else "")
            )
        if not is_given and name in switches:
            value = "true"
        elif not is_given:
            if not left:
                raise SettingInvalid(f"flag: -{name} needs a value")
            value = left.pop(0)
        found.setdefault(name, []).append(value)
    return found


def read_file(table: Sequence[Flag], text: str, where: str) -> tuple[dict[str, list[str]], Values]:
    """By flag, and what nsqd would pass over.  Raises SettingInvalid."""
    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingInvalid(f"{where}: not TOML: {error}") from error
    found = {flag.name: flag.spelt(parsed.pop(flag.key)) for flag in table if flag.key in parsed}
    return found, parsed


def translate(table: Sequence[Flag], texts: Texts, weaker: Texts) -> Given:
    """``texts`` of the command line, ``weaker`` those of a file.  Raises SettingInvalid."""
    settings: Values = {}
    notes = []
    for flag in table:
        given = texts.get(flag.name) or weaker.get(flag.name)
        if given is None:
            continue
        try:
            found = flag.read(given)
        except ValueError as error:
            raise SettingInvalid(f"{flag.name} = {given[-1]!r}; allowed: {error}") from error
        # A client policy requires TLS unless the flag for that says how; "no" is not stronger.
        if found.get("nsq_tls_required") == "no":
            found = {"nsq_tls_required": settings.get("nsq_tls_required", "no")}
        settings |= found
        if flag.note:
            notes.append(f"{flag.name} = {','.join(given)}: {flag.note}")
    return Given(settings, notes)
