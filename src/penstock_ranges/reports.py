"""Range frames of a pipeline that tells how it goes, and of a reader of the event log.

    REPORT 50    one object of JSON, the fields of ``Report``      ─► REPORTED 114  empty
    EVENT_FILES 51   empty   ─► EVENT_FILES_ARE 115   u32 count, then name string, size u64 each
    EVENT_READ 52    name string, offset u64, max_bytes u32        ─► EVENT_BYTES 116   the bytes

A report is JSON where everything else here is packed: it comes once a batch, and what Spark
knows of a batch grows with Spark.  A field that is not in ``Report`` is refused all the same, and
so is one of a wrong type: what is accepted is kept and shown.
"""

import json
from dataclasses import dataclass, field, fields
from struct import Struct
from typing import Final

from penstock_ranges.frames import Form, MalformedFrame, frame, string, take_string

REPORT: Final = 50
EVENT_FILES: Final = 51
EVENT_READ: Final = 52
REPORTED: Final = 114
EVENT_FILES_ARE: Final = 115
EVENT_BYTES: Final = 116

REPORT_MAX_BYTES: Final = 65_536
NAME_MAX_CHARACTERS: Final = 255
TEXT_MAX_CHARACTERS: Final = 4096
QUEUES_MAX: Final = 64

RUNNING: Final = "running"
WAITING: Final = "waiting"
DONE: Final = "done"
FAILED: Final = "failed"
STATES: Final = (RUNNING, WAITING, DONE, FAILED)

_U64: Final = Struct(">Q")


@dataclass(frozen=True, kw_only=True)
class Report:
    """How a pipeline goes; ``batch`` None = no batch has ended since the last report."""

    name: str
    state: str
    kind: str = ""
    group: str = ""
    run: str = ""
    queues: tuple[str, ...] = field(default=())
    batch: int | None = None
    rows: int = 0
    duration_ms: int = 0
    lag: int | None = None
    error: str = ""


def encode_report(report: Report) -> bytes:
    return frame(REPORT, json.dumps(vars(report)).encode())


def decode_report(payload: bytes) -> Report:
    """Raises MalformedFrame for whatever is not a report."""
    if len(payload) > REPORT_MAX_BYTES:
        raise MalformedFrame(f"REPORT of {len(payload)} bytes, at most {REPORT_MAX_BYTES} fit")
    try:
        given = json.loads(payload)
    except (ValueError, RecursionError):
        raise MalformedFrame("REPORT is not JSON") from None
    if not isinstance(given, dict):
        raise MalformedFrame("REPORT is not an object")
    known = {one.name for one in fields(Report)}
    if unknown := sorted(set(given) - known):
        raise MalformedFrame(f"REPORT has unknown fields: {', '.join(unknown)}")
    if missing := sorted({"name", "state"} - set(given)):
        raise MalformedFrame(f"REPORT lacks {', '.join(missing)}")
    for name in ("name", "state", "kind", "group", "run", "error"):
        limit = TEXT_MAX_CHARACTERS if name == "error" else NAME_MAX_CHARACTERS
        _check_text(name, given.get(name, ""), limit)
    for name in ("batch", "rows", "duration_ms", "lag"):
        _check_count(name, given.get(name, 0), optional=name in ("batch", "lag"))
    given["queues"] = _checked_queues(given.get("queues", []))
    if given["state"] not in STATES:
        raise MalformedFrame(f"REPORT: state is one of {', '.join(STATES)}")
    if not given["name"]:
        raise MalformedFrame("REPORT: a pipeline has a name")
    return Report(**given)


def _check_text(name: str, value: object, limit: int) -> None:
    if not isinstance(value, str) or len(value) > limit:
        raise MalformedFrame(f"REPORT: {name} is a text of at most {limit} characters")


def _check_count(name: str, value: object, *, optional: bool) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise MalformedFrame(f"REPORT: {name} is a whole number from 0 on")


def _checked_queues(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > QUEUES_MAX:
        raise MalformedFrame(f"REPORT: queues is a list of at most {QUEUES_MAX} names")
    for name in value:
        _check_text("a queue", name, NAME_MAX_CHARACTERS)
    return tuple(value)


_REPORTED = Form[tuple[()]](REPORTED, "REPORTED", "")
encode_reported, decode_reported = _REPORTED.encode, _REPORTED.decode


# -- the event log ---------------------------------------------------------------------------


_EVENT_FILES = Form[tuple[()]](EVENT_FILES, "EVENT_FILES", "")
encode_event_files = _EVENT_FILES.encode
_EVENT_FILES_ARE = Form[tuple[int, bytes]](EVENT_FILES_ARE, "EVENT_FILES_ARE", "Ir")
# name, offset, max_bytes
_EVENT_READ = Form[tuple[str, int, int]](EVENT_READ, "EVENT_READ", "sQI")
encode_event_read, decode_event_read = _EVENT_READ.encode, _EVENT_READ.decode
_EVENT_BYTES = Form[bytes](EVENT_BYTES, "EVENT_BYTES", "r")
encode_event_bytes = _EVENT_BYTES.encode


def encode_event_files_are(files: list[tuple[str, int]]) -> bytes:
    """Names and sizes, the oldest first."""
    rows = [string(name) + _U64.pack(size) for name, size in files]
    return _EVENT_FILES_ARE.encode(len(files), b"".join(rows))


def decode_event_files_are(payload: bytes) -> list[tuple[str, int]]:
    count, rows = _EVENT_FILES_ARE.decode(payload)
    at = 0
    files = []
    for _ in range(count):
        name, at = take_string(rows, at)
        if len(rows) - at < 8:
            raise MalformedFrame("EVENT_FILES_ARE is cut short")
        files.append((name, int(_U64.unpack_from(rows, at)[0])))
        at += 8
    if at != len(rows):
        raise MalformedFrame(f"EVENT_FILES_ARE has {len(rows) - at} bytes too many")
    return files
