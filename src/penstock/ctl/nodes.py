"""A node as a process: is it there, wait for it, drain it, stop it."""

import socket
import time
from typing import Final

from penstock.client.local_node import is_running
from penstock.ctl.call import Call
from penstock.ctl.cluster import CLUSTER
from penstock.ctl.connections import close_everything
from penstock.ctl.faults import DATA, NOT_YET, SOFTWARE, UNAVAILABLE, Fault, Invalid, Refused
from penstock.ctl.logs import tail
from penstock.ctl.output import Facts, printed
from penstock.ctl.status import cluster_status, status

PING_TIMEOUT_S: Final = 60
WAIT_S: Final = 300
STARTUP_S: Final = 300
LOOK_EVERY_S: Final = 0.05


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
    """What support wants to see: status, cluster, and the last lines of the log."""
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
