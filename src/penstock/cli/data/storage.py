"""Commands that show where messages are: ``penstock queue show`` and ``penstock status``.

Like those of inspect.py they are outside users of the management API.  A queue's own facts are
for everybody who may see the queue; journal and stores belong to the whole node, so a user
without the tag ``monitoring`` gets the queue without them.  JSON is what the server said.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from penstock.cli.failure import Failure
from penstock.cli.management import NAME, Management, command, example
from penstock.cli.options import option
from penstock.cli.tables import shown, table
from penstock.client.management import path_of

ROWS_SHOWN: Final = 20
STORAGE_PATH: Final = "/api/penstock/storage"
EXPIRY: Final = "certificate_expires_on"
NO_PENSTOCK: Final = "the storage of a queue is shown for Penstock only"
SUB_QUEUES: Final = (
    ("q4", "whole messages, the next to go out"),
    ("q3", "positions, contents read ahead"),
    ("delta", "on disk"),
    ("q2", "positions, contents on disk"),
    ("q1", "whole messages, the newest"),
    ("pending", "handed out, not acknowledged yet"),
)
"""In the order of a message's way out, and what is in memory of those that rest there."""


VHOST: Final = option("--vhost", "The queue's virtual host.", default="/")


@click.group(epilog=example("queue show orders --vhost /"))
def queue() -> None:
    """Work on one queue: look, pause, declare, delete, purge."""


@command("queue show orders --vhost / -o json", NAME, VHOST, of=queue)
def show(name: str, vhost: str, management: Management) -> None:
    """Show where a queue's messages are: sub-queues, memory, rates, and the files on disk.

    Of a stream: its ends, retention, and how far its readers are behind.
    """
    found = management.must_find(
        path_of("queues", vhost, name),
        f"there is no queue {name!r} in virtual host {vhost!r}",
        "`penstock queues` lists them; --vhost names another virtual host",
    )
    if "penstock" not in found:
        raise Failure(f"{management.url} does not say where messages rest", NO_PENSTOCK)
    storage = management.get(STORAGE_PATH, absent=(401, 404))
    text = "" if management.as_json else "\n".join(_queue_lines(found, storage))
    management.say({"queue": found, "storage": storage}, text)


@command("status -o json")
def status(management: Management) -> None:
    """Show how a broker fares: memory, disk, journal, stores, the last start."""
    overview = management.get("/api/overview")
    absent = f"{management.url} does not say how its storage fares"
    storage = management.must_find(STORAGE_PATH, absent, NO_PENSTOCK)
    text = "" if management.as_json else "\n".join(_status_lines(overview, storage))
    management.say({"overview": overview, "storage": storage}, text)


# -- one queue ------------------------------------------------------------------------------


def _queue_lines(found: Mapping[str, Any], storage: Mapping[str, Any] | None) -> Iterator[str]:
    facts = found["penstock"]
    if found.get("type") == "stream":
        yield from _stream_lines(found, facts)
        return
    yield from _pairs(_queue_pairs(found, facts))
    yield ""
    yield table(("sub-queue", "messages", "bytes", "in memory", ""), _sub_queue_rows(facts))
    yield ""
    yield from _index_lines(facts["index"])
    yield ""
    if storage is None:
        yield "journal and stores of the node are shown to users with the tag monitoring"
    else:
        yield from _file_lines(storage)


def _policy_text(found: Mapping[str, Any]) -> str:
    terms = ", ".join(
        f"{key}={value}" for key, value in (found.get("effective_policy_definition") or {}).items()
    )
    policies = [found.get(key) for key in ("policy", "operator_policy")]
    return f"{' and '.join(filter(None, policies))}: {terms}" if terms else "none"


