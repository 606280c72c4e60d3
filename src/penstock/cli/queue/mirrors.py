"""``penstock queue mirrors``, ``sync``, ``cancel-sync`` and ``hand-over``: copies of one queue.

Through the management API.  How far each mirror is only the master's node knows: ask that one.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import click

from penstock.cli.data.storage import VHOST, duration, many, queue
from penstock.cli.failure import Failure
from penstock.cli.management import NAME, Management, command
from penstock.cli.options import option
from penstock.cli.queue.actions import act
from penstock.cli.tables import shown, table_of
from penstock.client.management import path_of

POLL_S: Final = 0.2
SAY_EVERY_S: Final = 1.0


@command("queue mirrors orders", NAME, VHOST, of=queue, short="Show a queue's copies.")
def mirrors(name: str, vhost: str, management: Management) -> None:
    """Show the mirrors of a queue, their progress, and the ring that joins them."""
    found = _mirrors(name, vhost, management)
    management.say(found, mirrors_text)


@command(
    "queue sync orders --wait --timeout 600",
    NAME,
    VHOST,
    option("--wait", "Until all mirrors are synchronised.", is_flag=True),
    option("--timeout timeout_s", "Seconds to wait.", default=600),
    of=queue,
    short="Let mirrors fetch what they lack.",
)
def sync(name: str, vhost: str, wait: bool, timeout_s: int, management: Management) -> None:
    """Let a queue's mirrors fetch what they lack; the queue goes on meanwhile."""
    _mirrors(name, vhost, management)
    wanted = {"queue": name, "vhost": vhost, "action": "sync"}
    management.do("queue_action", **wanted)
    if wait:
        _await_synchronised(name, vhost, management, timeout_s)
    management.say(wanted)


@command("queue cancel-sync orders", NAME, VHOST, of=queue, short="Let mirrors stop fetching.")
def cancel_sync(name: str, vhost: str, management: Management) -> None:
    """Let a queue's mirrors stop fetching; what they have they keep."""
    _mirrors(name, vhost, management)
    act("cancel_sync", name, vhost, management)


@command(
    "queue hand-over orders --to penstock@b",
    NAME,
    VHOST,
    option("--to node", "Node of a synchronised mirror.", required=True),
    of=queue,
    short="Make another copy the master.",
)
def hand_over(name: str, vhost: str, node: str, management: Management) -> None:
    """Make the synchronised copy on another node the queue's master."""
    act("hand_over", name, vhost, management, node=node)


def _mirrors(name: str, vhost: str, management: Management) -> Any:
    path = path_of("penstock", "queues", vhost, name, "mirrors")
    found = management.get(path, absent=(404,))
    if found is None:
        raise Failure(*_why_unmirrored(name, vhost, management))
    return found


def _why_unmirrored(name: str, vhost: str, management: Management) -> tuple[str, str]:
    one = management.get(path_of("queues", vhost, name), absent=(404,))
    place = f"{name!r} in virtual host {vhost!r}"
    if one is None:
        return f"there is no queue {place}", "`penstock queues` lists all queues"
    for is_so, what in ((one["exclusive"], "exclusive"), (not one["durable"], "not durable")):
        if is_so:
            cause = (
                f"queue {place} is {what}: only durable queues that are not exclusive have mirrors"
            )
            return cause, "declare another queue, with --durable"
    return f"queue {place} has no mirrors", "a policy with ha-mode makes mirrors"


def _await_synchronised(name: str, vhost: str, management: Management, timeout_s: int) -> None:
    until_s = time.monotonic() + timeout_s
    said_s = 0.0
    while behind := _behind(found := _mirrors(name, vhost, management)):
        if time.monotonic() > until_s:
            raise Failure(
                f"{', '.join(behind)}: not synchronised after {timeout_s} s",
                "it goes on without this command; wait longer, or look at `penstock queue mirrors`",
            )
        if time.monotonic() - said_s >= SAY_EVERY_S:
            said_s = time.monotonic()
            click.echo(progress_text(found) or f"waiting for {', '.join(behind)}", err=True)
        time.sleep(POLL_S)


def _behind(found: Mapping[str, Any]) -> list[str]:
    if found["master"] is None:
        raise Failure(f"queue {found['name']!r} has no master: {found['why']}")
    return [shown(one["node"]) for one in found["copies"] if not one["synchronised"]]


# -- as text -------------------------------------------------------------------------------


def mirrors_text(found: Mapping[str, Any]) -> str:
    lines = [
        f"queue    {shown(found['name'])} in {shown(found['vhost'])}",
        f"state    {found['state']}{': ' + shown(found['why']) if found['why'] else ''}",
        f"policy   {shown(found['mode'])}",
        f"view     version {found['version']}, term {found['term']}",
        f"ring     {_ring_text(found['ring'])}",
        "",
    ]
    if found["copies"]:
        copies = [one | {"progress": sync_text(one["sync"])} for one in found["copies"]]
        fields = "node role synchronised parcels=applied on_disk=durable behind progress"
        lines.append(table_of(copies, fields))
    if found["recoverable"]:
        lines += [
            f"{shown(node)} is no member now and has"
            f" {'everything' if had == 'synced' else 'a part of what'} there was"
            for node, had in sorted(found["recoverable"].items())
        ]
    return "\n".join(lines)


def _ring_text(ring: Mapping[str, Any] | None) -> str:
    if ring is None:
        return "none"
    names = [shown(one["name"]) + (" (dead)" if one["dead"] else "") for one in ring["members"]]
    return f"version {ring['version']}: {', '.join(names)}"


def sync_text(sync: Mapping[str, Any] | None) -> str:
    if sync is None:
        return ""
    done, total = sync["messages"], sync["messages_total"]
    text = f"{done} of {many(total, 'message')}"
    if total:
        text += f" ({100 * done // total} %)"
    if sync["eta_ms"] is not None:
        text += f", {duration(sync['eta_ms'] // 1000)} left"
    return text


def progress_text(found: Mapping[str, Any]) -> str:
    known = [(one["node"], sync_text(one["sync"])) for one in found["copies"] if one["sync"]]
    return "; ".join(f"{shown(node)}: {text}" for node, text in known)
