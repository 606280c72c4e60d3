"""``AuditTrail``: who did what, from where, when, and with what answer; and its readers.

    events of the book ─► those of RECORDED ─► audit-00000001.jsonl, audit-00000002.jsonl, …

    {"at":"2026-11-27T19:10:00.123Z","user":"ann","protocol":"http","address":"10.0.0.7",
     "action":"queue_deleted","object":{"vhost":"/","queue":"orders"},"answer":"ok","crc":"0a1b2c3d"}

An action is a kind of event (``core/events/kinds.py``), its object the fields of the event.
Nothing of a message, no password and no hash is in any of them.

A client may not wash away what others did: of one user and action the first ``SHARE`` within a
minute are records, the others are one record that counts them.  (It has nothing to do with
``storage/audit``, which checks a data directory.)
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from penstock.core.clock_types import WallMs
from penstock.core.events.book import NODE, Actor, Noted
from penstock.core.events.kinds import KINDS, checked_line, encoded, fields_of, read_line
from penstock.management.http.control import TrailQuery
from penstock.runtime.disk.event_log import EventLog, event_files

NAME: Final = "audit"
SHARE: Final = 1000
WINDOW_MS: Final = 60_000
OK: Final = "ok"
REFUSED: Final = "refused"
REFUSALS: Final = frozenset(
    {
        *("login_refused", "logins_refused", "login_locked_out"),
        *("opening_failed", "openings_failed", "events_dropped"),
    }
)
NOUNS: Final = (
    *("node_st", "settings_", "request_", "login", "opening", "queue_de", "exchange_", "binding_"),
    *("vhost_", "user_", "permission_", "topic_permission_", "policy_", "operator_policy_"),
    *("parameter_", "events_dropped"),
)
RECORDED: Final = frozenset(kind for kind in KINDS if kind.startswith(NOUNS))
FAULTS: Final = frozenset({"channel_failed", "connection_failed"})
FORBIDDEN: Final = (403, 530)
"""Of the faults those with these codes are recorded: a right was missing."""
READ_MAX_BYTES: Final = 32 * 1024 * 1024
"""Of one request for records."""
PLACE_DIGITS: Final = 20


class AuditTrail:
    """Of one node; ``put`` and ``drop`` are for the data loop, ``read`` for any thread."""

    def __init__(self, directory: Path, file_bytes: int, limit_bytes: int, is_on: bool) -> None:
        self.is_on = is_on
        self._log = EventLog(
            directory, file_bytes, limit_bytes, name=NAME, line=record_of, is_synced=True
        )
        self._counts: dict[tuple[str, str], int] = {}
        self._window_began_ms = WallMs(0)

    @property
    def dropped_count(self) -> int:
        """Records that the disk did not take, or that came too fast."""
        return self._log.dropped_count

    def start(self) -> None:
        if self.is_on:
            self._log.start()

    def stop(self) -> None:
        """What waits is written."""
        self._log.stop()

    def put(self, events: list[Noted]) -> None:
        """Those that are recorded."""
        if not self.is_on:
            return
        records: list[Noted] = []
        for event in events:
            if not _is_recorded(event):
                continue
            if not 0 <= event[0] - self._window_began_ms < WINDOW_MS:
                records += self._left_out(event[0])
            share = event[3].user, event[1]
            count = self._counts[share] = self._counts.get(share, 0) + 1
            if count <= SHARE:
                records.append(event)
        if records:
            self._log.put(records)

    def drop(self, count: int, because: str) -> None:
        """So many events of all kinds never came here."""
        if self.is_on:
            self._log.drop(count, because)

    def _left_out(self, now_ms: WallMs) -> list[Noted]:
        """Another minute begins: how many of the last were only counted."""
        self._window_began_ms = now_ms
        counts, self._counts = self._counts, {}
        return [
            (now_ms, "events_dropped", (count - SHARE, f"{action} within a minute"), Actor(user))
            for (user, action), count in counts.items()
            if count > SHARE
        ]

    def read(self, query: TrailQuery) -> dict[str, object]:
        """``records``, the newest first, and ``next``: the place where others follow, or None."""
        found: list[dict[str, object]] = []
        needles = [encoded({name: text})[1:-1].encode() for name, text in query.fields.items()]
        budget = READ_MAX_BYTES
        number, end = _place(query.before)
        for file in reversed(event_files(self._log.directory, NAME)):
            here = _number(file)
            if here > number:
                continue
            data = _bytes_of(file)
            place = min(end, len(data)) if here == number else len(data)
            while place > 0:
                begin = data.rfind(b"\n", 0, place - 1) + 1
                line = data[begin:place]
                budget -= place - begin
                place = begin
                # To read a line takes ten times as long as to see that it is not asked for.
                record = read_line(line) if all(one in line for one in needles) else None
                if record is not None and _is_asked(record, query):
                    found.append(record)
                if len(found) == query.limit or budget <= 0:
                    return {"records": found, "next": f"{here}-{place}"}
        return {"records": found, "next": None}


def _is_recorded(event: Noted) -> bool:
    kind, values = event[1], event[2]
    if kind in FAULTS:
        return fields_of(kind, values).get("code") in FORBIDDEN
    # A client inside the node, of a request over HTTP that is recorded, has no address.
    return kind in RECORDED and not (kind == "login_accepted" and event[3].address == "")


def record_of(at_ms: WallMs, kind: str, values: tuple[object, ...], actor: Actor = NODE) -> bytes:
    """A line of the trail."""
    fields = fields_of(kind, values)
    code = fields.pop("code", REFUSED if kind in REFUSALS else OK)
    record: dict[str, object] = {
        "at": _time(at_ms),
        "user": actor.user,
        "protocol": actor.protocol,
        "address": actor.address,
        "action": kind,
        "answer": str(code),
    }
    reason = fields.pop("reason", None)
    if reason:
        record["reason"] = reason
    record["object"] = fields
    return checked_line(record)


def _time(at_ms: WallMs) -> str:
    """In UTC; texts of the same length, so that they compare as times do."""
    seconds, rest_ms = divmod(int(at_ms), 1000)
    at = datetime.fromtimestamp(seconds, UTC).replace(microsecond=1000 * rest_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_asked(record: dict[str, object], query: TrailQuery) -> bool:
    return (
        all(record.get(name) == value for name, value in query.fields.items())
        and _time(query.since_ms) <= str(record["at"]) < _time(query.until_ms)
        and query.object in str(record["object"])
    )


def _place(text: str) -> tuple[int, int]:
    """The number of a file, and the place in it; raises ValueError."""
    if not text:
        return 1 << 62, 1 << 62
    number, _, end = text.partition("-")
    if len(text) > PLACE_DIGITS * 2:
        raise ValueError(text)
    return int(number), int(end)


def _number(file: Path) -> int:
    return int(file.stem.partition("-")[2])


def _bytes_of(file: Path) -> bytes:
    """Nothing of one that was removed meanwhile."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
