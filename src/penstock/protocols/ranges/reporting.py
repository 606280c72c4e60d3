"""Reports of pipelines, and the event log for those who may see it: ``penstock_ranges.reports``.

A report needs the right to read or to write each queue it names; the event log tells of all
virtual hosts, so it takes the tag ``monitoring`` or ``administrator``.  Its files are read here and
now, a block at a time, like messages that rest in segments.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, final

from penstock.broker.broker import Broker
from penstock.core.errors import AccessRefused, NotFound
from penstock.protocols.ranges.request_handler import RequestHandler
from penstock.runtime.disk.event_log import event_files
from penstock_ranges import reports

if TYPE_CHECKING:
    from penstock.protocols.ranges.session import RangeSession

READ_MAX_BYTES: Final = 256 * 1024
SEES_EVENTS: Final = frozenset(("administrator", "monitoring"))


@final
class ReportRequests(RequestHandler):
    kinds: ClassVar = frozenset((reports.REPORT, reports.EVENT_FILES, reports.EVENT_READ))

    def __init__(self, session: "RangeSession", broker: Broker) -> None:
        super().__init__(session, broker)

    def request(self, kind: int, payload: bytes) -> None:
        if kind == reports.REPORT:
            self._report(payload)
        elif kind == reports.EVENT_FILES:
            self._files()
        else:
            self._read(*reports.decode_event_read(payload))

    def _report(self, payload: bytes) -> None:
        told = reports.decode_report(payload)
        self.broker.pipelines.report(told, self.user(), self.vhost(), self.session.now_ms)
        self.session.send(reports.encode_reported())

    def _files(self) -> None:
        directory = self._directory()
        try:
            found = [(file.name, file.stat().st_size) for file in event_files(directory)]
        except OSError as error:
            raise NotFound(f"the event log cannot be read: {error.strerror}") from None
        self.session.send(reports.encode_event_files_are(found))

    def _read(self, name: str, offset: int, max_bytes: int) -> None:
        path = self._directory() / name
        if path not in event_files(path.parent):
            raise NotFound(f"no file '{name}' in the event log: it may have become too old")
        try:
            with path.open("rb", buffering=0) as file:
                file.seek(min(offset, os.fstat(file.fileno()).st_size))
                data = file.read(min(max_bytes, READ_MAX_BYTES)) or b""
        except OSError as error:
            text = f"file '{name}' of the event log cannot be read: {error.strerror}"
            raise NotFound(text) from None
        self.session.send(reports.encode_event_bytes(data))

    def _directory(self) -> Path:
        user = self.user()
        if SEES_EVENTS.isdisjoint(user.tags):
            raise AccessRefused(
                f"user '{user.name}' may not read the event log: that takes the tag 'monitoring'"
            )
        if not self.broker.events.directory:
            raise NotFound("this broker keeps no event log: the setting event_log is off")
        return Path(self.broker.events.directory)
