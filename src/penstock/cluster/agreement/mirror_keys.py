"""The coordinator's keys about mirrored queues, beside those of ``metadata.py``.

    views/<vhost>/<queue>   which members have copies (queue_views.py)
    rings/<vhost>/<queue>   the circle of the group (views.py)
    sync/<vhost>/<queue>    "wanted" or "cancelled": against what the policy says, until it is done
    drained/<node>          it shall have no masters

All that is kept for a queue goes with it, in the same proposal.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from penstock.cluster.agreement.coordinator import MARK, Change, Event
from penstock.cluster.agreement.metadata import path
from penstock.cluster.agreement.queue_views import QueueView, view_to_json

VIEWS: Final = "views"
RINGS: Final = "rings"
SYNC: Final = "sync"
DRAINED: Final = "drained"
OF_A_MIRRORED_QUEUE: Final = (VIEWS, RINGS, SYNC)

WANTED: Final = "wanted"
CANCELLED: Final = "cancelled"

Place = tuple[str, str]
"""Virtual host and queue."""


def view_changes(place: Place, view: QueueView) -> list[Change]:
    return [Change(path(VIEWS, *place), view_to_json(view)), MARK]


def mirror_keys(vhost: str, queue: str) -> list[str]:
    return [path(kind, vhost, queue) for kind in OF_A_MIRRORED_QUEUE]


def kind_of(key: str) -> str:
    return key.partition("/")[0]


def parts_of(key: str) -> list[str]:
    return [unquote(part, errors="surrogateescape") for part in key.split("/")[1:]]


def place_of(key: str) -> Place:
    vhost, queue = parts_of(key)
    return vhost, queue


def last_ends(events: Sequence[Event]) -> dict[Place, int]:
    """Which event, by its place in the list, last said that a queue is gone.

    What was said of it before is of no interest: another of its name may be there by now.
    """
    ends: dict[Place, int] = {}
    for number, event in enumerate(events):
        if kind_of(event.key) == VIEWS and event.value is None:
            ends[place_of(event.key)] = number
    return ends
