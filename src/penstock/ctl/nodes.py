"""A node as a process: is it there, wait for it, drain it, stop it; its limits and connections."""

import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from penstock.client.limits import BadLimit, WrongCount, disk_limit, memory_limit
from penstock.client.local_node import is_running
from penstock.client.management import path_of
from penstock.ctl.call import Call
from penstock.ctl.cluster import CLUSTER
from penstock.ctl.faults import DATA, NOT_YET, SOFTWARE, UNAVAILABLE, USAGE, Fault, Invalid, Refused
from penstock.ctl.logs import tail
from penstock.ctl.output import Facts, printed
from penstock.ctl.status import cluster_status, status

PING_TIMEOUT_S: Final = 60
WAIT_S: Final = 300
STARTUP_S: Final = 300
LOOK_EVERY_S: Final = 0.05
LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical", "none")
PAUSE_MS: Final = 1000


def ping(call: Call) -> object:
    timeout_ms = call.number("timeout", PING_TIMEOUT_S) * 1000
    call.say(
        f"Will ping {call.node.name}. This only checks if the OS process is running and answers."
        f" Timeout: {timeout_ms} ms."
    )
    call.node.get("/healthz/live")
    return Facts("Ping succeeded", {"message": "Ping succeeded"})


def _is_up(call: Call) -> bool:
    try:
        call.node.get("/healthz/ready")
    except Fault:
        call.forget_node()  # another start may be another address
        return False
    return True


def _must_start(call: Call, timeout_s: float) -> None:
    until = time.monotonic() + timeout_s
    while not _is_up(call):
        if time.monotonic() >= until:
            raise Fault(NOT_YET, "Error: the node has not started in time")
        time.sleep(LOOK_EVERY_S)


def await_startup(call: Call) -> None:
    _must_start(call, call.number("timeout", STARTUP_S))


def wait(call: Call) -> None:
    """For the process whose number is in a file, or given with ``--pid``."""
    words = call.take(0, 1)
    timeout_s = call.number("timeout", 10)
    pid = call.number("pid", 0)
    if words and pid:
        raise Invalid("Cannot specify both pid and pidfile", DATA)
    if words:
        call.say(f"Waiting for pid file '{words[0]}' to appear")
        pid = _pid_in(words[0], time.monotonic() + timeout_s)
    if pid:
        call.say(f"pid is {pid}")
        if not is_running(pid):
            raise Fault(SOFTWARE, f"Error:\nprocess {pid} is not running")
    call.say(f"Waiting for applications 'rabbit_and_plugins' to start on node {call.text('node')}")
    _must_start(call, timeout_s)


def _pid_in(path: str, until: float) -> int:
    while True:
        try:
            with open(path, encoding="ascii") as file:
                return int(file.read().split()[0])
        except (OSError, ValueError, IndexError) as error:
            if time.monotonic() >= until:
                raise Fault(NOT_YET, f"Error: no process number in {path}: {error}") from error
        time.sleep(LOOK_EVERY_S)


def await_online_nodes(call: Call) -> None:
    (text,) = call.take(1)
    if not text.isdecimal() or int(text) == 0:
        raise Invalid("Bad argument: Argument must be a positive integer", DATA)
    timeout_s = call.number("timeout", WAIT_S)
    call.say(
        f"Will wait for at least {text} nodes to join the cluster of {call.node.name}."
        f" Timeout: {timeout_s} seconds."
    )
    call.node.get("/healthz/live")
    until = time.monotonic() + timeout_s
    while int(text) > 1 and _online(call) < int(text):
        # No node joins one that stands alone: waiting would be for show.
        if time.monotonic() >= until or _online(call) == 0:
            name = call.node.name
            raise Refused(
                f"Error: timed out while waiting. Not enough nodes joined {name}'s cluster."
            )
        time.sleep(LOOK_EVERY_S)


def _online(call: Call) -> int:
    """Nodes of the cluster that run; of no cluster there are none."""
    return sum(node["running"] for node in call.node.get(CLUSTER)["nodes"])


# -- maintenance, and the end ------------------------------------------------------------------


def drain(call: Call) -> None:
    call.say(
        f"Will put node {call.node.name} into maintenance mode. The node will no longer serve any"
        " client traffic!"
    )
    call.do("drain")
    close_everything(call, "Node was put into maintenance mode")


def shutdown(call: Call) -> None:
    call.say(f"Shutting down node {call.node.name} running at PID {call.node.pid or 'unknown'}")
    _end(call)


def stop(call: Call) -> None:
    """With a file of the process number it waits until that process is gone."""
    words = call.take(0, 1)
    try:
        name = call.node.name
    except Fault:
        if call.is_set("idempotent"):
            return
        raise
    call.say(f"Stopping and halting node {name} ...")
    _end(call, words[0] if words else "")


