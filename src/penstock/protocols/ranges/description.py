"""A session of Spark as management sees it: it is not shown, but ends with its virtual host."""

from penstock.protocols.description import SessionDescription
from penstock.protocols.ranges.session import RangeSession


class RangeDescription(SessionDescription):
    """Of one session."""

    def __init__(self, session: RangeSession) -> None:
        super().__init__(session)
        self._session = session

    def vhost_name(self) -> str | None:
        return self._session.vhost_name or None