def _stream_lines(found: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[str]:
    ends = f"offsets {facts['first_offset']} to {facts['next_offset'] - 1}"
    kept = facts["retention"]
    bounds = [
        size(kept["max_bytes"]) if kept["max_bytes"] else "",
        f"{duration(kept['max_age_ms'] // 1000)} of age" if kept["max_age_ms"] else "",
    ]
    held = f"; {size(facts['held_bytes'])} are kept for groups" * bool(facts["held_bytes"])
    yield from _pairs(
        [
            ("stream", f"{found['name']} in virtual host {found['vhost']}"),
            ("policy", _policy_text(found)),
            ("messages", f"{found['messages']}, {ends}" if found["messages"] else "none"),
            ("on disk", f"{size(facts['bytes'])} in {many(facts['segments'], 'segment file')}"),
            ("retention", (" and ".join(filter(None, bounds)) or "none: all stays") + held),
            ("consumers", str(found["consumers"])),
        ]
    )
    readers = [("group", one["name"], one["position"]) for one in facts["groups"]]
    readers += [("consumer", one["name"], one["offset"]) for one in facts["positions"]]
    if readers:
        rows = [(*reader, max(facts["next_offset"] - reader[2], 0)) for reader in readers]
        yield ""
        yield table(("kept position of", "name", "next offset", "behind"), rows)


def _queue_pairs(found: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    mode = facts["mode"] + (", on the way there" if facts["converting"] else "")
    kept = "durable" if found["durable"] else "not durable"
    yield "queue", f"{found['name']} in virtual host {found['vhost']}, {kept}, mode {mode}"
    yield "policy", _policy_text(found)
    yield (
        "messages",
        (
            f"{found['messages_ready']} ready, {found['messages_unacknowledged']} unacknowledged,"
            f" {many(found['consumers'], 'consumer')}"
        ),
    )
    if found.get("paused"):
        yield "state", "paused: nothing is delivered"
    if facts["delayed"]:
        yield "delayed", many(facts["delayed"], "message")
    if facts["persistent_messages"] is not None:
        yield "persistent", many(facts["persistent_messages"], "message")
    yield "in memory", f"{many(found['messages_ram'], 'message')}, {size(facts['memory_bytes'])}"
    count, size_bytes = facts["target_ram_count"], facts["target_ram_bytes"]
    yield (
        "target",
        ("any number" if count is None else many(count, "message"))
        + " in memory, "
        + ("any size" if size_bytes is None else size(size_bytes)),
    )
    if facts["duration_s"] is not None:
        pace = f"{size(facts['bytes_per_second'])} leave in a second"
        yield "duration", f"{facts['duration_s']} s for what is in memory, {pace}"
    rates = facts["rates"]
    yield (
        "per second",
        (
            f"{rates['in']} in, {rates['out']} out, {rates['ack_in']} to be acknowledged,"
            f" {rates['ack_out']} acknowledged"
        ),
    )
    yield "next number", str(facts["next_seq_id"])
    if facts["fault"]:
        yield "stopped", facts["fault"]


def _sub_queue_rows(facts: Mapping[str, Any]) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, what in SUB_QUEUES:
        part = facts[name]
        shown_as = _delta_text(part, what) if name == "delta" else what
        rows.append([name, part["messages"], part["bytes"], part["ram_messages"], shown_as])
    return rows


def _delta_text(delta: Mapping[str, Any], what: str) -> str:
    if delta["messages"] == 0:
        return what
    numbers = f"{what}, numbers {delta['start']} to {delta['end'] - 1}"
    return numbers + ("; the last wait to be written" if delta["ram_messages"] else "")


def _index_lines(index: Mapping[str, Any]) -> Iterator[str]:
    files = index["files"]
    yield (
        f"index: {many(len(files), 'segment file')}, {size(index['bytes'])},"
        f" {many(index['messages'], 'message')};"
        f" {many(index['journal_entries'], 'message')} in the journal only"
    )
    if files:
        yield from _table_of_files(
            ("segment", "bytes", "messages", "settled", "garbage"),
            [
                (
                    file["name"],
                    file["bytes"],
                    file["messages"],
                    file["settled"],
                    percent(file["garbage_share"]),
                )
                for file in files
            ],
        )


# -- the node -------------------------------------------------------------------------------


def _file_lines(storage: Mapping[str, Any]) -> Iterator[str]:
    files = storage["files"]
    yield _journal_text(storage["journal"])
    yield from _table_of_files(
        ("journal", "bytes", "state"),
        [
            (file["name"], file["bytes"], "finished" if file["finished"] else "being written")
            for file in files["journal"]
        ],
    )
    for kind, store in storage["stores"].items():
        yield ""
        yield f"{kind} store: {_store_text(store)}"
        if files[f"{kind}_store"]:
            yield from _table_of_files(
                ("store", "bytes", "messages", "garbage", ""),
                [
                    (
                        file["name"],
                        file["bytes"],
                        file["messages"],
                        percent(file["garbage_share"]),
                        "damaged" if file["damaged"] else "",
                    )
                    for file in files[f"{kind}_store"]
                ],
            )


def _journal_text(journal: Mapping[str, Any]) -> str:
    behind = ", behind: publishers wait" if journal["behind"] else ""
    return (
        f"journal: {many(journal['files'], 'file')}, {size(journal['bytes'])}"
        f" (retired above {size(journal['limit_bytes'])}),"
        f" {journal['files_retired']} retired since the start{behind}"
    )


def _segments_text(segments: Mapping[str, Any]) -> str:
    return (
        f"{many(segments['files'], 'file')}, {size(segments['bytes'])},"
        f" {percent(segments['garbage_share'])} garbage,"
        f" {segments['files_rewritten']} rewritten since the start"
    )


def _store_text(store: Mapping[str, Any]) -> str:
    return (
        f"{many(store['files'], 'file')}, {size(store['bytes'])},"
        f" {many(store['messages'], 'content')},"
        f" {percent(store['garbage_share'])} garbage"
    )


def _status_lines(overview: Mapping[str, Any], storage: Mapping[str, Any]) -> Iterator[str]:
    totals = overview["object_totals"]
    counts = overview["queue_totals"]
    disk = storage["disk"]
    yield from _pairs(
        [
            ("node", f"{overview['node']}, {overview['product_name']}"),
            ("version", overview["product_version"]),
            *(
                ("certificate", f"{one['protocol']}, port {one['port']}, until {one[EXPIRY]}")
                for one in overview.get("listeners", [])
                if EXPIRY in one
            ),
            (
                "clients",
                (
                    f"{many(totals['connections'], 'connection')},"
                    f" {many(totals['channels'], 'channel')},"
                    f" {many(totals['consumers'], 'consumer')}"
                ),
            ),
            (
                "messages",
                (
                    f"{counts['messages_ready']} ready, {counts['messages_unacknowledged']}"
                    f" unacknowledged, in {many(totals['queues'], 'queue')}"
                ),
            ),
            ("alarms", _alarms_text(storage["alarms"])),
            ("process", _process_text(storage["alarms"])),
            ("memory", _memory_text(storage["memory"])),
            ("disk", f"stalled, {disk['stalled']}" if disk["stalled"] else "ok"),
            ("free disk", _free_text(storage["alarms"])),
            ("to write", f"{size(disk['segment_bytes_waiting'])} for segments"),
            ("publishers", _publishers_text(disk)),
            ("journal", _journal_text(storage["journal"]).removeprefix("journal: ")),
            ("segments", _segments_text(storage["segments"])),
            *((f"{kind} store", _store_text(store)) for kind, store in storage["stores"].items()),
            ("last start", _recovery_text(storage["recovery"])),
        ]
    )


def _alarms_text(alarms: Mapping[str, Any]) -> str:
    reason = alarms["reason"]
    return f"{reason}: publishers are blocked" if reason else "none"


def _process_text(alarms: Mapping[str, Any]) -> str:
    return (
        f"{size(alarms['memory_resident_bytes'])} resident, {size(alarms['memory_used_bytes'])} by"
        f" count; limit {size(alarms['memory_limit_bytes'])} of"
        f" {size(alarms['memory_total_bytes'])}"
    )


def _free_text(alarms: Mapping[str, Any]) -> str:
    free, limit = alarms["disk_free_bytes"], size(alarms["disk_limit_bytes"])
    if free is None:
        return "cannot be read; publishers are not blocked"
    text = f"{size(free)}, limit {limit}"
    full = alarms["seconds_to_disk_full"]
    if full is None:
        return text
    text += f"; {size(alarms['disk_shrinks_by_bytes_per_s'])} a second less"
    at_limit = alarms["seconds_to_disk_limit"]
    if at_limit:
        text += f", the limit is reached in {duration(at_limit)}"
    return text + f", full in {duration(full)}"


def _memory_text(memory: Mapping[str, Any]) -> str:
    state = "full" if memory["full"] else "paging" if memory["paging"] else "no paging"
    paging = memory["paging_bytes"]
    paged = "never paged" if paging is None else f"paged above {size(paging)}"
    return (
        f"{size(memory['used_bytes'])} of messages, {paged},"
        f" limit {size(memory['limit_bytes'])}: {state}"
    )


def _publishers_text(disk: Mapping[str, Any]) -> str:
    if not disk["publishers_wait"]:
        return "allowed"
    return f"wait: {disk['reason'] or 'the disk is behind'}"


def _recovery_text(recovery: Mapping[str, Any] | None) -> str:
    if recovery is None:
        return "not known"
    messages = many(recovery["messages"], "message")
    found = f"{messages} in {many(recovery['queues'], 'durable queue')}"
    if recovery.get("new"):
        return "in a new data directory"
    if recovery["clean"]:
        return f"{found}, after a clean stop"
    return (
        f"{found}, after a crash: {size(recovery['bytes_read'])} read,"
        f" {many(recovery['bytes_cut'], 'byte')} of unfinished writes cut,"
        f" {many(recovery['unconfirmed_dropped'], 'unconfirmed message')} dropped"
    )


# -- text -----------------------------------------------------------------------------------


def _pairs(pairs: Iterator[tuple[str, str]] | Sequence[tuple[str, str]]) -> Iterator[str]:
    """What comes from strangers is shown with its control characters spelt out."""
    lines = list(pairs)
    width = max(len(title) for title, _ in lines)
    for title, text in lines:
        yield f"{title.ljust(width)}  {shown(text)}"


def _table_of_files(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """The oldest and the newest; a long queue has thousands."""
    if len(rows) <= ROWS_SHOWN:
        yield table(titles, rows)
        return
    half = ROWS_SHOWN // 2
    lines = table(titles, [*rows[:half], *rows[-half:]]).splitlines()
    yield from lines[: half + 1]
    yield f"... {len(rows) - ROWS_SHOWN} more, all of them with -o json ..."
    yield from lines[half + 1 :]


def size(number: int) -> str:
    """Bytes for people: 1536 is 1.5 KiB."""
    if number < 1024:
        return f"{number} B"
    amount = float(number)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"


def duration(seconds: int) -> str:
    """For people: the two largest units."""
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min {seconds % 60} s"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} days"


def many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percent(share: float) -> str:
    return f"{share * 100:.1f} %"