def _end(call: Call, pid_file: str = "") -> None:
    pid = _pid_in(pid_file, 0.0) if pid_file else call.node.pid
    call.node.post("/api/penstock/stop", {})
    if call.options.get("wait") is False:
        return
    until = time.monotonic() + (call.number("timeout", 0) or WAIT_S)
    while _is_running(pid):
        if time.monotonic() > until:
            raise Fault(NOT_YET, f"Error: process {pid} still runs")
        time.sleep(LOOK_EVERY_S)


def _is_running(pid: int) -> bool:
    """A process that only waits to be buried by its parent has ended."""
    if not pid:
        return False
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- odds and ends -----------------------------------------------------------------------------


def report(call: Call) -> str:
    call.say(f"Reporting server status of node {call.node.name} ...")
    parts = [printed(verb(call), call) or "" for verb in (status, cluster_status)]
    return "\n\n".join([*parts, "Last lines of the log\n", *tail(call, 100)])


def resolve_hostname(call: Call) -> str:
    (host,) = call.take(1)
    is_v6 = call.text("address-family").lower() in ("ipv6", "inet6")
    family = "IPv6" if is_v6 else "IPv4"
    call.say(f"Asking node {call.node.name} to resolve hostname {host} to {family} addresses...")
    try:
        found = socket.getaddrinfo(
            host, None, socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_STREAM
        )
    except OSError as error:
        raise Refused(f"{error.strerror or error}", UNAVAILABLE) from error
    return "\n".join(dict.fromkeys(str(address[0]) for *_, address in found))


def tls_versions(call: Call) -> str:
    import ssl

    call.say("Listing all TLS versions supported by the runtime...")
    names = {"TLSv1_3": "tlsv1.3", "TLSv1_2": "tlsv1.2"}
    return "\n".join(name for flag, name in names.items() if getattr(ssl, f"HAS_{flag}"))


def cipher_suites(call: Call) -> str:
    """Those of OpenSSL on this machine; ``--all`` with those that are not on by default."""
    import ssl

    if call.text("format", "openssl") != "openssl":
        raise Invalid("Format should be openssl: the others are Erlang's")
    call.say("Listing available cipher suites in OpenSSL format")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if call.is_set("all"):
        context.set_ciphers("ALL:@SECLEVEL=0")
    return "\n".join(str(suite["name"]) for suite in context.get_ciphers())


# -- limits until the next start, as in RabbitMQ ------------------------------------------------


def set_limit(call: Call) -> None:
    is_disk = call.verb == "set_disk_free_limit"
    what = "disk free limit" if is_disk else "memory threshold"
    try:
        limit = disk_limit(call.words) if is_disk else memory_limit(call.words)
    except BadLimit as error:
        code = USAGE if isinstance(error, WrongCount) else DATA
        raise Invalid(str(error), code) from error
    call.say(f"Setting {what} on {call.node.name} to {limit.to} ...")
    call.do(call.verb, **{limit.kind: limit.text})


def set_log_level(call: Call) -> None:
    (level,) = call.take(1)
    if level not in LOG_LEVELS:
        levels = ", ".join(LOG_LEVELS)
        raise Refused(f"level {level} is not supported. Try one of {levels}", UNAVAILABLE)
    call.say(f'Setting log level to "{level}" ...')
    call.do("set_log_level", level=level)


# -- its clients ---------------------------------------------------------------------------------


def _close(call: Call, name: str, reason: str) -> bool:
    headers = {"X-Reason": " ".join(reason.split())}
    return call.node.delete(path_of("connections", name), headers)


def close_connection(call: Call) -> None:
    name, reason = call.take(2)
    call.say(f"Closing connection {name}, reason: {reason}...")
    if not _close(call, name, reason):
        raise Refused(f'Error:\n{{:invalid_pid_syntax, "{name}"}}', UNAVAILABLE)


def _connections(call: Call) -> list[Mapping[str, Any]]:
    return list(call.node.get("/api/connections?columns=name,user,vhost"))


def close_all_user_connections(call: Call) -> None:
    user, reason = call.take(2)
    call.say(f"Closing connections of user {user}, reason: {reason}...")
    for connection in _connections(call):
        if connection["user"] == user:
            _close(call, connection["name"], reason)


def close_all_connections(call: Call) -> str:
    """Between two groups of ``--limit`` it waits ``--per-connection-delay``, in milliseconds."""
    (reason,) = call.take(1)
    if call.is_set("global"):
        where = f"to node {call.node.name} (across all vhosts)"
    else:
        where = f"in vhost {call.vhost}"
    call.say(f"Closing all connections {where}, reason: {reason}...")
    found = [
        one for one in _connections(call) if call.is_set("global") or one["vhost"] == call.vhost
    ]
    limit = call.number("limit", 0)
    closed = 0
    for connection in found[:limit] if limit else found:
        if closed:
            time.sleep(call.number("per-connection-delay", 0) / PAUSE_MS)
        closed += _close(call, connection["name"], reason)
    return f"Closed {closed} connections"


def close_everything(call: Call, reason: str) -> None:
    for connection in _connections(call):
        _close(call, connection["name"], reason)
