"""Which samples a request wants: ``lengths_age=600&lengths_incr=5`` and its like, in seconds.

Without them an answer has rates only.  The wish is kept for the time of a request, so that whoever
makes the answer need not hand it on.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

from penstock.management.listing import BadQuery

GROUPS: Final = ("lengths", "msg_rates", "data_rates", "node_stats")
AGE_MAX_S: Final = 366 * 24 * 3600

Asked = Mapping[str, tuple[int, int]]
"""By group: (age, increment)."""

NOTHING: Final[Asked] = {}
asked_now: ContextVar[Asked] = ContextVar("asked_now", default=NOTHING)


def read_asked(query: Mapping[str, str]) -> Asked:
    """Raises BadQuery."""
    found: dict[str, tuple[int, int]] = {}
    for group in GROUPS:
        age, step = query.get(f"{group}_age"), query.get(f"{group}_incr")
        if age is not None and step is not None:
            found[group] = (_number(age), _number(step))
    return found or NOTHING


def _number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 0 < number <= AGE_MAX_S:
        raise BadQuery("bad_request", f"invalid parameter: {text}")
    return number
