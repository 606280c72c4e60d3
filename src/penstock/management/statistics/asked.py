"""The samples a request asks for: ``lengths_age=600&lengths_incr=5`` and the like, in seconds.

Without them an answer has rates only.  They are kept for the time of a request, so that the
functions that make the answer need not pass them on.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

GROUPS: Final = ("lengths", "msg_rates", "data_rates", "node_stats")
AGE_MAX_S: Final = 366 * 24 * 3600

Asked = Mapping[str, tuple[int, int]]
"""By group: (age, increment)."""

NOTHING: Final[Asked] = {}
asked_now: ContextVar[Asked] = ContextVar("asked_now", default=NOTHING)


def read_asked(query: Mapping[str, str]) -> Asked:
    """What is no time is passed over, as RabbitMQ does."""
    found: dict[str, tuple[int, int]] = {}
    for group in GROUPS:
        age, step = _seconds(query.get(f"{group}_age")), _seconds(query.get(f"{group}_incr"))
        if age and step:
            found[group] = (age, step)
    return found or NOTHING


def _seconds(text: str | None) -> int:
    """0 = none."""
    try:
        number = int(text or "")
    except ValueError:
        return 0
    return number if 0 < number <= AGE_MAX_S else 0
